//! What there is: device classes, nodes, GPUs and who sits on them; what a tenant demands.
//!
//! ```text
//! device  kinds of GPU                      demand  what a tenant needs
//! state   what a node is and holds          states  nodes in equal states, together
//! error   why something was refused
//! ```
//!
//! Shares are in permille of one GPU. On each GPU the requests sum to at most omega, the limits to at most gamma (Dilu, section
//! 3.3: 1.0 and 1.5), and memory to at most what the GPU has. Whatever the order of calls, no part of a GPU has two owners: a
//! tenant is placed once, whole or not at all, and doing the same twice does it once.

mod demand;
mod device;
mod error;
mod socket;
mod state;
mod states;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir_protocol::units::{Bytes, SmShare};

pub use self::demand::{Backbone, Demand, Kind, MilliCpu, Name};
pub use self::device::{ClassId, ClassSet, DeviceClass};
pub use self::error::ClusterError;
pub use self::socket::Socket;
pub use self::state::{GpuState, NodeState, Resident, Slice, gang_bit};
pub use self::states::{Cursor, News, StateId, States};

/// A node of one cluster; in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// Its place in the order of nodes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How far the GPUs of a cluster may be filled, in permille of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Omega: requests on one GPU sum to at most this.
    pub requests: u32,
    /// Gamma: limits on one GPU sum to at most this.
    pub limits: u32,
}

impl Bounds {
    /// No bounds, for what is there already.
    pub const NONE: Self = Self { requests: u32::MAX, limits: u32::MAX };
}

impl Default for Bounds {
    /// Omega 1.0 and gamma 1.5, as in Dilu's own code.
    fn default() -> Self {
        Self { requests: 1000, limits: 1500 }
    }
}

/// A node as it is added.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Its processors.
    pub cpu: MilliCpu,
    /// Its memory.
    pub memory: Bytes,
    /// How many GPUs it has; all of one class.
    pub gpus: u8,
    /// Their class; none without GPUs.
    pub class: Option<ClassId>,
    /// Its site.
    pub site: u16,
}

/// Where a tenant sits, or shall sit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The node.
    pub node: NodeId,
    /// The parts of its GPUs; none for a tenant without GPU.
    pub slices: Vec<Slice>,
}

/// A tenant that was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What it asked for.
    pub demand: Demand,
    /// Where it sits.
    pub spot: Spot,
}

/// Whether a call changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It did.
    Done,
    /// All was so already.
    Already,
}

/// Sums over the nodes that are up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// GPUs.
    pub gpus: u32,
    /// GPUs that somebody sits on.
    pub gpus_used: u32,
    /// Guaranteed shares, in permille of one GPU.
    pub requests: u64,
}

/// A cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    classes: Vec<DeviceClass>,
    bounds: Bounds,
    socket: Socket,
    nodes: Vec<Node>,
    names: HashMap<String, NodeId>,
    /// Nodes that differ in more than their names, one of each, without name.
    shapes: HashSet<NodeSpec>,
    tenants: HashMap<Name, Placement>,
    states: States,
    totals: Totals,
}

#[derive(Clone, Debug)]
struct Node {
    spec: NodeSpec,
    state: Arc<NodeState>,
    id: Option<StateId>, // none while it is down
    gangs: [u32; 16],    // how many tenants behind each bit of the state's `gangs`
}

