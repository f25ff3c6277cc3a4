//! How long a tenant rests between two bursts of work. Who goes first and is usually back within a few switches of the GPU counts as
//! at work meanwhile: to leave the GPU to others and have it back takes as long. In a turn a rest is worth waiting for only if it is
//! shorter than one switch: two tenants that rest for longer than that each have their work done in the other's rests.

use weir_protocol::units::Nanos;

/// Rests of up to so many switches are short: two to leave and be back, and the next burst's wait for a piece of somebody else's.
const SHORT: u64 = 3;

/// A rest counts for an eighth of what is known: programs change what they do within some bursts.
const WEIGHT: i64 = 8;

/// Parts of a thousand.
const WHOLE: i64 = 1_000;

/// What is known of a tenant's rests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rests {
    short: i64,   // so many of a thousand were, of late
    longest: u64, // of the short ones, of late, in nanoseconds
}

impl Rests {
    /// One is over, where a switch takes so long.
    pub fn add(&mut self, rest: Nanos, switch: Nanos) {
        let is_short = rest.0 <= switch.0.saturating_mul(SHORT);
        self.short += (if is_short { WHOLE } else { 0 } - self.short) / WEIGHT;
        if is_short {
            self.longest = rest.0.max(self.longest - self.longest / WEIGHT.unsigned_abs());
        }
    }

    /// For how long after it has drained the tenant counts as at work: half as long again as its short rests are, if most are short.
    pub fn grace(&self) -> Nanos {
        if 2 * self.short > WHOLE { of_rest(self.longest) } else { Nanos(0) }
    }
}

/// Whether a tenant that rests for so long keeps its turn meanwhile, where a switch takes so long.
pub fn keeps_turn(grace: Nanos, switch: Nanos) -> bool {
    grace > Nanos(0) && grace <= of_rest(switch.0)
}

/// For how long one counts as at work whose short rests are as long as this.
fn of_rest(longest: u64) -> Nanos {
    Nanos(longest.saturating_add(longest / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: Nanos = Nanos::from_micros(100);

    fn grace_us(rests_us: impl IntoIterator<Item = u64>) -> u64 {
        let mut rests = Rests::default();
        rests_us.into_iter().for_each(|us| rests.add(Nanos::from_micros(us), SWITCH));
        rests.grace().0 / 1_000
    }

    #[test]
    fn who_is_usually_back_at_once_counts_as_at_work_a_little_longer() {
        assert_eq!(grace_us([]), 0, "nothing is known");
        assert_eq!(grace_us([20; 16]), 30);
        assert_eq!(grace_us([300; 16]), 450, "the pauses of a server between its steps");
    }

    #[test]
    fn a_turn_is_kept_through_rests_that_are_shorter_than_a_switch() {
        let keeps = |us: u64| keeps_turn(Nanos::from_micros(grace_us([us; 16])), SWITCH);
        assert_eq!([20, 100, 101, 300, 10_000].map(keeps), [true, true, false, false, false]);
    }

    #[test]
    fn who_rests_for_long_leaves_at_once() {
        assert_eq!(grace_us([10_000; 16]), 0);
        assert_eq!(grace_us([20, 10_000, 10_000, 10_000].repeat(8)), 0);
        assert_eq!(grace_us([20, 20, 20, 10_000].repeat(8)), 30, "three of four steps are short");
    }

    #[test]
    fn a_rest_that_was_longer_than_usual_is_forgotten() {
        let once = [200].into_iter().chain([20; 40]);
        assert_eq!(grace_us(once), 30);
    }
}
