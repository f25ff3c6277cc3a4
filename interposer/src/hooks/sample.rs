//! Samples: which launches are timed by events, and what becomes of the times.

use std::sync::atomic::Ordering;

use weir_abi::types::CUDA_SUCCESS;
use weir_core::price::Estimate;
use weir_protocol::units::Nanos;

use crate::clock;
use crate::driver;
use crate::link::Context;
use crate::thread::Current;

/// A sample costs three calls of the driver, about 3 us: so often they cost at most a thousandth of the time.
const SAMPLE_EVERY: Nanos = Nanos::from_millis(3);

impl Current {
    /// Whether this launch should be timed: a new signature until it is learnt, the others one in a while and all
    /// together at most once in [`SAMPLE_EVERY`].
    pub fn is_sampled(&self, estimate: &Estimate) -> bool {
        let now = clock::now();
        let due = &self.context.sample_at_ns;
        // Relaxed: a lost race times one launch more or less.
        if estimate.is_learnt() && now.0 < due.load(Ordering::Relaxed) {
            return false;
        }
        let sampled = estimate.wants_sample(now);
        if sampled {
            due.store(now.0 + SAMPLE_EVERY.0, Ordering::Relaxed);
        }
        sampled
    }
}

impl Context {
    /// Takes in the samples whose second event was reached.
    pub fn collect_samples(&self) {
        let Some(mut samples) = self.samples.try_lock() else { return };
        let _relaxed = driver::Relaxed::enter();
        let now = clock::now();
        let mut at = 0;
        while let Some(&(start, end, estimate)) = samples.under_way.get(at) {
            if driver::event_query(end) != CUDA_SUCCESS {
                at += 1;
                continue;
            }
            let mut milliseconds = 0.0;
            if driver::event_elapsed(&raw mut milliseconds, start, end) == CUDA_SUCCESS {
                estimate.sample(nanos(milliseconds), now);
            }
            samples.under_way.swap_remove(at);
            samples.spare.push((start, end));
        }
    }
}

/// Milliseconds as the driver counts them.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond the range of u64 saturates, NaN becomes 0"
)]
fn nanos(milliseconds: f32) -> Nanos {
    Nanos((f64::from(milliseconds) * 1e6) as u64)
}
