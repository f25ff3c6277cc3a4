//! A sliding window over a counter: the share of the last second, from ten marks.

use weir_protocol::units::{Nanos, SmShare};

/// Marks kept; with one mark per 100 ms they span a second.
const MARKS: usize = 11;

/// The last marks of a growing counter of nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Window {
    marks: [(Nanos, u64); MARKS],
    count: usize,
}

impl Window {
    /// Notes the counter's `value` at `now`.
    pub fn push(&mut self, now: Nanos, value: u64) {
        self.marks[self.count % MARKS] = (now, value);
        self.count += 1;
    }

    /// What the counter grew by, as a part of the time that passed, between the oldest mark and the newest.
    pub fn share(&self) -> SmShare {
        if self.count < 2 {
            return SmShare::ZERO;
        }
        let newest = self.marks[(self.count - 1) % MARKS];
        let oldest = if self.count < MARKS { self.marks[0] } else { self.marks[self.count % MARKS] };
        let (elapsed, grown) = (newest.0.since(oldest.0).0.max(1), newest.1.saturating_sub(oldest.1));
        let permille = u128::from(grown) * 1000 / u128::from(elapsed);
        SmShare::permille(u16::try_from(permille).unwrap_or(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_forgets_what_is_older_than_a_second() {
        let mut window = Window::default();
        let tenth = |n: u64| Nanos::from_millis(100 * n);
        for n in 0..=20 {
            window.push(tenth(n), if n < 10 { 0 } else { tenth(n - 10).0 / 2 });
        }
        assert_eq!(window.share(), SmShare::percent(50));
    }

    #[test]
    fn a_counter_that_runs_backwards_shows_nothing() {
        let mut window = Window::default();
        window.push(Nanos(1), 100);
        window.push(Nanos(2), 7);
        assert_eq!(window.share(), SmShare::ZERO);
    }
}
