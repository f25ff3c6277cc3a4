//! A device: what it holds. How time passes on it stands in `device/time.rs`.

mod time;

use std::collections::{BinaryHeap, HashMap, VecDeque};

use self::time::Share;
use crate::Nanos;
use crate::births;
use crate::books::{ContextBooks, DeviceBooks};
use crate::concurrency::Resident;
use crate::context::Context;
use crate::copy::CopyEngine;
use crate::run_list::Turn;
use crate::spec::Spec;
use crate::stream::{Queued, State, Stream, StreamKind};

/// A context of this device. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextId(pub(crate) usize);

/// A stream of this device; of a stream that is gone it names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The caller's name for an event: owner in the upper half, so that all of an owner's can be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey {
    /// Whose.
    pub owner: u32,
    /// Which of his.
    pub slot: u32,
}

/// What has happened, with the moment at which it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A command is complete.
    Done {
        /// The stream's.
        tag: u64,
        /// Its number in the stream.
        sequence: u64,
        /// When, ns.
        at: Nanos,
    },
    /// An event's record was reached.
    Stamp {
        /// Which event.
        event: EventKey,
        /// Which record of it.
        record: u32,
        /// When, ns.
        at: Nanos,
    },
}

/// A place for a stream.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    generation: u32,
    pub stream: Option<Stream>,
}

/// A command on its way to the device.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub at: Nanos,
    pub stream: StreamId,
    pub queued: Queued,
}

/// A simulated GPU.
#[derive(Debug)]
pub struct Device {
    pub(crate) spec: Spec,
    pub(crate) now: Nanos,
    /// When something last happened.
    pub(crate) stepped_at: Nanos,
    pub(crate) contexts: Vec<Option<Box<Context>>>,
    pub(crate) streams: Vec<Slot>,
    free: Vec<u32>,
    /// Kernels that make progress, or would if nobody slowed them.
    pub(crate) resident: Vec<Resident>,
    /// Contexts with residents, each with its weight.
    shares: Vec<Share>,
    /// Residents have come or gone: rates, shares and the next end are stale.
    pub(crate) stale: bool,
    next_end: Nanos,
    /// When something happens next, where that is known.
    pub(crate) next: Option<Nanos>,
    pub(crate) turn: Turn,
    /// When the slice of the context that is loaded ends: it goes on if the context rests in between.
    pub(crate) slice_ends: Nanos,
    pub(crate) run_list: VecDeque<usize>,
    /// Whose state the device has loaded.
    pub(crate) loaded: Option<usize>,
    pub(crate) engines: [CopyEngine; 3],
    pub(crate) arrivals: VecDeque<Arrival>,
    /// What is to be done yet for contexts that were just made.
    pub(crate) births: BinaryHeap<births::Step>,
    /// Commands given so far.
    pub(crate) given: u64,
    pub(crate) reached: HashMap<EventKey, u32>,
    pub(crate) waiting: HashMap<EventKey, Vec<(StreamId, u32)>>,
    /// Streams whose first command has to be looked at.
    pub(crate) pumps: VecDeque<StreamId>,
    pub(crate) completions: Vec<Completion>,
    books: DeviceBooks,
}

impl Device {
    /// A device that starts at `now`.
    pub fn new(mut spec: Spec, now: Nanos) -> Self {
        spec.switch = spec.switch.max(1);
        spec.slice = spec.slice.max(1);
        Self {
            spec,
            now,
            stepped_at: now,
            contexts: Vec::new(),
            streams: Vec::new(),
            free: Vec::new(),
            resident: Vec::new(),
            shares: Vec::new(),
            stale: false,
            next_end: Nanos::MAX,
            next: None,
            turn: Turn::Idle,
            slice_ends: now,
            run_list: VecDeque::new(),
            loaded: None,
            engines: Default::default(),
            arrivals: VecDeque::new(),
            births: BinaryHeap::new(),
            given: 0,
            reached: HashMap::new(),
            waiting: HashMap::new(),
            pumps: VecDeque::new(),
            completions: Vec::new(),
            books: DeviceBooks::default(),
        }
    }

    /// The moment up to which the device has been advanced.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Makes a context.
    pub fn create_context(&mut self) -> ContextId {
        self.contexts.push(Some(Box::default()));
        let made = ContextId(self.contexts.len() - 1);
        self.expect_birth(made);
        made
    }

