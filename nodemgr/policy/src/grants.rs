//! From a rate to a whole grant: how long turns are and how much may be hoarded.

use weir_protocol::pages::{Gate, Grant, Rate};
use weir_protocol::units::{Bandwidth, Bytes, Nanos, SmShare, Tokens};

/// What a closed gate or a silent manager leaves to a tenant that requested nothing, so that it never starves.
pub const FLOOR: SmShare = SmShare::percent(1);

/// A throttled tenant resumes with what accrues in one round, and so much is its turn: the whole round times its share.
/// A round has so long for each tenant. Each turn costs the driver a switch, about a tenth of a millisecond, so that a
/// fiftieth of the time goes there. And where shares are alike it ends in the middle of a slice of the driver's (2 ms): a slice that
/// ends just before a turn does leaves a rest of it behind, for which the GPU switches there and back.
const EACH_MS: u64 = 5;

/// ... but no longer than this: a tenant may have to wait for most of a round before its launches go on.
const LONGEST_MS: u64 = 40;

/// The bucket holds what accrues in so many rounds, so that a turn is never cut by the bucket's rim: units longer than a turn make
/// rounds longer than they are meant to be, and what ran over meanwhile would be lost to whoever waited.
const HOARD: u64 = 4;

/// Smallest bucket: below it a tenant of 1 % would be cut into turns shorter than a driver's switch is long.
const LEAST_CAPACITY: Nanos = Nanos::from_millis(1);

/// Most predicted work in the queue: enough to run ahead of the GPU for two turns, little enough that a smaller
/// grant binds soon.
pub const IN_FLIGHT_CAP: Nanos = Nanos::from_millis(20);

/// Most in the queue of a filler whose betters have been away for long, but for whom one waits.
pub const LONG_CAP: Nanos = Nanos::from_millis(5);

/// What a filler behind a closed gate has saved up when it goes beside a primary that works: in so long a piece the two
/// switches that it costs are a 25th of it, and nobody waits for the primary's next answer.
pub const PIECE: Nanos = Nanos::from_millis(5);

/// The same beside a latency tenant.
pub const SHORT_PIECE: Nanos = Nanos::from_micros(500);

/// Most in the queue of a filler whose betters may wake at any moment: what is queued then runs before them (gpu-truths, rule 10).
pub const SHORT_CAP: Nanos = Nanos::from_micros(300);

/// Who else is on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Tenants on it, this one included.
    pub tenants: usize,
    /// Whether one of them must not be kept waiting by this one: it is a filler, and they are not all fillers.
    pub gives_way: bool,
}

/// The grant of a tenant that gets `rate` of a GPU and falls back to `request`. The generation is set by whoever
/// publishes it.
pub fn grant(rate: Rate, request: SmShare, memory_limit: Bytes, beside: Beside) -> Grant {
    let round_ms = (EACH_MS * beside.tenants.max(2) as u64).min(LONGEST_MS);
    let capacity = accrued(rate, HOARD * round_ms).max(LEAST_CAPACITY.0);
    let resume_at = accrued(rate, round_ms).max(LEAST_CAPACITY.0 / 2);
    Grant {
        generation: 0,
        rate,
        fallback_rate: Rate::from(request.max(FLOOR)).min(rate.max(Rate::from(FLOOR))),
        gate: Gate::Open,
        capacity: tokens(capacity),
        resume_at: tokens(resume_at),
        turn: Nanos(0),
        in_flight_cap: if beside.gives_way { SHORT_CAP } else { IN_FLIGHT_CAP },
        memory_limit,
        copy_limit: Bandwidth::UNLIMITED, // the operator's alone: no policy lends copies
        hold: Nanos(0),
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
