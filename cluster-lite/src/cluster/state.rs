//! What a node is and holds, as far as placing on it is concerned. Nodes whose states are equal are equal to every score.

use std::sync::Arc;

use weir_protocol::units::{Bytes, SmShare};

use super::{Backbone, Bounds, ClassId, Demand, DeviceClass, Kind, MilliCpu, Name};

/// A node, without its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeState {
    /// The class of all its GPUs; a node without GPUs has none.
    pub class: Option<ClassId>,
    /// The site it stands in, as the cluster's owner numbers them.
    pub site: u16,
    /// All processors.
    pub cpu: MilliCpu,
    /// Processors that are nobody's.
    pub cpu_free: MilliCpu,
    /// Memory that is nobody's.
    pub memory_free: Bytes,
    /// Sizes of the gangs on it: bit 0 stands for shares of one GPU, bit n for n whole GPUs.
    pub gangs: u16,
    /// Its GPUs.
    pub gpus: Vec<GpuState>,
}

/// A GPU, without its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GpuState {
    /// Sum of requests, in permille.
    pub requests: u32,
    /// Sum of limits, in permille; may exceed 1000.
    pub limits: u32,
    /// Memory that is held, each backbone once.
    pub memory: Bytes,
    /// The tenants that scores may know by name: those with a service, a profile or a backbone, in order. The others count in
    /// the sums alone, so that nodes which differ by them only are alike.
    pub residents: Vec<Resident>,
}

/// A tenant on a GPU, as far as scores may know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resident {
    /// What it does.
    pub kind: Kind,
    /// The service it is an instance of.
    pub service: Option<Name>,
    /// Its profile.
    pub profile: Option<Name>,
    /// Weights it shares.
    pub backbone: Option<Backbone>,
    /// The tenant, where it sits on several GPUs: by it the others of its gang are found.
    pub gang: Option<Name>,
    /// Its guaranteed share of this GPU.
    pub request: SmShare,
    /// Its largest share of this GPU.
    pub limit: SmShare,
    /// Its own memory on this GPU.
    pub memory: Bytes,
}

/// A part of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Which GPU of the node, from 0.
    pub gpu: u8,
    /// Guaranteed share.
    pub request: SmShare,
    /// Largest share.
    pub limit: SmShare,
    /// Memory, beside the backbone.
    pub memory: Bytes,
}

impl GpuState {
    /// Whether nobody sits on it.
    pub fn is_idle(&self) -> bool {
        self.limits == 0 && self.memory == Bytes(0)
    }

    /// Share that is not guaranteed to anybody, in permille of the whole GPU.
    pub fn free(&self) -> u32 {
        1000u32.saturating_sub(self.requests)
    }

    /// Whether somebody on it holds these weights.
    pub fn holds(&self, backbone: &Backbone) -> bool {
        self.residents.iter().filter_map(|resident| resident.backbone.as_ref()).any(|other| other == backbone)
    }

    /// Memory that `slice` takes here: its own, and the backbone's if it is the first to hold it.
    fn added_memory(&self, slice: &Slice, backbone: Option<&Backbone>) -> Bytes {
        let shared =
            backbone.filter(|backbone| !self.holds(backbone)).map_or(0, |backbone| backbone.memory.0);
        Bytes(slice.memory.0.saturating_add(shared))
    }

    /// Whether `slice` fits beside those who are here.
    fn has_room(&self, slice: &Slice, demand: &Demand, class: &DeviceClass, bounds: &Bounds) -> bool {
        let added = self.added_memory(slice, demand.backbone.as_ref());
        self.requests + u32::from(slice.request.as_permille()) <= bounds.requests
            && self.limits + u32::from(slice.limit.as_permille()) <= bounds.limits
            && self.memory.0.checked_add(added.0).is_some_and(|held| held <= class.memory.0)
    }
}

impl NodeState {
    /// Processors that are somebody's.
    pub const fn cpu_used(&self) -> MilliCpu {
        MilliCpu(self.cpu.0 - self.cpu_free.0)
    }

