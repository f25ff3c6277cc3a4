//! A command's way: submitted, arrived, first of its stream, complete.

use crate::Nanos;
use crate::device::{Arrival, Completion, Device, EventKey, StreamId, lookup};
use crate::spec::{Kernel, transfer};
use crate::stream::{Queued, State, Stream, StreamKind, Work};

impl Device {
    /// Submits a command at `at`; calls come in order of time, an earlier time counts as the last one's.
    /// `sequence` ascends within a stream. A stream that is gone swallows it; then the answer is `false`.
    pub fn submit(&mut self, at: Nanos, id: StreamId, sequence: u64, work: Work) -> bool {
        let at = at.max(self.now);
        let order = self.next_order();
        let work = match work {
            Work::Kernel(kernel) => {
                Work::Kernel(Kernel { solo: self.spec.noise.on(kernel.solo, order, at), ..kernel })
            }
            other => other,
        };
        let solo = self.solo(work);
        let Some(stream) = self.stream_mut(id) else { return false };
        stream.arriving += 1;
        stream.solo_submitted = stream.solo_submitted.saturating_add(solo);
        let (kind, context, solo_sum) = (stream.kind, stream.context, stream.solo_submitted);
        let last = self.arrivals.back().map_or(0, |arrival| arrival.at);
        let Some(owner) = self.contexts[context].as_mut() else { return false };
        owner.backlog.add(at);
        let after = match kind {
            StreamKind::NonBlocking => 0,
            StreamKind::Blocking => {
                owner.blocking_commands.submitted += 1;
                owner.legacy_commands.submitted
            }
            StreamKind::Legacy => {
                owner.legacy_commands.submitted += 1;
                owner.blocking_commands.submitted
            }
        };
        let queued = Queued { sequence, order, work, after, solo_sum };
        let at = (at + self.spec.submit_to_start).max(last);
        self.expect(Arrival { at, stream: id, queued });
        true
    }

    /// Least time that a command takes, ns.
    fn solo(&self, work: Work) -> Nanos {
        match work {
            Work::Kernel(kernel) if kernel.spins => 0,
            Work::Copy(engine, bytes) => transfer(bytes, self.spec.copy_bytes_per_us[engine as usize]),
            Work::Hold(takes) => takes,
            _ => self.spec.demand(work).map_or(0, |kernel| kernel.solo),
        }
    }

    /// Ends a stall, a held stream's or a spinning kernel's, also before the stream has come to it.
    pub fn resume(&mut self, id: StreamId, sequence: u64) {
        self.next = None;
        let Some(stream) = self.stream_mut(id) else { return };
        let state = stream.state;
        let place = stream.queue.binary_search_by_key(&sequence, |queued| queued.sequence).ok();
        let command = match place {
            Some(place) => &mut stream.queue[place],
            None => {
                let its_own =
                    |arrival: &&mut Arrival| arrival.stream == id && arrival.queued.sequence == sequence;
                let Some(arrival) = self.arrivals.iter_mut().find(its_own) else { return };
                &mut arrival.queued
            }
        };
        match &mut command.work {
            Work::Hold(takes) => command.work = Work::Mark(*takes),
            Work::Kernel(kernel) if kernel.spins => (kernel.spins, kernel.solo) = (false, 1),
            _ => return,
        }
        match state {
            State::Stalled if place == Some(0) => {
                self.pumps.push_back(id);
                self.let_sharers_go(id);
            }
            State::Resident if place == Some(0) => self.release_spinner(id),
            _ => {}
        }
        self.pump_all();
        self.settle();
    }

    /// Everything that is due now.
    pub(crate) fn step(&mut self) {
        self.take_in(self.now);
        self.stepped_at = self.now;
        self.next = None;
        self.end_kernels();
        for engine in 0..self.engines.len() {
            while let Some(stream) = self.engines[engine].finish(self.now) {
                self.complete(stream);
                self.pumps.push_back(stream);
            }
        }
        while self.arrivals.front().is_some_and(|arrival| arrival.at <= self.now) {
            self.arrive();
        }
        self.take_birth_steps();
        self.pump_all();
        self.turn_over();
        self.settle();
    }

    fn end_kernels(&mut self) {
        let mut place = 0;
        while place < self.resident.len() {
            if self.resident[place].spins || self.resident[place].left > 0 {
                place += 1;
                continue;
            }
            // In order: among equals the first to come is the first to go.
            let kernel = self.resident.remove(place);
            self.stale = true;
            let first = lookup(&self.streams, kernel.stream).and_then(|stream| stream.queue.front());
            let work = first.map_or(Work::Nothing, |first| first.work);
            if let Some(owner) = self.contexts[kernel.context].as_mut() {
                owner.resident -= 1;
                owner.launches += u64::from(!kernel.is_mark);
            }
            if let Work::Record(event, record, _) = work {
                self.reach(event, record);
            }
            self.complete(kernel.stream);
            // Those that waited for a place come before the stream's own next one.
            self.admit(kernel.context);
            self.pumps.push_back(kernel.stream);
        }
    }

