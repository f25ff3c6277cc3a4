//! Contexts: primary ones, own ones, and each thread's stack of current ones.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use weir_abi::types::*;

use crate::api::Driver;
use crate::broken::Health;
use crate::edge::{Answer, put, put_optional};
use crate::limits::Limits;
use crate::registry::{Handle, Registry};
use crate::stream::{self, Kind, Stream};
use crate::{capture, device, locked, session};

/// Depth of a thread's context stack; deeper nesting is a client's bug.
const STACK: usize = 32;
/// The API version that `cuCtxGetApiVersion` tells of a context made by `cuCtxCreate_v2` and later.
const API_VERSION: c_uint = 3020;
/// The lowest and the highest priority of a stream, as drivers for data-centre cards say.
pub const PRIORITIES: (c_int, c_int) = (0, -5);

static CONTEXTS: Registry<Context> = Registry::new(1, CUDA_ERROR_INVALID_CONTEXT);

/// A context: what belongs to one user of one device.
pub struct Context {
    /// Its handle.
    pub handle: Handle,
    /// The broker's number for it.
    pub id: u32,
    /// The device's place among the visible ones.
    pub device: CUdevice,
    /// The multiprocessors that its kernels have.
    pub sms: u32,
    /// All multiprocessors of its device.
    pub all_sms: u32,
    /// The primary context that a green one is a part of.
    parent: Option<&'static Context>,
    /// How many have made it or attached to it, less those who have detached.
    users: AtomicU32,
    /// The flags it was made with.
    pub flags: AtomicU32,
    /// Its limits and preferences.
    pub limits: Limits,
    /// Whether an error has broken it.
    pub health: Health,
    legacy: OnceLock<&'static Stream>,
    per_thread: Mutex<HashMap<u64, &'static Stream>>,
}

/// A thread's stack of contexts. Plain cells without a destructor, so that calls at exit still find it.
struct Stack {
    depth: Cell<usize>,
    contexts: [Cell<Option<&'static Context>>; STACK],
}

thread_local! {
    static CURRENT: Stack = const { Stack { depth: Cell::new(0), contexts: [const { Cell::new(None) }; STACK] } };
}

impl Context {
    /// Makes a context on a device.
    pub fn create(device: CUdevice, flags: c_uint) -> Answer<&'static Context> {
        let id = session::current()?.create_context(device)?;
        let (sms, all_sms) = device::all_multiprocessors(device)?;
        let (_, context) = CONTEXTS.insert_with(|handle| Context {
            handle,
            id,
            device,
            sms,
            all_sms,
            parent: None,
            users: AtomicU32::new(1),
            flags: AtomicU32::new(flags),
            limits: Limits::default(),
            health: Health::default(),
            legacy: OnceLock::new(),
            per_thread: Mutex::default(),
        })?;
        let legacy = stream::create(context, Kind::Legacy, 0)?;
        context.legacy.get_or_init(|| legacy);
        Ok(context)
    }

