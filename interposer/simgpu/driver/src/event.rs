//! Events: marks in streams, with the time at which the GPU's front end came to them.

use std::collections::VecDeque;
use std::ffi::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use weir_abi::types::*;
use weir_simgpu_link::page;

use crate::api::Driver;
use crate::capture::{self, Mark};
use crate::context::{self, Context};
use crate::edge::{Answer, put};
use crate::ipc_event::Shared;
use crate::registry::{Handle, Registry};
use crate::stream::{self, Stream};
use crate::work::Work;
use crate::{broken, host_time, locked, pool, session};

static EVENTS: Registry<Event> = Registry::new(3, CUDA_ERROR_INVALID_HANDLE);
/// Destroyed events, oldest first, each with its slot on the page.
static RETIRED: Mutex<VecDeque<&'static Event>> = Mutex::new(VecDeque::new());

/// An event.
pub struct Event {
    /// Its handle.
    pub handle: Handle,
    /// Its place among the page's time stamps.
    slot: u32,
    flags: AtomicU32,
    state: Mutex<State>,
}

/// What the last record made of it.
#[derive(Default)]
struct State {
    /// Number of the last record on the page; 0: never recorded.
    recorded: u32,
    /// The last record went into a capture.
    captured: Option<Mark>,
    /// The context that it belongs to; the driver's own belong to none.
    context: Option<&'static Context>,
    /// What it shares with other processes; nothing else is said of such an event here.
    shared: Option<Arc<Shared>>,
}

/// Flags of an event that processes share: it has no time.
pub const FLAGS_OF_SHARED: c_uint = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

/// The event behind a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`, or what broke its context.
pub fn of(handle: CUevent) -> Answer<&'static Event> {
    let event = EVENTS.get(handle)?;
    if broken::any() {
        let context = locked(&event.state).context;
        context.map_or(Ok(()), Context::check_whole)?;
    }
    Ok(event)
}

