//! A context's limits and preferences. They are remembered and answered; larger stacks, buffers and heaps take device
//! memory, as a driver reserves it for every thread that can be resident at once.

use std::ffi::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use weir_abi::types::*;

use crate::api::Driver;
use crate::context::current;
use crate::edge::{Answer, get, put};
use crate::{device, locked, session};

/// Default limits in bytes: stack of a thread, `printf` buffer, heap of `malloc` in kernels.
const DEFAULTS: [usize; 3] = [1 << 10, 1 << 20, 8 << 20];
/// Threads that an SM can hold at once. Source: CUDA programming guide, compute capability 8.0.
const THREADS_OF_SM: usize = 2048;
/// Memory of contexts comes in multiples of this, bytes.
const GRANULARITY: usize = 2 << 20;

/// What a context remembers.
pub struct Limits {
    bytes: [AtomicUsize; 3],
    cache: AtomicU32,
    /// Device memory beyond what the defaults take, which is part of a context's overhead; bytes.
    grown: Mutex<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: DEFAULTS.map(AtomicUsize::new), cache: AtomicU32::new(0), grown: Mutex::new(0) }
    }
}

/// What the limits take of the device beyond the defaults, bytes.
fn beyond_defaults(bytes: [usize; 3], sms: u32) -> Answer<usize> {
    let threads = sms as usize * THREADS_OF_SM;
    let places = bytes.into_iter().zip(DEFAULTS).zip([threads, 1, 1]);
    let more = places.map(|((bytes, default), times)| bytes.saturating_sub(default).saturating_mul(times));
    let sum = more.fold(0, usize::saturating_add);
    sum.checked_next_multiple_of(GRANULARITY).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

impl Limits {
    /// Gives back what they took, when their context ends.
    pub fn release(&self, device: CUdevice) -> Answer {
        match std::mem::take(&mut *locked(&self.grown)) {
            0 => Ok(()),
            grown => session::current()?.release(device, grown),
        }
    }
}

fn limit_place(limit: CUlimit) -> Answer<usize> {
    usize::try_from(limit).ok().filter(|place| *place < DEFAULTS.len()).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)
}

impl Driver {
    pub fn cuCtxGetLimit(out: *mut usize, limit: CUlimit) -> Answer {
        put(out, current()?.root().limits.bytes[limit_place(limit)?].load(Ordering::Relaxed))
    }

    pub fn cuCtxSetLimit(limit: CUlimit, value: usize) -> Answer {
        let (context, place) = (current()?.root(), limit_place(limit)?);
        let limits = &context.limits;
        let mut grown = locked(&limits.grown);
        let mut bytes = [0, 1, 2].map(|place: usize| limits.bytes[place].load(Ordering::Relaxed));
        bytes[place] = value;
        let (before, after) = (*grown, beyond_defaults(bytes, context.sms)?);
        if after > before {
            session::current()?.reserve(context.device, after - before)?;
        } else if after < before {
            session::current()?.release(context.device, before - after)?;
        }
        *grown = after;
        limits.bytes[place].store(value, Ordering::Relaxed);
        Ok(())
    }

    pub fn cuCtxGetCacheConfig(out: *mut c_uint) -> Answer {
        put(out, current()?.root().limits.cache.load(Ordering::Relaxed))
    }

    pub fn cuCtxSetCacheConfig(config: c_uint) -> Answer {
        current()?.root().limits.cache.store(config, Ordering::Relaxed);
        Ok(())
    }

    pub fn cuCtxGetSharedMemConfig(out: *mut c_uint) -> Answer {
        current()?;
        put(out, 1) // banks of four bytes: the only kind since compute capability 5.0
    }

    pub fn cuCtxSetSharedMemConfig(_config: c_uint) -> Answer {
        current().map(drop)
    }

    pub fn cuCtxResetPersistingL2Cache() -> Answer {
        current().map(drop)
    }

    pub fn cuCtxGetExecAffinity(out: *mut CUexecAffinityParam, kind: c_uint) -> Answer {
        let sm_count = device::multiprocessors(current()?.device)?;
        get(out)?;
        put(out, CUexecAffinityParam { kind, sm_count })
    }
}