impl Cluster {
    /// An empty cluster.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// The same cluster, filled no further than this from now on. Who sits there stays, also where that is more.
    #[must_use]
    pub fn bounded(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Says what the processors of all nodes draw.
    pub fn set_socket(&mut self, socket: Socket) {
        self.socket = socket;
    }

    /// Adds a device class; the same again is the same class.
    ///
    /// # Errors
    /// When its values are impossible, or its name stands for another class.
    pub fn add_class(&mut self, class: DeviceClass) -> Result<ClassId, ClusterError> {
        class.check()?;
        if let Some(known) = self.class(&class.name) {
            let same = self.classes[known.index()] == class;
            return if same { Ok(known) } else { Err(ClusterError::ClassTwice { name: class.name }) };
        }
        let number = u8::try_from(self.classes.len()).unwrap_or(u8::MAX);
        if usize::from(number) >= ClassSet::MOST {
            return Err(ClusterError::ManyClasses);
        }
        self.classes.push(class);
        Ok(ClassId(number))
    }

    /// Adds a node that is up and empty.
    ///
    /// # Errors
    /// When the name is taken, or it has GPUs without a class of this cluster or a class without GPUs.
    pub fn add_node(&mut self, spec: NodeSpec) -> Result<NodeId, ClusterError> {
        let wrong = |why| Err(ClusterError::Node { name: spec.name.clone(), why });
        match spec.class {
            None if spec.gpus > 0 => return wrong("has GPUs of no class"),
            Some(_) if spec.gpus == 0 => return wrong("has a class of GPUs, but none of them"),
            Some(class) if class.index() >= self.classes.len() => {
                return wrong("has GPUs of an unknown class");
            }
            _ => {}
        }
        if self.names.contains_key(&spec.name) {
            return Err(ClusterError::NodeTwice { name: spec.name });
        }
        let Ok(number) = u32::try_from(self.nodes.len()) else { return wrong("is one too many") };
        let id = NodeId(number);
        let state = Arc::new(NodeState {
            class: spec.class,
            site: spec.site,
            cpu: spec.cpu,
            cpu_free: spec.cpu,
            memory_free: spec.memory,
            gangs: 0,
            gpus: vec![GpuState::default(); usize::from(spec.gpus)],
        });
        self.names.insert(spec.name.clone(), id);
        self.shapes.insert(NodeSpec { name: String::new(), ..spec.clone() });
        self.totals.count(&state, true);
        let entered = self.states.enter(id, Arc::clone(&state));
        self.nodes.push(Node { spec, state, id: Some(entered), gangs: [0; 16] });
        Ok(id)
    }

    /// Says whether a node can be placed on. Those who sit on a node that goes down keep their slices until they are removed.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn set_up(&mut self, node: NodeId, up: bool) -> Result<Change, ClusterError> {
        let there = self.nodes.get_mut(node.index());
        let found = there.ok_or_else(|| ClusterError::Unknown { what: format!("node number {}", node.0) })?;
        match (found.id, up) {
            (Some(_), true) | (None, false) => return Ok(Change::Already),
            (Some(id), false) => {
                found.id = None;
                self.totals.count(&found.state, false);
                self.states.leave(node, id);
            }
            (None, true) => {
                self.totals.count(&found.state, true);
                found.id = Some(self.states.enter(node, Arc::clone(&found.state)));
            }
        }
        Ok(Change::Done)
    }

    /// Puts `tenant` there, whole or not at all.
    ///
    /// # Errors
    /// When it sits elsewhere, when the slices are not what it demands, or when they are taken.
    pub fn place(&mut self, tenant: &str, demand: &Demand, spot: &Spot) -> Result<Change, ClusterError> {
        if let Some(placed) = self.tenants.get(tenant) {
            if placed.demand == *demand && placed.spot == *spot {
                return Ok(Change::Already);
            }
            let node = self.name(placed.spot.node).to_owned();
            return Err(ClusterError::Elsewhere { tenant: tenant.to_owned(), node });
        }
        self.check_room(demand, spot)?;
        let name: Name = tenant.into();
        let node = &mut self.nodes[spot.node.index()];
        node.count_gang(demand, true);
        let mut next = node.state.with(&name, demand, &spot.slices);
        next.gangs = node.gang_bits();
        self.enter(spot.node, next);
        self.tenants.insert(name, Placement { demand: demand.clone(), spot: spot.clone() });
        Ok(Change::Done)
    }

    /// Takes `tenant` away, and says where it sat; nothing if it sat nowhere.
    pub fn remove(&mut self, tenant: &str) -> Option<Placement> {
        let (name, placement) = self.tenants.remove_entry(tenant)?;
        let node = &mut self.nodes[placement.spot.node.index()];
        node.count_gang(&placement.demand, false);
        let mut next = node.state.without(&name, &placement.demand, &placement.spot.slices);
        next.gangs = node.gang_bits();
        self.enter(placement.spot.node, next);
        Some(placement)
    }

