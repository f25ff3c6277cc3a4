//! The scaling library, as the state machine asks it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_protocol::units::{Nanos, Tokens};

use crate::control::decide::{Load, Scaling, Wish};
use crate::control::model::{Service, WhenIdle};
use crate::control::work::mean_work;
use crate::fault::Fault;
use crate::profile;
use crate::scale::{self, Rules, Scaler, Seen, Speed};

/// How often the scaling library is asked: its rules count seconds.
const ASKED_EVERY: Nanos = Nanos::from_secs(1);

/// Waking from the host, as a part of a start.
const UNPARK_PART: u64 = 10;

/// Scaling by one of the library's policies.
pub struct ByScaler {
    row: &'static scale::Row,
    rules: Rules,
    services: BTreeMap<String, Scaled>,
    /// What another one remembered of services that this one was not yet asked about.
    remembered: BTreeMap<String, Remembered>,
}

struct Scaled {
    scaler: Box<dyn Scaler>,
    known: scale::Service,
    asked_at: Nanos,
    arrived: u64,
    arrived_work: u64,
    wish: Option<Wish>,
}

/// What outlives a controller: the gateway goes on counting meanwhile.
#[derive(Serialize, Deserialize)]
struct Remembered {
    scaler: Value,
    arrived: u64,
    arrived_work: u64,
}

/// The same of all services, by one policy.
#[derive(Default, Serialize, Deserialize)]
struct Memory {
    policy: String,
    services: BTreeMap<String, Remembered>,
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
        Ok(Self { row, rules, services: BTreeMap::new(), remembered: BTreeMap::new() })
    }
}

impl Scaling for ByScaler {
    fn wish(&mut self, now: Nanos, service: &Service, load: &Load) -> Wish {
        if load.untold {
            let why = "the gateway has not told yet who asks".into();
            return Wish { instances: load.serving, parked: load.parked, share: load.share, why };
        }
        let remembered = &mut self.remembered;
        let begin = || Scaled::begin((self.row.build)(&self.rules), service, load, remembered);
        let scaled = self.services.entry(service.name.clone()).or_insert_with(begin);
        let wakes = load.serving == 0 && load.queued > 0;
        if scaled.wish.is_none() || now.since(scaled.asked_at) >= ASKED_EVERY {
            // A gateway that has started anew counts from zero.
            let since = |all: u64, before: u64| all.checked_sub(before).unwrap_or(all);
            let arrived = since(load.arrived, scaled.arrived);
            let work = load.arrived_work.map(|all| since(all, scaled.arrived_work));
            let wish = scaled.scaler.wish(&scaled.known, &seen(now, arrived, work, load));
            (scaled.asked_at, scaled.arrived) = (now, load.arrived);
            scaled.arrived_work = load.arrived_work.unwrap_or(0);
            let scale::Wish { instances, share, why, .. } = wish;
            // A policy that knows nothing of parking keeps the last one.
            let parked = if self.row.parks { wish.parked } else { u32::from(instances == 0) };
            scaled.wish = Some(Wish { instances, parked, share, why: why.into() });
        }
        let wish = scaled.wish.clone();
        let nothing = || Wish { instances: 0, parked: 0, share: service.budget.request, why: String::new() };
        let wish = wish.unwrap_or_else(nothing);
        if !wakes || wish.instances > 0 {
            return wish;
        }
        // Whoever waits for a service that is at zero does not wait for the next second, too; until then it stays wished for.
        let why = "somebody waits, and there is none".into();
        let wish = Wish { instances: 1, share: service.budget.request, why, ..wish };
        scaled.wish = Some(wish.clone());
        wish
    }

    fn memory(&self) -> Value {
        let of = |(name, scaled): (&String, &Scaled)| {
            let Scaled { scaler, arrived, arrived_work, .. } = scaled;
            let (arrived, arrived_work) = (*arrived, *arrived_work);
            (name.clone(), Remembered { scaler: scaler.memory(), arrived, arrived_work })
        };
        let services = self.services.iter().map(of).collect();
        serde_json::to_value(Memory { policy: self.row.name.into(), services }).unwrap_or_default()
    }

    fn recall(&mut self, memory: Value) {
        let memory = serde_json::from_value::<Memory>(memory).unwrap_or_default();
        if memory.policy == self.row.name {
            self.remembered = memory.services;
        }
    }
}

impl Scaled {
    /// At the first question about a service, from what is remembered of it.
    fn begin(
        mut scaler: Box<dyn Scaler>,
        service: &Service,
        load: &Load,
        remembered: &mut BTreeMap<String, Remembered>,
    ) -> Self {
        let mut counted = (load.arrived, load.arrived_work.unwrap_or(0));
        if let Some(before) = remembered.remove(&service.name) {
            scaler.recall(before.scaler);
            counted = (before.arrived, before.arrived_work);
        }
        let (arrived, arrived_work) = counted;
        Self { scaler, known: known(service), asked_at: Nanos(0), arrived, arrived_work, wish: None }
    }
}

