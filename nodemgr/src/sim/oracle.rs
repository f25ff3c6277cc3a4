//! What somebody could do who knew all arrivals: a bound on the work of fillers under a promise.
//!
//! The GPU's time less the least that the requests need of it. That least is what remains when requests wait for each
//! other as long as the promise lets them, so that they share as many passes and steps as can be:
//!
//! * each prompt costs what it adds to a batch (`prefill_each_ms`), whatever anybody knows;
//! * a pass over a batch of prompts must lie between a request's arrival and the last moment at which it still keeps the
//!   promise; the fewest passes that serve all are found by always waiting for the most urgent one (the points that stab
//!   all intervals: greedy by the ends is optimal), and are no fewer than the batch's size allows;
//! * decode steps likewise, as many for each request as it has tokens. Where the promise is one between tokens, prompts
//!   are read as they come: else it would be kept best by letting everybody wait for a full batch.
//!
//! The bound is no schedule: nothing is paid for switches, passes and steps may coincide, and their own length does not
//! delay anybody. So it lies above what any schedule reaches that keeps the promise for *every* request; a policy may use
//! the few misses that a quantile allows.

use weir_simgpu_model::Nanos;

use super::engine::START;
use super::random::Random;
use super::scenario::{Inference, Metric, Promise, Scenario};
use super::workload::arrivals;

/// What one request asks for: so many visits between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Visits {
    from: Nanos,
    to: Nanos,
    count: u64,
}

/// The most work, ns, that fillers can do in the window beside the server at this position; none if it is no server or
/// promises nothing. The requests are those of a run: the same seed draws the same.
pub fn most_filler_work(scenario: &Scenario, at: usize) -> Option<Nanos> {
    let tenant = scenario.tenant.get(at)?;
    let spec = tenant.inference.as_ref()?;
    let window = scenario.window();
    let mut random = Random::new(scenario.seed, at as u64);
    let moments = arrivals(&spec.arrivals, &mut random, START, window.to);
    let requests = moments.into_iter().map(|arrived| (arrived, spec.draw_tokens(&mut random)));
    let requests: Vec<_> = requests.filter(|(arrived, _)| *arrived >= window.from).collect();
    let least = least_work(spec, (tenant.promise()?, tenant.slo_on), &requests);
    Some(window.length().saturating_sub(least))
}

fn least_work(spec: &Inference, (promise, metric): (Promise, Metric), requests: &[(Nanos, u32)]) -> Nanos {
    let target = promise.target.0;
    let pass = spec.prefill(0); // what a batch costs, whoever is in it
    let step = spec.decode();
    let all = |of: fn(u32) -> u64| requests.iter().map(|(_, tokens)| of(*tokens)).sum::<u64>();
    let room = spec.batch.max(1) as u64;
    let each = spec.prefill(1).saturating_sub(pass) * requests.len() as u64;
    // Between tokens: a prompt is read as it comes, and its tokens follow within the bound for each of them.
    let last = |arrived: Nanos, tokens: u32| match metric {
        Metric::Request => arrived + target,
        Metric::FirstToken => NEVER,
        Metric::PerToken => arrived + spec.prefill(1) + target * u64::from(tokens),
    };
    let first = |arrived: Nanos| match metric {
        Metric::Request | Metric::FirstToken => arrived + target,
        Metric::PerToken => arrived + spec.prefill(1) + target,
    };
    let passes = requests.iter().map(|(at, _)| Visits { from: *at, to: first(*at), count: 1 });
    let passes = fewest(passes.collect()).max(all(|_| 1).div_ceil(room));
    let steps = requests.iter().map(|(at, tokens)| {
        let count = u64::from(tokens - 1);
        Visits { from: *at, to: last(*at, *tokens), count }
    });
    let steps = fewest(steps.collect()).max(all(|tokens| u64::from(tokens - 1)).div_ceil(room));
    each + passes * pass + steps * step
}

/// Later than everything.
const NEVER: Nanos = u64::MAX / 4;

/// The fewest points such that each request has as many as it asks for: the most urgent first, as late as it may be. What
/// is counted twice at one place is two points.
fn fewest(mut requests: Vec<Visits>) -> u64 {
    requests.sort_unstable_by_key(|request| request.to);
    let mut points: Vec<(Nanos, u64)> = Vec::new(); // in order, with how many lie there
    let mut sum = 0;
    for request in requests {
        let after = points.partition_point(|(at, _)| *at < request.from);
        let has: u64 = points[after..].iter().map(|(_, count)| count).sum();
        let lacks = request.count.saturating_sub(has);
        if lacks > 0 {
            points.push((request.to, lacks));
            sum += lacks;
        }
    }
    sum
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
        assert_eq!(fewest(vec![visits(0, 10), visits(5, 15), visits(12, 22)]), 2);
        assert_eq!(
            fewest(vec![Visits { from: 0, to: 10, count: 3 }, Visits { from: 5, to: 15, count: 5 }]),
            5
        );
    }

    #[test]
    fn of_a_server_whose_requests_share_nothing_the_least_work_is_that_of_each() {
        let spec = Inference { prefill_each_ms: 10.0, tokens: 1.0, batch: 1, ..Inference::default() };
        let promise = Promise { quantile_permille: 950, target: Time(100 * MS) };
        let requests = [(5 * MS, 1), (6 * MS, 1), (700 * MS, 1)];
        assert_eq!(least_work(&spec, (promise, Metric::Request), &requests), 30 * MS);
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
            prop_assert_eq!(fewest(requests.clone()), u64::from(best.unwrap_or(0)));
        }
    }
}
