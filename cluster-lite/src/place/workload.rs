//! What is expected to come: the demands of the past or of a plan, with how often each comes.

use std::collections::HashMap;

use super::undisturbed::Neighbours;
use crate::cluster::{ClassId, ClassSet, Cluster, Demand, MilliCpu};

/// One kind of expected demand, as far as fragmentation depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expected {
    /// Processors.
    pub cpu: MilliCpu,
    /// GPUs of one node.
    pub gpus: u8,
    /// Guaranteed share of each, in permille.
    pub request: u16,
    /// Device classes that will do.
    pub classes: ClassSet,
}

/// Expected demands with their frequencies, which sum to one; the most frequent first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Kinds with their frequencies.
    pub kinds: Vec<(Expected, f64)>,
    /// GPUs of each device class that are there for them; empty where that is not known.
    pub supply: Vec<u32>,
    /// What is known of how they get on with others.
    pub neighbours: Neighbours,
}

impl Expected {
    fn of(demand: &Demand) -> Self {
        let Demand { cpu, gpus, classes, .. } = *demand;
        Self { cpu, gpus, request: demand.request.as_permille(), classes }
    }

    /// An order that depends on nothing else, for kinds of equal frequency.
    fn rank(&self) -> (u32, u16, u8) {
        (self.cpu.0, self.request, self.gpus)
    }
}

impl Workload {
    /// All kinds among `demands`.
    pub fn of<'a>(demands: impl IntoIterator<Item = &'a Demand>) -> Self {
        let mut counts: HashMap<Expected, u32> = HashMap::new();
        for demand in demands {
            *counts.entry(Expected::of(demand)).or_default() += 1;
        }
        let total: f64 = counts.values().map(|count| f64::from(*count)).sum();
        let mut kinds: Vec<_> = counts.into_iter().collect();
        kinds.sort_by_key(|(kind, count)| (*count, kind.rank()));
        kinds.reverse();
        let kinds = kinds.into_iter().map(|(kind, count)| (kind, f64::from(count) / total)).collect();
        Self { kinds, ..Self::default() }
    }

    /// The same, to be met by the GPUs of `cluster`.
    #[must_use]
    pub fn on(mut self, cluster: &Cluster) -> Self {
        self.supply = vec![0; cluster.classes().len()];
        for node in cluster.nodes().map(|node| cluster.spec(node)) {
            if let Some(class) = node.class {
                self.supply[class.index()] += u32::from(node.gpus);
            }
        }
        self
    }

    /// The part of all GPUs that `kind` may use, from 0 to 1; 1 where that is not known.
    pub fn reach(&self, kind: &Expected) -> f64 {
        let all: u32 = self.supply.iter().sum();
        let classes = (0u8..).map(ClassId::from_index).zip(&self.supply);
        let usable: u32 = classes.filter(|(class, _)| kind.classes.has(*class)).map(|(_, gpus)| gpus).sum();
        if all == 0 { 1.0 } else { f64::from(usable) / f64::from(all) }
    }

    /// The most frequent kinds, as many as make up `covered` (0 to 1) of all.
    #[must_use]
    pub fn covering(&self, covered: f64) -> Self {
        let mut taken = 0.0;
        let mut wanted = |(_, frequency): &&(Expected, f64)| {
            let wanted = taken < covered;
            taken += if wanted { *frequency } else { 0.0 };
            wanted
        };
        let mut kinds: Vec<_> = self.kinds.iter().filter(|kind| wanted(kind)).copied().collect();
        kinds.iter_mut().for_each(|(_, frequency)| *frequency /= taken);
        Self { kinds, ..self.clone() }
    }
}
