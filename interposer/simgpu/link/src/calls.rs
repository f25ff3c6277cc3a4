//! Calls of a process that another one has locked for a checkpoint: they wait at their beginning.
//!
//! Each side stores first and then looks: a call that does not see the lock is seen by the broker as under way. So once the
//! broker has locked a page and counts no call on it, there is none until it takes the lock away.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::thread::futex;

use crate::page::Page;
use crate::rpc::Obstacle;

/// The page's word while calls wait.
const LOCKED: u32 = 1;

impl Page {
    /// Client: a call begins, unless calls are to wait.
    #[inline]
    #[must_use]
    pub fn begin_call(&self) -> bool {
        // SeqCst: see the module's text.
        self.under_way.0.fetch_add(1, Ordering::SeqCst);
        let goes = self.locked.0.load(Ordering::SeqCst) != LOCKED;
        if !goes {
            self.end_call();
        }
        goes
    }

    /// Client: a call ends.
    #[inline]
    pub fn end_call(&self) {
        // Release: what the call did comes before.
        self.under_way.0.fetch_sub(1, Ordering::Release);
    }

    /// Client: waits until calls may go on, for `limit` at most.
    #[cold]
    pub fn wait_until_unlocked(&self, limit: Duration) {
        let limit = rustix::time::Timespec {
            tv_sec: limit.as_secs().cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // Woken, timed out, interrupted: the caller looks again in each case.
        let _ = futex::wait(&self.locked.0, futex::Flags::empty(), LOCKED, Some(&limit));
    }

    /// Broker: calls that have not begun wait from now on.
    pub fn lock_calls(&self) {
        // SeqCst: see the module's text.
        self.locked.0.store(LOCKED, Ordering::SeqCst);
    }

    /// Broker: whether a call is under way.
    pub fn has_calls(&self) -> bool {
        self.under_way.0.load(Ordering::SeqCst) != 0
    }

    /// Broker: calls go on.
    pub fn unlock_calls(&self) {
        self.locked.0.store(0, Ordering::SeqCst);
        // It can only fail for a bad address.
        let _ = futex::wake(&self.locked.0, futex::Flags::empty(), i32::MAX.cast_unsigned());
    }

    /// Client: one more, or one fewer, of what no checkpoint can be taken of.
    pub fn count_obstacle(&self, obstacle: Obstacle, more: bool) {
        let word = &self.obstacles.0[obstacle as usize];
        // Relaxed: read while the client has no call under way, which orders it.
        match more {
            true => word.fetch_add(1, Ordering::Relaxed),
            false => word.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Broker: what stands in the way of a checkpoint.
    pub fn obstacle(&self) -> Option<Obstacle> {
        // Relaxed: as above.
        Obstacle::ALL
            .into_iter()
            .find(|obstacle| self.obstacles.0[*obstacle as usize].load(Ordering::Relaxed) != 0)
    }
}
