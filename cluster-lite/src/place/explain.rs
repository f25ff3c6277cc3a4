//! Why a demand went where it went.

use rand::Rng;
use serde::Serialize;

use super::index::seen;
use super::placer::{Placer, Refusal, one_of};
use super::score::Part;
use crate::cluster::{Cluster, Demand, Spot};

/// A decision with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The policy.
    pub policy: String,
    /// The node that was taken.
    pub node: String,
    /// The GPUs that were taken.
    pub gpus: Vec<u8>,
    /// Its rating.
    pub rating: f64,
    /// How many nodes were rated as high.
    pub ties: usize,
    /// What the rating is made of, if of several.
    pub parts: Vec<Part>,
    /// The best candidates, each with all nodes in the same state.
    pub candidates: Vec<Candidate>,
    /// How many nodes that are up have no room.
    pub without_room: usize,
}

/// Nodes in one state, and what the policy thinks of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The first of them.
    pub node: String,
    /// How many they are.
    pub nodes: usize,
    /// Their rating.
    pub rating: f64,
}

/// Why one who came went where he went, or nowhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// There.
    Placed(Explanation),
    /// Nowhere.
    Refused {
        /// The policy.
        policy: String,
        /// What it lacked.
        reason: String,
    },
}

/// Who hears why, of each decision, if anybody does.
pub type Hearer<'a> = Option<&'a mut dyn FnMut(Why)>;

/// Candidates that a hearer is told of.
const HEARD: usize = 3;

impl Placer {
    /// As [`Placer::decide`], in the hearing of somebody.
    ///
    /// # Errors
    /// When no node has room, now or ever.
    pub fn decide_heard(
        &mut self,
        cluster: &Cluster,
        demand: &Demand,
        random: &mut impl Rng,
        hearer: &mut Hearer<'_>,
    ) -> Result<Spot, Refusal> {
        let Some(hear) = hearer else { return self.decide(cluster, demand, random) };
        let decided = self.explain(cluster, demand, random, HEARD);
        let policy = self.policy().name.clone();
        hear(match &decided {
            Ok((_, explanation)) => Why::Placed(explanation.clone()),
            Err(refusal) => Why::Refused { policy, reason: refusal.to_string() },
        });
        decided.map(|(spot, _)| spot)
    }

    /// As [`Placer::decide`], with the reasons, and at most `most` candidates of them.
    ///
    /// # Errors
    /// When no node has room, now or ever.
    pub fn explain(
        &mut self,
        cluster: &Cluster,
        demand: &Demand,
        random: &mut impl Rng,
        most: usize,
    ) -> Result<(Spot, Explanation), Refusal> {
        let ties = self.policy().ties;
        let index = self.index(cluster, demand);
        let Some((grade, states)) = index.best(cluster) else {
            return Err(self.refusal(cluster, demand));
        };
        let members = |state| cluster.states().members(state);
        let all: Vec<_> = index.descending(cluster).collect();
        let (node, state) = one_of(cluster, &states, ties, random);
        let slices = self.slices(cluster, demand, state, random).unwrap_or_default();
        let with_room: usize = all.iter().map(|(_, state)| members(*state).len()).sum();
        let up = cluster.nodes().filter(|node| cluster.is_up(*node)).count();
        let candidates = all.into_iter().take(most).map(|(grade, state)| Candidate {
            node: cluster.name(members(state)[0]).to_owned(),
            nodes: members(state).len(),
            rating: grade.rating(),
        });
        let explanation = Explanation {
            policy: self.policy().name.clone(),
            node: cluster.name(node).to_owned(),
            gpus: slices.iter().map(|slice| slice.gpu).collect(),
            rating: grade.rating(),
            ties: states.iter().map(|state| members(*state).len()).sum(),
            parts: self.policy().score.parts(&seen(cluster, demand, state), &slices),
            candidates: candidates.collect(),
            without_room: up - with_room,
        };
        Ok((Spot { node, slices }, explanation))
    }
}