    /// Ends a context at once: running kernels too, and what it holds is over. Its books go with it, so read them before.
    pub fn destroy_context(&mut self, context: ContextId) {
        let Some(gone) = self.contexts.get_mut(context.0).and_then(Option::take) else { return };
        for stream in gone.streams {
            self.give_up(stream);
            self.remove_stream(stream);
        }
        self.resident.retain(|kernel| kernel.context != context.0);
        self.run_list.retain(|listed| *listed != context.0);
        let streams = &self.streams;
        for engine in &mut self.engines {
            engine.retain(self.now, |id| lookup(streams, id).is_some());
        }
        self.stale = true;
        self.next = None;
        self.settle();
    }

    /// Makes a stream; `None` if the context is gone or has a legacy stream already. `tag` comes back with
    /// each completion.
    pub fn open_stream(
        &mut self,
        context: ContextId,
        kind: StreamKind,
        priority: i32,
        tag: u64,
    ) -> Option<StreamId> {
        let owner = self.contexts.get_mut(context.0)?.as_mut()?;
        if kind == StreamKind::Legacy && owner.legacy.is_some() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.streams.push(Slot::default());
            u32::try_from(self.streams.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.streams[index as usize];
        let channel = owner.opened / self.spec.channel_streams.max(1);
        owner.opened = owner.opened.wrapping_add(1);
        slot.stream = Some(Stream::new(context.0, kind, priority, channel, tag));
        let id = StreamId { index, generation: slot.generation };
        owner.streams.push(id);
        if kind == StreamKind::Legacy {
            owner.legacy = Some(id);
        }
        Some(id)
    }

    /// Ends a stream once it is empty.
    pub fn close_stream(&mut self, id: StreamId) {
        let Some(stream) = self.stream_mut(id) else { return };
        stream.closing = true;
        if stream.state == State::Empty && stream.arriving == 0 {
            self.retire(id);
        }
    }

    /// Removes an empty stream that was closed.
    pub(crate) fn retire(&mut self, id: StreamId) {
        let Some(context) = self.stream_mut(id).map(|stream| stream.context) else { return };
        if let Some(owner) = self.contexts[context].as_mut() {
            owner.streams.retain(|other| *other != id);
            owner.legacy = owner.legacy.filter(|legacy| *legacy != id);
        }
        self.remove_stream(id);
    }

    /// Whoever waits for a command of this stream waits no longer.
    fn give_up(&mut self, id: StreamId) {
        let at = self.now;
        let Some(stream) = lookup(&self.streams, id) else { return };
        let arriving = self.arrivals.iter().filter(|arrival| arrival.stream == id);
        let held = stream.queue.iter().chain(arriving.map(|arrival| &arrival.queued));
        let held = held.filter(|command| command.sequence > 0);
        let over = held.map(|command| Completion::Done { tag: stream.tag, sequence: command.sequence, at });
        self.completions.extend(over);
    }

    fn remove_stream(&mut self, id: StreamId) {
        let slot = &mut self.streams[id.index as usize];
        slot.stream = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
    }

    /// Forgets an owner's events.
    pub fn forget_events(&mut self, owner: u32) {
        self.reached.retain(|event, _| event.owner != owner);
        self.waiting.retain(|event, _| event.owner != owner);
    }

    /// What has happened since the last call, in order of time, in exchange for a buffer that is empty.
    pub fn swap_completions(&mut self, buffer: &mut Vec<Completion>) {
        std::mem::swap(&mut self.completions, buffer);
    }

    /// What has happened since the last call, in order of time.
    pub fn drain_completions(&mut self) -> impl Iterator<Item = Completion> + '_ {
        self.completions.drain(..)
    }

    /// The device's books; `busy + switch + idle` is `now` less the start.
    pub fn books(&self) -> DeviceBooks {
        self.books
    }

    /// A context's books.
    pub fn context_books(&self, context: ContextId) -> Option<ContextBooks> {
        let owner = self.contexts.get(context.0)?.as_ref()?;
        Some(ContextBooks {
            true_use: owner.true_use,
            alone: owner.alone,
            queued_time: owner.backlog.time(self.now),
            switches: owner.switches,
            launches: owner.launches,
            queued: owner.backlog.commands(),
            copied: owner.copied,
        })
    }

    /// The next command's place among all.
    pub(crate) fn next_order(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    pub(crate) fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let slot = self.streams.get_mut(id.index as usize)?;
        slot.stream.as_mut().filter(|_| slot.generation == id.generation)
    }
}

/// The stream, if it still is there.
pub(crate) fn lookup(streams: &[Slot], id: StreamId) -> Option<&Stream> {
    let slot = streams.get(id.index as usize)?;
    slot.stream.as_ref().filter(|_| slot.generation == id.generation)
}