    fn arrive(&mut self) {
        let Some(arrival) = self.arrivals.pop_front() else { return };
        let Some(stream) = self.stream_mut(arrival.stream) else { return };
        stream.arriving -= 1;
        stream.queue.push_back(arrival.queued);
        if stream.state == State::Empty {
            self.pumps.push_back(arrival.stream);
            self.pump_all();
        }
    }

    pub(crate) fn pump_all(&mut self) {
        while let Some(stream) = self.pumps.pop_front() {
            self.pump(stream);
        }
    }

    /// Does what a stream's first command asks, and the next one's, until one takes time.
    fn pump(&mut self, id: StreamId) {
        while let Some(stream) = self.stream_mut(id) {
            let Some(&Queued { order, work, after, .. }) = stream.queue.front() else {
                stream.state = State::Empty;
                if stream.closing && stream.arriving == 0 {
                    self.retire(id);
                }
                return;
            };
            // Pumped twice in one step (its command ended and another arrived): the first time has begun it.
            if matches!(stream.state, State::Ready | State::Resident | State::Copying) {
                return;
            }
            let (context, kind) = (stream.context, stream.kind);
            stream.state = State::Held;
            if self.is_held(context, kind, after) {
                if kind == StreamKind::Blocking
                    && let Some(owner) = self.contexts[context].as_mut()
                {
                    owner.held.push(id);
                }
                return;
            }
            if self.is_behind_another(id, order) {
                return;
            }
            if !self.begin(id, context, work) {
                return;
            }
            self.complete(id);
        }
    }

    /// Whether the legacy stream's rules hold a command back.
    fn is_held(&self, context: usize, kind: StreamKind, after: u64) -> bool {
        let Some(owner) = self.contexts[context].as_ref() else { return true };
        match kind {
            StreamKind::NonBlocking => false,
            StreamKind::Blocking => owner.legacy_commands.done < after,
            StreamKind::Legacy => owner.blocking_commands.done < after,
        }
    }

    /// Begins a stream's first command; `true` if it is over at once.
    fn begin(&mut self, id: StreamId, context: usize, work: Work) -> bool {
        let state = match work {
            Work::Nothing | Work::Mark(0) => return true,
            Work::Record(event, record, 0) => {
                self.reach(event, record);
                return true;
            }
            Work::Wait(event, record)
                if self.reached.get(&event).is_some_and(|reached| *reached >= record) =>
            {
                return true;
            }
            Work::Wait(event, record) => {
                self.waiting.entry(event).or_default().push((id, record));
                State::Waiting
            }
            Work::Hold(_) => State::Stalled,
            Work::Kernel(_) | Work::Memory(_) | Work::Mark(_) | Work::Record(..) => State::Ready,
            Work::Copy(engine, bytes) => {
                let duration = self.solo(work);
                if let Some(owner) = self.contexts[context].as_mut() {
                    let copied = &mut owner.copied[engine as usize];
                    (copied.bytes, copied.time) = (copied.bytes + bytes, copied.time + duration);
                }
                self.engines[engine as usize].push(self.now, id, duration);
                State::Copying
            }
        };
        if let Some(stream) = self.stream_mut(id) {
            stream.state = state;
        }
        if state == State::Ready {
            self.make_ready(id, context);
        }
        false
    }

    /// An event's record is reached: stamp it, and let those go on who waited for it.
    fn reach(&mut self, event: EventKey, record: u32) {
        let reached = self.reached.entry(event).or_default();
        *reached = (*reached).max(record);
        let reached = *reached;
        self.completions.push(Completion::Stamp { event, record, at: self.now });
        if let Some(waiting) = self.waiting.get_mut(&event) {
            self.pumps.extend(waiting.extract_if(.., |wait| wait.1 <= reached).map(|wait| wait.0));
            if waiting.is_empty() {
                self.waiting.remove(&event);
            }
        }
    }

    /// A stream's first command is over.
    fn complete(&mut self, id: StreamId) {
        let now = self.now;
        let Some(stream) = self.stream_mut(id) else { return };
        let Some(done) = stream.queue.pop_front() else { return };
        stream.state = State::Empty;
        stream.solo_done = done.solo_sum;
        let &mut Stream { kind, tag, context, .. } = stream;
        if done.sequence > 0 {
            self.completions.push(Completion::Done { tag, sequence: done.sequence, at: now });
        }
        let Some(owner) = self.contexts[context].as_mut() else { return };
        owner.backlog.remove(now);
        match kind {
            StreamKind::NonBlocking => {}
            StreamKind::Legacy => {
                owner.legacy_commands.done += 1;
                self.pumps.extend(owner.held.drain(..));
            }
            StreamKind::Blocking => {
                owner.blocking_commands.done += 1;
                let held = |id: &StreamId| lookup(&self.streams, *id).is_some_and(|s| s.state == State::Held);
                if let Some(legacy) = owner.legacy.filter(held) {
                    self.pumps.push_back(legacy);
                }
            }
        }
    }
}
