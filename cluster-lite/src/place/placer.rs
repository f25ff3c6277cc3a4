//! Decides: the best rated node, the best GPUs of it, ties by the policy's rule.

use std::collections::HashMap;

use rand::{Rng, RngExt};

use super::candidates::{self, with_room};
use super::index::{Index, seen};
use super::policies::{Policy, Ties};
use super::score::Pick;
use crate::cluster::{Cluster, ClusterError, Demand, NodeId, Slice, Spot, StateId, piece};

/// States that all indexes together may hold; those that were not asked for longest are dropped, and made anew when needed.
const MOST_INDEXED: usize = 8_000_000;

/// Why a demand was not placed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No node could hold it, ever.
    #[error(transparent)]
    Never(#[from] ClusterError),
    /// It would fit on an empty node, but no node that is up has room now.
    #[error("no node that is up has room now")]
    Full,
    /// The same, or the policy admits it nowhere where there is room.
    #[error("no node that is up has room now on a GPU {0}")]
    Barred(String),
}

/// A policy with what it remembers of one cluster; it may be asked about no other.
pub struct Placer {
    policy: Policy,
    indexes: HashMap<Demand, Index>,
    decisions: u64,
}

impl Placer {
    /// A policy that has seen nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self { policy, indexes: HashMap::new(), decisions: 0 }
    }

    /// Its policy.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Where `demand` goes. The cluster is left as it is: [`Cluster::place`] takes the spot.
    ///
    /// # Errors
    /// When no node has room, now or ever.
    pub fn decide(
        &mut self,
        cluster: &Cluster,
        demand: &Demand,
        random: &mut impl Rng,
    ) -> Result<Spot, Refusal> {
        let ties = self.policy.ties;
        let Some((_, states)) = self.index(cluster, demand).best(cluster) else {
            return Err(self.refusal(cluster, demand));
        };
        let (node, state) = one_of(cluster, &states, ties, random);
        let slices = self.slices(cluster, demand, state, random);
        Ok(Spot { node, slices: slices.unwrap_or_default() })
    }

    /// The index for `demand`, up to date.
    pub(super) fn index(&mut self, cluster: &Cluster, demand: &Demand) -> &mut Index {
        self.decisions += 1;
        if !self.indexes.contains_key(demand) {
            self.make_room();
            self.indexes.insert(demand.clone(), Index::default());
        }
        let index = self.indexes.entry(demand.clone()).or_default();
        index.asked = self.decisions;
        index.catch_up(cluster, demand, self.policy.score.as_ref());
        index
    }

    /// Why no node takes `demand`.
    pub(super) fn refusal(&self, cluster: &Cluster, demand: &Demand) -> Refusal {
        match (cluster.could_hold(demand), self.policy.score.condition()) {
            (Err(never), _) => Refusal::Never(never),
            (Ok(()), Some(condition)) => Refusal::Barred(condition),
            (Ok(()), None) => Refusal::Full,
        }
    }

    /// The parts of GPUs on a node in `state`.
    pub(super) fn slices(
        &self,
        cluster: &Cluster,
        demand: &Demand,
        state: StateId,
        random: &mut impl Rng,
    ) -> Option<Vec<Slice>> {
        let seen = seen(cluster, demand, state);
        if self.policy.score.pick() == Pick::Drawn && demand.gpus == 1 {
            let fitting: Vec<Slice> =
                with_room(self.policy.score.as_ref(), &seen, piece(demand, 1)).collect();
            if !fitting.is_empty() {
                return Some(vec![fitting[random.random_range(0..fitting.len())]]);
            }
        }
        candidates::best(self.policy.score.as_ref(), &seen).map(|offer| offer.slices)
    }

    fn make_room(&mut self) {
        while self.indexes.values().map(Index::len).sum::<usize>() > MOST_INDEXED {
            let oldest = self.indexes.iter().min_by_key(|(_, index)| index.asked);
            let Some(oldest) = oldest.map(|(demand, _)| demand.clone()) else { return };
            self.indexes.remove(&oldest);
        }
    }
}

/// One node of those in `states`, which have equal grades.
pub(super) fn one_of(
    cluster: &Cluster,
    states: &[StateId],
    ties: Ties,
    random: &mut impl Rng,
) -> (NodeId, StateId) {
    let members = |state: &StateId| cluster.states().members(*state);
    match ties {
        Ties::First => {
            let first = states.iter().map(|state| (members(state)[0], *state)).min();
            first.unwrap_or_else(|| (members(&states[0])[0], states[0]))
        }
        Ties::Drawn => {
            let count = states.iter().map(|state| members(state).len()).sum();
            let mut drawn = random.random_range(0..count);
            for state in states {
                if let Some(node) = members(state).get(drawn) {
                    return (*node, *state);
                }
                drawn -= members(state).len();
            }
            (members(&states[0])[0], states[0])
        }
    }
}
