//! Which services fit together on a GPU, and what it would cost each: the fewest GPUs for a handful of services.
//!
//! A set fits if its memory and its requests do and nobody is slowed beyond the ceiling. Slowdowns are predicted by queueing
//! (`interference`), bounded by what the request guarantees under Weir, with what switches of the GPU cost on top where that was measured. The division is exact: the best of all, over subsets.

use weir_policy::turn;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::interference::{Predictor, Service, ServiceId, Table, Uses};

/// Services that are divided at most: the subsets of 12 are gone through in a blink.
pub const MOST: usize = 12;

/// A service that asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Guaranteed share.
    pub request: SmShare,
    /// Share beyond which it gains nothing.
    pub limit: SmShare,
    /// Device memory.
    pub memory: Bytes,
    /// What it uses alone.
    pub uses: Uses,
    /// Throughput alone over that at its request: it is never slowed more. Infinite without a request.
    pub worst: f64,
}

/// Services on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Places in the list of candidates.
    pub members: Vec<usize>,
    /// The predicted slowdown of each.
    pub slowdowns: Vec<f64>,
}

/// Why a set does not fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unfit {
    /// Too much memory.
    #[error("{0} of memory are more than the {1} of the GPU")]
    Memory(Bytes, Bytes),
    /// Too many requests.
    #[error("requests sum to {0} %: 100 % can be kept")]
    Requests(f64),
    /// Somebody is slowed too much.
    #[error("{name} would run {slowdown:.2} times slower: the ceiling is {ceiling}")]
    Slow {
        /// Who.
        name: String,
        /// How much.
        slowdown: f64,
        /// The ceiling.
        ceiling: f64,
    },
}

/// What is asked: services, a GPU's memory, and the greatest slowdown that is borne.
#[derive(Debug)]
pub struct Question<'a> {
    candidates: &'a [Candidate],
    memory: Bytes,
    ceiling: f64,
    switching: f64,
    table: Table,
    ids: Vec<ServiceId>,
}

impl<'a> Question<'a> {
    /// A question about at most [`MOST`] candidates.
    pub fn new(candidates: &'a [Candidate], memory: Bytes, ceiling: f64) -> Self {
        let mut predictor = Predictor::default();
        let know = |(at, candidate): (usize, &Candidate)| {
            // The place keeps two of one name apart.
            let name = format!("{at} {}", candidate.name);
            predictor.know(Service {
                name,
                family: candidate.name.clone(),
                batch: None,
                uses: Some(candidate.uses),
            })
        };
        let ids = candidates.iter().enumerate().map(know).collect();
        Self { candidates, memory, ceiling, switching: 0.0, table: predictor.table(), ids }
    }

    /// On a GPU that takes so long for a switch from one tenant to another, each of which costs a part of somebody's turn.
    #[must_use]
    pub fn with_switches(self, switch: Nanos) -> Self {
        Self { switching: switch.0 as f64 / turn(switch).0 as f64, ..self }
    }

    /// These candidates on one GPU.
    ///
    /// # Errors
    /// Why they do not fit.
    pub fn group(&self, members: &[usize]) -> Result<Group, Unfit> {
        let of = || members.iter().map(|at| &self.candidates[*at]);
        let memory = Bytes(of().fold(0, |sum: u64, one| sum.saturating_add(one.memory.0)));
        if memory > self.memory {
            return Err(Unfit::Memory(memory, self.memory));
        }
        let requests: u32 = of().map(|one| u32::from(one.request.as_permille())).sum();
        if requests > 1_000 {
            return Err(Unfit::Requests(f64::from(requests) / 10.0));
        }
        let ids: Vec<_> = members.iter().map(|at| self.ids[*at]).collect();
        let bounded = self.table.slowdowns(&ids).into_iter().zip(of());
        let slowdowns: Vec<_> =
            bounded.map(|(slowdown, one)| self.in_turns(slowdown.min(one.worst))).collect();
        let slow = slowdowns.iter().zip(of()).find(|(slowdown, _)| **slowdown > self.ceiling);
        if let Some((slowdown, one)) = slow {
            return Err(Unfit::Slow { name: one.name.clone(), slowdown: *slowdown, ceiling: self.ceiling });
        }
        Ok(Group { members: members.to_vec(), slowdowns })
    }

    /// A slowdown with the switches in it. Of k that are always busy each has a turn in k, and pays for k switches in that time; who meets
    /// others now and then pays for two where he waits for one of their turns.
    fn in_turns(&self, slowdown: f64) -> f64 {
        slowdown + self.switching * slowdown.min(2.0 * (slowdown - 1.0))
    }

