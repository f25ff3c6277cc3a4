//! Streams: commands in order, and what holds the first of them.

use std::collections::VecDeque;

use crate::Nanos;
use crate::device::EventKey;
use crate::spec::Kernel;

/// How a stream stands to its context's legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Waits for the legacy stream, and it for this.
    Blocking,
    /// Takes no notice of it.
    NonBlocking,
    /// The legacy default stream.
    Legacy,
}

/// A copy engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Host to device.
    Upload = 0,
    /// Device to host.
    Download = 1,
    /// To another device.
    Peer = 2,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Run a kernel.
    Kernel(Kernel),
    /// Move bytes over an engine.
    Copy(Engine, u64),
    /// Fill or copy bytes of device memory: runs on SMs.
    Memory(u64),
    /// Take so long of the context's turn: a word that the front end writes or finds as it should be. No kernel runs then, so
    /// the books count it as idle.
    Mark(Nanos),
    /// The same, then stamp an event with the n-th record of it; one that takes no time needs no turn.
    Record(EventKey, u32, Nanos),
    /// Hold the stream until an event's n-th record was reached.
    Wait(EventKey, u32),
    /// Hold the stream until it is resumed; then, or if it has been by then, be as long as [`Work::Mark`].
    Hold(Nanos),
    /// Nothing: complete when it is reached.
    Nothing,
}

/// A command in a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    /// 0: the context's own, of which nobody is told.
    pub sequence: u64,
    /// Place among all commands that were given to the device.
    pub order: u64,
    pub work: Work,
    /// How many commands of the other side (legacy or blocking streams) must be complete before it.
    pub after: u64,
    /// Solo time of the stream's commands up to and with this one, ns: bounds when it can end.
    pub solo_sum: Nanos,
}

/// Where the first command of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is none.
    Empty,
    /// Held by the legacy stream, by the blocking streams if it is the legacy one, or by one that shares its channel.
    Held,
    /// A kernel without a place among the residents.
    Ready,
    /// A kernel with one.
    Resident,
    /// With a copy engine.
    Copying,
    /// Waits for an event.
    Waiting,
    /// Waits to be resumed.
    Stalled,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub context: usize,
    pub kind: StreamKind,
    pub priority: i32,
    /// Which of its context's channels its commands go through.
    pub channel: u32,
    /// The caller's name for it, handed back with completions.
    pub tag: u64,
    pub queue: VecDeque<Queued>,
    pub state: State,
    /// Goes when it is empty.
    pub closing: bool,
    /// Commands submitted that the device has not reached yet.
    pub arriving: u64,
    /// Solo time submitted and completed, ns.
    pub solo_submitted: Nanos,
    pub solo_done: Nanos,
}

impl Stream {
    pub fn new(context: usize, kind: StreamKind, priority: i32, channel: u32, tag: u64) -> Self {
        Self {
            context,
            kind,
            priority,
            channel,
            tag,
            queue: VecDeque::new(),
            state: State::Empty,
            closing: false,
            arriving: 0,
            solo_submitted: 0,
            solo_done: 0,
        }
    }

    /// Whether it has no command that has arrived.
    pub fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    /// Solo time that must pass before `sequence` can be complete, ns.
    pub fn solo_before(&self, sequence: u64) -> Nanos {
        let at = self.queue.partition_point(|queued| queued.sequence < sequence);
        let sum = self.queue.get(at).or(self.queue.back()).map_or(self.solo_done, |queued| queued.solo_sum);
        sum.saturating_sub(self.solo_done)
    }
}
