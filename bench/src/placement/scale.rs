//! Decisions a second as the cluster grows, on one core, memory counted.
//!
//! The cluster is made of nodes of several sizes and classes, the demands are drawn from a mix of 60 % small inference, 20 %
//! language models and 20 % training. It is filled to 90 % of its share; then each step takes one tenant away and decides about
//! and places another, so that the state is that of a cluster at work. What is timed, in
//! processor time, is the decision with its placement, and the removal. Tenants of the bars have no names, as those of a trace: GPUs with
//! like requests are alike then. Beside them stands the same with named services, which are told apart, and with services that have
//! profiles, so that each decision predicts what all neighbours lose.

use std::io;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use weir_cluster::cluster::{Bounds, Cluster, Demand, DeviceClass, Kind, MilliCpu, Name, NodeSpec};
use weir_cluster::fault::Fault;
use weir_cluster::place::interference::Uses;
use weir_cluster::place::{Neighbours, Placer, Policy, Solo, Workload};
use weir_protocol::units::{Bytes, SmShare};

use super::other;
use crate::QuickOptions;
use crate::report::{Bar, Report};

/// GPUs of the clusters that are compared; the bars are judged at the last.
const SIZES: [u32; 3] = [1_000, 10_000, 100_000];
/// Part of the cluster's share that is taken when the clock starts, in permille.
const FILLED: u64 = 900;
const DECISIONS: usize = 20_000;
/// Steps before the clock starts, so that every kind of demand has come.
const WARM_UP: usize = 4_000;
const SEED: u64 = 1;

/// Services where tenants have names.
const SERVICES: usize = 100;

/// What tenants are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Tenants {
    /// Each one of its own.
    Nameless,
    /// Instances of [`SERVICES`].
    Named,
    /// The same, and each of the services has a profile.
    Profiled,
}

/// One size.
#[derive(Debug, Serialize)]
struct Case {
    gpus: u32,
    tenants: Tenants,
    nodes: usize,
    decisions: usize,
    decisions_per_s: f64,
    microseconds_each: f64,
    states: usize,
    kinds_of_demand: usize,
    /// Resident memory of the whole process after it.
    resident_mib: f64,
}

/// Measures and adds the bars.
pub fn measure(report: &mut Report, options: &QuickOptions) -> io::Result<()> {
    let mut cases = Vec::new();
    for gpus in SIZES.into_iter().take(options.of(SIZES.len(), 2)) {
        cases.push(case(gpus, Tenants::Nameless, options.of(DECISIONS, 2_000)).map_err(other)?);
    }
    let most = SIZES[options.of(SIZES.len(), 1) - 1];
    let of = |tenants| case(most, tenants, options.of(DECISIONS, 2_000) / 4).map_err(other);
    let (named, profiled) = (of(Tenants::Named)?, of(Tenants::Profiled)?);
    if let (Some(first), Some(last)) = (cases.first(), cases.last()) {
        let speed = Bar::at_least(
            "placement.decisions_per_s",
            last.decisions_per_s,
            "1/s at the largest size",
            10_000.0,
        );
        report.bar(speed);
        report.bar(Bar::at_most(
            "placement.memory_mib",
            last.resident_mib,
            "MiB at the largest size",
            1024.0,
        ));
        let dearer = last.microseconds_each / first.microseconds_each;
        let exponent = dearer.ln() / (f64::from(last.gpus) / f64::from(first.gpus)).ln();
        report.bar(Bar::at_most(
            "placement.cost_exponent",
            exponent,
            "cost grows as GPUs to this power",
            0.9,
        ));
    }
    let speed = named.decisions_per_s;
    report.bar(Bar::at_least("placement.named_decisions_per_s", speed, "1/s, of named services", 10_000.0));
    report.figure("scale", cases);
    report.figure("scale_of_services", [named, profiled]);
    Ok(())
}

fn case(gpus: u32, of: Tenants, decisions: usize) -> Result<Case, Fault> {
    let mut random = ChaCha12Rng::seed_from_u64(SEED);
    let mut cluster = cluster(gpus)?;
    let count = if of == Tenants::Nameless { 0 } else { SERVICES };
    let named = |number: usize, random: &mut ChaCha12Rng| {
        let name: Name = format!("service-{number}").as_str().into();
        let profile = (of == Tenants::Profiled).then(|| name.clone());
        Demand { service: Some(name), profile, ..draw(random) }
    };
    let services: Vec<Demand> = (0..count).map(|number| named(number, &mut random)).collect();
    let sample: Vec<Demand> = (0..20_000).map(|_| next(&services, &mut random)).collect();
    let profiles = services.iter().filter_map(|service| Some((service.profile.clone()?, solo(&mut random))));
    let neighbours = Neighbours { profiles: profiles.collect(), ..Neighbours::default() };
    let workload = Workload { neighbours, ..Workload::of(&sample).on(&cluster) };
    let mut placer = Placer::new(Policy::parse("weir", &workload)?);
    let mut tenants = Vec::new();
    let mut coming = 0u64;
    while cluster.totals().requests < u64::from(cluster.totals().gpus) * FILLED {
        arrive(&mut cluster, &mut placer, &mut tenants, &mut coming, (&services, &mut random))?;
    }
    let mut step = |cluster: &mut Cluster| -> Result<(), Fault> {
        let leaver = tenants.swap_remove(random.random_range(0..tenants.len()));
        cluster.remove(&leaver);
        arrive(cluster, &mut placer, &mut tenants, &mut coming, (&services, &mut random))
    };
    (0..WARM_UP).try_for_each(|_| step(&mut cluster))?;
    let began = processor_seconds();
    (0..decisions).try_for_each(|_| step(&mut cluster))?;
    let seconds = processor_seconds() - began;
    Ok(Case {
        gpus: cluster.totals().gpus,
        tenants: of,
        nodes: cluster.nodes().count(),
        decisions,
        decisions_per_s: decisions as f64 / seconds,
        microseconds_each: seconds * 1e6 / decisions as f64,
        states: cluster.states().count(),
        kinds_of_demand: workload.kinds.len(),
        resident_mib: resident_mib(),
    })
}

