//! What somebody could do who knew all arrivals and lengths: the work of fillers under a promise.
//!
//! The GPU's time less what the server needs of it. The server is what it is: it decides who takes part in a
//! pass when it begins to launch it, at a request's arrival or at the end of the pass before, and whoever rules the GPU can
//! only put that pass off.
//!
//! * *Without tokens* the answer is exact ([`passes`]): for each batch all moments that matter are tried, the first and
//!   those at which one more request has come by its end; each pass costs its work, and two switches where fillers ran
//!   before it. A quantile of the requests must keep the bound: a price for each that does not makes as many do so as may
//!   (Lagrange: the bound of any price is one, the best is taken).
//! * *Token by token* it is a schedule ([`steps`]) that keeps the promise *and the request*, pays for switches, and lets as many
//!   requests miss the bound as may: so an optimum that nobody has found can only be higher. Those requests wait as long as that
//!   saves steps, for many times the bound: a policy that does not know how long a request will be cannot choose them. Beside it
//!   stands the same schedule without a request: it may leave a server that has work nothing for seconds.
//!
//! Beside that stands, token by token, the least that a server needs of which *nobody* may miss the bound: each request needs
//! its steps between its first token and the last moment at which it still keeps the promise, a step serves all, and two
//! steps do not lie at the same place. The fewest that serve all are found by always serving the most urgent one as late as
//! may be. Nothing is paid for switches. It is a bound where there is room for whoever comes; who must wait for room has his
//! first token later, and more time than is reckoned with here.

mod backlog;
mod passes;
mod steps;

use weir_simgpu_model::Nanos;

use self::backlog::Guarantee;
use super::engine::START;
use super::measure::LONG_RUN;
use super::random::Random;
use super::scenario::{Inference, Metric, Promise, Scenario};
use super::workload::arrivals;

/// A schedule that gives the server more than its request keeps the request too, and is sometimes the better one: the steps that
/// it begins sooner are shared later. So schedules are made for so many thousandths more, and the best one counts.
const MORE_PERMILLE: [u64; 4] = [0, 10, 20, 40];

/// What one request asks for: so many visits between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Visits {
    from: Nanos,
    to: Nanos,
    count: u64,
}

/// What fillers can do in the window beside a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// Their work, ns.
    pub work: Nanos,
    /// The server's least in a long run in which it had work throughout, ns; none if there was no such time, or it has no
    /// tokens.
    pub least_of_long_run: Option<Nanos>,
}

/// The most work, ns, that fillers can do in the window beside a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// With a schedule that keeps the promise and the request; none if the bound is not one between tokens, or nobody can keep
    /// it.
    pub scheduled: Option<Scheduled>,
    /// The same if the request need not be kept; without tokens: the same as scheduled.
    pub without_request: Option<Scheduled>,
    /// Where nobody may miss the bound and nothing is paid for switches; without tokens: the same as scheduled.
    pub bound: Nanos,
}

/// What fillers can do beside the server at this position; none if it is no server or promises nothing. The requests are
/// those of a run: the same seed draws the same.
pub fn most_filler_work(scenario: &Scenario, at: usize) -> Option<Most> {
    let tenant = scenario.tenant.get(at)?;
    let spec = tenant.inference.as_ref()?;
    let window = scenario.window();
    let mut random = Random::new(scenario.seed, at as u64);
    let moments = arrivals(&spec.arrivals, &mut random, START, window.to);
    let requests = moments
        .into_iter()
        .map(|arrival| (arrival.at, arrival.tokens.unwrap_or_else(|| spec.draw_tokens(&mut random))));
    let requests: Vec<_> = requests.filter(|(arrived, _)| *arrived >= window.from).collect();
    let promise = (tenant.promise()?, tenant.slo_on);
    let left = |least: Nanos| window.length().saturating_sub(least);
    if requests.iter().all(|(_, tokens)| *tokens == 1) {
        let most = left(least_of_passes(spec, promise.0, scenario.switch(), &requests));
        let scheduled = Some(Scheduled { work: most, least_of_long_run: None });
        return Some(Most { scheduled, without_request: scheduled, bound: most });
    }
    let scheduled = |permille: u64| {
        let request = Guarantee { permille, long_run: LONG_RUN };
        let found = (promise.1 == Metric::PerToken)
            .then(|| least_scheduled(spec, promise.0, (scenario.switch(), request), &requests))??;
        Some(Scheduled { work: left(found.cost), least_of_long_run: found.least_of_long_run })
    };
    let guaranteed = tenant.request().ok().flatten().map_or(0, |share| u64::from(share.as_permille()));
    let kept = MORE_PERMILLE.into_iter().filter_map(|more| scheduled(guaranteed + more));
    Some(Most {
        scheduled: kept.max_by_key(|scheduled| scheduled.work),
        without_request: scheduled(0),
        bound: left(least_of_steps(spec, promise, &requests)),
    })
}

/// The requests that may miss the bound, in thousandths.
fn missed_permille(promise: Promise) -> u64 {
    1_000 - u64::from(promise.quantile_permille.min(1_000))
}

fn least_of_passes(spec: &Inference, promise: Promise, switch: Nanos, requests: &[(Nanos, u32)]) -> Nanos {
    let pass = spec.prefill(0); // what a batch costs, whoever is in it
    let each = spec.prefill(1).saturating_sub(pass);
    let arrived: Vec<Nanos> = requests.iter().map(|(arrived, _)| *arrived).collect();
    let (room, target) = (spec.batch.max(1), promise.target.0);
    passes::least(&passes::Server { pass, each, room, target, switch }, &arrived, missed_permille(promise))
}

