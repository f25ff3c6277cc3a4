//! The birth-death chain of one GPU: requests come at random, up to a concurrency run together, the rest queue.

use super::Load;

/// States beyond which nothing of weight is left, and most states ever.
const NEGLIGIBLE: f64 = 1e-10;
const MOST_STATES: usize = 20_000;

/// Requests finished a second when `together` run.
pub fn finished_per_s(load: &Load, together: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let count = together as f64;
    1_000.0 * count / (load.service_ms * load.curve.slowdown(together))
}

/// Milliseconds that `part` of the requests do not pass; infinite if more comes than is finished.
pub fn quantile_ms(load: &Load, together: usize, part: f64) -> f64 {
    let Some(states) = states(load, together) else { return f64::INFINITY };
    let late = |time_ms: f64| late(load, together, &states, time_ms);
    let allowed = 1.0 - part;
    let mut high = load.service_ms;
    while late(high) > allowed {
        high *= 2.0;
    }
    let mut low = high / 2.0;
    const ROUNDS: usize = 40;
    for _ in 0..ROUNDS {
        let middle = f64::midpoint(low, high);
        if late(middle) > allowed { low = middle } else { high = middle }
    }
    high
}

/// How likely an arriving request finds 0, 1, 2 ... others; nothing if more comes than is finished.
fn states(load: &Load, together: usize) -> Option<Vec<f64>> {
    if load.rate >= finished_per_s(load, together) {
        return None;
    }
    let mut weights = vec![1.0];
    let mut sum = 1.0;
    for count in 1..MOST_STATES {
        let weight = weights[count - 1] * load.rate / finished_per_s(load, count.min(together));
        weights.push(weight);
        sum += weight;
        if count > together && weight < NEGLIGIBLE * sum {
            break;
        }
    }
    Some(weights.into_iter().map(|weight| weight / sum).collect())
}

/// Part of the requests that take longer than `time_ms`. Who finds n others waits for n + 1 - together of them to finish, then
/// runs beside as many as there are. Both times vary: their sum is taken as a gamma variable of its mean and variance.
fn late(load: &Load, together: usize, states: &[f64], time_ms: f64) -> f64 {
    let usual = usual_slowdown(load, together, states);
    // Variable needs lengthen a queue by their second moment (Allen and Cunneen).
    let queueing = f64::midpoint(1.0, load.variation.powi(2));
    let gap_ms = queueing * 1_000.0 / finished_per_s(load, together);
    let each = states.iter().enumerate().map(|(others, part)| {
        #[allow(clippy::cast_precision_loss, reason = "a length of a queue")]
        let ahead = (others + 1).saturating_sub(together) as f64;
        // Who is beside it changes while it runs: half of whom it finds, half of the usual.
        let slowdown = f64::midpoint(load.curve.slowdown((others + 1).min(together)), usual);
        let own_ms = load.service_ms * slowdown;
        let variance = ahead * gap_ms.powi(2) + (load.variation * own_ms).powi(2);
        part * above(time_ms, own_ms + ahead * gap_ms, variance)
    });
    each.sum()
}

/// The slowdown that a request has on average: requests that run, on average, over those that would with nobody beside them
/// (Little's law).
fn usual_slowdown(load: &Load, together: usize, states: &[f64]) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    let running =
        states.iter().enumerate().map(|(count, part)| part * count.min(together) as f64).sum::<f64>();
    1_000.0 * running / (load.rate * load.service_ms)
}

/// Chance that a gamma variable of this mean and variance is above `time` (Wilson and Hilferty's cube root).
fn above(time: f64, mean: f64, variance: f64) -> f64 {
    let shape = mean.powi(2) / variance.max(1e-12 * mean.powi(2));
    let deviation = (9.0 * shape).sqrt();
    let normal = ((time / mean).cbrt() - 1.0 + 1.0 / (9.0 * shape)) * deviation;
    0.5 * libm::erfc(normal * std::f64::consts::FRAC_1_SQRT_2)
}
