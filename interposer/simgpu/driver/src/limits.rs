//! A context's limits and preferences. They are remembered and answered; none of them changes what is simulated.

use std::ffi::*;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use weir_abi::types::*;

use crate::api::Driver;
use crate::context::current;
use crate::device;
use crate::edge::{Answer, get, put};

/// Default limits in bytes: stack of a thread, `printf` buffer, heap of `malloc` in kernels.
const DEFAULTS: [usize; 3] = [1 << 10, 1 << 20, 8 << 20];

/// What a context remembers.
pub struct Limits {
    bytes: [AtomicUsize; 3],
    cache: AtomicU32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: DEFAULTS.map(AtomicUsize::new), cache: AtomicU32::new(0) }
    }
}

fn limit_place(limit: CUlimit) -> Answer<usize> {
    usize::try_from(limit).ok().filter(|place| *place < DEFAULTS.len()).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)
}

impl Driver {
    pub fn cuCtxGetLimit(out: *mut usize, limit: CUlimit) -> Answer {
        put(out, current()?.limits.bytes[limit_place(limit)?].load(Ordering::Relaxed))
    }

    pub fn cuCtxSetLimit(limit: CUlimit, value: usize) -> Answer {
        current()?.limits.bytes[limit_place(limit)?].store(value, Ordering::Relaxed);
        Ok(())
    }

    pub fn cuCtxGetCacheConfig(out: *mut c_uint) -> Answer {
        put(out, current()?.limits.cache.load(Ordering::Relaxed))
    }

    pub fn cuCtxSetCacheConfig(config: c_uint) -> Answer {
        current()?.limits.cache.store(config, Ordering::Relaxed);
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
