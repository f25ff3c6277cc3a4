//! Nodes in equal states stand together: whatever is computed for a state holds for all of them.
//!
//! A state is *born* when the first node enters it and *dies* when the last one leaves. Whoever keeps an order of states reads
//! the births since its last visit and skips the dead. A state that comes back is born again, under the same number.

use std::collections::HashMap;
use std::sync::Arc;

use super::{NodeId, NodeState};

/// A state that nodes of one cluster are in or were in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(u32);

/// Dead states are kept for when they come back, but never more than this times the living (and [`FEW`]).
const DEAD_FOR_EACH_ALIVE: usize = 4;
/// So many dead states are never worth a clearing.
const FEW: usize = 4096;

/// All states of a cluster.
#[derive(Clone, Debug, Default)]
pub struct States {
    numbers: HashMap<Arc<NodeState>, StateId>,
    slots: Vec<Slot>,
    alive: usize,
    births: Vec<StateId>,
    generation: u64,
}

#[derive(Clone, Debug)]
struct Slot {
    state: Arc<NodeState>,
    members: Vec<NodeId>, // in order
}

/// How far somebody has read the births.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    generation: u64,
    read: usize,
}

/// What a reader finds at its next visit.
#[derive(Debug)]
pub enum News<'a> {
    /// These were born since the last visit.
    Born(&'a [StateId]),
    /// Too much happened: all that it knows is void, and these are alive.
    Anew(Vec<StateId>),
}

impl StateId {
    /// Not above any other.
    pub const FIRST: Self = Self(0);
}

impl States {
    /// The state under this number, of this generation.
    pub fn get(&self, id: StateId) -> &NodeState {
        &self.slots[id.0 as usize].state
    }

    /// The nodes in this state, in order; none when it is dead.
    pub fn members(&self, id: StateId) -> &[NodeId] {
        &self.slots[id.0 as usize].members
    }

    /// All states that some node is in.
    pub fn alive(&self) -> impl Iterator<Item = StateId> + '_ {
        let numbered = (0u32..).zip(&self.slots);
        numbered.filter(|(_, slot)| !slot.members.is_empty()).map(|(number, _)| StateId(number))
    }

    /// How many states some node is in.
    pub fn count(&self) -> usize {
        self.alive
    }

    /// What is new to the reader with this cursor, which then has read it all. A cursor of its own kind starts anew.
    pub fn news(&self, cursor: &mut Cursor) -> News<'_> {
        let read = std::mem::replace(cursor, Cursor { generation: self.generation, read: self.births.len() });
        let missed = self.births.get(read.read..).unwrap_or_default();
        if read.generation == self.generation && read.read > 0 && missed.len() <= self.alive {
            return News::Born(missed);
        }
        News::Anew(self.alive().collect())
    }

    /// Puts `node` into `state`.
    pub(super) fn enter(&mut self, node: NodeId, state: Arc<NodeState>) -> StateId {
        let id = self.number(state);
        let members = &mut self.slots[id.0 as usize].members;
        if members.is_empty() {
            self.alive += 1;
            self.births.push(id);
        }
        if let Err(place) = members.binary_search(&node) {
            members.insert(place, node);
        }
        id
    }

    /// Takes `node` out of the state it is in.
    pub(super) fn leave(&mut self, node: NodeId, id: StateId) {
        let members = &mut self.slots[id.0 as usize].members;
        if let Ok(place) = members.binary_search(&node) {
            members.remove(place);
            self.alive -= usize::from(members.is_empty());
        }
    }

    fn number(&mut self, state: Arc<NodeState>) -> StateId {
        if let Some(id) = self.numbers.get(&state) {
            return *id;
        }
        // A cluster has at most 2^32 nodes, and dead states are cleared in proportion to them.
        let id = StateId(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        self.slots.push(Slot { state: Arc::clone(&state), members: Vec::new() });
        self.numbers.insert(state, id);
        id
    }

    /// Whether it is time for [`Self::clear`].
    pub(super) fn is_crowded(&self) -> bool {
        let dead = self.slots.len() - self.alive;
        let most = FEW + DEAD_FOR_EACH_ALIVE * self.alive;
        dead > most || self.births.len() > 4 * most
    }

    /// Forgets the dead; all numbers change. Returns the new number of each old one that lives.
    pub(super) fn clear(&mut self) -> HashMap<StateId, StateId> {
        let mut next = Self { generation: self.generation + 1, ..Self::default() };
        let mut moved = HashMap::new();
        for old in self.alive().collect::<Vec<_>>() {
            let slot = &self.slots[old.0 as usize];
            let new = next.number(Arc::clone(&slot.state));
            next.slots[new.0 as usize].members.clone_from(&slot.members);
            next.births.push(new);
            moved.insert(old, new);
        }
        next.alive = moved.len();
        *self = next;
        moved
    }
}
