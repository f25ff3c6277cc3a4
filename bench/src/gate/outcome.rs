//! What the wakes of the latency tenant came to, each with the hold or the closing that belongs to it. The first tenth is
//! not counted: prices are learnt then.

use serde_json::{Value, json};

use super::{BURST, Closing, Filled, HELD_NS, Hold, Wake};
use crate::sample::Spread;

/// How soon the gate was closed.
#[derive(Debug, Default)]
pub struct Closed {
    /// Microseconds, for each wake that closed it.
    pub closed_us: Vec<f64>,
    /// The same until the last launch that passed had returned.
    pub returned_us: Vec<f64>,
    already: usize, // it had not been open since the burst before, or not at the wake
    never: usize,
    absent: usize, // who closes it was not there in the burst: it waited for its own work, or for a processor
}

/// How soon the GPU was silent.
#[derive(Debug, Default)]
pub struct Silence {
    /// Microseconds, where the filler's slice lasted as long as its queue.
    pub whole_us: Vec<f64>,
    /// The same where the slice ended first.
    pub cut_us: Vec<f64>,
}

/// By the filler's own look at the board.
pub fn by_board(wakes: &[Wake], filled: &Filled) -> Closed {
    let mut closed = Closed::default();
    let mut before = 0; // the end of the last burst
    for wake in counted(wakes) {
        match held(wake, &filled.holds) {
            None if is_absent(wake, &filled.away) => closed.absent += 1,
            None => closed.never += 1,
            Some(hold) if hold.passed < before || hold.waits_at(wake.launched) => closed.already += 1,
            Some(hold) => {
                closed.closed_us.push(us(wake.launched, hold.called));
                closed.returned_us.push(us(wake.launched, hold.passed));
            }
        }
        before = wake.ended;
    }
    closed
}

/// By the manager.
pub fn by_bell(wakes: &[Wake], closings: &[Closing], away: &[(u64, u64)]) -> Closed {
    let mut closed = Closed::default();
    for wake in counted(wakes) {
        let last = closings.iter().rev().find(|closing| closing.open < wake.launched);
        match last.map(|closing| closing.closed) {
            Some(at) if at > wake.ended && is_absent(wake, away) => closed.absent += 1,
            Some(at) if at > wake.ended => closed.never += 1,
            Some(at) if at > wake.launched => closed.closed_us.push(us(wake.launched, at)),
            _ => closed.already += 1,
        }
    }
    closed
}

/// By the events behind the filler's launches.
pub fn silence(wakes: &[Wake], holds: &[Hold]) -> Silence {
    let mut silence = Silence::default();
    for wake in counted(wakes) {
        let Some(hold) = held(wake, holds) else { continue };
        // Less of the burst than there was to do came behind the filler's last work: the rest came before it.
        let whole = us(hold.silent, wake.ended) >= BURST.time_us;
        let row = if whole { &mut silence.whole_us } else { &mut silence.cut_us };
        row.push(us(wake.launched, hold.silent));
    }
    silence
}

impl Hold {
    /// Whether the launch before it was held back itself, and at this moment: what passes then is the floor of a closed gate.
    fn waits_at(&self, moment: u64) -> bool {
        self.called < moment && moment < self.passed && self.passed - self.called > HELD_NS
    }
}

fn counted(wakes: &[Wake]) -> &[Wake] {
    &wakes[wakes.len() / 10..]
}

/// The launch that was held back in this burst first.
fn held<'a>(wake: &Wake, holds: &'a [Hold]) -> Option<&'a Hold> {
    holds.iter().find(|hold| hold.ended > wake.launched && hold.passed < wake.ended)
}

/// Whether there was no time in this burst to close anything in.
fn is_absent(wake: &Wake, away: &[(u64, u64)]) -> bool {
    let within = away.iter().map(|(from, to)| to.min(&wake.ended).saturating_sub(*from.max(&wake.launched)));
    (wake.ended - wake.launched).saturating_sub(within.sum()) < HELD_NS
}

fn us(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e3
}

impl Closed {
    /// For the document.
    pub fn figures(&self) -> Value {
        json!({
            "counted": self.closed_us.len() + self.already + self.never + self.absent,
            "closed_us": Spread::of(&self.closed_us),
            "closed_already": self.already,
            "never_closed": self.never,
            "absent": self.absent,
        })
    }
}

