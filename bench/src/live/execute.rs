//! Running one program on the driver: one thread of the host for each of its threads, the first one being this one.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_abi::types::*;

use super::calls::{Answer, Calls};
use super::player::fail;
use super::program::{Kind, Op, Program};
use crate::client::ClientError;

/// Threads of a program, at most.
const THREADS: usize = 3;

/// Flags of a program, at most.
pub const FLAGS: usize = 256;

/// Meetings of a program, at most.
pub const EVENTS: usize = 32;

/// Between two looks whether the other process has come.
const LOOK: Duration = Duration::from_micros(50);

/// How far each thread has come, for whoever wants to know where a program hangs.
pub static PLACES: [AtomicUsize; THREADS] = [const { AtomicUsize::new(0) }; THREADS];

/// Where processes of a tenant meet: one word for each meeting and process.
#[derive(Clone, Copy)]
pub struct Meeting {
    /// Events of this process, and of the other one.
    pub events: [[usize; EVENTS]; 2],
    /// The words that this process sets.
    pub mine: u64,
    /// The words that it waits for.
    pub theirs: u64,
    /// Meetings of programs that ran before.
    pub before: usize,
}

/// What a program needs besides the driver.
#[derive(Clone, Copy)]
pub struct Places {
    /// Words that the GPU sees, as many as [`FLAGS`].
    pub flags: u64,
    /// Where the processes meet.
    pub meeting: Meeting,
}

/// Tokens: what host threads and host functions wait for.
struct Tokens {
    given: Mutex<Vec<bool>>,
    more: Condvar,
}

/// What a host function does.
enum Deed {
    Give { tokens: *const Tokens, token: usize },
    Await { tokens: *const Tokens, token: usize },
    Set { word: u64 },
    Lock { lock: *const Mutex<()> },
    Launch { calls: *const Calls, stream: usize, kernel: usize },
}

/// A program on its way.
struct Running<'a> {
    calls: &'a Calls,
    program: &'a Program,
    places: Places,
    streams: Vec<usize>,
    events: Vec<usize>,
    graphs: Vec<AtomicUsize>,
    tokens: Tokens,
    lock: Mutex<()>,
    deeds: Mutex<Vec<usize>>,
    memory: Mutex<Vec<CUdeviceptr>>,
    longest_ns: AtomicU64,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pointer(number: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(number)
}

/// The word at an address that the driver gave out.
pub fn word(address: u64) -> &'static AtomicU32 {
    // SAFETY: words are allocated once, never given back, and touched by atomic operations alone.
    unsafe { &*std::ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0)) }
}

impl Tokens {
    fn give(&self, token: usize) {
        held(&self.given)[token] = true;
        self.more.notify_all();
    }

    fn wait(&self, token: usize) {
        let given = held(&self.given);
        drop(self.more.wait_while(given, |given| !given[token]));
    }
}

unsafe extern "C" fn perform(deed: *mut c_void) {
    // SAFETY: a deed of a program that has not synchronized yet: it and its tokens live until then.
    unsafe {
        match &*deed.cast::<Deed>() {
            Deed::Give { tokens, token } => (**tokens).give(*token),
            Deed::Await { tokens, token } => (**tokens).wait(*token),
            Deed::Lock { lock } => drop(held(&**lock)),
            Deed::Launch { calls, stream, kernel } => drop((**calls).launch(pointer(*stream), *kernel)),
            Deed::Set { word: address } => word(*address).store(1, Ordering::Release),
        }
    }
}

/// Runs a program to its end; says how long its longest launch call took, in nanoseconds.
pub fn execute(calls: &Calls, program: &Program, places: Places) -> Result<u64, ClientError> {
    (0..FLAGS as u64).for_each(|flag| word(places.flags + flag * 4).store(0, Ordering::Release));
    PLACES.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    let running = Running::prepare(calls, program, places)?;
    let outcome = std::thread::scope(|scope| {
        let others: Vec<_> = (1..program.counts.threads)
            .map(|thread| {
                let running = &running;
                scope.spawn(move || running.calls.enter().and_then(|()| running.thread(thread)))
            })
            .collect();
        let first = running.thread(0);
        let joined = others.into_iter().map(|thread| thread.join().unwrap_or(Ok(())));
        joined.fold(first, Result::and)
    });
    outcome?;
    calls.synchronize()?;
    running.tidy()
}

