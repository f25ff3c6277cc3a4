//! This process's session with the broker. After a fork the child has none: as with a driver, all that it may
//! do is to be told so.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use weir_abi::types::*;
use weir_simgpu_link::{self as link, Kind, Refusal, SessionError, StreamKind, Work};

use crate::context::Context;
use crate::edge::Answer;
use crate::launch::Launch;
use crate::stream::{self, Stream};
use crate::work::MemoryOperation;
use crate::{counters, effects, locked, memory, mps, visible, work};

pub use link::{Binding, Direction, Obstacle, ProcessState, Step, TeamRequest};

static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static FORKED: AtomicBool = AtomicBool::new(false);
static OPENING: Mutex<()> = Mutex::new(());

/// The session of this process.
pub struct Session {
    link: link::Session,
    /// The devices that this process sees.
    pub devices: Vec<Device>,
    /// How this process stands to MPS.
    pub mps: mps::Client,
}

/// A visible device.
pub struct Device {
    /// Its number at the broker.
    number: u32,
    /// Its name; says that it is simulated.
    pub name: String,
    /// Its identity.
    pub uuid: [u8; 16],
    /// Capacity, bytes.
    pub memory_bytes: u64,
    /// Multiprocessors.
    pub all_sms: u32,
    /// Those that this process may use.
    pub sms: u32,
    /// PCI bus number.
    pub pci_bus: u32,
}

fn code(error: &SessionError) -> CUresult {
    match error {
        SessionError::Refused(Refusal::OutOfMemory) | SessionError::Streams => CUDA_ERROR_OUT_OF_MEMORY,
        SessionError::Refused(Refusal::NoSuchDevice) => CUDA_ERROR_INVALID_DEVICE,
        SessionError::Refused(Refusal::NoSuchContext) => CUDA_ERROR_INVALID_CONTEXT,
        SessionError::Refused(Refusal::NotHeld | Refusal::NotOfTeam | Refusal::NoSuchProcess(_)) => {
            CUDA_ERROR_INVALID_VALUE
        }
        SessionError::Refused(Refusal::WrongState(_)) => CUDA_ERROR_ILLEGAL_STATE,
        SessionError::Refused(Refusal::NoCheckpointOf(_)) => CUDA_ERROR_NOT_SUPPORTED,
        SessionError::Refused(Refusal::NotReady) => CUDA_ERROR_NOT_READY,
        _ => CUDA_ERROR_SYSTEM_NOT_READY,
    }
}

/// The broker's answer as the driver's.
fn answer<T>(result: Result<T, SessionError>) -> Answer<T> {
    result.map_err(|error| code(&error))
}

/// The session.
///
/// # Errors
/// `CUDA_ERROR_NOT_INITIALIZED` before `cuInit` and in a forked child.
#[inline]
pub fn current() -> Answer<&'static Session> {
    // SAFETY: null, or a session that `open` has leaked: it lives as long as the process.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }.ok_or(CUDA_ERROR_NOT_INITIALIZED)
}

/// Whether there is a session.
#[inline]
pub fn check_initialized() -> Answer {
    current().map(drop)
}

/// A call under way: it has waited while the process was locked for a checkpoint, and is counted until it ends.
pub struct Call(&'static Session);

impl Call {
    /// A call begins.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_INITIALIZED` before `cuInit` and in a forked child.
    #[inline]
    pub fn begin() -> Answer<Self> {
        let session = current()?;
        session.link.begin_call();
        Ok(Self(session))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.link.end_call();
    }
}

thread_local! {
    static MARK: Cell<u8> = const { Cell::new(0) };
}

/// A number that tells the living threads of this process apart.
pub fn thread() -> u64 {
    MARK.with(|mark| std::ptr::from_ref(mark).addr() as u64)
}

/// Opens the session, once. What the broker says when it cannot start goes to stderr: a client's own
/// message would only be "system not ready".
///
/// # Errors
/// `CUDA_ERROR_SYSTEM_NOT_READY` without a broker, `CUDA_ERROR_NO_DEVICE` when none is visible.
pub fn open() -> Answer {
    let _one = locked(&OPENING);
    if FORKED.load(Ordering::Relaxed) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if current().is_ok() {
        return Ok(());
    }
    let link = link::Session::connect(Kind::Cuda).map_err(|error| {
        tell(&error);
        code(&error)
    })?;
    let mps = mps::Client::of_environment(link.config());
    let devices = devices(&link, mps);
    if devices.is_empty() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    let session: &'static Session = Box::leak(Box::new(Session { link, devices, mps }));
    counters::move_to(answer(session.link.page())?);
    crate::fault::arm(session.config());
    // SAFETY: a plain function without arguments, which stays loaded as long as the process.
    unsafe { libc::pthread_atfork(None, None, Some(forget_in_child)) };
    SESSION.store(std::ptr::from_ref(session).cast_mut(), Ordering::Release);
    Ok(())
}

fn devices(link: &link::Session, mps: mps::Client) -> Vec<Device> {
    let all = &link.welcome().devices;
    let wanted = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let uuids: Vec<String> = all.iter().map(link::Device::uuid_text).collect();
    let about = |place: usize| {
        let device = all.get(place)?;
        Some(Device {
            number: u32::try_from(place).ok()?,
            name: crate::NAME.to_owned(),
            uuid: device.uuid,
            memory_bytes: device.memory_bytes,
            all_sms: device.sms,
            sms: mps.multiprocessors(device.sms),
            pci_bus: device.pci_bus.into(),
        })
    };
    visible::places(wanted.as_deref(), &uuids)
        .into_iter()
        .filter_map(about)
        .take(crate::device::MOST)
        .collect()
}

/// Says once why there is no GPU.
#[allow(clippy::print_stderr, reason = "a driver has no other way to say more than a code")]
fn tell(error: &SessionError) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        eprintln!("weir simulated GPU: {error}");
    }
}