    /// Whether processors, memory and device class will do.
    pub fn suits(&self, demand: &Demand) -> bool {
        demand.cpu <= self.cpu_free
            && demand.memory <= self.memory_free
            && (demand.gpus == 0 || self.class.is_some_and(|class| demand.classes.has(class)))
            && self.gpus.len() >= usize::from(demand.gpus)
    }

    /// Whether `slice` of `demand` fits on its GPU.
    pub fn has_room(&self, slice: &Slice, demand: &Demand, classes: &[DeviceClass], bounds: &Bounds) -> bool {
        let Some(class) = self.class.and_then(|class| classes.get(class.index())) else { return false };
        let gpu = self.gpus.get(usize::from(slice.gpu));
        gpu.is_some_and(|gpu| gpu.has_room(slice, demand, class, bounds))
    }

    /// Share of all its GPUs that is not guaranteed to anybody, in permille of one.
    pub fn gpu_free(&self) -> u32 {
        self.gpus.iter().map(GpuState::free).sum()
    }

    /// How many of its GPUs nobody sits on.
    pub fn idle_gpus(&self) -> usize {
        self.gpus.iter().filter(|gpu| gpu.is_idle()).count()
    }

    /// The same node with `tenant` on these slices; gangs are the cluster's to count.
    #[must_use]
    pub fn with(&self, tenant: &Name, demand: &Demand, slices: &[Slice]) -> Self {
        let mut next = self.clone();
        next.cpu_free.0 -= demand.cpu.0;
        next.memory_free.0 -= demand.memory.0;
        next.gangs |= gang_bit(demand);
        for slice in slices {
            let gpu = &mut next.gpus[usize::from(slice.gpu)];
            gpu.memory.0 += gpu.added_memory(slice, demand.backbone.as_ref()).0;
            gpu.requests += u32::from(slice.request.as_permille());
            gpu.limits += u32::from(slice.limit.as_permille());
            if demand.is_named() {
                let resident = Resident::new(tenant, demand, slice, slices.len());
                let place = gpu.residents.partition_point(|other| *other < resident);
                gpu.residents.insert(place, resident);
            }
        }
        next
    }

    /// The same node without `tenant`, which sits on these slices; gangs are the cluster's to count.
    #[must_use]
    pub fn without(&self, tenant: &Name, demand: &Demand, slices: &[Slice]) -> Self {
        let mut next = self.clone();
        next.cpu_free.0 += demand.cpu.0;
        next.memory_free.0 += demand.memory.0;
        for slice in slices {
            let gpu = &mut next.gpus[usize::from(slice.gpu)];
            if demand.is_named() {
                let resident = Resident::new(tenant, demand, slice, slices.len());
                if let Ok(place) = gpu.residents.binary_search(&resident) {
                    gpu.residents.remove(place);
                }
            }
            gpu.memory.0 -= gpu.added_memory(slice, demand.backbone.as_ref()).0;
            gpu.requests -= u32::from(slice.request.as_permille());
            gpu.limits -= u32::from(slice.limit.as_permille());
        }
        next
    }
}

impl Resident {
    fn new(tenant: &Name, demand: &Demand, slice: &Slice, gang: usize) -> Self {
        Self {
            kind: demand.kind,
            service: demand.service.clone(),
            profile: demand.profile.clone(),
            backbone: demand.backbone.clone(),
            gang: (gang > 1).then(|| Arc::clone(tenant)),
            request: slice.request,
            limit: slice.limit,
            memory: slice.memory,
        }
    }
}

/// The bit of [`NodeState::gangs`] that stands for demands of this size; none for those without GPU.
pub fn gang_bit(demand: &Demand) -> u16 {
    match demand.gpus {
        0 => 0,
        1 if demand.request < SmShare::FULL => 1,
        count => 1 << count.min(15),
    }
}

/// Whether any GPU of `class` could hold `slice` while nobody is on it.
pub(super) fn could_hold(slice: &Slice, demand: &Demand, class: &DeviceClass, bounds: &Bounds) -> bool {
    GpuState::default().has_room(slice, demand, class, bounds)
}