    /// Makes a part of a context with fewer multiprocessors. To the broker its streams are the whole context's; its default
    /// stream takes no notice of the others.
    pub fn part(parent: &'static Context, sms: u32) -> Answer<&'static Context> {
        let (_, part) = CONTEXTS.insert_with(|handle| Context {
            handle,
            id: parent.id,
            device: parent.device,
            sms,
            all_sms: parent.all_sms,
            parent: Some(parent),
            users: AtomicU32::new(1),
            flags: AtomicU32::new(parent.flags.load(Ordering::Relaxed)),
            limits: Limits::default(),
            health: Health::default(),
            legacy: OnceLock::new(),
            per_thread: Mutex::default(),
        })?;
        let default = stream::create(part, Kind::NonBlocking, 0)?;
        part.legacy.get_or_init(|| default);
        Ok(part)
    }

    /// Ends such a part. Its streams are there until they are destroyed, and good for nothing else.
    pub fn detach(&'static self) -> Answer {
        CONTEXTS.remove(self.handle.raw())?;
        stream::all_of(self).for_each(Stream::detach);
        Ok(())
    }

    /// Itself, or what it is a part of: events, memory and limits are that one's.
    pub fn root(&'static self) -> &'static Context {
        self.parent.unwrap_or(self)
    }

    /// Whether it, or what it is a part of, is there still.
    pub fn check_alive(&'static self) -> Answer {
        CONTEXTS.get(self.root().handle.raw()).map(drop)
    }

    /// Refuses a context that an error has broken, itself or the one of which it is a part.
    pub fn check_whole(&'static self) -> Answer {
        self.root().health.check()
    }

    /// Whether work that was given to it is still done.
    pub fn is_working(&'static self) -> bool {
        self.check_alive().and_then(|()| self.check_whole()).is_ok()
    }

    /// Ends it with all that belongs to it.
    pub fn destroy(&'static self) -> Answer {
        CONTEXTS.remove(self.handle.raw())?;
        self.health.heal(); // what outlives it, a pool's memory say, is well
        stream::forget_context(self)?;
        crate::memory::forget_context(self);
        crate::array::sparse::forget_context(self)?;
        self.limits.release(self.device)?;
        session::current()?.destroy_context(self)
    }

    /// The context behind a handle, for use; null means the current one.
    pub fn of(handle: CUcontext) -> Answer<&'static Context> {
        let context = if handle.is_null() { current() } else { CONTEXTS.get(handle) }?;
        context.check_whole().map(|()| context)
    }

    /// Its legacy default stream.
    pub fn legacy(&self) -> Answer<&'static Stream> {
        self.legacy.get().copied().ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// The calling thread's own default stream in this context.
    pub fn per_thread(&'static self) -> Answer<&'static Stream> {
        let mut streams = locked(&self.per_thread);
        let thread = session::thread();
        if let Some(stream) = streams.get(&thread) {
            return Ok(stream);
        }
        let stream = stream::create(self, Kind::PerThread, 0)?;
        streams.insert(thread, stream);
        Ok(stream)
    }
}

/// The calling thread's current context.
pub fn current() -> Answer<&'static Context> {
    let context = CURRENT.with(|stack| match stack.depth.get() {
        0 => None,
        depth => stack.contexts[depth - 1].get(),
    });
    let context = context.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    CONTEXTS.get(context.handle.raw()).map_err(|_| CUDA_ERROR_CONTEXT_IS_DESTROYED)
}

fn push(context: &'static Context) -> Answer {
    CURRENT.with(|stack| {
        let depth = stack.depth.get();
        stack.contexts.get(depth).ok_or(CUDA_ERROR_INVALID_VALUE)?.set(Some(context));
        stack.depth.set(depth + 1);
        Ok(())
    })
}

fn pop() -> Answer<&'static Context> {
    CURRENT.with(|stack| {
        let depth = stack.depth.get().checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        stack.depth.set(depth);
        stack.contexts[depth].take().ok_or(CUDA_ERROR_INVALID_CONTEXT)
    })
}

/// Replaces the top of the stack; `None` removes it.
fn set_current(context: Option<&'static Context>) -> Answer {
    let depth = CURRENT.with(|stack| stack.depth.get());
    if depth > 0 {
        pop()?;
    }
    context.map_or(Ok(()), push)
}

/// Every living context of this process.
pub fn all() -> impl Iterator<Item = &'static Context> {
    CONTEXTS.living()
}

fn create_and_push(out: *mut CUcontext, flags: c_uint, device: CUdevice) -> Answer {
    device::check(device)?;
    let context = Context::create(device, flags)?;
    push(context)?;
    put(out, context.handle.raw())
}

impl Driver {
    pub fn cuCtxCreate_v2(out: *mut CUcontext, flags: c_uint, device: CUdevice) -> Answer {
        create_and_push(out, flags, device)
    }

    pub fn cuCtxCreate_v3(
        out: *mut CUcontext,
        _affinities: *mut CUexecAffinityParam,
        _count: c_int,
        flags: c_uint,
        device: CUdevice,
    ) -> Answer {
        create_and_push(out, flags, device)
    }

    pub fn cuCtxCreate_v4(
        out: *mut CUcontext,
        _params: *mut CUctxCreateParams,
        flags: c_uint,
        device: CUdevice,
    ) -> Answer {
        create_and_push(out, flags, device)
    }

