//! How long a tenant rests between two bursts of work. Who goes first and is likely to be back at once counts as at work meanwhile: to
//! leave the GPU to others and have it back takes longer. A server rests for moments while requests are queued, and for long else: so it
//! is the odds that count. In a turn a rest is worth waiting for only if it is shorter than one switch: two tenants that rest for longer
//! than that each have their work done in the other's rests.

use weir_protocol::units::Nanos;

/// Rests are told apart up to so many eighths of a switch of the GPU. Longer ones are not waited for.
const BOUNDS: [u64; 6] = [1, 2, 4, 8, 16, 24];

/// Eighths in a switch.
const SWITCH: u64 = 8;

/// To leave and be back costs so many: two switches, and the next burst's wait for somebody's piece, which is as long as these. At half
/// of that servers of many steps wait for a piece between two of them; at twice that others wait longer for who does not come.
const LEAVING: i64 = 4 * SWITCH.cast_signed();

/// A rest counts for a sixteenth of what is known. At an eighth a server of which one request in eight is queued forgets that now and then; at
/// half of this weight, one that pauses between its steps is known after a dozen requests only.
const WEIGHT: i64 = 16;

/// Parts of a thousand.
const WHOLE: i64 = 1_000;

/// So many more are taken to be longer than any that is waited for: what came once is not worth waiting for each time.
const DOUBT: i64 = WHOLE / 50;

/// A turn is kept if more than so many rests are shorter than a switch: to find that one is not takes a millisecond, about as long as four
/// times the two switches that are saved.
const KEEPS: i64 = WHOLE * 3 / 4;

/// A latency tenant counts as at work for so many eighths at least: of requests that queue, the next one comes at once. At half of that its
/// host is too slow for it; at twice that each request costs others half of a switch.
const QUEUED: u64 = 2;

/// What is known of a tenant's rests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rests([i64; BOUNDS.len()]); // so many of a thousand were as long, of late

impl Rests {
    /// One is over, where a switch takes so long.
    pub fn add(&mut self, rest: Nanos, switch: Nanos) {
        let at = BOUNDS.iter().position(|bound| rest <= of_switch(*bound, switch));
        for (index, part) in self.0.iter_mut().enumerate() {
            *part += (if at == Some(index) { WHOLE } else { 0 } - *part) / WEIGHT;
        }
    }

    /// For how long after it has drained the tenant counts as at work: for as long as it most likely saves more than it costs.
    pub fn grace(&self, switch: Nanos) -> Nanos {
        let (mut within, mut waited) = (0, 0);
        let gains = BOUNDS.iter().zip(self.0).map(|(bound, part)| {
            let most = bound.cast_signed();
            within += part;
            waited += part * most;
            (LEAVING * within - waited - (WHOLE + DOUBT - within) * most, *bound)
        });
        let best = gains.filter(|(gain, _)| *gain > 0).max_by_key(|(gain, _)| *gain);
        best.map_or(Nanos(0), |(_, bound)| of_switch(bound, switch))
    }

    /// The same for a tenant of class latency.
    pub fn grace_of_latency(&self, switch: Nanos) -> Nanos {
        self.grace(switch).max(of_switch(QUEUED, switch))
    }

    /// Whether it keeps its turn meanwhile: nearly all of its rests are shorter than a switch, and who does not come back is seen late.
    pub fn keeps_turn(&self) -> bool {
        let short = BOUNDS.iter().zip(self.0).filter(|(bound, _)| **bound <= SWITCH);
        short.map(|(_, part)| part).sum::<i64>() > KEEPS
    }
}

fn of_switch(eighths: u64, switch: Nanos) -> Nanos {
    Nanos(switch.0.saturating_mul(eighths) / SWITCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: Nanos = Nanos::from_micros(100);

    fn grace_us(rests_us: impl IntoIterator<Item = u64>) -> u64 {
        let mut rests = Rests::default();
        rests_us.into_iter().for_each(|us| rests.add(Nanos::from_micros(us), SWITCH));
        rests.grace(SWITCH).0 / 1_000
    }

    #[test]
    fn who_is_usually_back_at_once_counts_as_at_work_for_as_long() {
        assert_eq!(grace_us([]), 0, "nothing is known");
        assert_eq!(grace_us([20; 32]), 25);
        assert_eq!(grace_us([300; 32]), 300, "the pauses of a server between its steps");
        assert_eq!(
            grace_us([300, 300, 300, 300, 300, 300, 300, 40_000].repeat(8)),
            300,
            "and between two requests"
        );
    }

    #[test]
    fn a_short_wait_is_worth_it_by_small_odds_and_a_long_one_is_not() {
        let one_in = |n: usize| [vec![20], vec![10_000; n - 1]].concat().repeat(8);
        assert_eq!([4, 8, 40].map(|n| grace_us(one_in(n))), [25, 25, 0], "so many requests were queued");
        assert_eq!(grace_us([300, 10_000, 10_000, 10_000].repeat(8)), 0);
        assert_eq!(grace_us([300, 10_000].repeat(8)), 0);
    }

    #[test]
    fn a_latency_tenant_counts_as_at_work_for_a_moment_whatever_is_known() {
        let mut rests = Rests::default();
        assert_eq!(rests.grace_of_latency(SWITCH), Nanos::from_micros(25));
        (0..32).for_each(|_| rests.add(Nanos::from_micros(300), SWITCH));
        assert_eq!(rests.grace_of_latency(SWITCH), Nanos::from_micros(300), "its usual pause");
    }

    #[test]
    fn a_turn_is_kept_by_who_nearly_always_rests_for_less_than_a_switch() {
        let keeps = |rests_us: &[u64]| {
            let mut rests = Rests::default();
            rests_us.iter().for_each(|us| rests.add(Nanos::from_micros(*us), SWITCH));
            rests.keeps_turn()
        };
        assert_eq!([20, 100, 101, 300, 10_000].map(|us| keeps(&[us; 32])), [true, true, false, false, false]);
        let one_of_eight = [20, 20, 20, 20, 20, 20, 20, 300].repeat(8);
        assert!(keeps(&one_of_eight) && !keeps(&[20, 10_000].repeat(16)) && !keeps(&[]));
    }

    #[test]
    fn who_rests_for_long_leaves_at_once() {
        assert_eq!(grace_us([10_000; 32]), 0);
        assert_eq!(grace_us([20; 8].into_iter().chain([10_000; 48])), 0, "it was back at once, of old");
    }

    #[test]
    fn a_rest_that_was_longer_than_usual_is_forgotten() {
        let once = [200].into_iter().chain([20; 80]);
        assert_eq!(grace_us(once), 25);
    }
}
