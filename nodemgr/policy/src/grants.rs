//! From a rate to a whole grant: how long turns are and how much may be hoarded.

use weir_protocol::pages::{Gate, Grant, Rate};
use weir_protocol::units::{Bandwidth, Bytes, Nanos, SmShare, Tokens};

/// What a closed gate or a silent manager leaves to a tenant that requested nothing, so that it never starves.
pub const FLOOR: SmShare = SmShare::percent(1);

/// A throttled tenant resumes with what accrues in one round, and so much is its turn: the whole round times its share.
/// A round has so long for each tenant at least, and so many switches of the driver's: each turn costs one, so that a
/// fiftieth of the time goes there at most. And where shares are alike it ends in the middle of a slice of the driver's (2 ms): a slice that
/// ends just before a turn does leaves a rest of it behind, for which the GPU switches there and back.
const EACH: Nanos = Nanos::from_millis(5);
const EACH_SWITCHES: u64 = 50;

/// ... but no longer than the first of these: a tenant may have to wait for most of a round before its launches go on. Where a switch takes
/// long it is so many of them, up to the second: after 250 ms a launch goes in another's turn, and turns take longer beside others who pass.
const LONGEST: [Nanos; 2] = [Nanos::from_millis(40), Nanos::from_millis(150)];
const LONGEST_SWITCHES: u64 = 100;

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

/// What a filler behind a closed gate has saved up when it goes beside a primary that works, and how many switches that is at least:
/// in so long a piece the two that it costs are a 25th of it, and nobody waits for the primary's next answer.
const PIECE: (Nanos, u64) = (Nanos::from_millis(5), 50);

/// The same beside a latency tenant.
const SHORT_PIECE: (Nanos, u64) = (Nanos::from_micros(500), 5);

/// Most in the queue of a filler whose betters may wake at any moment: what is queued then runs before them.
pub const SHORT_CAP: Nanos = Nanos::from_micros(400);

/// Who else is on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Tenants on it, this one included.
    pub tenants: usize,
    /// Whether one of them must not be kept waiting by this one: it is a filler, and they are not all fillers.
    pub gives_way: bool,
    /// What a switch from one to another takes.
    pub switch: Nanos,
}

/// A tenant's turn where shares are alike, on a GPU on which a switch takes so long.
pub fn turn(switch: Nanos) -> Nanos {
    Nanos(EACH.0.max(switch.0.saturating_mul(EACH_SWITCHES)).min(longest(switch).0))
}

fn longest(switch: Nanos) -> Nanos {
    Nanos(switch.0.saturating_mul(LONGEST_SWITCHES)).clamp(LONGEST[0], LONGEST[1])
}

/// What a filler behind a closed gate saves up, where a latency tenant is among its betters or not.
pub fn piece(beside_latency: bool, switch: Nanos) -> Nanos {
    let (least, switches) = if beside_latency { SHORT_PIECE } else { PIECE };
    least.max(Nanos(switch.0.saturating_mul(switches)))
}

/// The grant of a tenant that gets `rate` of a GPU and falls back to `request`. The generation is set by whoever
/// publishes it.
pub fn grant(rate: Rate, request: SmShare, memory_limit: Bytes, beside: Beside) -> Grant {
    let round = Nanos((turn(beside.switch).0 * beside.tenants.max(2) as u64).min(longest(beside.switch).0));
    let capacity = accrued(rate, Nanos(HOARD * round.0)).max(LEAST_CAPACITY.0);
    let resume_at = accrued(rate, round).max(LEAST_CAPACITY.0 / 2);
    Grant {
        generation: 0,
        rate,
        fallback_rate: Rate::from(request.max(FLOOR)).min(rate.max(Rate::from(FLOOR))),
        limit: Rate::FULL, // the operator's: whoever publishes the grant sets it
        gate: Gate::Open,
        capacity: tokens(capacity),
        resume_at: tokens(resume_at),
        turn: Nanos(0),
        in_flight_cap: if beside.gives_way { SHORT_CAP } else { IN_FLIGHT_CAP },
        memory_limit,
        copy_limit: Bandwidth::UNLIMITED, // the operator's alone: no policy lends copies
        hold: Nanos(0),
        back_at: Nanos(0),
    }
}

/// What accrues in some time of less than a second, to the microsecond.
fn accrued(rate: Rate, time: Nanos) -> u64 {
    u64::from(rate.as_ppm()) * (time.0 / 1_000) / 1_000
}

fn tokens(ns: u64) -> Tokens {
    Tokens(i64::try_from(ns).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_half(tenants: usize, switch_us: u64) -> Grant {
        let beside = Beside { tenants, gives_way: false, switch: Nanos::from_micros(switch_us) };
        grant(Rate::from(SmShare::percent(50)), SmShare::percent(50), Bytes(0), beside)
    }

    #[test]
    fn turns_are_long_enough_for_what_a_switch_takes_and_never_longer_than_a_round_may_be() {
        let turn_us = |tenants, switch_us| of_half(tenants, switch_us).resume_at.0 / 1_000;
        assert_eq!([50, 100].map(|switch_us| turn_us(2, switch_us)), [5_000; 2], "half of two times 5 ms");
        assert_eq!(turn_us(2, 300), 15_000, "a fiftieth of it goes to the switch");
        assert_eq!((turn_us(2, 5_000), turn_us(5, 300), turn_us(20, 100)), (75_000, 20_000, 20_000));
        assert_eq!(of_half(2, 300).capacity, Tokens(4 * 15_000_000));
    }

    #[test]
    fn a_fillers_piece_is_long_beside_the_switches_that_it_costs() {
        let pieces = |us: u64| [false, true].map(|latency| piece(latency, Nanos::from_micros(us)).0 / 1_000);
        assert_eq!((pieces(0), pieces(100), pieces(200)), ([5_000, 500], [5_000, 500], [10_000, 1_000]));
    }
}
