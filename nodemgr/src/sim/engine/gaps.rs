//! Who has something to do, and the gaps in which nobody better has.

use weir_simgpu_model::Nanos;

use super::Engine;
use crate::sim::measure::Gap;
use crate::sim::seat::Seat;

impl Engine {
    /// A tenant has something to do from now on.
    pub(super) fn stirs(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        if seat.busy_since.is_some() {
            return;
        }
        seat.busy_since = Some(self.now);
        if let Some((since, had)) = self.gap.take_if(|_| seat.better) {
            let filled = self.fillers_had() - had;
            self.note_gap(since, filled);
        }
    }

    /// A tenant has nothing to do.
    pub(super) fn quiets(&mut self, at: usize) {
        self.seats[at].busy_since = None;
        let works = |seat: &Seat| seat.better && seat.busy_since.is_some();
        if self.seats[at].better && self.gap.is_none() && !self.seats.iter().any(works) {
            self.gap = Some((self.now, self.fillers_had()));
        }
    }

    /// Gaps that reach over an end of the window are left out, so that each counts whole.
    fn note_gap(&mut self, since: Nanos, filled: Nanos) {
        if since >= self.window.from && self.now <= self.window.to {
            self.gaps.push(Gap { length: self.now - since, filled });
        }
    }

    fn fillers_had(&self) -> Nanos {
        let fillers = self.seats.iter().filter(|seat| !seat.better);
        fillers.filter_map(|seat| self.device.context_books(seat.context)).map(|books| books.true_use).sum()
    }
}