fn seen(now: Nanos, arrived: u64, arrived_work: Option<u64>, load: &Load) -> Seen {
    let tokens = |ns: u64| Tokens(i64::try_from(ns).unwrap_or(i64::MAX));
    Seen {
        now,
        arrived,
        arrived_work: arrived_work.map(tokens),
        queued: load.queued,
        queued_work: load.queued_work.map(tokens),
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
        mean_work: mean_work(service),
        patience: service.slo.map_or(service.queue_deadline, |slo| slo.bound.since(own)),
        cold_start: service.cold_start,
        unpark: (service.when_idle == WhenIdle::Park).then_some(unpark),
    }
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
    use weir_protocol::units::SmShare;

    use super::*;
    use crate::control::config::Config;

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

    /// Ten requests a second at one instance that does four: more instances are wished for after 20 of 40 s, whoever counts them.
    #[test]
    fn who_goes_on_after_another_one_has_not_forgotten_the_last_seconds() {
        let service = Service { ceiling: 40, ..crate::control::policies::tests::service("s") };
        for row in scale::SCALERS {
            let one = || ByScaler::new(row.name, Rules::default()).unwrap();
            let wish = |scaling: &mut ByScaler, second: u64| {
                let (share, room) = (service.budget.request, service.budget.request);
                let load =
                    Load { arrived: 10 * second, ready: 1, serving: 1, share, room, ..Load::default() };
                scaling.wish(Nanos::from_secs(100 + second), &service, &load)
            };
            let (mut lasting, mut first) = (one(), one());
            for second in 0..15 {
                assert_eq!(wish(&mut lasting, second), wish(&mut first, second));
            }
            let (mut next, memory) = (one(), first.memory());
            next.recall(memory.clone());
            // Before the gateway has answered nothing is counted, and nobody is started or ended for that.
            let share = service.budget.request;
            let untold = Load { untold: true, ready: 1, serving: 1, share, room: share, ..Load::default() };
            assert_eq!(next.wish(Nanos::from_secs(115), &service, &untold).instances, 1);
            for second in 15..60 {
                assert_eq!(wish(&mut lasting, second), wish(&mut next, second), "{}, {second} s", row.name);
            }
            let mut other = ByScaler::new(row.name, Rules { history_s: 41, ..Rules::default() }).unwrap();
            other.recall(memory);
            wish(&mut other, 15);
            assert_ne!(other.memory()["services"]["s"], next.memory()["services"]["s"], "by other rules");
        }
    }

    #[test]
    fn as_many_are_kept_parked_as_the_policy_wishes_and_the_last_one_where_it_knows_of_none() {
        let service = Service { when_idle: WhenIdle::Park, ..crate::control::policies::tests::service("s") };
        let rules = Rules { keep_parked: 3, forget_parked_s: 60, ..Rules::default() };
        for row in scale::SCALERS {
            let mut scaling = ByScaler::new(row.name, rules.clone()).unwrap();
            let mut parked = |seconds| {
                let wish = scaling.wish(Nanos::from_secs(seconds), &service, &Load::default());
                (wish.instances, wish.parked)
            };
            let first = parked(100);
            let last = (101..200).map(&mut parked).last().unwrap();
            let expected = |(instances, _)| if row.parks { [3, 0] } else { [u32::from(instances == 0); 2] };
            assert_eq!([first.1, last.1], expected(last), "{}: {first:?} {last:?}", row.name);
        }
    }

    /// Four requests a second, each a tenth of the mean, or ten times as much: a count sees no difference.
    #[test]
    fn a_policy_that_goes_by_work_gives_large_requests_more_than_small_ones() {
        let service = Service { ceiling: 40, ..crate::control::policies::tests::service("s") };
        let most = |policy: &str, factor: Option<u64>| {
            let mut scaling = ByScaler::new(policy, Rules::default()).unwrap();
            let mean = u64::try_from(mean_work(&service).0).unwrap();
            let wishes = (1..60).map(|second: u64| {
                let work = |requests: u64| factor.map(|tenths| requests * mean * tenths / 10);
                let (arrived, queued) = (400 * second, 400);
                let (arrived_work, queued_work) = (work(arrived), work(queued));
                let (share, room) = (service.budget.request, service.budget.request);
                let one = Load { ready: 1, serving: 1, outstanding: 8, share, room, ..Load::default() };
                let load = Load { arrived, queued, arrived_work, queued_work, ..one };
                scaling.wish(Nanos::from_secs(100 + second), &service, &load).instances
            });
            wishes.max().unwrap()
        };
        assert!(most("weir", Some(1)) < most("weir", None), "a tenth of the work");
        assert!(most("weir", Some(100)) > most("weir", None), "ten times the work");
        assert_eq!(most("weir-by-count", Some(100)), most("weir-by-count", None));
    }

    #[test]
    fn a_server_that_its_host_keeps_does_as_many_requests_as_were_measured_and_no_more() {
        // 70 of 120 ms are the host's: by its kernels alone it would do 94 requests/s at 30 %.
        let text = "dir = \"x\"\n[[node]]\nname = \"n\"\ndir = \"/n\"\n[[service]]\nname = \"s\"\ncommand = [\"c\", \"{port}\"]\n\
                    request = \"30%\"\nmemory = \"1GiB\"\nslo = \"p95 < 500ms\"\n";
        let config = Config::parse(text, std::path::Path::new("cluster.toml")).unwrap();
        let profile = crate::control::policies::tests::profile();
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