    /// Where `tenant` sits.
    pub fn placement(&self, tenant: &str) -> Option<&Placement> {
        self.tenants.get(tenant)
    }

    /// All tenants with their places, in no order.
    pub fn tenants(&self) -> impl Iterator<Item = (&Name, &Placement)> {
        self.tenants.iter()
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<ClassId> {
        let place = self.classes.iter().position(|class| class.name == name)?;
        u8::try_from(place).ok().map(ClassId)
    }

    /// All classes; a [`ClassId`] is a place in this list.
    pub fn classes(&self) -> &[DeviceClass] {
        &self.classes
    }

    /// The bounds of its GPUs.
    pub const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// What the processors draw.
    pub const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// All nodes, in the order in which they were added.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0u32..).take(self.nodes.len()).map(NodeId)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        &self.nodes[node.index()].spec.name
    }

    /// A node as it was added.
    pub fn spec(&self, node: NodeId) -> &NodeSpec {
        &self.nodes[node.index()].spec
    }

    /// What a node holds now.
    pub fn state(&self, node: NodeId) -> &NodeState {
        &self.nodes[node.index()].state
    }

    /// Whether a node can be placed on.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes[node.index()].id.is_some()
    }

    /// The states of the nodes that are up.
    pub const fn states(&self) -> &States {
        &self.states
    }

    /// Sums over the nodes that are up.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Lets `node` be in `next`, wherever it was.
    fn enter(&mut self, node: NodeId, next: NodeState) {
        if *self.nodes[node.index()].state == next {
            return; // a tenant that takes nothing
        }
        let next = Arc::new(next);
        let entry = &mut self.nodes[node.index()];
        let before = std::mem::replace(&mut entry.state, Arc::clone(&next));
        let Some(old) = entry.id else { return };
        self.totals.count(&before, false);
        self.totals.count(&next, true);
        entry.id = Some(self.states.enter(node, next));
        self.states.leave(node, old);
        if self.states.is_crowded() {
            let moved = self.states.clear();
            self.nodes.iter_mut().for_each(|node| node.id = node.id.and_then(|old| moved.get(&old).copied()));
        }
    }

    fn check_room(&self, demand: &Demand, spot: &Spot) -> Result<(), ClusterError> {
        demand.check()?;
        let there = self.nodes.get(spot.node.index());
        let node =
            there.ok_or_else(|| ClusterError::Unknown { what: format!("node number {}", spot.node.0) })?;
        let refuse = |why| Err(ClusterError::NoRoom { node: node.spec.name.clone(), why });
        if node.id.is_none() {
            return refuse("it is down");
        }
        if !node.state.suits(demand) {
            return refuse("processors, memory or GPUs of an allowed class are missing");
        }
        if !is_cut_from(demand, &spot.slices) {
            return refuse("these slices are not what the tenant demands");
        }
        let full = |slice: &&Slice| !node.state.has_room(slice, demand, &self.classes, &self.bounds);
        if spot.slices.iter().any(|slice| full(&slice)) {
            return refuse("a slice of a GPU is taken");
        }
        Ok(())
    }

    /// Whether some node could hold `demand` if it were empty, up or down.
    ///
    /// # Errors
    /// What stands in the way, when none could; and when the demand contradicts itself.
    pub fn could_hold(&self, demand: &Demand) -> Result<(), ClusterError> {
        demand.check()?;
        let specs = || self.shapes.iter();
        let needed = if demand.fragments > 1 { 1 } else { demand.gpus };
        let with_gpus = || specs().filter(move |spec| spec.gpus >= needed);
        if with_gpus().next().is_none() {
            let most = specs().map(|spec| spec.gpus).max().unwrap_or(0);
            return Err(ClusterError::never(format!("{needed} GPUs of one node"), most.to_string()));
        }
        let allowed =
            |spec: &&NodeSpec| demand.gpus == 0 || spec.class.is_some_and(|class| demand.classes.has(class));
        if !with_gpus().any(|spec| allowed(&spec)) {
            return Err(ClusterError::never(format!("{needed} GPUs of certain classes"), "GPUs of others"));
        }
        let holds = |spec: &&NodeSpec| demand.gpus == 0 || self.empty_holds(spec, demand);
        let Some(_) = with_gpus().filter(allowed).find(holds) else {
            let memory = |spec: &NodeSpec| spec.class.map(|class| self.classes[class.index()].memory);
            let most = with_gpus().filter(allowed).filter_map(memory).max().unwrap_or_default();
            return Err(ClusterError::never(error::asked_of_gpu(demand), self.bounds.in_words(most)));
        };
        let fit = || with_gpus().filter(allowed).filter(holds);
        let cpu = fit().map(|spec| spec.cpu.0).max().unwrap_or(0);
        if demand.cpu.0 > cpu {
            let asked = format!("{} thousandths of a processor", demand.cpu.0);
            return Err(ClusterError::never(asked, cpu.to_string()));
        }
        let memory =
            fit().filter(|spec| demand.cpu <= spec.cpu).map(|spec| spec.memory).max().unwrap_or_default();
        if demand.memory > memory {
            return Err(ClusterError::never(format!("{} of memory", demand.memory), memory.to_string()));
        }
        Ok(())
    }

    fn empty_holds(&self, spec: &NodeSpec, demand: &Demand) -> bool {
        let Some(class) = spec.class.and_then(|class| self.classes.get(class.index())) else { return false };
        let pieces = 1..=demand.fragments.min(spec.gpus).max(1);
        pieces
            .into_iter()
            .any(|pieces| state::could_hold(&piece(demand, pieces), demand, class, &self.bounds))
    }
}

