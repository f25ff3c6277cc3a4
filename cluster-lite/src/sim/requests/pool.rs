//! GPUs with share and memory: requests on one sum to at most all of it. Where an instance goes the placement library says, as it
//! does for the embedded controller; each GPU is a node of its own.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weir_protocol::units::{Bytes, SmShare};

use crate::cluster::{
    Bounds, Cluster, ClusterError, Demand, DeviceClass, Kind, MilliCpu, NodeId, NodeSpec, Spot, piece,
};
use crate::fault::Fault;
use crate::place::{Placer, Policy, Workload};

/// The GPUs, and who is on them.
pub struct Pool {
    cluster: Cluster,
    placer: Placer,
    gpus: Vec<NodeId>,
    /// Of each service what its instances ask for, with the share that they were deployed with.
    demands: Vec<Demand>,
    random: ChaCha8Rng,
}

impl Pool {
    /// So many empty GPUs for services with these shares and memories, placed by `policy`.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn new(
        gpus: usize,
        memory: Bytes,
        services: impl Iterator<Item = (SmShare, Bytes)>,
        policy: &str,
        seed: u64,
    ) -> Result<Self, Fault> {
        let demand = |(at, (share, memory)): (usize, (SmShare, Bytes))| Demand {
            kind: Kind::Inference,
            gpu_memory: memory,
            service: Some(format!("{at}").as_str().into()),
            ..Demand::share(share)
        };
        let demands: Vec<_> = services.enumerate().map(demand).collect();
        let policy = Policy::parse(policy, &Workload::of(&demands))?;
        let cluster = Cluster::new(Bounds { limits: policy.limits, ..Bounds::default() });
        let mut pool = Self {
            cluster,
            placer: Placer::new(policy),
            gpus: Vec::with_capacity(gpus),
            demands,
            random: ChaCha8Rng::seed_from_u64(seed),
        };
        pool.add_gpus(gpus, memory).map_err(|error| Fault::new(error.to_string(), "simulate other GPUs"))?;
        Ok(pool)
    }

    fn add_gpus(&mut self, gpus: usize, memory: Bytes) -> Result<(), ClusterError> {
        let class = self.cluster.add_class(DeviceClass::new("simulated", memory))?;
        for gpu in 0..gpus {
            let name = format!("gpu {gpu}");
            let spec =
                NodeSpec { name, cpu: MilliCpu(0), memory: Bytes(0), gpus: 1, class: Some(class), site: 0 };
            self.gpus.push(self.cluster.add_node(spec)?);
        }
        Ok(())
    }

    /// Takes memory and as much as possible of `wanted`, at least `least`, for an instance of a service: on a GPU that has all that
    /// is wanted before one that has not.
    pub fn place(
        &mut self,
        (instance, service): (usize, usize),
        wanted: SmShare,
        least: SmShare,
    ) -> Option<(usize, SmShare)> {
        let mut decide = |share| {
            let demand = self.demand(service, share);
            self.placer.decide(&self.cluster, &demand, &mut self.random).ok()
        };
        let spot = decide(wanted).or_else(|| decide(least))?;
        let gpu = spot.node.index(); // GPUs were added in their order
        self.take((instance, service), gpu, wanted).map(|share| (gpu, share))
    }

    /// Takes memory, and as much as possible of `wanted`, on this GPU; nothing where the memory is not free, or no share at all.
    pub fn take(
        &mut self,
        (instance, service): (usize, usize),
        gpu: usize,
        wanted: SmShare,
    ) -> Option<SmShare> {
        let share = wanted.min(self.free(gpu));
        let demand = self.demand(service, share);
        let spot = Spot { node: self.gpus[gpu], slices: vec![piece(&demand, 1)] };
        self.cluster.place(&format!("{instance}"), &demand, &spot).ok().map(|_| share)
    }

    /// Changes an instance's share on its GPU to as much as possible of `wanted`.
    pub fn resize(&mut self, of: (usize, usize), gpu: usize, wanted: SmShare) -> SmShare {
        self.give(of.0);
        self.take(of, gpu, wanted).unwrap_or_default() // its memory was free a moment ago
    }

    /// An instance gives back what it has.
    pub fn give(&mut self, instance: usize) {
        self.cluster.remove(&format!("{instance}"));
    }

    /// Share that is free on this GPU.
    pub fn free(&self, gpu: usize) -> SmShare {
        let free = self.cluster.state(self.gpus[gpu]).gpus[0].free();
        SmShare::permille(u16::try_from(free).unwrap_or(0))
    }

    fn demand(&self, service: usize, share: SmShare) -> Demand {
        Demand { request: share, limit: share, ..self.demands[service].clone() }
    }
}
