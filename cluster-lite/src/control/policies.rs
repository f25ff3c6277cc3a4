//! The placement and scaling libraries, as the state machine asks them. Their decisions are proposals: what has no room is never
//! reserved, and counts and shares stay within the service's bounds.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weir_nodemgr::calibration::Draw;
use weir_protocol::units::{Bytes, Nanos, SmShare, Tokens};

use super::decide::{Load, Placing, Scaling, Wish};
use super::model::{Place, Service, WhenIdle};
use super::room::Room;
use crate::cluster::{Bounds, Cluster, Demand, DeviceClass, Kind, MilliCpu, NodeSpec, Slice, Spot};
use crate::fault::Fault;
use crate::place::{Explanation, Placer, Policy, Refusal, Workload};
use crate::profile;
use crate::scale::{self, Rules, Scaler, Seen, Speed};

/// Limits on a GPU are no promises: the node manager lends what is left, so placement does not bound their sum.
const LIMITS_UNBOUND: u32 = 1_000_000;

/// GPU time of a request of which nothing was measured.
const UNKNOWN_WORK: Tokens = Tokens(10_000_000);

/// How often the scaling library is asked: its rules count seconds.
const ASKED_EVERY: Nanos = Nanos::from_secs(1);

/// Nodes that a decision names.
const SHOWN: usize = 3;

/// Waking from the host, as a part of a start.
const UNPARK_PART: u64 = 10;

/// Placement by one of the library's policies.
pub struct ByPolicy {
    policy: String,
    random: ChaCha8Rng,
    services: Vec<Service>,
}

impl ByPolicy {
    /// The policy of this name or sum, for these services.
    ///
    /// # Errors
    /// There is none.
    pub fn new(policy: &str, services: &[Service], seed: u64) -> Result<Self, Fault> {
        Policy::parse(policy, &Workload::default())?;
        let random = ChaCha8Rng::seed_from_u64(seed);
        Ok(Self { policy: policy.to_owned(), random, services: services.to_vec() })
    }
}

impl Placing for ByPolicy {
    fn place(&mut self, service: &Service, rooms: &[Room]) -> Result<(Place, String), String> {
        let cluster = cluster_of(rooms).map_err(|error| error.to_string())?;
        let demands: Vec<Demand> = self.services.iter().map(demand).collect();
        let workload = Workload::of(&demands);
        let policy = Policy::parse(&self.policy, &workload).map_err(|fault| fault.message)?;
        // A controller places a few times a minute: a fresh cluster each time has nothing that could differ from what is kept.
        let decided = Placer::new(policy).explain(&cluster, &demand(service), &mut self.random, SHOWN);
        let (spot, reasons) = decided.map_err(|refusal: Refusal| refusal.to_string())?;
        let gpu = spot.slices.first().map_or(0, |slice| usize::from(slice.gpu));
        Ok((Place { node: cluster.name(spot.node).to_owned(), gpu }, said(&reasons)))
    }
}

/// What a decision has to say for itself, in a line.
fn said(reasons: &Explanation) -> String {
    let others = reasons.candidates.iter().filter(|other| other.node != reasons.node);
    let others: Vec<_> = others.map(|other| format!("{} {:.3}", other.node, other.rating)).collect();
    let against = match (others.is_empty(), reasons.without_room) {
        (false, _) => format!(" against {}", others.join(", ")),
        (true, 0) => String::new(),
        (true, full) => format!(", {full} without room"),
    };
    format!("`{}` rates it {:.3}{against}", reasons.policy, reasons.rating)
}

fn demand(service: &Service) -> Demand {
    let kind = match service.profile.as_ref().map(|profile| profile.kind) {
        Some(profile::Kind::Training) => Kind::Training,
        Some(profile::Kind::Llm) => Kind::Llm,
        Some(profile::Kind::Filler) => Kind::Filler,
        Some(profile::Kind::Inference) | None => Kind::Inference,
    };
    Demand {
        gpus: 1,
        request: service.budget.request,
        limit: service.budget.limit,
        gpu_memory: service.budget.memory,
        kind,
        service: Some(service.name.as_str().into()),
        ..Demand::default()
    }
}

