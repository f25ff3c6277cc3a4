//! A mix replayed under one policy: GPUs in use, fragmentation, and predicted SLO violations. *Simulated.*

use rand::Rng;

use super::{GPU_MEMORY, Instance, Mix, NODE_GPUS, Work};
use crate::cluster::{Bounds, Cluster, Demand, DeviceClass, GpuState, Kind, MilliCpu, NodeSpec};
use crate::fault::Fault;
use crate::place::{CEILING, Hearer, Neighbours, Placer, Policy, Workload, shortage};

/// A way to share GPUs: what is reserved, and by which score it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One task on a GPU.
    Exclusive,
    /// The limit is reserved (INFless-l).
    ReserveLimit,
    /// The request is reserved, limits sum to anything (INFless-r).
    ReserveRequest,
    /// Requests to 100 %, limits to 150 % (Dilu).
    Dilu,
    /// Requests to 100 %, by all that a place costs: the default placement policy.
    Weir,
}

impl Sharing {
    /// All of them, as they are written.
    pub const ALL: [(&'static str, Self); 5] = [
        ("exclusive", Self::Exclusive),
        ("reserve-limit", Self::ReserveLimit),
        ("reserve-request", Self::ReserveRequest),
        ("dilu", Self::Dilu),
        ("weir", Self::Weir),
    ];
}

/// What is reserved of each GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserves {
    All,
    Limit,
    Request,
}

/// By which policy instances are placed, and what they ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// What it is called.
    pub name: String,
    policy: String,
    reserves: Reserves,
    /// What limits on one GPU may sum to, in permille; nothing: as the policy bounds them.
    limits: Option<u32>,
    /// Affinity and fragments, which are Dilu's and ours.
    complements: bool,
    ceiling: f64,
}

impl From<Sharing> for Way {
    fn from(sharing: Sharing) -> Self {
        let name = Sharing::ALL.iter().find(|(_, known)| *known == sharing).map_or("", |(name, _)| name);
        let way = |policy: &str, reserves, limits| Self {
            name: name.into(),
            policy: policy.into(),
            reserves,
            limits,
            complements: limits.is_none(),
            ceiling: CEILING,
        };
        match sharing {
            Sharing::Exclusive => way("dilu", Reserves::All, Some(1_000)),
            Sharing::ReserveLimit => way("dilu", Reserves::Limit, Some(1_000)),
            Sharing::ReserveRequest => way("dilu", Reserves::Request, Some(Bounds::NONE.limits)),
            Sharing::Dilu => way("dilu", Reserves::Request, None),
            Sharing::Weir => way("weir", Reserves::Request, None),
        }
    }
}

impl Way {
    /// Those that reserve otherwise than by request, which no placement policy names.
    pub const RESERVING: [Sharing; 3] = [Sharing::Exclusive, Sharing::ReserveLimit, Sharing::ReserveRequest];

    /// One of [`Self::RESERVING`] by its name, or requests reserved and placed by a placement policy or a sum of some; `ceiling` is
    /// the greatest slowdown of anybody for policies that mind it.
    ///
    /// # Errors
    /// When it is neither, or parts of the sum contradict each other.
    pub fn named(name: &str, ceiling: f64) -> Result<Self, Fault> {
        let reserving = Self::RESERVING.into_iter().map(Self::from).find(|way| way.name == name);
        if let Some(way) = reserving {
            return Ok(way);
        }
        Policy::parse(name, &Workload::default()).map_err(|fault| {
            let reserving = Self::RESERVING.map(|sharing| Self::from(sharing).name).join(", ");
            Fault { help: format!("{}, or {reserving}", fault.help), ..fault }
        })?;
        Ok(Self { name: name.into(), policy: name.into(), ceiling, ..Self::from(Sharing::Dilu) })
    }

    fn bounds(&self, policy: &Policy) -> Bounds {
        Bounds { requests: 1_000, limits: self.limits.unwrap_or(policy.limits) }
    }

    /// What an instance asks for under it.
    fn demand(&self, instance: &Instance) -> Demand {
        let kind = match instance.work {
            Work::Inference => Kind::Inference,
            Work::Llm => Kind::Llm,
            Work::Training => Kind::Training,
        };
        let full = weir_protocol::units::SmShare::FULL;
        let (request, limit) = match self.reserves {
            Reserves::All => (full, full),
            Reserves::Limit => (instance.limit, instance.limit),
            Reserves::Request => (instance.request, instance.limit),
        };
        let fragments = if self.complements && kind == Kind::Llm { LLM_PIECES } else { 1 };
        let service = self.complements.then(|| instance.model.as_str().into());
        // A name, so that shortage knows it by its limit.
        let profile = Some(instance.model.as_str().into());
        let gpus = u8::try_from(instance.gpus).unwrap_or(u8::MAX);
        Demand {
            kind,
            gpus,
            request,
            limit,
            gpu_memory: instance.memory,
            service,
            profile,
            fragments,
            ..Demand::default()
        }
    }
}

/// Pieces of a language model at most.
const LLM_PIECES: u8 = 4;

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Most GPUs in use at once.
    pub peak_gpus: u32,
    /// GPUs in use on average over the events.
    pub mean_gpus: f64,
    /// At the peak: mean over the GPUs in use of the share that nobody requested.
    pub sm_fragmentation: f64,
    /// The same of memory.
    pub memory_fragmentation: f64,
    /// Predicted part of the time in which an inference instance gets less than it wants, in percent, on average over all.
    pub violations_percent: f64,
    /// Pieces of language models that were cut, at the peak.
    pub cut: usize,
}

