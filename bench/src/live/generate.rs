//! Random programs that end. The same seed always makes the same program.
//!
//! Why each of them ends without Weir: steps have one order, which each thread and each stream keeps (a stream belongs to
//! one thread). Whoever waits, waits for something earlier in it, with one exception: a *forward wait* parks a stream
//! until a later step sets its flag or gives its token. While it does, nothing but more work for that stream may depend on
//! it: no thread waits for it, no event of it is waited for, no graph launched in it is launched elsewhere (launches of one
//! executable graph wait for each other), and what sets the flag goes elsewhere. So, in the order of
//! the steps, everything that is not behind a parked stream completes, and with the setter so does the parked stream. The
//! legacy default stream and all blocking streams count as one stream if the former is used. A lock is held over work and
//! waits that hang on nothing of another thread's. Both processes of a pair run the same program; a thread that waits for the
//! other process waits for the same step there, and each such step has an event of its own.

use super::directed;
use super::program::{Counts, Kind, Op, Program, Reach, Stream};
use super::random::Random;

/// Kernels by GPU time, and how often each is taken: the long ones fill the in-flight cap.
pub const KERNELS: [(&str, f64, u64); 5] = [
    ("live_2us", 2.0, 30),
    ("live_20us", 20.0, 30),
    ("live_100us", 100.0, 25),
    ("live_500us", 500.0, 12),
    ("live_5ms", 5_000.0, 3),
];

/// Kernels that a parked stream takes more of: they wait in the queue, and the gate counts them as in flight.
pub const LONG: usize = 4;

/// What parks a stream.
#[derive(Clone, Copy)]
enum Parked {
    Flag(usize),
    Token(usize),
}

/// The program so far.
struct Draft {
    random: Random,
    streams: Vec<Stream>,
    /// Streams that wait for each other, by the least of their numbers.
    domain: Vec<usize>,
    reach: Reach,
    steps: Vec<(usize, Op)>,
    counts: Counts,
    parked: Vec<(Parked, usize)>, // and the parked stream's domain
    events: Vec<usize>,           // the stream in which each was recorded
    graphs: Vec<usize>,           // the stream in which each was launched last, or captured
    /// By domain: whether it may hang on another thread's work.
    foreign: Vec<bool>,
}

/// The program of a seed; the first few are no matter of chance.
pub fn program(seed: u64) -> Program {
    if seed < directed::COUNT {
        return directed::program(seed);
    }
    let mut draft = Draft::new(seed);
    let steps = 6 + draft.random.below(18);
    for _ in 0..steps {
        draft.step();
    }
    while !draft.parked.is_empty() {
        draft.release();
    }
    let Draft { streams, reach, steps, counts, .. } = draft;
    Program { seed, streams, reach, steps, counts }
}