impl Silence {
    /// For the document.
    pub fn figures(&self) -> Value {
        let all = [self.whole_us.as_slice(), &self.cut_us].concat();
        json!({
            "counted": all.len(),
            "silent_us": Spread::of(&all),
            "whole": { "counted": self.whole_us.len(), "silent_us": Spread::of(&self.whole_us) },
            "cut": { "counted": self.cut_us.len(), "silent_us": Spread::of(&self.cut_us) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// Ten wakes, of which the first is not counted: a burst of 3 ms each, 10 ms apart.
    fn wakes() -> Vec<Wake> {
        let wake = |n: u64| Wake { launched: n * 10_000 * US, ended: (n * 10_000 + 3_600) * US };
        (1..=10).map(wake).collect()
    }

    fn filled(holds: Vec<Hold>) -> Filled {
        Filled { holds, away: Vec::new() }
    }

    fn holds(passed_us: u64, silent_us: u64) -> Vec<Hold> {
        let at = |wake: &Wake, us: u64| wake.launched + us * US;
        let hold = |wake: &Wake| Hold {
            called: at(wake, passed_us) - US,
            passed: at(wake, passed_us),
            silent: at(wake, silent_us),
            ended: at(wake, 5_000),
        };
        wakes().iter().map(hold).collect()
    }

    #[test]
    fn a_gate_is_closed_when_the_last_launch_that_passes_has_been_called() {
        let closed = by_board(&wakes(), &filled(holds(4, 300)));
        assert_eq!((closed.closed_us.as_slice(), closed.already), ([3.0; 9].as_slice(), 0));
        assert_eq!(closed.returned_us, [4.0; 9]);
        assert_eq!(by_board(&wakes(), &filled(vec![])).never, 9);
        let one = Hold { called: 0, passed: US, silent: US, ended: 1_000_000 * US };
        assert_eq!(
            by_board(&wakes(), &filled(vec![one])).already,
            8,
            "it was not let in after the first of them"
        );
    }

    #[test]
    fn what_passes_a_closed_gate_by_its_floor_does_not_open_it() {
        let mut holds = holds(300, 300);
        for hold in &mut holds {
            hold.called = hold.passed - 2_000 * US;
        }
        let closed = by_board(&wakes(), &filled(holds));
        assert_eq!((closed.already, closed.closed_us.len()), (9, 0));
    }

    #[test]
    fn whoever_launches_nothing_in_a_burst_is_not_there_to_be_held_back() {
        let away = |from_us: u64| {
            let period = |wake: &Wake| (wake.launched + from_us * US, wake.ended + US);
            Filled { holds: Vec::new(), away: wakes().iter().map(period).collect() }
        };
        let (all, most) = (by_board(&wakes(), &away(0)), by_board(&wakes(), &away(900)));
        assert_eq!((all.absent, most.absent, most.never), (9, 9, 0));
        assert_eq!(by_board(&wakes(), &away(1_100)).never, 9, "it launched for more than a millisecond");
    }

    #[test]
    fn a_burst_of_which_some_ran_before_the_filler_fell_silent_was_cut() {
        let whole = silence(&wakes(), &holds(4, 400));
        assert_eq!((whole.whole_us.len(), whole.cut_us.len()), (9, 0), "3.2 ms are left for 3 ms of work");
        let cut = silence(&wakes(), &holds(4, 2_400));
        assert_eq!((cut.whole_us.len(), cut.cut_us.as_slice()), (0, [2_400.0; 9].as_slice()));
    }

    #[test]
    fn a_closing_belongs_to_the_wake_before_it() {
        let by_bell = |after: i64, away: &[(u64, u64)]| {
            let open = |wake: &Wake| wake.launched - 900 * US;
            let closed = |wake: &Wake| wake.launched.saturating_add_signed(after * 1_000);
            let closing = |wake: &Wake| Closing { open: open(wake), closed: closed(wake) };
            super::by_bell(&wakes(), &wakes().iter().map(closing).collect::<Vec<_>>(), away)
        };
        assert_eq!(by_bell(30, &[]).closed_us, [30.0; 9]);
        assert_eq!((by_bell(-70, &[]).already, by_bell(4_030, &[]).never), (9, 9));
        let one = wakes()[3];
        let late = by_bell(4_030, &[(one.launched + 100 * US, one.ended + 100 * US)]);
        assert_eq!((late.never, late.absent), (8, 1), "the manager had no processor then");
    }
}