    pub fn cuCtxDestroy(context: CUcontext) -> Answer {
        Self::cuCtxDestroy_v2(context)
    }

    pub fn cuCtxDestroy_v2(context: CUcontext) -> Answer {
        let context = CONTEXTS.get(context)?;
        if current().is_ok_and(|top| std::ptr::eq(top, context)) {
            pop()?;
        }
        context.destroy()
    }

    pub fn cuCtxAttach(out: *mut CUcontext, _flags: c_uint) -> Answer {
        let context = current()?;
        context.users.fetch_add(1, Ordering::Relaxed);
        put(out, context.handle.raw())
    }

    pub fn cuCtxDetach(context: CUcontext) -> Answer {
        match CONTEXTS.get(context)?.users.fetch_sub(1, Ordering::AcqRel) {
            1 => Self::cuCtxDestroy_v2(context),
            _ => Ok(()),
        }
    }

    pub fn cuCtxPushCurrent(context: CUcontext) -> Answer {
        Self::cuCtxPushCurrent_v2(context)
    }

    pub fn cuCtxPushCurrent_v2(context: CUcontext) -> Answer {
        push(CONTEXTS.get(context)?)
    }

    pub fn cuCtxPopCurrent(out: *mut CUcontext) -> Answer {
        Self::cuCtxPopCurrent_v2(out)
    }

    pub fn cuCtxPopCurrent_v2(out: *mut CUcontext) -> Answer {
        put_optional(out, pop()?.handle.raw());
        Ok(())
    }

    pub fn cuCtxSetCurrent(context: CUcontext) -> Answer {
        let context = if context.is_null() { None } else { Some(CONTEXTS.get(context)?) };
        set_current(context)
    }

    pub fn cuCtxGetCurrent(out: *mut CUcontext) -> Answer {
        put(out, current().map_or(std::ptr::null_mut(), |context| context.handle.raw()))
    }

    pub fn cuCtxGetDevice(out: *mut CUdevice) -> Answer {
        put(out, current()?.device)
    }

    pub fn cuCtxGetDevice_v2(out: *mut CUdevice, context: CUcontext) -> Answer {
        put(out, Context::of(context)?.device)
    }

    pub fn cuCtxGetId(context: CUcontext, out: *mut c_ulonglong) -> Answer {
        put(out, u64::from(Context::of(context)?.id))
    }

    pub fn cuCtxGetFlags(out: *mut c_uint) -> Answer {
        put(out, current()?.flags.load(Ordering::Relaxed))
    }

    pub fn cuCtxSetFlags(flags: c_uint) -> Answer {
        current()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    pub fn cuCtxGetApiVersion(context: CUcontext, out: *mut c_uint) -> Answer {
        Context::of(context)?;
        put(out, API_VERSION)
    }

    pub fn cuCtxSynchronize() -> Answer {
        synchronize(current()?)
    }

    pub fn cuCtxSynchronize_v2(context: CUcontext) -> Answer {
        synchronize(Context::of(context)?)
    }

    pub fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Answer {
        current()?;
        put_optional(least, PRIORITIES.0);
        put_optional(greatest, PRIORITIES.1);
        Ok(())
    }

    pub fn cuCtxEnablePeerAccess(peer: CUcontext, _flags: c_uint) -> Answer {
        let (own, peer) = (current()?, CONTEXTS.get(peer)?);
        if own.device == peer.device { Err(CUDA_ERROR_INVALID_DEVICE) } else { Ok(()) }
    }

    pub fn cuCtxDisablePeerAccess(peer: CUcontext) -> Answer {
        CONTEXTS.get(peer).map(drop)
    }
}

fn synchronize(context: &'static Context) -> Answer {
    capture::forbid_unsafe()?;
    // A primary context is waited for with its parts, a part alone.
    let parts = all().filter(|part| std::ptr::eq(part.root(), context) && !std::ptr::eq(*part, context));
    let whole = std::iter::once(context).chain(parts);
    whole.flat_map(stream::all_of).try_for_each(|stream| stream.synchronize())
}