impl Draft {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let threads = 1 + random.below(3);
        let count = threads + random.below(5 - threads);
        let legacy = random.one_in(3);
        let mut streams: Vec<Stream> = Vec::new();
        for number in 0..count {
            // The first ones go round, so that each thread has one.
            let owner = if number < threads { number } else { random.below(threads) };
            let kind = match random.below(4) {
                0 if legacy && !streams.iter().any(|s| s.kind == Kind::Legacy) => Kind::Legacy,
                1 if !streams.iter().any(|s| s.kind == Kind::PerThread && s.owner == owner) => {
                    Kind::PerThread
                }
                0 | 1 => Kind::Blocking,
                _ => Kind::NonBlocking,
            };
            // With a legacy stream all blocking ones are one, and that has one owner.
            let kind = if legacy && owner != 0 { Kind::NonBlocking } else { kind };
            streams.push(Stream { kind, owner });
        }
        let together = streams.iter().any(|stream| stream.kind == Kind::Legacy);
        let first = streams.iter().position(|stream| stream.kind != Kind::NonBlocking).unwrap_or(0);
        let of = |(number, stream): (usize, &Stream)| {
            if together && stream.kind != Kind::NonBlocking { first } else { number }
        };
        let domain = streams.iter().enumerate().map(of).collect();
        let reach = [Reach::Global, Reach::ThreadLocal, Reach::Relaxed][random.below(3)];
        Self {
            foreign: vec![false; streams.len()],
            random,
            streams,
            domain,
            reach,
            steps: Vec::new(),
            counts: Counts { threads, ..Counts::default() },
            parked: Vec::new(),
            events: Vec::new(),
            graphs: Vec::new(),
        }
    }

    fn is_parked(&self, stream: usize) -> bool {
        self.parked.iter().any(|(_, domain)| *domain == self.domain[stream])
    }

    /// Streams that nothing parks.
    fn free(&self) -> Vec<usize> {
        (0..self.streams.len()).filter(|stream| !self.is_parked(*stream)).collect()
    }

    fn free_of(&self, thread: usize) -> Vec<usize> {
        self.free().into_iter().filter(|stream| self.streams[*stream].owner == thread).collect()
    }

    fn push(&mut self, stream: usize, op: Op) {
        self.steps.push((self.streams[stream].owner, op));
    }

    /// A number not given out before.
    fn number(of: &mut usize) -> usize {
        *of += 1;
        *of - 1
    }

    fn launch(&mut self, stream: usize) {
        let kernel = if self.is_parked(stream) && self.random.one_in(6) {
            LONG
        } else {
            let sum: u64 = KERNELS.iter().map(|(_, _, weight)| weight).sum();
            let mut ticket = self.random.next() % sum;
            let taken = |(_, _, weight): &(_, _, u64)| {
                let here = ticket < *weight;
                ticket = ticket.saturating_sub(*weight);
                here
            };
            KERNELS.iter().position(taken).unwrap_or(0)
        };
        self.push(stream, Op::Launch { stream, kernel });
    }

    /// One more thing, or a few that belong together.
    fn step(&mut self) {
        let stream = self.random.below(self.streams.len());
        match self.random.below(16) {
            0..=4 => (0..=self.random.below(4)).for_each(|_| self.launch(stream)),
            5 | 6 => self.park(stream),
            7 => self.event(stream),
            8 => self.ask(stream),
            9 => self.wait(stream),
            10 => self.hand_over(stream),
            11 => self.hold_lock(stream),
            12 => self.capture(stream),
            13 => self.graph(stream),
            14 => self.meet(stream),
            _ if self.parked.is_empty() => self.launch(stream),
            _ => self.release(),
        }
    }

    /// Parks a stream, and piles work up behind it.
    fn park(&mut self, stream: usize) {
        // Some other stream is always left from which it can be released.
        let others = self.free().into_iter().any(|other| self.domain[other] != self.domain[stream]);
        if !others {
            return self.launch(stream);
        }
        let what = match self.random.below(3) {
            0 if !self.token_parked() => {
                let token = Self::number(&mut self.counts.tokens);
                self.push(stream, Op::HostAwait { stream, token });
                Parked::Token(token)
            }
            n => {
                let flag = Self::number(&mut self.counts.flags);
                let op = if n == 1 { Op::Spin { stream, flag } } else { Op::WaitValue { stream, flag } };
                self.push(stream, op);
                Parked::Flag(flag)
            }
        };
        self.parked.push((what, self.domain[stream]));
        (0..self.random.below(8)).for_each(|_| self.launch(stream));
    }

    /// A host function waits. A real driver may run all of them on one thread: no other one is waited for.
    fn token_parked(&self) -> bool {
        self.parked.iter().any(|(what, _)| matches!(what, Parked::Token(_)))
    }

    /// Sets what a stream is parked for, behind a launch that the gate may hold back.
    fn release(&mut self) {
        let at = self.random.below(self.parked.len());
        let Some(&(what, domain)) = self.parked.get(at) else { return };
        let free = self.free();
        let Some(from) = self.random.pick(&free) else { return };
        let thread = self.streams[from].owner;
        self.launch(from);
        match what {
            Parked::Token(token) => self.steps.push((thread, Op::Give { token })),
            Parked::Flag(flag) => match self.random.below(3) {
                0 => self.push(from, Op::WriteValue { stream: from, flag }),
                1 if !self.token_parked() => self.push(from, Op::HostSet { stream: from, flag }),
                _ => self.steps.push((thread, Op::Set { flag })),
            },
        }
        self.parked.remove(at);
        self.foreign[domain] = true;
    }

    fn event(&mut self, stream: usize) {
        let reached: Vec<usize> =
            (0..self.events.len()).filter(|event| !self.is_parked(self.events[*event])).collect();
        match self.random.pick(&reached) {
            Some(event) if self.random.one_in(2) => {
                self.push(stream, Op::WaitEvent { stream, event });
                self.foreign[self.domain[stream]] = true;
            }
            _ => {
                let event = Self::number(&mut self.counts.events);
                self.events.push(stream);
                self.push(stream, Op::Record { stream, event });
            }
        }
    }

    /// Whether calls that break a global capture elsewhere are out of the question.
    fn careful(&self) -> bool {
        self.reach == Reach::Global && self.counts.threads > 1
    }

    fn ask(&mut self, stream: usize) {
        if self.careful() {
            return self.launch(stream);
        }
        match self.random.below(3) {
            0 => self.push(stream, Op::QueryStream { stream }),
            1 => self.push(stream, Op::Allocate),
            _ if self.counts.events > 0 => {
                let event = self.random.below(self.counts.events);
                self.push(stream, Op::QueryEvent { event });
            }
            _ => self.launch(stream),
        }
    }

    fn wait(&mut self, stream: usize) {
        if self.careful() || self.is_parked(stream) {
            return self.launch(stream);
        }
        let own = |event: &usize| self.events[*event] == stream;
        let events: Vec<usize> = (0..self.events.len()).filter(own).collect();
        match (self.random.below(3), self.random.pick(&events)) {
            (0, Some(event)) => self.push(stream, Op::SyncEvent { event }),
            (1, _) if self.counts.threads == 1 && self.parked.is_empty() => {
                self.push(stream, Op::SyncContext);
            }
            _ => {
                self.push(stream, Op::SyncStream { stream });
                let alone = self.domain.iter().filter(|d| **d == self.domain[stream]).count() == 1;
                self.foreign[self.domain[stream]] &= !alone;
            }
        }
    }

    /// A host function tells a thread to go on.
    fn hand_over(&mut self, stream: usize) {
        if self.is_parked(stream) || self.token_parked() {
            return self.launch(stream);
        }
        let token = Self::number(&mut self.counts.tokens);
        self.launch(stream);
        self.push(stream, Op::HostGive { stream, token });
        let thread = self.random.below(self.counts.threads);
        self.steps.push((thread, Op::Await { token }));
    }

    fn hold_lock(&mut self, stream: usize) {
        let thread = self.streams[stream].owner;
        self.steps.push((thread, Op::Lock));
        (0..=self.random.below(3)).for_each(|_| self.launch(stream));
        let mine = self.free_of(thread).contains(&stream) && !self.foreign[self.domain[stream]];
        if mine && !self.careful() {
            self.push(stream, Op::SyncStream { stream });
        }
        self.steps.push((thread, Op::Unlock));
    }

    /// Captures a few launches and perhaps a host node, while the thread launches elsewhere, too.
    fn capture(&mut self, stream: usize) {
        let together = self.streams.iter().any(|stream| stream.kind == Kind::Legacy);
        let kind = self.streams[stream].kind;
        // While a blocking stream captures, the legacy one is out of bounds.
        if kind == Kind::Legacy || (together && kind != Kind::NonBlocking) {
            return self.launch(stream);
        }
        let graph = Self::number(&mut self.counts.graphs);
        let thread = self.streams[stream].owner;
        self.push(stream, Op::Begin { stream });
        (0..=self.random.below(4)).for_each(|_| self.launch(stream));
        let others: Vec<usize> = (0..self.streams.len())
            .filter(|other| *other != stream && self.streams[*other].owner == thread)
            .collect();
        if let Some(other) = self.random.pick(&others) {
            self.launch(other);
        }
        if self.random.one_in(2) && !self.token_parked() {
            let token = Self::number(&mut self.counts.tokens);
            self.push(stream, Op::HostGive { stream, token });
        }
        self.push(stream, Op::End { stream, graph });
        self.graphs.push(stream);
        self.graph_of(stream, graph);
    }

    /// Launches a graph, which waits for its last launch, in whatever stream that was.
    fn graph_of(&mut self, stream: usize, graph: usize) {
        // A graph may hold a host function, which a parked one may hold up: then only behind the parked stream itself.
        if self.token_parked() {
            return;
        }
        let last = self.domain[self.graphs[graph]];
        self.foreign[self.domain[stream]] |= self.foreign[last];
        self.graphs[graph] = stream;
        self.push(stream, Op::Graph { stream, graph });
    }

    /// Launches a graph of the same thread once more: another thread may not have it yet.
    fn graph(&mut self, stream: usize) {
        let thread = self.streams[stream].owner;
        let can = |graph: &usize| {
            let last = self.graphs[*graph];
            let together = self.domain[last] == self.domain[stream];
            self.streams[last].owner == thread && (together || !self.is_parked(last))
        };
        let graphs: Vec<usize> = (0..self.graphs.len()).filter(can).collect();
        match self.random.pick(&graphs) {
            Some(graph) => self.graph_of(stream, graph),
            None => self.launch(stream),
        }
    }

    fn meet(&mut self, stream: usize) {
        if self.is_parked(stream) {
            return self.launch(stream);
        }
        let round = Self::number(&mut self.counts.meetings);
        self.launch(stream);
        let by_event = self.random.one_in(2);
        self.push(stream, if by_event { Op::Exchange { stream, round } } else { Op::Meet { stream, round } });
        self.foreign[self.domain[stream]] = true;
    }
}

#[cfg(test)]
mod tests;
