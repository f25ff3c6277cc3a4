//! Checkpoints: what a manager asks of another process, and what that process does when it is locked.

use std::time::Duration;

use super::{Session, SessionError};
use crate::rpc::{Obstacle, ProcessState, Reply, Request, Step};

/// Longest sleep of a locked call before it makes sure that the broker lives.
const LOOK: Duration = Duration::from_millis(100);

impl Session {
    /// A call begins; waits while the process is locked, or a launch holds the lock that it needs. With the broker everything else ends, so that call goes on.
    #[inline]
    pub fn begin_call(&self) {
        let Ok(page) = self.page() else { return };
        if self.config().driver_locks {
            drop(self.full.read());
        }
        while !page.begin_call() {
            page.wait_until_unlocked(LOOK);
            if self.check_broker().is_err() {
                page.unlock_calls();
            }
        }
    }

    /// A call ends.
    #[inline]
    pub fn end_call(&self) {
        if let Ok(page) = self.page() {
            page.end_call();
        }
    }

    /// One more, or one fewer, of what no checkpoint can be taken of.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn count_obstacle(&self, obstacle: Obstacle, more: bool) -> Result<(), SessionError> {
        self.page()?.count_obstacle(obstacle, more);
        Ok(())
    }

    /// How a process stands.
    ///
    /// # Errors
    /// [`Refusal::NoSuchProcess`](crate::Refusal).
    pub fn process_state(&self, pid: i32) -> Result<ProcessState, SessionError> {
        match self.ask(&Request::Process { pid, step: Step::State })?.0 {
            Reply::Process(state) => Ok(state),
            _ => Err(SessionError::Confused),
        }
    }

    /// Takes a step of a checkpoint; says how many bytes go over the bus for it.
    ///
    /// # Errors
    /// [`Refusal`](crate::Refusal): no such process, another state, not ready, no checkpoint of what it has, no memory.
    pub fn process_step(&self, pid: i32, step: Step) -> Result<u64, SessionError> {
        match self.ask(&Request::Process { pid, step })?.0 {
            Reply::Done => Ok(0),
            Reply::Moved(bytes) => Ok(bytes),
            _ => Err(SessionError::Confused),
        }
    }
}