/// The library's view of what is reserved.
fn cluster_of(rooms: &[Room]) -> Result<Cluster, crate::cluster::ClusterError> {
    let mut cluster = Cluster::new(Bounds { requests: 1000, limits: LIMITS_UNBOUND });
    let mut nodes: BTreeMap<&str, Vec<&Room>> = BTreeMap::new();
    for room in rooms {
        nodes.entry(&room.place.node).or_default().push(room);
    }
    // Beside cards of which it is known what they draw the others would seem to draw nothing.
    let measured = rooms.iter().all(|room| room.draw.is_some());
    for (name, rooms) in nodes {
        let Some(first) = rooms.first() else { continue };
        let class = cluster.add_class(class_of(first, measured))?;
        let gpus = rooms.iter().map(|room| room.place.gpu + 1).max().unwrap_or(0);
        let node = cluster.add_node(NodeSpec {
            name: name.to_owned(),
            cpu: MilliCpu(0),
            memory: Bytes(0),
            gpus: u8::try_from(gpus).unwrap_or(u8::MAX),
            class: Some(class),
            site: 0,
        })?;
        for room in rooms {
            let gpu = u8::try_from(room.place.gpu).unwrap_or(u8::MAX);
            for (tenant, service, request, memory) in tenants(room) {
                let demand = Demand {
                    gpus: 1,
                    request,
                    limit: request.max(SmShare::permille(1)),
                    gpu_memory: memory,
                    service: service.map(Into::into),
                    ..Demand::default()
                };
                let slice = Slice { gpu, request, limit: demand.limit, memory };
                // What does not fit is over already: the state machine's own sums keep others away from there.
                let _ = cluster.place(&tenant, &demand, &Spot { node, slices: vec![slice] });
            }
        }
    }
    Ok(cluster)
}

/// A node's kind of GPU. What it draws is part of that if it is `measured` of all, to ten watts: cards of one kind differ by some, and
/// kinds are few.
fn class_of(room: &Room, measured: bool) -> DeviceClass {
    let kind = format!("{} of {}", room.device, room.memory);
    let Some(Draw { idle_mw, busy_mw }) = room.draw.filter(|_| measured) else {
        return DeviceClass::new(kind, room.memory);
    };
    let [idle_watts, full_watts] = [idle_mw, busy_mw].map(|mw| 10.0 * (f64::from(mw) / 10e3).round());
    let name = format!("{kind}, {idle_watts} to {full_watts} W");
    DeviceClass { idle_watts, full_watts, ..DeviceClass::new(name, room.memory) }
}

/// Everybody on a GPU: name, service, request, memory.
fn tenants(room: &Room) -> Vec<(String, Option<&str>, SmShare, Bytes)> {
    let ours = room.residents.iter().map(|(id, service, budget)| {
        (format!("{id}"), Some(service.as_str()), budget.request, budget.memory)
    });
    let strangers = (room.foreign_request > SmShare::ZERO || room.foreign_memory > Bytes(0))
        .then(|| (format!("strangers on {}", room.place), None, room.foreign_request, room.foreign_memory));
    ours.chain(strangers).collect()
}

/// Scaling by one of the library's policies.
pub struct ByScaler {
    row: &'static scale::Row,
    rules: Rules,
    services: BTreeMap<String, Scaled>,
}

struct Scaled {
    scaler: Box<dyn Scaler>,
    known: scale::Service,
    asked_at: Nanos,
    arrived: u64,
    wish: Option<Wish>,
}

