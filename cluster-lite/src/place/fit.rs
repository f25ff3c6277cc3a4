//! Which services fit together on a GPU, and what it would cost each: the fewest GPUs for a handful of services.
//!
//! A set fits if its memory and its requests do and nobody is slowed beyond the ceiling. Slowdowns are predicted by queueing
//! (`interference`), bounded by what the request guarantees under Weir, with what switches of the GPU cost on top where that was measured. The division is exact: the best of all, over subsets.

use serde::Serialize;
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
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum Unfit {
    /// Too much memory.
    #[error("{needed} of memory are more than the {had} of the GPU")]
    Memory {
        /// What they need.
        #[serde(rename = "needed_bytes")]
        needed: Bytes,
        /// What there is.
        #[serde(rename = "had_bytes")]
        had: Bytes,
    },
    /// Too many requests.
    #[error("requests sum to {sum_percent} %: 100 % can be kept")]
    Requests {
        /// Their sum.
        sum_percent: f64,
    },
    /// Somebody is slowed too much.
    #[error("{service} would run {slowdown:.2} times slower: the ceiling is {ceiling}")]
    Slow {
        /// Who.
        service: String,
        /// How much.
        #[serde(rename = "predicted_slowdown")]
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
        if let Some(unfit) = self.too_large(members).or_else(|| self.overbooked(members)) {
            return Err(unfit);
        }
        let slowdowns = self.slowdowns(members);
        let slow = self.slowed(members, &slowdowns).next();
        slow.map_or_else(|| Ok(Group { members: members.to_vec(), slowdowns }), Err)
    }

    /// All that keeps these candidates from one GPU; nothing if they fit. Where their requests cannot be kept nobody's slowdown is
    /// told: it is the requests that bound it.
    pub fn against(&self, members: &[usize]) -> Vec<Unfit> {
        let slowdowns = self.slowdowns(members);
        let overbooked = self.overbooked(members);
        let slowed = self.slowed(members, &slowdowns).filter(|_| overbooked.is_none());
        let shares: Vec<_> = overbooked.iter().cloned().chain(slowed).collect();
        self.too_large(members).into_iter().chain(shares).collect()
    }

    fn of(&self, members: &[usize]) -> impl Iterator<Item = &'a Candidate> {
        let candidates = self.candidates;
        members.iter().map(move |at| &candidates[*at])
    }

    fn too_large(&self, members: &[usize]) -> Option<Unfit> {
        let needed = Bytes(self.of(members).fold(0, |sum: u64, one| sum.saturating_add(one.memory.0)));
        (needed > self.memory).then_some(Unfit::Memory { needed, had: self.memory })
    }

    fn overbooked(&self, members: &[usize]) -> Option<Unfit> {
        let requests: u32 = self.of(members).map(|one| u32::from(one.request.as_permille())).sum();
        (requests > 1_000).then(|| Unfit::Requests { sum_percent: f64::from(requests) / 10.0 })
    }

    /// The predicted slowdown of each.
    fn slowdowns(&self, members: &[usize]) -> Vec<f64> {
        let ids: Vec<_> = members.iter().map(|at| self.ids[*at]).collect();
        let bounded = self.table.slowdowns(&ids).into_iter().zip(self.of(members));
        bounded.map(|(slowdown, one)| self.in_turns(slowdown.min(one.worst))).collect()
    }

    /// Those who are slowed beyond the ceiling.
    fn slowed(&self, members: &[usize], slowdowns: &[f64]) -> impl Iterator<Item = Unfit> {
        let slow = slowdowns.iter().zip(self.of(members)).filter(|(slowdown, _)| **slowdown > self.ceiling);
        slow.map(|(slowdown, one)| Unfit::Slow {
            service: one.name.clone(),
            slowdown: *slowdown,
            ceiling: self.ceiling,
        })
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
        assert!(
            (slowdown(5_000, &[0, 1]) - 2.0 * (1.0 + 5.0 / 150.0)).abs() < 1e-9,
            "but no longer than 150 ms"
        );
    }

    #[test]
    fn what_does_not_fit_says_why() {
        let services = [candidate("a", 60, 30, 0.1), candidate("b", 60, 5, 0.1), candidate("c", 10, 30, 0.1)];
        let question = Question::new(&services, Bytes::gib(40), 1.5);
        assert_eq!(question.group(&[0, 1]), Err(Unfit::Requests { sum_percent: 120.0 }));
        assert_eq!(
            question.group(&[0, 2]),
            Err(Unfit::Memory { needed: Bytes::gib(60), had: Bytes::gib(40) })
        );
        let large = [candidate("a", 10, 41, 0.1)];
        assert!(matches!(Question::new(&large, Bytes::gib(40), 1.5).divide(), Err(Unfit::Memory { .. })));
        assert_eq!(question.divide().unwrap().len(), 2);
    }

    #[test]
    fn all_that_keeps_a_set_from_a_gpu_is_told() {
        let of = |percent: [u16; 2]| {
            [
                candidate("a", percent[0], 30, 1.0),
                candidate("b", percent[1], 30, 1.0),
                candidate("c", 10, 4, 0.0),
            ]
        };
        let (light, heavy) = (of([20, 40]), of([60, 60]));
        let question = |services| Question::new(services, Bytes::gib(40), 1.5);
        let large = Unfit::Memory { needed: Bytes::gib(60), had: Bytes::gib(40) };
        let slow = |name: &str| Unfit::Slow { service: name.into(), slowdown: 2.0, ceiling: 1.5 };
        assert_eq!(question(&light).against(&[0, 1]), [large.clone(), slow("a"), slow("b")]);
        let overbooked = Unfit::Requests { sum_percent: 120.0 };
        assert_eq!(question(&heavy).against(&[0, 1]), [large, overbooked], "nothing bounds a slowdown");
        assert_eq!(question(&light).against(&[0, 2]), []);
        for members in [&[0, 1][..], &[0, 2], &[0, 1, 2]] {
            let (first, question) = (question(&heavy).against(members).into_iter().next(), question(&heavy));
            assert_eq!(question.group(members).err(), first, "the first is why");
        }
    }
}