impl<'a> Running<'a> {
    fn prepare(calls: &'a Calls, program: &'a Program, places: Places) -> Result<Self, ClientError> {
        let stream = |kind: Kind| match kind {
            Kind::Blocking => calls.stream(0),
            Kind::NonBlocking => calls.stream(CU_STREAM_NON_BLOCKING),
            Kind::PerThread => Ok(CU_STREAM_PER_THREAD),
            Kind::Legacy => Ok(std::ptr::null_mut()),
        };
        let streams = program.streams.iter().map(|s| stream(s.kind).map(|made| made.expose_provenance()));
        let events = (0..program.counts.events).map(|_| calls.event().map(|made| made.expose_provenance()));
        Ok(Self {
            calls,
            program,
            places,
            streams: streams.collect::<Result<_, _>>()?,
            events: events.collect::<Result<_, _>>()?,
            graphs: (0..program.counts.graphs).map(|_| AtomicUsize::new(0)).collect(),
            tokens: Tokens { given: Mutex::new(vec![false; program.counts.tokens]), more: Condvar::new() },
            lock: Mutex::default(),
            deeds: Mutex::default(),
            memory: Mutex::default(),
            longest_ns: AtomicU64::new(0),
        })
    }

    fn thread(&self, thread: usize) -> Answer {
        let mut guard = None;
        for (number, op) in self.program.of_thread(thread).enumerate() {
            PLACES[thread].store(number, Ordering::Relaxed);
            match op {
                Op::Lock => guard = Some(held(&self.lock)),
                Op::Unlock => drop(guard.take()),
                op => self.perform(op).unwrap_or_else(|error| fail(self.program.seed, thread, op, &error)),
            }
        }
        PLACES[thread].store(usize::MAX, Ordering::Relaxed);
        Ok(())
    }

    fn stream(&self, number: usize) -> CUstream {
        pointer(self.streams[number])
    }

    fn event(&self, number: usize) -> CUevent {
        pointer(self.events[number])
    }

    fn flag(&self, flag: usize) -> u64 {
        self.places.flags + 4 * (flag % FLAGS) as u64
    }

    fn perform(&self, op: Op) -> Answer {
        let calls = self.calls;
        match op {
            Op::Launch { .. } | Op::Spin { .. } | Op::Graph { .. } | Op::Meet { .. } => self.launch(op),
            Op::WaitValue { stream, flag } => calls.wait_value(self.stream(stream), self.flag(flag)),
            Op::WriteValue { stream, flag } => calls.write_value(self.stream(stream), self.flag(flag)),
            Op::HostSet { stream, flag } => self.host(stream, Deed::Set { word: self.flag(flag) }),
            Op::HostGive { stream, token } => {
                self.host(stream, Deed::Give { tokens: &raw const self.tokens, token })
            }
            Op::HostAwait { stream, token } => {
                self.host(stream, Deed::Await { tokens: &raw const self.tokens, token })
            }
            Op::HostLaunch { stream, kernel } => {
                let handle = self.streams[stream];
                self.host(stream, Deed::Launch { calls: &raw const *calls, stream: handle, kernel })
            }
            Op::Set { flag } => {
                word(self.flag(flag)).store(1, Ordering::Release);
                Ok(())
            }
            Op::Give { token } => {
                self.tokens.give(token);
                Ok(())
            }
            Op::Await { token } => {
                self.tokens.wait(token);
                Ok(())
            }
            Op::Record { stream, event } => calls.record(self.event(event), self.stream(stream)),
            Op::WaitEvent { stream, event } => calls.wait_event(self.stream(stream), self.event(event)),
            Op::QueryEvent { event } => calls.query_event(self.event(event)),
            Op::SyncEvent { event } => calls.synchronize_event(self.event(event)),
            Op::QueryStream { stream } => calls.query_stream(self.stream(stream)),
            Op::SyncStream { stream } => calls.synchronize_stream(self.stream(stream)),
            Op::SyncContext => calls.synchronize(),
            Op::Allocate => calls.allocate().map(|place| held(&self.memory).push(place)),
            Op::Begin { stream } => calls.begin_capture(self.stream(stream), self.program.reach),
            Op::End { stream, graph } => {
                let exec = calls.end_capture(self.stream(stream))?;
                self.graphs[graph].store(exec.expose_provenance(), Ordering::Relaxed);
                Ok(())
            }
            Op::HostLock { stream } => self.host(stream, Deed::Lock { lock: &raw const self.lock }),
            Op::Exchange { stream, round } => self.exchange(stream, round),
            Op::Lock | Op::Unlock => Ok(()),
        }
    }