impl ByScaler {
    /// The policy of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn new(policy: &str, rules: Rules) -> Result<Self, Fault> {
        let row = scale::scaler(policy).ok_or_else(|| {
            let names: Vec<_> = scale::SCALERS.iter().map(|row| row.name).collect();
            let near = crate::nearest::nearest(policy, names.iter().copied());
            let help = near.map_or_else(
                || format!("take one of {}", names.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            Fault::new(format!("there is no scaling policy `{policy}`"), help)
        })?;
        Ok(Self { row, rules, services: BTreeMap::new() })
    }
}

impl Scaling for ByScaler {
    fn wish(&mut self, now: Nanos, service: &Service, load: &Load) -> Wish {
        let scaled = self.services.entry(service.name.clone()).or_insert_with(|| Scaled {
            scaler: (self.row.build)(&self.rules),
            known: known(service),
            asked_at: Nanos(0),
            arrived: load.arrived,
            wish: None,
        });
        let wakes = load.serving == 0 && load.queued > 0;
        if scaled.wish.is_none() || now.since(scaled.asked_at) >= ASKED_EVERY {
            // A gateway that has started anew counts from zero.
            let arrived = load.arrived.checked_sub(scaled.arrived).unwrap_or(load.arrived);
            let wish = scaled.scaler.wish(&scaled.known, &seen(now, arrived, load));
            (scaled.asked_at, scaled.arrived) = (now, load.arrived);
            scaled.wish = Some(Wish { instances: wish.instances, share: wish.share, why: wish.why.into() });
        }
        let wish = scaled.wish.clone();
        let wish = wish.unwrap_or(Wish { instances: 0, share: service.budget.request, why: String::new() });
        if !wakes || wish.instances > 0 {
            return wish;
        }
        // Whoever waits for a service that is at zero does not wait for the next second, too; until then it stays wished for.
        let why = "somebody waits, and there is none".into();
        let wish = Wish { instances: 1, share: service.budget.request, why };
        scaled.wish = Some(wish.clone());
        wish
    }
}

fn seen(now: Nanos, arrived: u64, load: &Load) -> Seen {
    Seen {
        now,
        arrived,
        arrived_work: None,
        queued: load.queued,
        queued_work: None,
        running: load.outstanding,
        ready: load.ready,
        starting: load.serving - load.ready,
        draining: load.draining,
        parked: load.parked,
        share: load.share,
        room: load.room,
    }
}

/// What the library wants to know beforehand: measured where there is a profile, assumed where there is none.
fn known(service: &Service) -> scale::Service {
    let profile = service.profile.as_ref();
    let measured = profile.and_then(|profile| profile.inference.as_ref());
    let own = measured.map_or(Nanos(0), |measured| nanos(measured.latency_ms));
    let work = profile.and_then(request_ms).map_or(UNKNOWN_WORK, |ms| Tokens(nanos(ms).0.cast_signed()));
    let unpark = Nanos(service.cold_start.0 / UNPARK_PART);
    scale::Service {
        floor: service.floor,
        ceiling: service.ceiling,
        shares: service.shares,
        request: service.budget.request,
        speed: profile.and_then(speed).unwrap_or_else(Speed::proportional),
        batch: service.concurrency,
        // Requests at the same time take turns on the share unless a batch was measured.
        batch_slope: 1.0,
        mean_work: work,
        patience: service.slo.map_or(service.queue_deadline, |slo| slo.bound.since(own)),
        cold_start: service.cold_start,
        unpark: (service.when_idle == WhenIdle::Park).then_some(unpark),
    }
}

/// What a request takes of an instance that has a whole GPU and a full batch, in milliseconds. That is more than its kernels take where
/// the host keeps it, and speeds are in the same unit: nobody is faster for the share that he leaves. Of what is no single request (an
/// LLM's token) only its kernels' time is known.
fn request_ms(profile: &profile::Profile) -> Option<f64> {
    let inference = profile.inference.as_ref().filter(|_| profile.kind == profile::Kind::Inference);
    let whole = inference.map(|inference| inference.latency_alone_ms / f64::from(inference.batch));
    whole.or(profile.throughput.gpu_ms)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a checked profile has at most 10^15"
)]
fn nanos(ms: f64) -> Nanos {
    Nanos((ms * 1e6) as u64)
}

