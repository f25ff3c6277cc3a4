//! The inflation experiment of FGD (USENIX ATC 2023, section 6): pods come in random order and stay, until so much GPU share has
//! been asked for as the cluster has, and more.
//!
//! The list of pods is shuffled. When it asks for less than the load, pods drawn from it are added at its end; when for more,
//! pods are struck out. Nodes are added in a random order, so that breaking ties by the smallest name prefers other nodes in
//! each run. A pod that finds no room is dropped. What is recorded at `p` percent is the mean over the arrivals at which the
//! share asked for so far, pods dropped included, rounds to `p` percent of the cluster's GPUs.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use crate::cluster::{Cluster, NodeState, Spot};
use crate::fault::Fault;
use crate::place::{Fragments, Free, Hearer, Placer, Policy, Refusal, Ties, Workload, pwr};
use crate::trace::openb::{Openb, Pod};

/// Part of the expected demands against which fragmentation is measured, as in the published tables.
const MEASURED_AGAINST: f64 = 0.95;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Policy, or a sum of several.
    pub policy: String,
    /// Another rule for ties than the policy's own.
    pub ties: Option<Ties>,
    /// GPU share asked for in the end, in percent of the cluster's.
    pub load_percent: u32,
    /// Where all randomness comes from.
    pub seed: u64,
}

/// What was seen at one load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// GPU share asked for so far, in percent of the cluster's.
    pub arrived_percent: u32,
    /// GPU share placed, in percent of the cluster's.
    pub allocated_percent: f64,
    /// GPU share that is free and that the expected pods cannot use, in percent of the cluster's.
    pub fragmented_percent: f64,
    /// GPUs with anybody on them.
    pub gpus_used: f64,
    /// Power of all GPUs, by the two-level model.
    pub gpu_watts: f64,
    /// Power of all processors, by the same model.
    pub cpu_watts: f64,
    /// Pods that found no room so far.
    pub dropped: f64,
}

/// What one policy came to: at each load the mean of several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The policy.
    pub policy: String,
    /// In the order of the load.
    pub points: Vec<Point>,
}

/// At each load the mean of those of `runs` that passed it.
pub fn means(runs: &[Vec<Point>]) -> Vec<Point> {
    let mut all: Vec<Point> = runs.iter().flatten().copied().collect();
    all.sort_by_key(|point| point.arrived_percent);
    let same_load = all.chunk_by(|one, other| one.arrived_percent == other.arrived_percent);
    same_load.filter_map(Point::mean).collect()
}

/// Sums that change with each placement.
struct Books {
    fragments: Fragments,
    fragmented: f64,
    gpu_watts: f64,
    cpu_watts: f64,
}

/// Runs the experiment; points are in order of the load.
///
/// # Errors
/// When the policy is unknown, or the trace makes no cluster.
pub fn run(trace: &Openb, run: &Run) -> Result<Vec<Point>, Fault> {
    run_heard(trace, run, None)
}

/// The same in the hearing of somebody, who is told why each pod went where it went.
///
/// # Errors
/// As [`run`].
pub fn run_heard(trace: &Openb, run: &Run, mut hearer: Hearer<'_>) -> Result<Vec<Point>, Fault> {
    let mut random = ChaCha12Rng::seed_from_u64(run.seed);
    let workload =
        Workload::of(trace.pods.iter().map(|pod| &pod.demand)).on(&trace.cluster(0..trace.nodes.len())?);
    let mut policy = Policy::parse(&run.policy, &workload)?;
    policy = match run.ties {
        Some(ties) => policy.with_ties(ties),
        None => policy,
    };
    let mut placer = Placer::new(policy);
    let pods = arrivals(trace, run.load_percent, &mut random);
    let mut order: Vec<usize> = (0..trace.nodes.len()).collect();
    order.shuffle(&mut random);
    let mut cluster = trace.cluster(order)?;
    let mut books = Books::new(&cluster, &workload.covering(MEASURED_AGAINST));
    let capacity = f64::from(trace.gpus()) * 1000.0;
    let mut curve = Means::default();
    let (mut arrived, mut dropped) = (0u64, 0u32);
    for (number, pod) in pods.into_iter().enumerate() {
        arrived += u64::from(pod.demand.total_request());
        match placer.decide_heard(&cluster, &pod.demand, &mut random, &mut hearer) {
            Ok(spot) => books.place(&mut cluster, &format!("{number}"), pod, &spot)?,
            Err(Refusal::Full | Refusal::Barred(_) | Refusal::Never(_)) => dropped += 1,
        }
        curve.add(books.point(&cluster, capacity, arrived as f64 / capacity * 100.0, dropped));
    }
    Ok(curve.points())
}

