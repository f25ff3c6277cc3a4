//! The horizon: up to when all is known of what a context's streams did, so that time can be dealt out (`stall`).

use weir_protocol::pages::Stall;
use weir_protocol::units::Nanos;

use super::marks::Marks;
use super::{Driver, Flight};
use crate::stall::Span;

/// Work that is done and that no mark has measured is waited for so long: the next launch on its idle stream puts one. After
/// that the program pauses, and what was predicted must do.
const PATIENCE: Nanos = Nanos::from_millis(5);

/// What has been said of one stream's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub work: u64,
    pub copied: u64,
    drained_at: Nanos, // when it was first seen to be done with work of which nothing was said; 0: it was not
}

impl Told {
    pub fn total(&self) -> u64 {
        self.work.saturating_add(self.copied)
    }
}

impl Flight {
    /// Up to when nothing more will be said of this context's time. Says what has to be said first of work that no mark
    /// measures.
    pub fn horizon(&self, now: Nanos, driver: &mut impl Driver) -> Nanos {
        let Some(mut marks) = self.marks.try_lock() else { return Nanos(0) };
        self.in_use().fold(now, |horizon, book| horizon.min(self.horizon_of(book, now, &mut marks, driver)))
    }

    fn horizon_of(&self, index: usize, now: Nanos, marks: &mut Marks, driver: &mut impl Driver) -> Nanos {
        let (book, told) = (&self.books[index], marks.told(index));
        let given = book.given();
        if told.total() >= given {
            marks.set_told(index, Told { drained_at: Nanos(0), ..told });
            return now;
        }
        let measured_up_to = marks.measured_up_to(index);
        if book.done() < given || marks.is_under_way(index) {
            marks.set_told(index, Told { drained_at: Nanos(0), ..told });
            return measured_up_to.unwrap_or(Nanos(0)).min(now);
        }
        let drained_at = if told.drained_at == Nanos(0) { now } else { told.drained_at };
        let both = book.both();
        let untold = (both.0.saturating_sub(told.work), both.1.saturating_sub(told.copied));
        if now.since(drained_at) < PATIENCE && measured_up_to.is_some() {
            marks.set_told(index, Told { drained_at, ..told });
            return measured_up_to
                .unwrap_or(now)
                .min(Nanos(drained_at.0.saturating_sub(untold.0 + untold.1)));
        }
        let (work, copied) = (untold.0 as f64, untold.1 as f64);
        let end = drained_at.0 as f64;
        driver.spent(Span { stall: Stall::Compute, from: end - work, to: end });
        driver.spent(Span { stall: Stall::Copies, from: end - work - copied, to: end - work });
        let told = Told { work: both.0, copied: both.1, drained_at: Nanos(0) };
        marks.set_told(index, told);
        now
    }
}
