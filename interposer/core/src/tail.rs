//! The end of work behind which no word stands: by prediction, as no call of the program may come that would tell.

use weir_protocol::units::Nanos;

/// Prices are right to some tenths: work is taken as done after so much of what it was predicted to take, ...
const SLACK: (u64, u64) = (13, 10);

/// ... and the time in which a launch begins.
const STARTS: Nanos = Nanos::from_micros(50);

/// When a process's work was last seen to grow, to shrink, or to have the GPU for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tail {
    submitted: u64,
    completed: u64,
    since: Nanos,
    behind: bool, // neighbours have been at work at each look since
}

impl Tail {
    /// In how long all that was submitted will be done, as far as is predicted; 0: it is. So much was submitted, and is known to be
    /// done, of work that shares the GPU with `neighbours` others. It may not have begun while those had work that were there before.
    pub fn left(&mut self, submitted: u64, completed: u64, neighbours: u64, now: Nanos) -> Nanos {
        let moves = (submitted, completed) != (self.submitted, self.completed) || self.since == Nanos(0);
        if moves || self.behind && neighbours == 0 {
            *self = Self { submitted, completed, since: now, behind: neighbours > 0 };
        }
        let queued = submitted.saturating_sub(completed);
        let takes = queued.saturating_mul(SLACK.0 * (1 + neighbours)) / SLACK.1;
        Nanos(takes.saturating_add(STARTS.0)).since(now.since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Nanos {
        Nanos::from_micros(us)
    }

    #[test]
    fn work_that_nobody_tells_of_ends_as_predicted_and_some_tenths_later() {
        let mut tail = Tail::default();
        assert_eq!(tail.left(1_000_000, 0, 0, us(1_000)), us(1_350));
        assert_eq!(tail.left(1_000_000, 0, 0, us(2_000)), us(350));
        assert_eq!(tail.left(1_000_000, 0, 0, us(2_350)), us(0));
    }

    #[test]
    fn beside_others_it_takes_longer_and_each_new_launch_or_word_begins_anew() {
        let mut tail = Tail::default();
        assert_eq!(tail.left(1_000_000, 0, 1, us(1_000)), us(2_650));
        assert_eq!(tail.left(2_000_000, 0, 0, us(1_500)), us(2_650));
        assert_eq!(tail.left(2_000_000, 1_500_000, 0, us(2_000)), us(700));
    }

    #[test]
    fn behind_a_neighbours_work_it_begins_when_that_has_ended() {
        let mut tail = Tail::default();
        assert_eq!(tail.left(1_000_000, 0, 1, us(1_000)), us(2_650));
        assert_eq!(tail.left(1_000_000, 0, 1, us(3_000)), us(650));
        assert_eq!(tail.left(1_000_000, 0, 0, us(3_100)), us(1_350));
        assert_eq!(tail.left(1_000_000, 0, 1, us(3_200)), us(2_550), "who comes now came later");
        assert_eq!(tail.left(1_000_000, 0, 0, us(3_300)), us(1_150));
    }
}