/// In a forked child: no session, and counters of its own.
extern "C" fn forget_in_child() {
    FORKED.store(true, Ordering::Relaxed);
    SESSION.store(std::ptr::null_mut(), Ordering::Relaxed);
    counters::start_again();
}

impl Session {
    /// The configuration in force.
    pub fn config(&self) -> &link::config::Config {
        self.link.config()
    }

    /// A device's number at the broker.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE`.
    pub fn number(&self, device: CUdevice) -> Answer<u32> {
        Ok(self.devices[crate::device::check(device)?].number)
    }

    /// Makes a context at the broker, which charges its overhead.
    pub fn create_context(&self, device: CUdevice) -> Answer<u32> {
        answer(self.link.create_context(self.number(device)?))
    }

    /// Ends a context.
    pub fn destroy_context(&self, context: &Context) -> Answer {
        answer(self.link.destroy_context(context.id))
    }

    /// Makes a stream: its slot.
    pub fn create_stream(&self, context: &Context, kind: stream::Kind, priority: i32) -> Answer<u32> {
        let kind = match kind {
            stream::Kind::Legacy => StreamKind::Legacy,
            stream::Kind::PerThread | stream::Kind::Blocking => StreamKind::Blocking,
            stream::Kind::NonBlocking => StreamKind::NonBlocking,
        };
        answer(self.link.open_stream(context.id, kind, self.mps.priority(priority)))
    }

    /// Ends a stream; what it holds is still done.
    pub fn destroy_stream(&self, stream: &Stream) -> Answer {
        answer(self.link.close_stream(stream.slot))
    }

    /// Takes device memory.
    pub fn reserve(&self, device: CUdevice, bytes: usize) -> Answer {
        answer(self.link.reserve(self.number(device)?, bytes as u64))
    }

    /// Gives device memory back.
    pub fn release(&self, device: CUdevice, bytes: usize) -> Answer {
        answer(self.link.release(self.number(device)?, bytes as u64))
    }

    /// Free and total memory of a device, bytes.
    pub fn memory_info(&self, device: CUdevice) -> Answer<(usize, usize)> {
        let (total, used, _) = answer(self.link.memory(self.number(device)?))?;
        let bytes = |amount: u64| usize::try_from(amount).unwrap_or(usize::MAX);
        Ok((bytes(total.saturating_sub(used)), bytes(total)))
    }

    /// Puts a kernel into a stream.
    #[inline]
    pub fn launch(&self, stream: &Stream, launch: &Launch) -> Answer<u64> {
        let kernel = launch.function.price.of(launch, stream.context.sms, stream.context.all_sms);
        let pushed = answer(self.link.push(stream.slot, Work::Kernel(kernel)));
        if let Ok(place) = pushed {
            // Relaxed: for counts; two threads that launch into one stream at once follow nobody closely.
            stream.last_kernel.store(place, Ordering::Relaxed);
        }
        pushed
    }

    /// A launch is about to follow that may overlap the stream's last kernel: counts it, and whether it can. The time that
    /// overlapping saves is not modelled.
    pub fn note_dependent(&self, stream: &Stream) -> Answer {
        let last = stream.last_kernel.load(Ordering::Relaxed);
        let between = answer(self.link.submitted(stream.slot))? > last;
        let split = last > 0 && between && !self.has_come_to(stream.slot, last);
        let [launches, splits] = &answer(self.link.page())?.dependent.0;
        launches.fetch_add(1, Ordering::Relaxed);
        splits.fetch_add(u64::from(split), Ordering::Relaxed);
        Ok(())
    }

    /// Makes a multicast object: its number.
    pub fn create_team(&self, devices: u32, bytes: usize) -> Answer<u32> {
        answer(self.link.create_team(devices, bytes as u64))
    }

