//! Streams: what work waits in, and what the special handles mean.

use std::ffi::*;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use weir_abi::types::*;

use crate::api::{Driver, null_stream_is_per_thread};
use crate::capture::{self, Membership};
use crate::context::{self, Context, PRIORITIES};
use crate::edge::{Answer, get, put, put_optional};
use crate::effects::Effect;
use crate::kept_attributes::{Kept, OF_STREAMS};
use crate::registry::{Handle, Registry};
use crate::work::Work;
use crate::{event, green};
use crate::{locked, pool, session};

static STREAMS: Registry<Stream> = Registry::new(2, CUDA_ERROR_INVALID_HANDLE);

/// How a stream stands to its context's legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The legacy default stream itself.
    Legacy,
    /// A thread's own default stream: waits for the legacy stream, and it for this.
    PerThread,
    /// An ordinary stream: the same.
    Blocking,
    /// A stream that takes no notice of the legacy stream.
    NonBlocking,
}

/// A stream.
pub struct Stream {
    /// Its handle.
    pub handle: Handle,
    /// The stream's number on the page and at the broker.
    pub slot: u32,
    /// Where it belongs.
    pub context: &'static Context,
    kind: Kind,
    /// As it was asked for, within what there is.
    pub priority: c_int,
    id: u64,
    /// What launch attributes it was given.
    kept: Mutex<Kept>,
    /// Its green context is gone.
    detached: AtomicBool,
    /// The capture that this stream takes part in.
    pub capture: Mutex<Option<Membership>>,
    /// Where the stream's thread takes its work from, if it has one.
    pub effects: Mutex<Option<Sender<Effect>>>,
    /// How often it holds for that thread, before long or now.
    pub holds: AtomicUsize,
    /// Hidden streams beside it, for the branches of graphs that are launched into it. No two streams share any: branches of one
    /// would wait for what parks the other.
    pub lanes: Mutex<Vec<&'static Stream>>,
    /// The place of its last kernel; 0: none yet.
    pub last_kernel: AtomicU64,
}

/// Makes a stream, here and at the broker.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY` when the process has as many streams as a page has room for.
pub fn create(context: &'static Context, kind: Kind, priority: c_int) -> Answer<&'static Stream> {
    static IDS: AtomicU64 = AtomicU64::new(1);
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let slot = session::current()?.create_stream(context, kind, priority)?;
    // Relaxed: only uniqueness matters.
    let id = IDS.fetch_add(1, Ordering::Relaxed);
    let made = STREAMS.insert_with(|handle| Stream {
        handle,
        slot,
        context,
        kind,
        priority,
        id,
        kept: Mutex::default(),
        detached: AtomicBool::new(false),
        capture: Mutex::new(None),
        effects: Mutex::new(None),
        holds: AtomicUsize::new(0),
        lanes: Mutex::default(),
        last_kernel: AtomicU64::new(0),
    });
    Ok(made?.1)
}

/// The stream that a handle means in the call in progress.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` for a default stream without a current context, `CUDA_ERROR_INVALID_HANDLE`,
/// `CUDA_ERROR_STREAM_DETACHED` where its green context is gone.
#[inline]
pub fn of(handle: CUstream) -> Answer<&'static Stream> {
    match handle.addr() {
        0 if null_stream_is_per_thread() => context::current()?.per_thread(),
        0 | 1 => context::current()?.legacy(),
        2 => context::current()?.per_thread(),
        _ => STREAMS.get(handle).and_then(|stream| match stream.detached.load(Ordering::Relaxed) {
            false => stream.context.check_whole().map(|()| stream),
            true => Err(CUDA_ERROR_STREAM_DETACHED),
        }),
    }
}

