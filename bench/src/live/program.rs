//! Programs as plain data: what threads do, in order, to streams that each belong to one of them.
//!
//! Flags are words that the GPU sees; tokens are a matter of host threads alone. Both are set once in a program's life.

use std::fmt;

/// How a stream came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cuStreamCreate`, waits for the legacy default stream and it for this.
    Blocking,
    /// `cuStreamCreate`, takes no notice of it.
    NonBlocking,
    /// Its thread's own default stream.
    PerThread,
    /// The legacy default stream.
    Legacy,
}

/// One stream. Only its owner ever gives it work: then its order is that of the program, however the threads run.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// How it came about.
    pub kind: Kind,
    /// The thread that it belongs to.
    pub owner: usize,
}

/// What a thread does. Numbers name streams, flags, tokens, events and graphs of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Launch the kernel of this number.
    Launch { stream: usize, kernel: usize },
    /// Launch a kernel that spins until a flag is set.
    Spin { stream: usize, flag: usize },
    /// The stream waits until a flag is set.
    WaitValue { stream: usize, flag: usize },
    /// The stream sets a flag.
    WriteValue { stream: usize, flag: usize },
    /// A host function in the stream sets a flag.
    HostSet { stream: usize, flag: usize },
    /// The thread sets a flag.
    Set { flag: usize },
    /// A host function in the stream gives a token.
    HostGive { stream: usize, token: usize },
    /// A host function in the stream waits for a token.
    HostAwait { stream: usize, token: usize },
    /// A host function in the stream launches a kernel there, which it may not: whatever the answer, it must come.
    HostLaunch { stream: usize, kernel: usize },
    /// The thread gives a token.
    Give { token: usize },
    /// The thread waits for a token.
    Await { token: usize },
    /// Record an event.
    Record { stream: usize, event: usize },
    /// The stream waits for an event.
    WaitEvent { stream: usize, event: usize },
    /// Ask whether an event was reached.
    QueryEvent { event: usize },
    /// Wait for an event.
    SyncEvent { event: usize },
    /// Ask whether a stream is drained.
    QueryStream { stream: usize },
    /// Wait for a stream.
    SyncStream { stream: usize },
    /// Wait for everything.
    SyncContext,
    /// Allocate; freed when the program is over, since that waits for everything.
    Allocate,
    /// A host function in the stream takes the program's lock, and gives it back.
    HostLock { stream: usize },
    /// Take the program's lock.
    Lock,
    /// Give it back.
    Unlock,
    /// Begin to capture.
    Begin { stream: usize },
    /// End the capture, and make the graph executable.
    End { stream: usize, graph: usize },
    /// Launch a graph.
    Graph { stream: usize, graph: usize },
    /// Tell the other process of the tenant that this one is here, and spin until it is, too.
    Meet { stream: usize, round: usize },
    /// Record this process's event of the round, wait until the other process has recorded its own, and let the stream wait for
    /// that.
    Exchange { stream: usize, round: usize },
}

/// How far a capture reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nobody else is to do anything that a capture cannot bear.
    Global,
    /// This thread alone.
    ThreadLocal,
    /// Nobody.
    Relaxed,
}

/// One program.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it was made of.
    pub seed: u64,
    /// All streams.
    pub streams: Vec<Stream>,
    /// How its captures are begun.
    pub reach: Reach,
    /// What is done, in an order in which it could be done by one thread, and by which thread.
    pub steps: Vec<(usize, Op)>,
    /// Numbers given out.
    pub counts: Counts,
}

/// How many there are of what the steps name by number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Threads.
    pub threads: usize,
    /// Flags.
    pub flags: usize,
    /// Tokens.
    pub tokens: usize,
    /// Events.
    pub events: usize,
    /// Executable graphs.
    pub graphs: usize,
    /// Meetings with the other process.
    pub meetings: usize,
}

impl Program {
    /// One thread's part.
    pub fn of_thread(&self, thread: usize) -> impl Iterator<Item = Op> + '_ {
        self.steps.iter().filter(move |(owner, _)| *owner == thread).map(|(_, op)| *op)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "seed {} (captures {:?}); streams", self.seed, self.reach)?;
        for (number, stream) in self.streams.iter().enumerate() {
            write!(out, " {number}:{:?}/T{}", stream.kind, stream.owner)?;
        }
        for thread in 0..self.counts.threads {
            write!(out, "; T{thread}:")?;
            for (number, op) in self.of_thread(thread).enumerate() {
                write!(out, " {number}.{op:?}")?;
            }
        }
        Ok(())
    }
}
