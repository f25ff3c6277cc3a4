//! A launch at the gate, and who wakes those that wait there.

use weir_simgpu_model::{Kernel, Work};

use super::{DEPTH, Engine, LAUNCH, WAKE};
use crate::registry::standing;
use crate::sim::launcher::{Alarm, BOARD, Launcher, Said};
use crate::sim::manager::Manager;
use crate::sim::seat::{Seat, State};

impl Engine {
    /// The program in this seat launches: it goes, or it waits.
    pub(super) fn launch(&mut self, at: usize, kernel: Kernel) {
        if self.seats[at].depth() >= DEPTH {
            self.seats[at].state = State::Full(kernel);
            return;
        }
        let closed_by = self.closed_by(at);
        let said = self.seats[at].ask(kernel, self.now, closed_by);
        match said {
            Said::Goes => {
                self.stirs(at);
                let seat = &mut self.seats[at];
                seat.leave_gate(self.now);
                let (sequence, stream) = seat.submit(kernel);
                let kernel = seat.confined(kernel);
                self.device.submit(self.now, stream, sequence, Work::Kernel(kernel));
                self.wake(at, self.now + LAUNCH);
            }
            Said::Sleeps(at_most, alarm) => {
                self.seats[at].wait_at_gate(kernel, alarm, self.now);
                self.wake(at, self.now + at_most.0.max(1));
            }
        }
        self.pass_turn_on(at);
    }

    /// The better one that keeps a filler out, as the board shows it, unless the manager lends the time all the same.
    fn closed_by(&self, at: usize) -> Option<usize> {
        let seat = &self.seats[at];
        if seat.better || !self.fillers_give_way {
            return None;
        }
        let shows = |seat: &Seat| seat.busy_since.is_some_and(|since| since + BOARD.0 <= self.now);
        let works = self.seats.iter().position(|seat| seat.better && shows(seat));
        works.filter(|_| !seat.is_lent())
    }

    /// Whoever waits for this tenant's turn to pass on wakes.
    pub(super) fn pass_turn_on(&mut self, at: usize) {
        let passed = self.seats[at].launcher.as_mut().is_some_and(Launcher::take_turn_passed);
        if passed {
            self.set_off(|alarm| matches!(alarm, Alarm::Set(_, Some(seat)) if seat == at));
        }
    }

    fn set_off(&mut self, goes_off: impl Fn(Alarm) -> bool) {
        for seat in 0..self.seats.len() {
            if let State::AtGate(kernel, alarm) = self.seats[seat].state
                && goes_off(alarm)
            {
                // Once: a second one does not put the wake-up off.
                self.seats[seat].state = State::AtGate(kernel, Alarm::Off);
                self.wake(seat, self.now + WAKE);
            }
        }
    }
}

/// Everybody learns with whom to take turns: of two one of whom gives way neither waits for the other's turn.
pub(super) fn introduce(seats: &mut [Seat], manager: &Manager, fillers_give_way: bool) {
    for at in 0..seats.len() {
        for other in (0..seats.len()).filter(|other| *other != at) {
            let standing = standing(fillers_give_way, seats[at].rank, seats[other].rank);
            if let (Some(precedence), Some(launcher), Some(pages)) =
                (standing.precedence(), &mut seats[at].launcher, manager.pages(other))
            {
                launcher.meet(other, precedence, pages);
            }
        }
    }
}
