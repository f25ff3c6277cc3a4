//! The books: integer nanoseconds, taken at every event, so that they sum exactly.

use crate::Nanos;

/// A context's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextBooks {
    /// Its part of the busy time: alone all of it, under MPS divided by weight.
    pub true_use: Nanos,
    /// What its kernels would have taken so far without those of others.
    pub alone: Nanos,
    /// Time in which it had a command queued or running.
    pub queued_time: Nanos,
    /// Switches to it.
    pub switches: u64,
    /// Kernels completed.
    pub launches: u64,
    /// Commands queued or running now.
    pub queued: u64,
    /// What copy engines were given, in the order of [`crate::Engine`].
    pub copied: [Copied; 3],
}

/// What one copy engine was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes.
    pub bytes: u64,
    /// Time that they take there.
    pub time: Nanos,
}

/// A device's time: `busy + switch + idle` is the time since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceBooks {
    /// At least one kernel resident.
    pub busy: Nanos,
    /// Switching between contexts.
    pub switch: Nanos,
    /// The rest.
    pub idle: Nanos,
}

/// Counts commands of a context, and for how long there were any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    commands: u64,
    since: Nanos,
    total: Nanos,
}

impl Backlog {
    pub fn add(&mut self, now: Nanos) {
        if self.commands == 0 {
            self.since = now;
        }
        self.commands += 1;
    }

    pub fn remove(&mut self, now: Nanos) {
        self.commands -= 1;
        if self.commands == 0 {
            // Saturating: a command's submission may lie in the future of the device (submit to start).
            self.total += now.saturating_sub(self.since);
        }
    }

    pub fn commands(&self) -> u64 {
        self.commands
    }

    pub fn time(&self, now: Nanos) -> Nanos {
        self.total + if self.commands > 0 { now.saturating_sub(self.since) } else { 0 }
    }
}
