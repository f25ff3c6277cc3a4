//! Whether this process has work on a GPU: what it shows on the board, and tells the manager.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use rustix::thread::futex;
use weir_core::admission;
use weir_core::gate::in_flight;
use weir_protocol::pages::{Lane, Wants};
use weir_protocol::units::Nanos;

use super::run::Run;
use super::{Client, Gpu, helper};
use crate::clock;

/// What the process knows of it in its own memory.
#[derive(Default)]
pub struct Busy {
    work: AtomicBool,   // it has said that it has work here
    ends: AtomicU32,    // so often that was over
    as_done: AtomicU64, // when so much had been submitted, all of it was taken as done by prediction
}

impl Gpu {
    /// Whether this process has said that it has work here.
    pub fn is_busy(&self) -> bool {
        self.busy.work.load(Ordering::Relaxed)
    }

    /// How often its work here has come to its end.
    pub(super) fn ends(&self) -> u32 {
        self.busy.ends.load(Ordering::Relaxed)
    }

    /// Whether this process has work here and may add to it without asking whose turn it is, or who else has work.
    #[inline]
    pub fn flows(&self) -> bool {
        self.pieces.flow() && self.betters.are_calm()
    }

    /// The next launch shall ask whose turn it is.
    pub fn stop_flowing(&self) {
        self.pieces.stop_flow();
    }

    /// This process is about to have work here. The manager is told, if it wants to be.
    pub fn begin(&self) {
        let begins = self.activity.begin(self.slot_index(), clock::now);
        self.busy.work.store(true, Ordering::Relaxed);
        self.pieces.start_flow();
        if begins {
            let _ = self.activity.standing.end_rest(); // of a launch that came before the rest, and waited: it says nothing
            self.tell(self.grant.bell.wants());
            self.wake_helper(); // which finds it busy
        }
    }

    /// What was about to be work here is counted now. Another thread may have looked in between, and found nothing in flight:
    /// then it begins anew, and the next launch asks whose turn it is.
    pub fn has_begun(&self) {
        fence(Ordering::SeqCst); // either this finds what the other thread has ended, or that one finds the count
        if !self.activity.is_busy(self.slot_index()) {
            self.begin();
            self.stop_flowing();
        }
    }

    /// A launch or a copy waits here. The manager is told, if it takes the tenant for asleep.
    pub fn waits(&self) {
        self.wake_helper();
        let wants = self.grant.bell.wants();
        self.tell(Wants { ring: wants.stir, ..wants });
    }

    /// Nobody waits for the end of its work while it is alone.
    fn wake_helper(&self) {
        if self.has_company() {
            helper::wake();
        }
    }

    fn tell(&self, wants: Wants) {
        if wants == Wants::NOTHING {
            return;
        }
        let Some(client) = Client::get() else { return };
        if wants.stir
            && let Some(first) = client.gpus.first()
        {
            first.usage.stir();
        }
        if wants.ring {
            client.ring();
        }
    }

    /// Says that this process has no work here, if that is so.
    pub fn end_if_idle(&self) {
        if self.is_busy() && self.is_idle() {
            self.stop_flowing();
            self.busy.work.store(false, Ordering::Relaxed);
            self.busy.ends.fetch_add(1, Ordering::Relaxed);
            self.activity.end(self.slot_index());
            self.burst_ended();
            // A launch on another thread may have found it as it was. Then it is counted by now, or finds this (`has_begun`);
            // but for one on the short way, which was interrupted between its look and its count: the next one shows.
            fence(Ordering::SeqCst);
            if !self.is_idle() {
                return self.begin();
            }
            if self.slot().turn.is_there() && self.slot().turn.drain(|| self.pages().waits_itself()) {
                self.solo_passed();
            }
            if self.activity.quiet(None).is_some() {
                self.activity.standing.set_gives_way(false);
                self.note_rest();
                admission::drained(&mut &*self, clock::now());
                self.wake_others();
            }
        }
    }

    /// All that was submitted so far is taken as done, by prediction: no word stands behind it.
    pub(super) fn take_as_done(&self, submitted: u64) {
        self.busy.as_done.store(submitted, Ordering::Relaxed);
    }

    /// Those who give way to the tenant sleep until it has no work any more, or no longer passes.
    pub(super) fn wake_others(&self) {
        let gives_way = |neighbour: &super::board::Neighbour| neighbour.activity().standing.gives_way();
        let any = |all: &mut [super::board::Neighbour]| all.iter().any(gives_way);
        let board = self.grant.board();
        if self.board.has_others(board) || self.board.with(board, any) == Some(true) {
            let _ = futex::wake(self.activity.futex_word(), futex::Flags::empty(), i32::MAX.unsigned_abs());
        }
    }

    fn is_idle(&self) -> bool {
        self.book_runs();
        let slot = self.slot();
        // Relaxed: each word is looked at again at the next launch.
        let booked = |(run, lane): (&Run, &Lane)| run.booked() >= lane.charged_ns.load(Ordering::Relaxed);
        let as_done =
            || slot.submitted_ns.load(Ordering::Relaxed) == self.busy.as_done.load(Ordering::Relaxed);
        self.runs.iter().zip(&slot.lanes).all(booked) && (in_flight(slot) == Nanos(0) || as_done())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::a_gpu;

    #[test]
    fn a_launch_shows_on_the_board_although_another_thread_found_nothing_in_flight_before_it_was_counted() {
        let gpu = a_gpu();
        gpu.begin();
        gpu.end_if_idle(); // the other thread
        assert!(gpu.activity.quiet(None).is_some());
        gpu.slot().lanes[0].charged_ns.store(100, Ordering::Relaxed);
        gpu.has_begun();
        assert!(gpu.activity.quiet(None).is_none() && gpu.is_busy());
        assert!(!gpu.flows(), "the turn may be another tenant's by now");
    }

    #[test]
    fn work_that_is_counted_when_another_thread_looks_does_not_end() {
        let gpu = a_gpu();
        gpu.begin();
        gpu.slot().lanes[0].charged_ns.store(100, Ordering::Relaxed);
        gpu.has_begun();
        gpu.end_if_idle();
        assert!(gpu.activity.quiet(None).is_none() && gpu.flows());
    }
}
