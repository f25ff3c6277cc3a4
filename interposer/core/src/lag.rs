//! How a tenant stands to its share: the time that it was due, less the time that it cost others.
//!
//! ```text
//!   due     while it wants: its part of all requests of those who want. Class latency: its request, always
//!   costs   of class latency, the time for which dense neighbours wait for it; else its work, by price
//! ```
//!
//! Nobody waits for a host-bound tenant: the driver slices between it and the others, as it does without us. It passes as long as its
//! work is about its share at most.

use weir_protocol::pages::Rate;
use weir_protocol::units::Nanos;

/// A tenant is ahead or behind by so much at most: about four turns.
const MOST: Nanos = Nanos::from_millis(20);

/// A latency tenant may save up its request of so much time: a second or two of requests that come at once.
const SAVED: Nanos = Nanos::from_secs(2);

/// Who was not looked at for so long was away.
const UNSEEN: Nanos = Nanos::from_millis(100);

/// Who was beyond its share passes again once it is due so much, a part of a turn: else it would change with each look.
const PASSES_AGAIN: Nanos = Nanos::from_millis(1);

/// How things stood since the last look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Time since then.
    pub since: Nanos,
    /// The tenant has work, or waits to launch some.
    pub wants: bool,
    /// It is of class latency.
    pub online: bool,
    /// Its request.
    pub request: Rate,
    /// The requests of all who want, its own among them, in millionths.
    pub wanted_ppm: u64,
    /// It goes first, has work, and dense neighbours wait for that: so many tenants are the cause.
    pub holds_up: Option<u32>,
    /// Work that a host-bound tenant was charged for meanwhile.
    pub work: Nanos,
}

/// The lag after a look: positive while the tenant is within its share.
pub fn after(lag_ns: i64, look: &Look) -> i64 {
    let since = look.since.min(UNSEEN);
    let request = u64::from(look.request.as_ppm());
    let due = match (look.online, look.wants) {
        (true, _) => look.request.over(since),
        (false, true) => share(since, request, look.wanted_ppm.max(request)),
        (false, false) => 0,
    };
    let cost = match look.holds_up {
        Some(tenants) => since.0 / u64::from(tenants.max(1)),
        None => look.work.0,
    };
    let most = if look.online { MOST.max(Nanos(look.request.over(SAVED))) } else { MOST };
    let lag = lag_ns.saturating_add_unsigned(due).saturating_sub_unsigned(cost);
    lag.clamp(-MOST.0.cast_signed(), most.0.cast_signed())
}

/// Whether a tenant with this lag is within its share; it `was` so a moment ago.
pub fn is_within_share(lag_ns: i64, was: bool) -> bool {
    lag_ns >= if was { 0 } else { PASSES_AGAIN.0.cast_signed() }
}

/// In how long a tenant of this request that is beyond its share passes again, if all want.
pub fn passes_again(lag_ns: i64, request: Rate) -> Nanos {
    let missing = PASSES_AGAIN.0.saturating_add_signed(lag_ns.saturating_neg());
    request.time_for(missing)
}

fn share(time: Nanos, own: u64, all: u64) -> u64 {
    if all == 0 {
        0
    } else {
        u64::try_from(u128::from(time.0) * u128::from(own) / u128::from(all)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Look = Look {
        since: Nanos::from_millis(1),
        wants: true,
        online: false,
        request: Rate::ppm(500_000),
        wanted_ppm: 1_000_000,
        holds_up: None,
        work: Nanos(0),
    };

    #[test]
    fn who_holds_others_up_for_half_of_the_time_keeps_a_share_of_one_half() {
        let mut lag = 0;
        for n in 0..1_000 {
            lag = after(lag, &Look { holds_up: (n % 2 == 0).then_some(1), ..HALF });
        }
        assert_eq!(lag, 0);
    }

    #[test]
    fn who_holds_up_nobody_is_due_its_share_and_two_who_do_share_the_cost() {
        assert_eq!(after(0, &HALF), 500_000);
        assert_eq!(after(0, &Look { holds_up: Some(2), ..HALF }), 0, "two of them hold others up");
    }

    #[test]
    fn a_host_bound_tenant_costs_its_work() {
        let work = |us: u64| after(0, &Look { work: Nanos::from_micros(us), ..HALF });
        assert_eq!((work(500), work(1_000)), (0, -500_000));
    }

    #[test]
    fn a_latency_tenant_saves_up_while_it_rests_and_others_do_not() {
        let rests = Look { wants: false, ..HALF };
        assert_eq!(after(7, &rests), 7);
        let online = Look { online: true, ..rests };
        let saved = (0..10_000).fold(0, |lag, _| after(lag, &online));
        assert_eq!(saved, 1_000_000_000, "its request of two seconds");
    }

    #[test]
    fn nobody_is_ahead_or_behind_without_end() {
        let held = (0..1_000).fold(0, |lag, _| after(lag, &Look { holds_up: Some(1), ..HALF }));
        let due = (0..1_000).fold(0, |lag, _| after(lag, &HALF));
        assert_eq!((held, due), (-20_000_000, 20_000_000));
    }

    #[test]
    fn who_is_beyond_its_share_passes_again_after_as_long_as_that_takes() {
        let half = Rate::ppm(500_000);
        assert_eq!(
            [-3_000_000, 1_000_000].map(|lag| passes_again(lag, half)),
            [Nanos::from_millis(8), Nanos(0)]
        );
    }

    #[test]
    fn standing_changes_with_a_band_in_between() {
        assert!(is_within_share(0, true) && !is_within_share(-1, true));
        assert!(!is_within_share(999_999, false) && is_within_share(1_000_000, false));
    }

    #[test]
    fn who_was_not_looked_at_for_long_was_away() {
        assert_eq!(after(0, &Look { since: Nanos::from_secs(10), ..HALF }), 20_000_000);
    }
}