    /// Launches, which the gate may hold back: the clock runs.
    fn launch(&self, op: Op) -> Answer {
        let (calls, start) = (self.calls, Instant::now());
        let done = match op {
            Op::Launch { stream, kernel } => calls.launch(self.stream(stream), kernel),
            Op::Spin { stream, flag } => calls.spin(self.stream(stream), self.flag(flag)),
            Op::Graph { stream, graph } => {
                let exec = pointer(self.graphs[graph].load(Ordering::Relaxed));
                calls.launch_graph(self.stream(stream), exec)
            }
            Op::Meet { stream, round } => {
                let at = 4 * (self.places.meeting.before + round) as u64;
                let stream = self.stream(stream);
                calls.write_value(stream, self.places.meeting.mine + at)?;
                calls.meet(stream, self.places.meeting.theirs + at)
            }
            _ => Ok(()),
        };
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.longest_ns.fetch_max(took, Ordering::Relaxed);
        done
    }

    fn exchange(&self, stream: usize, round: usize) -> Answer {
        let Meeting { events: [mine, theirs], before, .. } = self.places.meeting;
        let (stream, at) = (self.stream(stream), 4 * (before + round) as u64);
        self.calls.record(pointer(mine[round % EVENTS]), stream)?;
        word(self.places.meeting.mine + at).store(1, Ordering::Release);
        while word(self.places.meeting.theirs + at).load(Ordering::Acquire) == 0 {
            std::thread::sleep(LOOK); // the other process is a real one
        }
        self.calls.wait_event(stream, pointer(theirs[round % EVENTS]))
    }

    fn host(&self, stream: usize, deed: Deed) -> Answer {
        let deed = Box::into_raw(Box::new(deed)).cast::<c_void>();
        held(&self.deeds).push(deed.expose_provenance());
        self.calls.host_function(self.stream(stream), perform, deed)
    }

    /// Everything is done: gives back what the program made.
    fn tidy(self) -> Result<u64, ClientError> {
        for exec in &self.graphs {
            self.calls.destroy_graph(pointer(exec.load(Ordering::Relaxed)))?;
        }
        for (number, stream) in self.program.streams.iter().enumerate() {
            if matches!(stream.kind, Kind::Blocking | Kind::NonBlocking) {
                self.calls.destroy_stream(self.stream(number))?;
            }
        }
        (0..self.events.len()).try_for_each(|event| self.calls.destroy_event(self.event(event)))?;
        held(&self.memory).drain(..).try_for_each(|place| self.calls.free(place))?;
        for deed in held(&self.deeds).drain(..) {
            // SAFETY: made by `host`, and the driver has called it for the last time.
            drop(unsafe { Box::from_raw(pointer(deed).cast::<Deed>()) });
        }
        Ok(self.longest_ns.into_inner())
    }
}