fn least_scheduled(
    spec: &Inference,
    promise: Promise,
    (switch, request): (Nanos, Guarantee),
    requests: &[(Nanos, u32)],
) -> Option<steps::Found> {
    let pass = spec.prefill(0);
    let server = steps::Server {
        pass,
        each: spec.prefill(1).saturating_sub(pass),
        decode: spec.decode(),
        room: spec.batch.max(1),
        target: promise.target.0,
        switch,
        request,
    };
    let wants = |(arrived, tokens): &(Nanos, u32)| steps::Request { arrived: *arrived, tokens: *tokens };
    let requests: Vec<steps::Request> = requests.iter().map(wants).collect();
    steps::least(&server, &requests, missed_permille(promise))
}

fn least_of_steps(
    spec: &Inference,
    (promise, metric): (Promise, Metric),
    requests: &[(Nanos, u32)],
) -> Nanos {
    let target = promise.target.0;
    let room = spec.batch.max(1);
    let pass = spec.prefill(0);
    let each = spec.prefill(1).saturating_sub(pass);
    let passes = pass * (requests.len() as u64).div_ceil(room as u64);
    // Between tokens: a prompt is read when the step under way is done, and its tokens follow within the bound for each.
    let last = |arrived: Nanos, tokens: u32| match metric {
        Metric::Request => arrived + target,
        Metric::FirstToken => NEVER,
        Metric::PerToken => arrived + spec.prefill(1) + target * u64::from(tokens),
    };
    let steps = requests.iter().map(|(at, tokens)| {
        let count = u64::from(tokens - 1);
        Visits { from: at + spec.prefill(1), to: last(*at, *tokens), count }
    });
    let all: u64 = requests.iter().map(|(_, tokens)| u64::from(tokens - 1)).sum();
    let steps = fewest(steps.collect(), spec.decode().max(1)).max(all.div_ceil(room as u64));
    each * requests.len() as u64 + passes + steps * spec.decode()
}

/// Later than everything.
const NEVER: Nanos = u64::MAX / 4;

/// The fewest steps such that each request has as many as it asks for, one in each slot of time: the most urgent request
/// first, as late as may be. (Steps that lie apart by their length begin in different slots, so no schedule has fewer.) Who
/// cannot have as many as he asks for has all that he can.
fn fewest(requests: Vec<Visits>, slot: Nanos) -> u64 {
    let in_slots = |r: &Visits| (r.to.saturating_sub(slot - 1) / slot, r.from / slot, r.count);
    let mut rows: Vec<_> = requests.iter().map(in_slots).collect();
    rows.sort_unstable();
    let mut taken = std::collections::BTreeSet::new();
    for (last, first, count) in rows {
        let has = taken.range(first..=last.max(first)).count() as u64;
        let mut lacks = count.saturating_sub(has);
        for place in (first..=last).rev() {
            if lacks == 0 {
                break;
            }
            lacks -= u64::from(taken.insert(place));
        }
    }
    taken.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_protocol::units::Nanos as Time;

    const MS: Nanos = 1_000_000;

    #[test]
    fn requests_that_can_wait_for_each_other_share_a_pass() {
        let visits = |from, to| Visits { from, to, count: 1 };
        assert_eq!(fewest(vec![visits(0, 10), visits(5, 15), visits(12, 22)], 1), 2);
        assert_eq!(
            fewest(vec![Visits { from: 0, to: 10, count: 3 }, Visits { from: 5, to: 15, count: 5 }], 1),
            5
        );
    }

    #[test]
    fn of_a_server_whose_requests_share_nothing_the_least_work_is_that_of_each() {
        let spec = Inference { prefill_each_ms: 10.0, tokens: 1.0, batch: 1, ..Inference::default() };
        let promise = Promise { quantile_permille: 950, target: Time(100 * MS) };
        let requests = [(5 * MS, 1), (6 * MS, 1), (700 * MS, 1)];
        assert_eq!(least_of_passes(&spec, promise, 0, &requests), 30 * MS);
    }

    #[test]
    fn steps_take_their_time() {
        // Both need all of their time at the end: the second one cannot share what lies before it came.
        let visits = |from, to, count| Visits { from, to, count };
        assert_eq!(fewest(vec![visits(0, 100, 5), visits(80, 180, 5)], 10), 8);
        assert_eq!(fewest(vec![visits(0, 40, 9)], 10), 4, "no more than there is room for");
    }

    proptest! {
        #[test]
        fn no_choice_of_points_serves_all_with_fewer(rows in prop::collection::vec((0u64..8, 0u64..5), 1..6)) {
            let requests: Vec<Visits> =
                rows.iter().map(|(from, length)| Visits { from: *from, to: from + length, count: 1 }).collect();
            let serves = |points: u32| {
                requests.iter().all(|r| (r.from..=r.to).any(|at| points & (1 << at) != 0))
            };
            let best = (0u32..1 << 13).filter(|points| serves(*points)).map(u32::count_ones).min();
            prop_assert_eq!(fewest(requests.clone(), 1), u64::from(best.unwrap_or(0)));
        }
    }
}
