//! When requests arrive.

use weir_simgpu_model::Nanos;

use crate::sim::random::Random;
use crate::sim::scenario::Arrivals;

/// A second.
const SECOND: f64 = 1e9;

/// The moments of all requests until `end`, in order: at a rate with exponential gaps (Poisson) or gamma-distributed ones
/// of a coefficient of variation (Dilu's generators, papers 1.2), or after a trace of one rate for each second, over and
/// over, Poisson within the second.
pub fn arrivals(spec: &Arrivals, random: &mut Random, start: Nanos, end: Nanos) -> Vec<Nanos> {
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
        let mut at = second;
        while rate > 0.0 {
            at += random.exponential(SECOND / rate);
            if at >= over {
                break;
            }
            moments.push(whole(at));
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
        let moments = arrivals(spec, &mut random, 0, seconds * 1_000_000_000);
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
    fn a_trace_is_followed_second_by_second_and_begins_anew() {
        let spec = Arrivals { trace_per_s: Some(vec![0.0, 100.0]), times: 10.0, ..Arrivals::default() };
        let rates = rates(&spec, 4);
        assert_eq!((rates[0], rates[2]), (0, 0));
        assert!((900..1_100).contains(&rates[1]) && (900..1_100).contains(&rates[3]), "{rates:?}");
    }
}