    /// The candidates on the fewest GPUs, and of those divisions the one with the least slowdowns.
    ///
    /// # Errors
    /// Why the first that fits nowhere does not.
    pub fn divide(&self) -> Result<Vec<Group>, Unfit> {
        let count = self.candidates.len();
        (0..count).try_for_each(|at| self.group(&[at]).map(|_| ()))?;
        let members = |set: usize| (0..count).filter(|at| set & 1 << at != 0).collect::<Vec<_>>();
        let groups: Vec<_> = (0..1_usize << count).map(|set| self.group(&members(set)).ok()).collect();
        let mut best: Vec<(usize, f64, usize)> = vec![(0, 0.0, 0)];
        for set in 1..groups.len() {
            let first = set & set.wrapping_neg();
            let mut least = (usize::MAX, f64::INFINITY, 0);
            let mut part = set;
            while part > 0 {
                // The group of the lowest member is chosen first, so that each division is looked at once.
                if let Some(group) = groups[part].as_ref().filter(|_| part & first != 0) {
                    let (gpus, slow, _) = best[set & !part];
                    let with = (gpus + 1, slow + group.slowdowns.iter().sum::<f64>(), part);
                    least = if (with.0, with.1) < (least.0, least.1) { with } else { least };
                }
                part = (part - 1) & set;
            }
            best.push(least);
        }
        let mut left = groups.len() - 1;
        let mut chosen = Vec::new();
        while left > 0 {
            let part = best[left].2;
            chosen.extend(groups[part].clone());
            left &= !part;
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, request: u16, memory_gib: u64, sm: f64) -> Candidate {
        let (request, limit) = (SmShare::percent(request), SmShare::FULL);
        let worst = 1_000.0 / f64::from(request.as_permille());
        Candidate {
            name: name.into(),
            request,
            limit,
            memory: Bytes::gib(memory_gib),
            uses: Uses::new(sm, 0.0, 0.0),
            worst,
        }
    }

    #[test]
    fn light_services_share_and_heavy_ones_do_not() {
        let services =
            [("a", 0.9), ("b", 0.9), ("c", 0.1), ("d", 0.1)].map(|(name, sm)| candidate(name, 20, 4, sm));
        let groups = Question::new(&services, Bytes::gib(40), 1.5).divide().unwrap();
        assert_eq!(groups.len(), 2);
        let of = |at: usize| groups.iter().position(|group| group.members.contains(&at));
        assert_ne!(of(0), of(1), "each would run nearly twice as slow beside the other");
    }

    #[test]
    fn nobody_is_slowed_more_than_his_request_allows() {
        let services = [("a", 1.0), ("b", 1.0), ("c", 1.0)].map(|(name, sm)| candidate(name, 30, 4, sm));
        let group = Question::new(&services, Bytes::gib(40), 10.0).group(&[0, 1, 2]).unwrap();
        assert!(group.slowdowns.iter().all(|slowdown| (slowdown - 3.0).abs() < 1e-9), "{group:?}");
        let kept = [("a", 1.0), ("b", 1.0)].map(|(name, sm)| candidate(name, 50, 4, sm));
        let kept = [Candidate { worst: 1.2, ..kept[0].clone() }, kept[1].clone()];
        let group = Question::new(&kept, Bytes::gib(40), 10.0).group(&[0, 1]).unwrap();
        assert!((group.slowdowns[0] - 1.2).abs() < 1e-9, "at its request it does nearly all");
    }

    #[test]
    fn a_gpu_that_takes_long_to_switch_slows_those_who_take_turns_and_nobody_who_is_alone() {
        let services = [("a", 1.0), ("b", 1.0), ("c", 1.0)].map(|(name, sm)| candidate(name, 30, 4, sm));
        let question = |switch_us| {
            Question::new(&services, Bytes::gib(40), 10.0).with_switches(Nanos::from_micros(switch_us))
        };
        let slowdown =
            |switch_us, members: &[usize]| question(switch_us).group(members).unwrap().slowdowns[0];
        assert!((slowdown(100, &[0]) - 1.0).abs() < 1e-9);
        assert!((slowdown(100, &[0, 1]) - 2.0 * 1.02).abs() < 1e-9, "0.1 ms of each turn of 5 ms");
        assert!((slowdown(100, &[0, 1, 2]) - 3.0 * 1.02).abs() < 1e-9);
        assert!((slowdown(400, &[0, 1]) - 2.0 * 1.02).abs() < 1e-9, "turns are as much longer");
        assert!((slowdown(2_000, &[0, 1]) - 2.0 * 1.05).abs() < 1e-9, "but no longer than 40 ms");
    }

    #[test]
    fn what_does_not_fit_says_why() {
        let services = [candidate("a", 60, 30, 0.1), candidate("b", 60, 5, 0.1), candidate("c", 10, 30, 0.1)];
        let question = Question::new(&services, Bytes::gib(40), 1.5);
        assert!(matches!(question.group(&[0, 1]), Err(Unfit::Requests(_))));
        assert!(matches!(question.group(&[0, 2]), Err(Unfit::Memory(..))));
        let large = [candidate("a", 10, 41, 0.1)];
        assert!(matches!(Question::new(&large, Bytes::gib(40), 1.5).divide(), Err(Unfit::Memory(..))));
        assert_eq!(question.divide().unwrap().len(), 2);
    }
}