/// One demand comes; where there is no room for it the next one does.
fn arrive(
    cluster: &mut Cluster,
    placer: &mut Placer,
    tenants: &mut Vec<String>,
    coming: &mut u64,
    (services, random): (&[Demand], &mut ChaCha12Rng),
) -> Result<(), Fault> {
    let demand = next(services, random);
    if let Ok(spot) = placer.decide(cluster, &demand, random) {
        *coming += 1;
        let name = format!("tenant-{coming}");
        cluster.place(&name, &demand, &spot)?;
        tenants.push(name);
    }
    Ok(())
}

/// Nodes of eight, four and two GPUs in turn, of three classes.
fn cluster(gpus: u32) -> Result<Cluster, Fault> {
    let mut cluster = Cluster::new(Bounds::default());
    let watts = |name: &str, gib, idle_watts, full_watts| DeviceClass {
        idle_watts,
        full_watts,
        ..DeviceClass::new(name, Bytes::gib(gib))
    };
    let classes =
        [watts("H100", 80, 70.0, 700.0), watts("A100", 80, 50.0, 400.0), watts("A10", 24, 30.0, 150.0)];
    let mut ids = Vec::new();
    for class in classes {
        ids.push(cluster.add_class(class)?);
    }
    let mut missing = gpus;
    for number in 0usize.. {
        let size = [8u8, 8, 4, 8, 2][number % 5];
        if missing < u32::from(size) {
            break;
        }
        missing -= u32::from(size);
        let (cpu, memory) = (MilliCpu(u32::from(size) * 16_000), Bytes::gib(u64::from(size) * 128));
        let (name, class) = (format!("node-{number:06}"), Some(ids[number % 3]));
        cluster.add_node(NodeSpec { name, cpu, memory, gpus: size, class, site: 0 })?;
    }
    Ok(cluster)
}

/// An instance of one of the services; a tenant of its own where there are none.
fn next(services: &[Demand], random: &mut ChaCha12Rng) -> Demand {
    match services.len() {
        0 => draw(random),
        some => services[random.random_range(0..some)].clone(),
    }
}

/// A profile: at work for a tenth of the time to half of it, and half as fast at its request as alone.
fn solo(random: &mut ChaCha12Rng) -> Solo {
    let busy = f64::from(random.random_range(10..=50u32)) / 100.0;
    Solo { uses: Uses::new(busy, busy / 10.0, 0.0), worst: 2.0 }
}

fn draw(random: &mut ChaCha12Rng) -> Demand {
    let mut one_of = |choices: &[u16]| choices[random.random_range(0..choices.len())];
    let kind = one_of(&[0, 0, 0, 1, 2]);
    let cpu = |cpus: u16| MilliCpu(u32::from(cpus) * 1_000);
    match kind {
        0 => {
            let request = SmShare::permille(one_of(&[100, 200, 300, 400]));
            let limit = SmShare::permille(request.as_permille() * 3 / 2);
            let gpu_memory = Bytes::gib(one_of(&[2, 4, 8]).into());
            Demand { request, limit, gpu_memory, cpu: cpu(one_of(&[1, 2, 4])), ..Demand::share(request) }
        }
        1 => {
            let request = SmShare::permille(one_of(&[300, 500, 700]));
            let gpu_memory = Bytes::gib(one_of(&[16, 28, 40]).into());
            Demand { gpu_memory, cpu: cpu(one_of(&[4, 8])), kind: Kind::Llm, ..Demand::share(request) }
        }
        _ => {
            let count = one_of(&[1, 2, 4]);
            let whole = Demand::whole(u8::try_from(count).unwrap_or(1));
            let gpu_memory = Bytes::gib(one_of(&[16, 22]).into());
            Demand { gpu_memory, cpu: cpu(count * one_of(&[4, 8, 12])), kind: Kind::Training, ..whole }
        }
    }
}

/// Processor time of this thread: what others take of the core does not count.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Resident memory of this process.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(f64::INFINITY, |kib| kib / 1024.0)
}