/// Replays `mix` under a way to share, on as many nodes as it could ever need.
///
/// # Errors
/// An instance that no node can hold.
pub fn replay(mix: &Mix, sharing: Sharing, random: &mut impl Rng) -> Result<Outcome, Fault> {
    replay_as(mix, &sharing.into(), random, None)
}

/// The same under any way, in the hearing of somebody, who is told why each instance went where it went.
///
/// # Errors
/// As [`replay`].
pub fn replay_as(
    mix: &Mix,
    way: &Way,
    random: &mut impl Rng,
    mut hearer: Hearer<'_>,
) -> Result<Outcome, Fault> {
    let demands: Vec<_> = mix.instances.iter().map(|instance| way.demand(instance)).collect();
    let neighbours = Neighbours { ceiling: way.ceiling, ..Neighbours::default() };
    let policy = Policy::parse(&way.policy, &Workload { neighbours, ..Workload::of(&demands) })?;
    let mut cluster = cluster(mix, way.bounds(&policy))?;
    let mut placer = Placer::new(policy);
    let mut outcome = Outcome::default();
    let mut sums = (0.0, 0.0);
    for event in &mix.events {
        let name = format!("{}", event.instance);
        if event.arrives {
            let refused = |error: &dyn std::fmt::Display| {
                Fault::new(format!("instance {name}: {error}"), "give it less than a node has")
            };
            let demand = &demands[event.instance];
            let spot = placer.decide_heard(&cluster, demand, random, &mut hearer);
            let spot = spot.map_err(|error| refused(&error))?;
            cluster.place(&name, demand, &spot).map_err(|error| refused(&error))?;
        } else {
            cluster.remove(&name);
        }
        let used = cluster.totals().gpus_used;
        outcome.mean_gpus += f64::from(used) / mix.events.len() as f64;
        let (short, inference) = short(mix, &cluster);
        sums = (sums.0 + short, sums.1 + inference);
        if used > outcome.peak_gpus {
            outcome = Outcome { peak_gpus: used, ..at_peak(mix, &cluster, outcome) };
        }
    }
    outcome.violations_percent = 100.0 * sums.0 / f64::max(sums.1, 1.0);
    Ok(outcome)
}

fn cluster(mix: &Mix, bounds: Bounds) -> Result<Cluster, Fault> {
    let wrong =
        |error: &dyn std::fmt::Display| Fault::new(error.to_string(), "this is a fault of the replay");
    let mut cluster = Cluster::new(bounds);
    let class =
        Some(cluster.add_class(DeviceClass::new("A100-40GB", GPU_MEMORY)).map_err(|error| wrong(&error))?);
    // One for each: then a policy that scatters single GPUs leaves whole nodes for the next gang, too.
    for node in 0..mix.instances.len() {
        let (name, gpus) = (format!("node {node}"), u8::try_from(NODE_GPUS).unwrap_or(u8::MAX));
        let spec =
            NodeSpec { name, cpu: MilliCpu(0), memory: weir_protocol::units::Bytes(0), gpus, class, site: 0 };
        cluster.add_node(spec).map_err(|error| wrong(&error))?;
    }
    Ok(cluster)
}

/// How many inference instances are expected to be short now, and how many there are.
fn short(mix: &Mix, cluster: &Cluster) -> (f64, f64) {
    let inference = cluster.tenants().filter(|(_, placement)| placement.demand.kind != Kind::Training);
    let (mut count, mut cut) = (0.0, 0.0);
    for (name, placement) in inference {
        count += 1.0;
        let instance = name.parse::<usize>().ok().and_then(|at| mix.instances.get(at));
        let bursts = instance.is_some_and(|instance| instance.limit > instance.request);
        cut += if placement.spot.slices.len() > 1 && bursts { shortage::BURST } else { 0.0 };
    }
    let on_gpu = |gpu: &GpuState| shortage::short(gpu.free(), shortage::wants(gpu));
    let states = cluster.states();
    let on_nodes = states.alive().map(|id| {
        let each: f64 = states.get(id).gpus.iter().map(on_gpu).sum();
        each * states.members(id).len() as f64
    });
    (cut + on_nodes.sum::<f64>(), count)
}

/// Fragmentation by what the instances request, whatever was reserved for them.
fn at_peak(mix: &Mix, cluster: &Cluster, before: Outcome) -> Outcome {
    let mut requested = (0.0, 0.0);
    let mut cut = 0;
    let placed = cluster.tenants().filter_map(|(name, placement)| Some((name.parse().ok()?, placement)));
    let mut placed: Vec<(usize, _)> = placed.collect();
    placed.sort_by_key(|(at, _)| *at); // sums of floats: they have to come in the same order each time
    for (at, placement) in placed {
        let Some(instance) = mix.instances.get(at) else { continue };
        let gpus = instance.gpus as f64;
        requested.0 += gpus * f64::from(instance.request.as_permille()) / 1_000.0;
        requested.1 += gpus * instance.memory.0 as f64 / GPU_MEMORY.0 as f64;
        cut += usize::from(placement.spot.slices.len() > instance.gpus);
    }
    let used = f64::from(cluster.totals().gpus_used);
    let (sm_fragmentation, memory_fragmentation) = (1.0 - requested.0 / used, 1.0 - requested.1 / used);
    Outcome { sm_fragmentation, memory_fragmentation, cut, ..before }
}