/// The pods in the order in which they come.
fn arrivals<'a>(trace: &'a Openb, load_percent: u32, random: &mut ChaCha12Rng) -> Vec<&'a Pod> {
    let share = |pod: &Pod| u64::from(pod.demand.total_request());
    let wanted = u64::from(trace.gpus()) * 10 * u64::from(load_percent);
    let mut pods: Vec<&Pod> = trace.pods.iter().collect();
    pods.shuffle(random);
    let mut asked: u64 = pods.iter().map(|pod| share(pod)).sum();
    while asked > wanted {
        let struck = pods.remove(random.random_range(0..pods.len()));
        asked -= share(struck);
    }
    // A list that asks for no GPU at all cannot be inflated.
    while trace.pods.iter().any(|pod| share(pod) > 0) {
        let drawn = &trace.pods[random.random_range(0..trace.pods.len())];
        if asked + share(drawn) > wanted {
            break;
        }
        asked += share(drawn);
        pods.push(drawn);
    }
    pods
}

impl Books {
    fn new(cluster: &Cluster, expected: &Workload) -> Self {
        let fragments = Fragments::new(expected);
        let mut books = Self { fragments, fragmented: 0.0, gpu_watts: 0.0, cpu_watts: 0.0 };
        cluster.nodes().for_each(|node| books.count(cluster, cluster.state(node), 1.0));
        books
    }

    fn count(&mut self, cluster: &Cluster, state: &NodeState, sign: f64) {
        self.fragmented += sign * self.fragments.of(&Free::of(state));
        self.gpu_watts += sign * pwr::gpu_watts(state, cluster.classes());
        self.cpu_watts += sign * pwr::cpu_watts(state, cluster.socket());
    }

    fn place(&mut self, cluster: &mut Cluster, name: &str, pod: &Pod, spot: &Spot) -> Result<(), Fault> {
        self.count(cluster, cluster.state(spot.node), -1.0);
        cluster.place(name, &pod.demand, spot)?;
        self.count(cluster, cluster.state(spot.node), 1.0);
        Ok(())
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a load in percent, from its own range"
    )]
    fn point(&self, cluster: &Cluster, capacity: f64, arrived_percent: f64, dropped: u32) -> Point {
        let totals = cluster.totals();
        Point {
            arrived_percent: arrived_percent.round() as u32,
            allocated_percent: totals.requests as f64 / capacity * 100.0,
            fragmented_percent: self.fragmented / capacity * 100.0,
            gpus_used: f64::from(totals.gpus_used),
            gpu_watts: self.gpu_watts,
            cpu_watts: self.cpu_watts,
            dropped: f64::from(dropped),
        }
    }
}

/// Means by rounded load.
#[derive(Default)]
struct Means {
    sums: Vec<(Point, f64)>,
}

impl Point {
    /// Each figure of the two under `join`.
    fn join(&self, other: &Self, join: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            arrived_percent: self.arrived_percent,
            allocated_percent: join(self.allocated_percent, other.allocated_percent),
            fragmented_percent: join(self.fragmented_percent, other.fragmented_percent),
            gpus_used: join(self.gpus_used, other.gpus_used),
            gpu_watts: join(self.gpu_watts, other.gpu_watts),
            cpu_watts: join(self.cpu_watts, other.cpu_watts),
            dropped: join(self.dropped, other.dropped),
        }
    }

    /// The mean of several at one load; nothing of none.
    pub fn mean(points: &[Self]) -> Option<Self> {
        let (first, others) = points.split_first()?;
        let sum = others.iter().fold(*first, |sum, point| sum.join(point, |one, other| one + other));
        let count = points.len() as f64;
        Some(sum.join(&sum, |sum, _| sum / count))
    }
}

impl Means {
    fn add(&mut self, point: Point) {
        match self.sums.last_mut().filter(|(sum, _)| sum.arrived_percent == point.arrived_percent) {
            Some((sum, count)) => {
                *sum = sum.join(&point, |one, other| one + other);
                *count += 1.0;
            }
            None => self.sums.push((point, 1.0)),
        }
    }

    fn points(self) -> Vec<Point> {
        self.sums.into_iter().map(|(sum, count)| sum.join(&sum, |sum, _| sum / count)).collect()
    }
}
