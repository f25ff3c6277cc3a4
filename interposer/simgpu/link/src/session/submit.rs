//! Submitting work: streams, commands, and the room for them.
#![allow(clippy::cast_possible_truncation, reason = "constants of the page layout, far below 2^32")]

use std::sync::atomic::Ordering;

use super::{Session, SessionError, Shared, locked};
use crate::command::{Command, StreamKind, Work};
use crate::now_ns;
use crate::page::{RING, STREAMS};
use crate::wait::Target;

/// What the one producer of the ring knows, per stream slot.
pub(super) struct Producer {
    /// Sequence number of the last command.
    submitted: Vec<u64>,
    free: Vec<u32>,
    /// Closed ones that hold commands still: used again once those are done.
    closing: Vec<u32>,
    /// Where each event slot was last recorded: record number, stream, sequence.
    records: Vec<(u32, u32, u64)>,
}

impl Producer {
    pub fn new() -> Self {
        let free = (0..STREAMS as u32).rev().collect();
        Self { submitted: vec![0; STREAMS], free, closing: Vec::new(), records: Vec::new() }
    }

    /// Where an event slot was last recorded: record number, stream, sequence.
    pub fn latest_record(&self, slot: u32) -> (u32, u32, u64) {
        self.records.get(slot as usize).copied().unwrap_or_default()
    }

    /// Notes where an event is recorded, as what number.
    fn record(&mut self, slot: u32, stream: u32) -> u32 {
        let place = slot as usize;
        if self.records.len() <= place {
            self.records.resize(place + 1, (0, 0, 0));
        }
        let record = self.records[place].0 + 1;
        self.records[place] = (record, stream, self.submitted[stream as usize] + 1);
        record
    }
}

impl Session {
    /// Makes a stream and returns its slot on the page. At most one [`StreamKind::Legacy`] per context.
    ///
    /// # Errors
    /// [`SessionError::Streams`].
    pub fn open_stream(&self, context: u32, kind: StreamKind, priority: i32) -> Result<u32, SessionError> {
        let shared = self.shared()?;
        let slot = {
            let mut producer = locked(&shared.producer);
            let Producer { submitted, free, closing, .. } = &mut *producer;
            let done = |slot: &mut u32| self.completed_in(shared, *slot) >= submitted[*slot as usize];
            free.extend(closing.extract_if(.., done));
            free.pop().ok_or(SessionError::Streams)?
        };
        self.push(slot, Work::Open { context, kind, priority })?;
        Ok(slot)
    }

    /// Ends a stream; what it holds is still done, and its slot is used again after that.
    ///
    /// # Errors
    /// [`SessionError::Lost`].
    pub fn close_stream(&self, stream: u32) -> Result<(), SessionError> {
        self.push(stream, Work::Close)?;
        locked(&self.shared()?.producer).closing.push(stream);
        Ok(())
    }

    /// Sequence number of the last command in a stream.
    ///
    /// # Errors
    /// [`SessionError::Observer`].
    pub fn submitted(&self, stream: u32) -> Result<u64, SessionError> {
        Ok(locked(&self.shared()?.producer).submitted[stream as usize])
    }

    /// Submits a command and returns its sequence number. Waits while the stream has `queue_depth` commands
    /// outstanding, as a real launch does. No system call unless it waits or the GPU was idle.
    ///
    /// # Errors
    /// [`SessionError::Lost`]: the broker is gone.
    pub fn push(&self, stream: u32, work: Work) -> Result<u64, SessionError> {
        self.push_with(stream, |_| work)
    }

    /// Submits a record of event slot `slot`, which takes `takes_ns` of the GPU, and returns the record's number: see [`Session::event_stamp`].
    ///
    /// # Errors
    /// As for [`Session::push`].
    pub fn push_record(&self, stream: u32, slot: u32, takes_ns: u64) -> Result<u32, SessionError> {
        let mut record = 0;
        self.push_with(stream, |producer| {
            record = producer.record(slot, stream);
            Work::Record { slot, record, takes_ns }
        })?;
        Ok(record)
    }

    /// Waits for room without the lock, then takes the lock and looks again.
    fn push_with(&self, stream: u32, work: impl FnOnce(&mut Producer) -> Work) -> Result<u64, SessionError> {
        let shared = self.shared()?;
        let mut producer = locked(&shared.producer);
        while let Some(target) = self.obstacle(shared, producer.submitted[stream as usize], stream) {
            drop(producer);
            // As in drivers that wait for room with a lock held that other calls need.
            let held = self.config().driver_locks.then(|| self.full.write());
            self.wait(target)?;
            drop(held);
            producer = locked(&shared.producer);
        }
        let work = work(&mut producer);
        let last = &mut producer.submitted[stream as usize];
        *last += u64::from(!matches!(work, Work::Open { .. } | Work::Close));
        let sequence = *last;
        shared.page.push(&Command { stream, sequence, at_ns: now_ns(), work });
        drop(producer);
        if shared.page.must_ring_for_push() {
            shared.ring();
        }
        Ok(sequence)
    }

    /// What a producer must wait for before it may push, if anything.
    fn obstacle(&self, shared: &Shared, submitted: u64, stream: u32) -> Option<Target> {
        let depth = u64::from(self.welcome.config.queue_depth);
        if submitted >= self.completed_in(shared, stream) + depth {
            // A quarter of the queue at once: the launcher is not woken for each command.
            return Some(Target::Completed { stream, sequence: submitted - depth + depth.div_ceil(4) });
        }
        (!shared.page.has_room()).then(|| {
            // Relaxed: the lock is held, nobody else writes it.
            Target::Taken(shared.page.tail.0.load(Ordering::Relaxed) - RING as u64 / 2)
        })
    }
}