impl Bounds {
    fn in_words(&self, memory: Bytes) -> String {
        let percent = |permille: u32| f64::from(permille) / 10.0;
        let requests = percent(self.requests);
        if self.limits == Self::NONE.limits {
            return format!("requests of {requests} % and {memory}");
        }
        format!("requests of {requests} %, limits of {} % and {memory}", percent(self.limits))
    }
}

impl Node {
    fn count_gang(&mut self, demand: &Demand, comes: bool) {
        let bit = gang_bit(demand);
        if let Some(count) = self.gangs.get_mut(bit.trailing_zeros() as usize) {
            *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    fn gang_bits(&self) -> u16 {
        (0u32..).zip(&self.gangs).filter(|(_, count)| **count > 0).map(|(bit, _)| 1 << bit).sum()
    }
}

impl Totals {
    fn count(&mut self, state: &NodeState, comes: bool) {
        let gpus = u32::try_from(state.gpus.len()).unwrap_or(u32::MAX);
        let used = gpus - u32::try_from(state.idle_gpus()).unwrap_or(gpus);
        let requests: u64 = state.gpus.iter().map(|gpu| u64::from(gpu.requests)).sum();
        let sign = |value: &mut u32, by: u32| *value = if comes { *value + by } else { *value - by };
        sign(&mut self.gpus, gpus);
        sign(&mut self.gpus_used, used);
        self.requests = if comes { self.requests + requests } else { self.requests - requests };
    }
}

/// One of `pieces` equal parts of what `demand` takes of a GPU, rounded up; its limit is its request when it is cut (Dilu,
/// section 3.3: a pipeline over fragments).
pub fn piece(demand: &Demand, pieces: u8) -> Slice {
    let request = SmShare::permille(demand.request.as_permille().div_ceil(u16::from(pieces)));
    let limit = if pieces > 1 { request.max(SmShare::permille(1)) } else { demand.limit };
    Slice { gpu: 0, request, limit, memory: Bytes(demand.gpu_memory.0.div_ceil(u64::from(pieces))) }
}

/// Whether these slices, each on another GPU, make up `demand`.
fn is_cut_from(demand: &Demand, slices: &[Slice]) -> bool {
    let distinct = (1..slices.len()).all(|i| slices[..i].iter().all(|other| other.gpu != slices[i].gpu));
    let same = |pieces: u8| {
        let part = piece(demand, pieces);
        slices.iter().all(|slice| Slice { gpu: 0, ..*slice } == part)
    };
    let cut = u8::try_from(slices.len()).unwrap_or(u8::MAX);
    distinct && ((cut == demand.gpus && same(1)) || (cut > 1 && cut <= demand.fragments && same(cut)))
}