/// From the probes of the batch that was chosen.
fn speed(profile: &profile::Profile) -> Option<Speed> {
    let batch = profile.inference.as_ref()?.batch;
    let probes = profile.measured.probes.iter().filter(|probe| probe.batch == Some(batch));
    let mut points: Vec<_> = probes.filter_map(|probe| Some((probe.share, probe.latency_ms?))).collect();
    points.sort_by_key(|(share, _)| *share);
    points.dedup_by_key(|(share, _)| *share);
    Speed::from_latencies(&points).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::Config;

    #[test]
    fn the_card_that_was_calibrated_to_draw_less_is_woken_first() {
        let text = "dir = \"x\"\n[[node]]\nname = \"n\"\ndir = \"/n\"\n[[service]]\nname = \"s\"\ncommand = [\"c\", \"{port}\"]\n\
                    request = \"30%\"\nmemory = \"1GiB\"\n";
        let config = Config::parse(text, std::path::Path::new("cluster.toml")).unwrap();
        let room = |node: &str, busy_mw| Room {
            place: Place { node: node.into(), gpu: 0 },
            device: "A100".into(),
            memory: Bytes::gib(40),
            foreign_request: SmShare::ZERO,
            foreign_memory: Bytes(0),
            draw: Some(Draw { idle_mw: 55_000, busy_mw }),
            residents: Vec::new(),
        };
        let cases = ["pwr", "weir"].into_iter().flat_map(|policy| [(policy, "a", "b"), (policy, "b", "a")]);
        for (policy, thirsty, frugal) in cases {
            let rooms = [room(thirsty, 403_000), room(frugal, 298_000)];
            let mut placing = ByPolicy::new(policy, &config.fleet.services, 1).unwrap();
            let (place, _) = placing.place(&config.fleet.services[0], &rooms).unwrap();
            assert_eq!(place.node, frugal, "{policy}");
        }
        let unknown = Room { draw: None, ..room("a", 0) };
        let mut placing = ByPolicy::new("pwr", &config.fleet.services, 1).unwrap();
        let rooms = [room("b", 403_000), Room { place: Place { node: "c".into(), gpu: 0 }, ..unknown }];
        let rated = cluster_of(&rooms).unwrap();
        assert!(rated.classes().iter().all(|class| class.waking_watts() == 0.0), "of one nothing is known");
        placing.place(&config.fleet.services[0], &rooms).unwrap();
        let class = class_of(&room("a", 403_000), true);
        assert_eq!((class.idle_watts, class.full_watts), (60.0, 400.0));
    }

    #[test]
    fn an_instance_that_was_started_for_somebody_who_waits_stays_until_the_policy_is_asked_again() {
        let text = "dir = \"x\"\n[[node]]\nname = \"n\"\ndir = \"/n\"\n[[service]]\nname = \"s\"\ncommand = [\"c\", \"{port}\"]\n\
                    request = \"30%\"\nmemory = \"1GiB\"\n";
        let config = Config::parse(text, std::path::Path::new("cluster.toml")).unwrap();
        let service = &config.fleet.services[0];
        for row in scale::SCALERS {
            let mut scaling = ByScaler::new(row.name, Rules::default()).unwrap();
            let mut wish = |tenths: u64, load: &Load| {
                scaling.wish(Nanos::from_millis(100_000 + 100 * tenths), service, load).instances
            };
            wish(0, &Load::default());
            let waits = Load { arrived: 1, queued: 1, ..Load::default() };
            assert_eq!(wish(5, &waits), 1, "{}", row.name);
            let starting = Load { serving: 1, ..waits };
            assert!((6..30).all(|tenths| wish(tenths, &starting) >= 1), "{}", row.name);
        }
    }

    #[test]
    fn a_server_that_its_host_keeps_does_as_many_requests_as_were_measured_and_no_more() {
        // 70 of 120 ms are the host's: by its kernels alone it would do 94 requests/s at 30 %.
        let profile = "version = 1\nname = \"s\"\nkind = \"inference\"\nrequest = \"30%\"\nlimit = \"60%\"\nmemory = \"1GiB\"\n\
                       [throughput]\nunit = \"requests/s\"\nalone = 66.7\nat_request = 40.6\ngpu_ms = 6.25\n\
                       [inference]\nbatch = 8\nslo = \"p95 < 200ms\"\nlatency_ms = 197.0\nlatency_alone_ms = 120.0\n\
                       [copies]\nhost_to_device_gb_s = 0.0\ndevice_to_host_gb_s = 0.0\n\
                       [stalls]\ncompute = 0.42\ncommunication = 0.0\ncopies = 0.0\nneighbour = 0.0\ngate = 0.0\n\
                       host = 0.58\nbubble = 0.58\n\
                       [measured]\ndevice = \"d\"\nsimulated = true\ndate = \"2026-11-26\"\ncommand = [\"c\"]\n\
                       [[measured.probe]]\nshare = \"30%\"\nbatch = 8\nthroughput = 40.6\ndeviation = 0.1\nlatency_ms = 197.0\n\
                       [[measured.probe]]\nshare = \"100%\"\nbatch = 8\nthroughput = 66.7\ndeviation = 0.1\nlatency_ms = 120.0\n";
        let text = "dir = \"x\"\n[[node]]\nname = \"n\"\ndir = \"/n\"\n[[service]]\nname = \"s\"\ncommand = [\"c\", \"{port}\"]\n\
                    request = \"30%\"\nmemory = \"1GiB\"\nslo = \"p95 < 500ms\"\n";
        let config = Config::parse(text, std::path::Path::new("cluster.toml")).unwrap();
        let profile = profile::Profile::parse(profile, std::path::Path::new("s.toml")).unwrap();
        let known = known(&Service { profile: Some(profile), ..config.fleet.services[0].clone() });
        let rate = |share: u16| known.capacity(SmShare::percent(share)) * 1e9 / known.mean_work.0 as f64;
        assert!(
            (rate(30) - 40.6).abs() < 0.1 && (rate(100) - 66.7).abs() < 0.1,
            "{} {}",
            rate(30),
            rate(100)
        );
        assert_eq!(known.patience, Nanos::from_millis(303), "beyond its own time");
    }
}
