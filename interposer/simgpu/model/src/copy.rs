//! Copy engines: first come, first served, one per direction, outside the time slices.

use std::collections::VecDeque;

use crate::Nanos;
use crate::device::StreamId;

/// One engine.
#[derive(Debug, Default)]
pub(crate) struct CopyEngine {
    /// Streams that wait, each with its copy's duration; the first one is being served.
    queue: VecDeque<(StreamId, Nanos)>,
    /// When the first one ends.
    ends: Nanos,
}

impl CopyEngine {
    pub fn push(&mut self, now: Nanos, stream: StreamId, duration: Nanos) {
        if self.queue.is_empty() {
            self.ends = now + duration;
        }
        self.queue.push_back((stream, duration));
    }

    /// When the next copy ends.
    pub fn next(&self) -> Option<Nanos> {
        (!self.queue.is_empty()).then_some(self.ends)
    }

    /// The copy that has ended by `now`; the next one starts where it ended.
    pub fn finish(&mut self, now: Nanos) -> Option<StreamId> {
        if self.queue.is_empty() || self.ends > now {
            return None;
        }
        let (stream, _) = self.queue.pop_front()?;
        if let Some((_, duration)) = self.queue.front() {
            self.ends += duration;
        }
        Some(stream)
    }

    /// Takes out the copies of streams that are gone; a copy under way ends now.
    pub fn retain(&mut self, now: Nanos, mut alive: impl FnMut(StreamId) -> bool) {
        let first = self.queue.front().copied();
        self.queue.retain(|(stream, _)| alive(*stream));
        let after = self.queue.front().copied();
        if after != first
            && let Some((_, duration)) = after
        {
            self.ends = now + duration;
        }
    }
}
