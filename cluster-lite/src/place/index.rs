//! For one demand, the states of a cluster in the order of their ratings; it catches up with what was born since it was last
//! asked, so that a decision costs as much as the cluster has changed, not as much as it has nodes.

use std::collections::BTreeSet;

use crate::cluster::{Cluster, Cursor, Demand, News, StateId};

use super::candidates;
use super::score::{Score, Seen};

/// Ratings that differ by less are equal: what two ways of adding up the same numbers may differ by.
pub const FINEST: f64 = 1e-9;

/// A rating in steps of [`FINEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grade(i64);

impl Grade {
    /// The grade of a rating. What is no number is worse than all.
    #[allow(clippy::cast_possible_truncation, reason = "the cast saturates, and then the order still holds")]
    pub fn of(rating: f64) -> Self {
        if rating.is_nan() { Self(i64::MIN) } else { Self((rating / FINEST).round() as i64) }
    }

    /// The rating.
    pub fn rating(self) -> f64 {
        self.0 as f64 * FINEST
    }
}

/// States in the order of their grades for one demand.
#[derive(Debug, Default)]
pub struct Index {
    cursor: Cursor,
    order: BTreeSet<(Grade, StateId)>,
    /// When it was last asked, in decisions.
    pub asked: u64,
}

impl Index {
    /// Takes in what was born since last time.
    pub fn catch_up(&mut self, cluster: &Cluster, demand: &Demand, score: &dyn Score) {
        match cluster.states().news(&mut self.cursor) {
            News::Born(born) => self.take_in(cluster, demand, score, born),
            News::Anew(alive) => {
                self.order.clear();
                self.take_in(cluster, demand, score, &alive);
            }
        }
    }

    fn take_in(&mut self, cluster: &Cluster, demand: &Demand, score: &dyn Score, born: &[StateId]) {
        for id in born.iter().filter(|id| !cluster.states().members(**id).is_empty()) {
            let seen = seen(cluster, demand, *id);
            if let Some(offer) = candidates::best(score, &seen) {
                self.order.insert((Grade::of(offer.rating), *id));
            }
        }
    }

    /// The best grade with the living states that have it.
    pub fn best(&mut self, cluster: &Cluster) -> Option<(Grade, Vec<StateId>)> {
        loop {
            let (grade, _) = *self.order.last()?;
            let equals: Vec<_> = self.order.range((grade, StateId::FIRST)..).copied().collect();
            let mut alive = Vec::with_capacity(equals.len());
            for entry in equals {
                if cluster.states().members(entry.1).is_empty() {
                    self.order.remove(&entry); // when it comes back it is born again
                } else {
                    alive.push(entry.1);
                }
            }
            if !alive.is_empty() {
                return Some((grade, alive));
            }
        }
    }

    /// The living states from the best grade down.
    pub fn descending<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = (Grade, StateId)> + 'a {
        let alive = |(_, id): &(Grade, StateId)| !cluster.states().members(*id).is_empty();
        self.order.iter().rev().copied().filter(alive)
    }

    /// How many states it holds, dead ones included.
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

/// What a score sees of a state.
pub fn seen<'a>(cluster: &'a Cluster, demand: &'a Demand, id: StateId) -> Seen<'a> {
    let (node, classes) = (cluster.states().get(id), cluster.classes());
    Seen { node, demand, classes, bounds: cluster.bounds(), socket: cluster.socket() }
}
