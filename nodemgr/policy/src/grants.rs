//! From a rate to a whole grant: how long turns are and how much may be hoarded.

use weir_protocol::pages::{Gate, Grant, Rate};
use weir_protocol::units::{Bandwidth, Bytes, Nanos, SmShare, Tokens};

/// What a closed gate or a silent manager leaves to a tenant that requested nothing, so that it never starves.
pub const FLOOR: SmShare = SmShare::percent(1);

/// A throttled tenant resumes with what accrues in this time: its turns on the GPU are this long times its share,
/// and the driver, which pays for each switch between contexts, switches seldom.
const TURN_MS: u64 = 10;

/// The bucket holds what accrues in this time: two turns, so that a turn is never cut by the bucket's rim.
const HOARD_MS: u64 = 20;

/// Smallest bucket: below it a tenant of 1 % would be cut into turns shorter than a driver's switch is long.
const LEAST_CAPACITY: Nanos = Nanos::from_millis(1);

/// Most predicted work in the queue: enough to run ahead of the GPU for two turns, little enough that a smaller
/// grant binds soon.
const IN_FLIGHT_CAP: Nanos = Nanos::from_millis(20);

/// The grant of a tenant that gets `rate` of a GPU and falls back to `request`. The generation is set by whoever
/// publishes it.
pub fn grant(rate: Rate, request: SmShare, memory_limit: Bytes) -> Grant {
    let capacity = accrued(rate, HOARD_MS).max(LEAST_CAPACITY.0);
    let resume_at = accrued(rate, TURN_MS).max(LEAST_CAPACITY.0 / 2);
    Grant {
        generation: 0,
        rate,
        fallback_rate: Rate::from(request.max(FLOOR)).min(rate.max(Rate::from(FLOOR))),
        gate: Gate::Open,
        capacity: tokens(capacity),
        resume_at: tokens(resume_at),
        in_flight_cap: IN_FLIGHT_CAP,
        memory_limit,
        copy_limit: Bandwidth::UNLIMITED, // the operator's alone: no policy lends copies
    }
}

/// What accrues in `ms` milliseconds. A millionth of a millisecond is a nanosecond, so that this is one
/// multiplication: the manager comes here for each tenant and GPU in each tick.
fn accrued(rate: Rate, ms: u64) -> u64 {
    u64::from(rate.as_ppm()) * ms
}

fn tokens(ns: u64) -> Tokens {
    Tokens(i64::try_from(ns).unwrap_or(i64::MAX))
}
