//! Completions and event stamps: looking at them, waiting for them, ending stalls.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::{Session, SessionError, Shared, locked};
use crate::now_ns;
use crate::socket::SocketError;
use crate::wait::Target;

/// Longest sleep before a waiter makes sure that the broker lives.
const LOOK: Duration = Duration::from_millis(100);
/// Between two looks at an event whose place in its stream is no longer known.
const STEP: Duration = Duration::from_micros(100);

impl Session {
    /// Sequence number up to which a stream is complete. Plain load; [`Session::look`] makes it fresh.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn completed(&self, stream: u32) -> Result<u64, SessionError> {
        Ok(self.completed_in(self.shared()?, stream))
    }

    /// Asks the broker to bring completions up to now (it does so within a millisecond by itself). For queries:
    /// look at the word, and if it is not there yet, `look` and say "not ready". Does not wait.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn look(&self) -> Result<(), SessionError> {
        let shared = self.shared()?;
        if shared.page.must_ring_for_wait() {
            shared.ring();
        }
        Ok(())
    }

    /// Waits until a stream is complete up to `sequence`.
    ///
    /// # Errors
    /// [`SessionError::Lost`]: the broker is gone.
    pub fn wait_completed(&self, stream: u32, sequence: u64) -> Result<(), SessionError> {
        self.wait(Target::Completed { stream, sequence })
    }

    pub(super) fn wait(&self, target: Target) -> Result<(), SessionError> {
        let shared = self.shared()?;
        while !shared.page.wait(target, LOOK, || {
            if shared.page.must_ring_for_wait() {
                shared.ring();
            }
        }) {
            self.check_broker()?;
        }
        Ok(())
    }

    /// When the front end reached this record (or a later one of the same slot), ns; `None`: not yet.
    pub fn event_stamp(&self, slot: u32, record: u32) -> Option<u64> {
        let stamp = self.page().ok()?.stamps.get(slot as usize)?;
        // Acquire: the time was stored before the record's number.
        (stamp.record.load(Ordering::Acquire) >= u64::from(record)).then(|| stamp.ns.load(Ordering::Relaxed))
    }

    /// Waits for a record.
    ///
    /// # Errors
    /// [`SessionError::Lost`].
    pub fn wait_event(&self, slot: u32, record: u32) -> Result<(), SessionError> {
        while self.event_stamp(slot, record).is_none() {
            // The record's place in its stream tells the broker when to wake us. A later record of the same
            // event may have taken its place: then this waits in steps, and looks at the stamp each time.
            let (latest, stream, sequence) = locked(&self.shared()?.producer).latest_record(slot);
            if latest == record {
                self.wait_completed(stream, sequence)?;
            } else {
                self.look()?;
                std::thread::sleep(STEP);
                self.check_broker()?;
            }
        }
        Ok(())
    }

    /// Ends the stalls ([`Work::Hold`], a spinning kernel) of a stream up to `sequence`.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn resume(&self, stream: u32, sequence: u64) -> Result<(), SessionError> {
        let shared = self.shared()?;
        // Relaxed: published by the release below; another thread's moment in its place is as good.
        shared.page.resumed_at[stream as usize].store(now_ns(), Ordering::Relaxed);
        // Release: what the host function wrote is seen by who sees the completion that follows. Max: two
        // threads may end two stalls in either order.
        shared.page.resumed[stream as usize].fetch_max(sequence, Ordering::Release);
        self.look()
    }

    pub(super) fn completed_in(&self, shared: &Shared, stream: u32) -> u64 {
        // Acquire: what the completed work did is seen by who sees the completion.
        shared.page.completed[stream as usize].load(Ordering::Acquire)
    }

    /// An error if the broker has hung up.
    pub(super) fn check_broker(&self) -> Result<(), SessionError> {
        let socket = locked(&self.socket);
        let mut fds = [PollFd::new(&*socket, PollFlags::empty())];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0);
        if gone { Err(SocketError::Closed.into()) } else { Ok(()) }
    }
}
