//! The end of a process, or of its connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::{Poll, Source};

/// Between the end of a socket and the question what it meant: a process that called `exec` and uses CUDA again has
/// registered anew by then, more often than not.
const GRACE: Duration = Duration::from_millis(100);

/// And so on, as long as it has no socket: its next `exec` would be seen by nothing else.
const AGAIN: Duration = Duration::from_secs(5);

/// A registered process, watched through its pidfd, which never stands for another process.
pub struct Life {
    pidfd: OwnedFd,
    /// The number under which it is registered.
    pub process: u64,
    pid: i32,
}

impl Life {
    /// Watches the process behind `pidfd`, registered as `process`.
    pub fn new(pidfd: OwnedFd, process: u64, pid: i32) -> Self {
        Self { pidfd, process, pid }
    }
}

impl AsFd for Life {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Poll {
    /// The member's socket has ended, or brings what no member sends. Its life decides.
    pub(super) fn lose(&mut self, token: u64) {
        if let Some(Source::Member(member)) = self.remove(token) {
            self.deadlines.insert((Instant::now() + GRACE, member.life));
        }
    }

    /// The process is dead: its slot is free, its counters are kept.
    pub(super) fn bury(&mut self, token: u64) {
        if let Some(Source::Life(life)) = self.remove(token) {
            self.shared.registry().bury(life.process);
        }
    }

    /// A process that registers anew after `exec` has lost what it held before: at once, not after the grace, so that a
    /// chain of programs does not run into its limit. A former self whose socket is open is another copy of us in the same
    /// process, and stays.
    pub(super) fn bury_former_self(&mut self, tenant: u64, pid: i32) {
        let known = {
            let registry = self.shared.registry();
            registry.tenant(tenant).is_some_and(|tenant| tenant.processes.iter().any(|p| p.pid == pid))
        };
        if !known {
            return;
        }
        let lives = self.sources.iter().filter_map(|(token, source)| match source {
            Source::Life(life) if life.pid == pid => Some(*token),
            _ => None,
        });
        let lives: Vec<u64> = lives.collect();
        for life in lives {
            if !self.is_connected(life) {
                self.bury(life);
            }
        }
    }

    /// Whether the process has a socket that is open.
    pub(super) fn is_connected(&self, life: u64) -> bool {
        let connected = |source: &Source| matches!(source, Source::Member(member) if member.life == life && !member.has_ended());
        self.sources.values().any(connected)
    }

    /// A process without a socket lives. If it called `exec`, its registration is over; if it merely lost the
    /// socket, it still holds to its budget through the pages, and its slot is not for others.
    pub(super) fn judge(&mut self, token: u64) {
        let Some(Source::Life(life)) = self.sources.get(&token) else { return };
        if self.is_connected(token) {
            return; // it has come back
        }
        let anew = {
            let registry = self.shared.registry();
            let mut all = registry.tenants().iter().flat_map(|tenant| &tenant.processes);
            all.any(|process| process.pid == life.pid && process.id > life.process)
        };
        if anew || !maps_our_pages(life.pid) {
            self.bury(token);
        } else {
            self.deadlines.insert((Instant::now() + AGAIN, token));
        }
    }
}

/// Whether the process still has a grant page mapped. When that cannot be read, it counts as mapped: a slot kept
/// too long costs a slot, one given away too early corrupts a neighbour's counts.
fn maps_our_pages(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps"))
        .map_or(true, |maps| maps.contains("memfd:weir-grant"))
}
