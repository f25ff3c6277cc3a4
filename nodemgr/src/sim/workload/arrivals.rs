//! When requests arrive.

use weir_simgpu_model::Nanos;

use crate::sim::random::Random;
use crate::sim::scenario::{Arrivals, Recorded};

/// A second.
const SECOND: f64 = 1e9;

/// A request that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Nanos,
    /// How many tokens it wants, where that was recorded.
    pub tokens: Option<u32>,
}

impl From<Nanos> for Arrival {
    fn from(at: Nanos) -> Self {
        Self { at, tokens: None }
    }
}

/// All requests until `end`, in order: at a rate, or as a trace has them.
pub fn arrivals(spec: &Arrivals, random: &mut Random, start: Nanos, end: Nanos) -> Vec<Arrival> {
    match &spec.trace {
        Some(_) => replay(&spec.recorded, spec.times, start, end),
        None => moments(spec, random, start, end).into_iter().map(Arrival::from).collect(),
    }
}

/// A recorded trace, so many times as fast; when it has come to its end it begins anew, after as long as there is between two
/// requests in the mean.
fn replay(recorded: &[Recorded], times: f64, start: Nanos, end: Nanos) -> Vec<Arrival> {
    let last = recorded.last().map_or(0, |last| last.at) as f64;
    let length = (last + last / recorded.len().saturating_sub(1).max(1) as f64).max(SECOND);
    let rounds = (0u32..).map(|round| f64::from(round) * length);
    let requests = rounds.flat_map(|from| recorded.iter().map(move |request| (from, request)));
    let moments = requests.map(|(from, request)| Arrival {
        at: start.saturating_add(whole((from + request.at as f64) / times)),
        tokens: request.tokens,
    });
    if recorded.is_empty() { Vec::new() } else { moments.take_while(|arrival| arrival.at < end).collect() }
}

/// The moments of all requests until `end`, in order: at a rate with exponential gaps (Poisson) or gamma-distributed ones
/// of a coefficient of variation (Dilu's generators, papers 1.2), or after a trace of one rate for each second, over and
/// over, Poisson within the second.
fn moments(spec: &Arrivals, random: &mut Random, start: Nanos, end: Nanos) -> Vec<Nanos> {
    let mut moments = Vec::new();
    match (&spec.trace_per_s, spec.per_s) {
        (Some(trace), _) if !trace.is_empty() => {
            follow(trace, spec.times, random, (start, end), &mut moments)
        }
        (_, Some(rate)) if rate > 0.0 => {
            let mut at = start as f64;
            loop {
                at += random.gamma(SECOND / rate, spec.cv);
                if at >= end as f64 {
                    break;
                }
                moments.push(whole(at));
            }
        }
        _ => {}
    }
    moments
}

fn follow(
    trace: &[f64],
    times: f64,
    random: &mut Random,
    (start, end): (Nanos, Nanos),
    moments: &mut Vec<Nanos>,
) {
    let mut second = start as f64;
    for rate in trace.iter().cycle() {
        let over = (second + SECOND).min(end as f64);
        let rate = rate * times;
        if rate > 0.0 {
            let next = |at: &f64, random: &mut Random| at + random.exponential(SECOND / rate);
            let mut at = next(&second, random);
            while at < over {
                moments.push(whole(at));
                at = next(&at, random);
            }
        }
        second += SECOND;
        if second >= end as f64 {
            return;
        }
    }
}

/// Times are positive and far below 2^53 ns, three months.
#[allow(clippy::cast_possible_truncation, reason = "see above")]
#[allow(clippy::cast_sign_loss, reason = "see above")]
fn whole(at: f64) -> Nanos {
    at as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(spec: &Arrivals, seconds: u64) -> Vec<usize> {
        let mut random = Random::new(3, 0);
        let moments = moments(spec, &mut random, 0, seconds * 1_000_000_000);
        assert!(moments.is_sorted());
        (0..seconds).map(|s| moments.iter().filter(|at| **at / 1_000_000_000 == s).count()).collect()
    }

    #[test]
    fn requests_come_at_their_rate_however_bursty() {
        for cv in [0.0, 1.0, 3.0] {
            let spec = Arrivals { per_s: Some(50.0), cv, ..Arrivals::default() };
            let count: usize = rates(&spec, 400).iter().sum();
            assert!((count as f64 / 20_000.0 - 1.0).abs() < 0.05, "{count} at a variation of {cv}");
        }
    }

    #[test]
    fn a_recorded_trace_is_replayed_at_its_pace_or_another_and_begins_anew() {
        let second = 1_000_000_000;
        let recorded = [0, 2, 4].map(|s| Recorded { at: s * second, tokens: Some(7) }).to_vec();
        let replayed = |times: f64| {
            let spec = Arrivals {
                trace: Some("a.csv".into()),
                recorded: recorded.clone(),
                times,
                ..Arrivals::default()
            };
            let arrivals = arrivals(&spec, &mut Random::new(3, 0), 10 * second, 20 * second);
            assert!(arrivals.iter().all(|arrival| arrival.tokens == Some(7)));
            arrivals.iter().map(|arrival| arrival.at / second).collect::<Vec<_>>()
        };
        assert_eq!(replayed(1.0), [10, 12, 14, 16, 18]);
        assert_eq!(replayed(2.0), [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!(replayed(0.25), [10, 18]);
    }

    #[test]
    fn a_trace_is_followed_second_by_second_and_begins_anew() {
        let spec = Arrivals { trace_per_s: Some(vec![0.0, 100.0]), times: 10.0, ..Arrivals::default() };
        let rates = rates(&spec, 4);
        assert_eq!((rates[0], rates[2]), (0, 0));
        assert!((900..1_100).contains(&rates[1]) && (900..1_100).contains(&rates[3]), "{rates:?}");
    }
}