    /// Does something with a multicast object.
    pub fn team(&self, request: TeamRequest) -> Answer {
        answer(self.link.team(request))
    }

    /// Puts a copy into a stream.
    pub fn copy(&self, stream: &Stream, direction: Direction, bytes: u64) -> Answer<u64> {
        answer(self.link.push(stream.slot, Work::Copy { direction, bytes }))
    }

    /// Puts a memset into a stream.
    pub fn fill(&self, stream: &Stream, bytes: u64) -> Answer<u64> {
        answer(self.link.push(stream.slot, Work::Memset { bytes }))
    }

    /// Holds a stream until it is resumed, then for so long; the place at which it stops.
    pub fn hold(&self, stream: &Stream, then_ns: u64) -> Answer<u64> {
        answer(self.link.push(stream.slot, Work::Hold { then_ns }))
    }

    /// A place in a stream that takes so long of the GPU, and of the SMs nothing.
    pub fn mark(&self, stream: &Stream, takes_ns: u64) -> Answer<u64> {
        answer(self.link.push(stream.slot, Work::Mark { takes_ns }))
    }

    /// What memory operations take of the GPU, ns.
    pub fn cost_of(&self, work: &work::Work) -> u64 {
        let marks = &self.config().marks;
        let cost = |operation: &MemoryOperation| match operation {
            MemoryOperation::Write { .. } => marks.write_ns,
            MemoryOperation::Wait { address, .. } if memory::is_host(*address) => marks.wait_on_host_ns,
            MemoryOperation::Wait { .. } => marks.wait_on_device_ns,
        };
        match work {
            work::Work::Memory(operations) => operations.iter().map(cost).sum(),
            _ => 0,
        }
    }

    /// Lets a held stream go on.
    pub fn resume(&self, slot: u32, place: u64) -> Answer {
        answer(self.link.resume(slot, place))
    }

    /// Records an event slot in a stream: the record's number.
    pub fn record_event(&self, stream: &Stream, slot: u32, timed: bool) -> Answer<u32> {
        let takes_ns = if timed { self.config().marks.timed_event_ns } else { 0 };
        answer(self.link.push_record(stream.slot, slot, takes_ns))
    }

    /// Lets a stream wait for a record.
    pub fn wait_event(&self, stream: &Stream, slot: u32, record: u32) -> Answer {
        answer(self.link.push(stream.slot, Work::Wait { slot, record })).map(drop)
    }

    /// When the front end came to a record, ns; `None` if it has not.
    pub fn event_stamp(&self, slot: u32, record: u32) -> Answer<Option<u64>> {
        let mut stamp = self.link.event_stamp(slot, record);
        if stamp.is_none() {
            // The broker may not have looked for a while: the next query shall know.
            answer(self.link.look())?;
            stamp = self.link.event_stamp(slot, record);
        }
        if stamp.is_some() {
            effects::catch_up(self);
        }
        Ok(stamp)
    }

    /// Waits for a record.
    pub fn await_event(&self, slot: u32, record: u32) -> Answer {
        answer(self.link.wait_event(slot, record))?;
        effects::catch_up(self);
        Ok(())
    }

    /// Place of the last command of a stream.
    pub fn submitted(&self, slot: u32) -> Answer<u64> {
        answer(self.link.submitted(slot))
    }

    /// Whether a stream is done up to a place.
    pub fn is_done(&self, slot: u32, place: u64) -> Answer<bool> {
        let mut done = answer(self.link.completed(slot))? >= place;
        if !done {
            answer(self.link.look())?;
            done = answer(self.link.completed(slot))? >= place;
        }
        if done {
            effects::catch_up(self);
        }
        Ok(done)
    }

    /// Whether a stream is known to have come to a place.
    pub fn has_come_to(&self, slot: u32, place: u64) -> bool {
        self.link.completed(slot).is_ok_and(|completed| completed >= place)
    }

    /// One more, or one fewer, of what no checkpoint can be taken of.
    pub fn count_obstacle(&self, obstacle: Obstacle, more: bool) -> Answer {
        answer(self.link.count_obstacle(obstacle, more))
    }

    /// How a process stands to checkpoints.
    pub fn process_state(&self, pid: i32) -> Answer<ProcessState> {
        answer(self.link.process_state(pid))
    }

    /// A step of a checkpoint of a process; the bytes that go over the bus for it.
    pub fn process_step(&self, pid: i32, step: Step) -> Answer<u64> {
        answer(self.link.process_step(pid, step))
    }

    /// Waits until a stream is done up to a place.
    pub fn wait(&self, slot: u32, place: u64) -> Answer {
        answer(self.link.wait_completed(slot, place))?;
        effects::catch_up(self);
        Ok(())
    }
}