/// An event of a context: one that was destroyed before, else a new one.
pub fn create(flags: c_uint, context: Option<&'static Context>) -> Answer<&'static Event> {
    let context = context.map(Context::root);
    if let Some(event) = locked(&RETIRED).pop_front() {
        event.flags.store(flags, Ordering::Relaxed);
        *locked(&event.state) = State { context, ..State::default() };
        EVENTS.revive(event.handle.raw());
        return Ok(event);
    }
    let slot = fresh_slot()?;
    let (flags, state) = (AtomicU32::new(flags), Mutex::new(State { context, ..State::default() }));
    Ok(EVENTS.insert_with(|handle| Event { handle, slot, flags, state })?.1)
}

/// The next slot of the page that no event has had.
fn fresh_slot() -> Answer<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only uniqueness matters.
    let slot = NEXT.fetch_add(1, Ordering::Relaxed);
    if (slot as usize) < page::EVENTS { Ok(slot) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
}

/// Ends an event; it is used again for a later one.
pub fn destroy(event: &'static Event) -> Answer {
    EVENTS.remove(event.handle.raw())?;
    locked(&event.state).shared = None;
    locked(&RETIRED).push_back(event);
    Ok(())
}

impl Event {
    /// Records in a stream of its own context, at the end of what it has.
    pub fn record(&self, stream: &'static Stream) -> Answer {
        let mut state = locked(&self.state);
        if state.context.is_some_and(|own| !std::ptr::eq(own, stream.context.root())) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        state.captured = None;
        if let Some(shared) = state.shared.clone() {
            drop(state); // where a queue is full, a record waits
            return shared.record(stream);
        }
        state.recorded = session::current()?.record_event(stream, self.slot, self.is_timed())?;
        Ok(())
    }

    /// What it shares with other processes, if it may be.
    pub fn shared(&self) -> Option<Arc<Shared>> {
        locked(&self.state).shared.clone()
    }

    /// From now on it is one that processes share.
    pub fn share(&self, shared: Shared) {
        locked(&self.state).shared = Some(Arc::new(shared));
    }

    /// Lets a stream wait for the last record; one never recorded holds nobody up.
    pub fn wait(&self, stream: &'static Stream) -> Answer {
        if let Some(shared) = self.shared() {
            return shared.wait(stream);
        }
        match locked(&self.state).recorded {
            0 => Ok(()),
            recorded => session::current()?.wait_event(stream, self.slot, recorded),
        }
    }

    /// The number of the last record, if it was not captured.
    fn recorded(&self) -> Answer<u32> {
        let state = locked(&self.state);
        if state.captured.is_some() { Err(CUDA_ERROR_CAPTURED_EVENT) } else { Ok(state.recorded) }
    }

    /// Whether its records say when they were reached.
    fn is_timed(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & CU_EVENT_DISABLE_TIMING == 0
    }

    /// When the front end came to the last record, ns.
    fn stamp(&self) -> Answer<u64> {
        if !self.is_timed() {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        match self.recorded()? {
            0 => Err(CUDA_ERROR_INVALID_HANDLE),
            recorded => session::current()?.event_stamp(self.slot, recorded)?.ok_or(CUDA_ERROR_NOT_READY),
        }
    }
}

/// Records in a stream, or in its capture.
pub fn record_in(stream: &'static Stream, event: &'static Event, flags: c_uint) -> Answer {
    let _takes = host_time::takes(|session| {
        let marks = &session.config().marks;
        if event.is_timed() { marks.timed_event_cpu_ns } else { marks.event_cpu_ns }
    })?;
    if flags == CU_EVENT_RECORD_EXTERNAL {
        return if capture::take(stream, &Work::Record(event))? { Ok(()) } else { event.record(stream) };
    }
    match capture::mark(stream)? {
        None => event.record(stream),
        mark => {
            locked(&event.state).captured = mark;
            Ok(())
        }
    }
}

/// Lets a stream wait; an event of a capture draws the stream into it.
pub fn wait_in(stream: &'static Stream, event: &'static Event, flags: c_uint) -> Answer {
    let mark = locked(&event.state).captured.clone();
    match mark {
        Some(mark) => capture::join(stream, &mark),
        None if !capture::any() => event.wait(stream),
        None if flags == CU_EVENT_RECORD_EXTERNAL => {
            if capture::take(stream, &Work::Wait(event))? {
                Ok(())
            } else {
                event.wait(stream)
            }
        }
        // An event from outside cannot be waited for inside: the graph would not know it.
        None if capture::mark(stream)?.is_some() => {
            capture::break_isolated(stream);
            Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        }
        None => event.wait(stream),
    }
}

impl Driver {
    pub fn cuEventCreate(out: *mut CUevent, flags: c_uint) -> Answer {
        let crosses = flags & CU_EVENT_INTERPROCESS != 0;
        if crosses && flags & CU_EVENT_DISABLE_TIMING == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let shared = if crosses { Some(Shared::fresh()?) } else { None };
        let event = create(flags, Some(context::current()?))?;
        shared.into_iter().for_each(|shared| event.share(shared));
        put(out, event.handle.raw())
    }

    pub fn cuEventDestroy(event: CUevent) -> Answer {
        Self::cuEventDestroy_v2(event)
    }

    pub fn cuEventDestroy_v2(event: CUevent) -> Answer {
        destroy(of(event)?)
    }

    pub fn cuEventRecord(event: CUevent, stream: CUstream) -> Answer {
        record_in(stream::of(stream)?, of(event)?, 0)
    }

    pub fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
        record_in(stream::of(stream)?, of(event)?, flags)
    }

    pub fn cuEventQuery(event: CUevent) -> Answer {
        let event = of(event)?;
        capture::forbid_unsafe()?;
        let recorded = event.recorded()?;
        if event.shared().is_some_and(|shared| shared.missing().is_some()) {
            return Err(CUDA_ERROR_NOT_READY);
        }
        let done = recorded == 0 || session::current()?.event_stamp(event.slot, recorded)?.is_some();
        if done { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }

    pub fn cuEventSynchronize(event: CUevent) -> Answer {
        let event = of(event)?;
        capture::forbid_unsafe()?;
        let shared = event.shared();
        match (event.recorded()?, shared.as_ref().and_then(|shared| Some((shared, shared.missing()?)))) {
            (_, Some((shared, number))) => shared.sleep_until_reached(number, || true),
            (0, None) => {}
            (recorded, None) => session::current()?.await_event(event.slot, recorded)?,
        }
        pool::trim_idle()
    }

    pub fn cuEventElapsedTime(out: *mut c_float, start: CUevent, end: CUevent) -> Answer {
        Self::cuEventElapsedTime_v2(out, start, end)
    }

    pub fn cuEventElapsedTime_v2(out: *mut c_float, start: CUevent, end: CUevent) -> Answer {
        let (start, end) = (of(start)?.stamp()?, of(end)?.stamp()?);
        // Signed: the end may have been recorded before the start. An f32 holds what the call can say.
        put(out, end.wrapping_sub(start).cast_signed() as c_float / 1e6)
    }
}