/// All living streams of a context.
pub fn all_of(context: &'static Context) -> impl Iterator<Item = &'static Stream> {
    STREAMS.living().filter(move |stream| ptr::eq(stream.context, context))
}

/// Ends the streams of a context that goes away.
pub fn forget_context(context: &'static Context) -> Answer {
    for stream in all_of(context) {
        // Another thread may destroy the same stream meanwhile: gone is gone.
        let _gone = STREAMS.remove(stream.handle.raw());
        locked(&stream.effects).take();
        session::current()?.destroy_stream(stream)?;
    }
    Ok(())
}

/// Gives work to a stream, or to the capture that it takes part in.
pub fn enqueue(handle: CUstream, work: Work) -> Answer {
    let stream = of(handle)?;
    if capture::take(stream, &work)? { Ok(()) } else { work.submit(stream) }
}

impl Stream {
    /// Whether all work given to it so far is done.
    pub fn is_drained(&self) -> Answer<bool> {
        let session = session::current()?;
        session.is_done(self.slot, session.submitted(self.slot)?)
    }

    /// Waits for all work given to it so far.
    pub fn synchronize(&self) -> Answer {
        let session = session::current()?;
        session.wait(self.slot, session.submitted(self.slot)?)?;
        pool::trim_idle()
    }

    /// Its green context goes: whatever it captures is broken off.
    pub fn detach(&'static self) {
        capture::forget(self);
        self.detached.store(true, Ordering::Relaxed);
    }

    /// Ends it, and the hidden ones beside it.
    fn destroy(&self) -> Answer {
        STREAMS.remove(self.handle.raw())?;
        locked(&self.effects).take();
        let lanes = std::mem::take(&mut *locked(&self.lanes));
        lanes.into_iter().try_for_each(Stream::destroy)?;
        session::current()?.destroy_stream(self)
    }

    /// Whether this is its context's legacy default stream.
    pub fn is_legacy(&self) -> bool {
        self.kind == Kind::Legacy
    }

    /// Whether the legacy default stream and this one wait for each other.
    pub fn is_blocking(&self) -> bool {
        self.kind != Kind::NonBlocking
    }
}

fn create_with(out: *mut CUstream, flags: c_uint, priority: c_int) -> Answer {
    if flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let kind = if flags & CU_STREAM_NON_BLOCKING != 0 { Kind::NonBlocking } else { Kind::Blocking };
    put(out, create(context::current()?, kind, priority)?.handle.raw())
}

impl Driver {
    pub fn cuStreamCreate(out: *mut CUstream, flags: c_uint) -> Answer {
        create_with(out, flags, 0)
    }

    pub fn cuStreamCreateWithPriority(out: *mut CUstream, flags: c_uint, priority: c_int) -> Answer {
        create_with(out, flags, priority)
    }

    pub fn cuStreamDestroy(stream: CUstream) -> Answer {
        Self::cuStreamDestroy_v2(stream)
    }

    pub fn cuStreamDestroy_v2(stream: CUstream) -> Answer {
        let stream = STREAMS.get(stream)?;
        if stream.kind == Kind::Legacy {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        capture::forget(stream);
        stream.destroy()
    }

    pub fn cuStreamSynchronize(stream: CUstream) -> Answer {
        let stream = of(stream)?;
        capture::forbid_in(stream)?;
        capture::forbid_unsafe()?;
        stream.synchronize()
    }

    pub fn cuStreamQuery(stream: CUstream) -> Answer {
        let stream = of(stream)?;
        capture::forbid_in(stream)?;
        if stream.is_drained()? { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }

    pub fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> Answer {
        event::wait_in(of(stream)?, event::of(event)?, flags)
    }

    pub fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) -> Answer {
        put(flags, c_uint::from(of(stream)?.kind == Kind::NonBlocking))
    }

    pub fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) -> Answer {
        put(priority, of(stream)?.priority)
    }

    pub fn cuStreamGetId(stream: CUstream, id: *mut c_ulonglong) -> Answer {
        put(id, of(stream)?.id)
    }

    pub fn cuStreamGetCtx(stream: CUstream, out: *mut CUcontext) -> Answer {
        put(out, of(stream)?.context.handle.raw())
    }

    pub fn cuStreamGetCtx_v2(stream: CUstream, out: *mut CUcontext, green: *mut CUgreenCtx) -> Answer {
        let context = of(stream)?.context;
        let (whole, part) = match green::of_context(context) {
            Some(part) => (ptr::null_mut(), part),
            None => (context.handle.raw(), ptr::null_mut()),
        };
        put_optional(green, part);
        put(out, whole)
    }

    pub fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) -> Answer {
        put(device, of(stream)?.context.device)
    }

    pub fn cuStreamCopyAttributes(dst: CUstream, src: CUstream) -> Answer {
        let kept = locked(&of(src)?.kept).clone();
        *locked(&of(dst)?.kept) = kept;
        Ok(())
    }

    pub fn cuStreamGetAttribute(
        stream: CUstream,
        id: CUlaunchAttributeID,
        out: *mut CUlaunchAttributeValue,
    ) -> Answer {
        let stream = of(stream)?;
        if id == CU_LAUNCH_ATTRIBUTE_PRIORITY {
            return put(out.cast(), stream.priority);
        }
        put(out.cast(), locked(&stream.kept).get(OF_STREAMS, id)?)
    }

    pub fn cuStreamSetAttribute(
        stream: CUstream,
        id: CUlaunchAttributeID,
        value: *const CUlaunchAttributeValue,
    ) -> Answer {
        // A stream's priority is fixed when it is made: not among what it keeps.
        locked(&of(stream)?.kept).set(OF_STREAMS, id, get(value.cast())?)
    }

    pub fn cuStreamAttachMemAsync(
        stream: CUstream,
        _address: CUdeviceptr,
        _length: usize,
        _flags: c_uint,
    ) -> Answer {
        of(stream).map(drop)
    }

    pub fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) -> Answer {
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        enqueue(stream, Work::Host { function, data })
    }

    pub fn cuStreamAddCallback(
        stream: CUstream,
        callback: CUstreamCallback,
        data: *mut c_void,
        _flags: c_uint,
    ) -> Answer {
        let callback = callback.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        capture::forbid_in(of(stream)?)?;
        let handle = of(stream)?.handle.raw();
        enqueue(stream, Work::Callback { callback, stream: handle, data })
    }
}
