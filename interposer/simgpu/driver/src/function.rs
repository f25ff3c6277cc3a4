//! Functions and kernels: a name, attributes, and what a launch of it costs. A library's kernel and a
//! module's function are the same thing here, and either handle can be launched.

use std::ffi::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use weir_abi::types::*;

use crate::api::Driver;
use crate::attributes::{
    BLOCKS_PER_SM, REGISTERS_PER_SM, REGISTERS_PER_THREAD, SHARED_KEPT, SHARED_PER_BLOCK, SHARED_PER_SM,
    THREADS_PER_BLOCK, THREADS_PER_SM,
};
use crate::edge::{Answer, put, put_optional};
use crate::launch::Older;
use crate::module::Module;
use crate::price::Price;
use crate::registry::{Handle, Registry};
use crate::session;

static FUNCTIONS: Registry<Function> = Registry::new(6, CUDA_ERROR_INVALID_HANDLE);
/// Attributes that can be set: the largest dynamic shared memory, and what newer drivers number up to here.
const ATTRIBUTES: usize = 16;
/// Dynamic shared memory that a kernel may use unless it asks for more, bytes.
const SHARED_BY_DEFAULT: i32 = 48 << 10;
/// `CU_FUNCTION_LOADING_STATE_LOADED`.
const LOADED: c_uint = 1;

/// A function of a module or a kernel of a library.
pub struct Function {
    /// Its handle.
    pub handle: Handle,
    name: CString,
    module: AtomicPtr<c_void>,
    /// What launches of it cost.
    pub price: Price,
    set: [AtomicI32; ATTRIBUTES],
    /// Block shape and parameters set by the calls of CUDA 2 and 3.
    pub older: Mutex<Older>,
}

/// A new function.
pub fn create(name: &CStr, module: &Module) -> Answer<&'static Function> {
    let price = Price::of_name(&name.to_string_lossy(), session::current()?.config());
    let set = [const { AtomicI32::new(0) }; ATTRIBUTES];
    set[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as usize].store(SHARED_BY_DEFAULT, Ordering::Relaxed);
    set[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as usize].store(-1, Ordering::Relaxed);
    let module = AtomicPtr::new(module.handle.raw());
    let name = name.to_owned();
    Ok(FUNCTIONS
        .insert_with(|handle| Function { handle, name, module, price, set, older: Mutex::default() })?
        .1)
}

/// The function behind a handle, be it of a function or of a kernel.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`.
#[inline]
pub fn of(handle: CUfunction) -> Answer<&'static Function> {
    FUNCTIONS.get(handle)
}

impl Function {
    /// Its module goes away: its handle ends.
    pub fn unload(&self) {
        // It cannot be gone already: only its module unloads it, once.
        let _gone = FUNCTIONS.remove(self.handle.raw());
    }

    fn attribute(&self, which: CUfunction_attribute) -> Answer<c_int> {
        Ok(match which {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => THREADS_PER_BLOCK.cast_signed(),
            CU_FUNC_ATTRIBUTE_NUM_REGS => REGISTERS_PER_THREAD.cast_signed(),
            CU_FUNC_ATTRIBUTE_PTX_VERSION | CU_FUNC_ATTRIBUTE_BINARY_VERSION => 80,
            _ => self.place(which)?.load(Ordering::Relaxed),
        })
    }

    fn set_attribute(&self, which: CUfunction_attribute, value: c_int) -> Answer {
        let shared = which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let too_much = shared && u32::try_from(value).map_or(true, |bytes| bytes > SHARED_PER_BLOCK);
        if which < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || too_much {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.place(which)?.store(value, Ordering::Relaxed);
        Ok(())
    }

    fn place(&self, which: CUfunction_attribute) -> Answer<&AtomicI32> {
        self.set.get(which as usize).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}

/// How many blocks of this shape fit on one SM: the least of what threads, registers, shared memory and the
/// block slots allow.
pub fn blocks_per_sm(threads: u32, shared_bytes: usize) -> u32 {
    if threads == 0 || threads > THREADS_PER_BLOCK {
        return 0;
    }
    let warps = threads.next_multiple_of(32);
    let shared = u32::try_from(shared_bytes).unwrap_or(u32::MAX).saturating_add(SHARED_KEPT);
    let by_registers = REGISTERS_PER_SM / (warps * REGISTERS_PER_THREAD);
    BLOCKS_PER_SM.min(THREADS_PER_SM / warps).min(by_registers).min(SHARED_PER_SM / shared)
}

fn occupancy(out: *mut c_int, function: CUfunction, threads: c_int, shared_bytes: usize) -> Answer {
    of(function)?;
    let threads =
        u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    put(out, blocks_per_sm(threads, shared_bytes).cast_signed())
}

/// The largest block with the most threads on an SM, and how many such blocks fill the device.
fn best_block(
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    shared: CUoccupancyB2DSize,
    fixed: usize,
    limit: c_int,
) -> Answer {
    of(function)?;
    let most = u32::try_from(limit)
        .ok()
        .filter(|limit| *limit > 0)
        .unwrap_or(THREADS_PER_BLOCK)
        .min(THREADS_PER_BLOCK);
    let shared_of = |threads: u32| match shared {
        // SAFETY: the caller's own function, which the driver API asks it to pass for this purpose.
        Some(shared) => unsafe { shared(threads.cast_signed()) },
        None => fixed,
    };
    let filled = |threads: &u32| blocks_per_sm(*threads, shared_of(*threads)) * threads;
    let best = (32..=most).step_by(32).max_by_key(filled).unwrap_or(most);
    let sms = crate::device::multiprocessors(crate::context::current()?.device)?;
    put(block, best.cast_signed())?;
    put(grid, (blocks_per_sm(best, shared_of(best)) * sms).cast_signed())
}

fn put_name(out: *mut *const c_char, function: CUfunction) -> Answer {
    put(out, of(function)?.name.as_ptr())
}

impl Driver {
    pub fn cuFuncGetAttribute(out: *mut c_int, which: CUfunction_attribute, function: CUfunction) -> Answer {
        put(out, of(function)?.attribute(which)?)
    }

    pub fn cuFuncSetAttribute(function: CUfunction, which: CUfunction_attribute, value: c_int) -> Answer {
        of(function)?.set_attribute(which, value)
    }

    pub fn cuKernelGetAttribute(
        out: *mut c_int,
        which: CUfunction_attribute,
        kernel: CUkernel,
        _device: CUdevice,
    ) -> Answer {
        put(out, of(kernel)?.attribute(which)?)
    }

    pub fn cuKernelSetAttribute(
        which: CUfunction_attribute,
        value: c_int,
        kernel: CUkernel,
        _device: CUdevice,
    ) -> Answer {
        of(kernel)?.set_attribute(which, value)
    }

    pub fn cuFuncSetCacheConfig(function: CUfunction, _config: c_uint) -> Answer {
        of(function).map(drop)
    }

    pub fn cuKernelSetCacheConfig(kernel: CUkernel, _config: c_uint, _device: CUdevice) -> Answer {
        of(kernel).map(drop)
    }

    pub fn cuFuncSetSharedMemConfig(function: CUfunction, _config: c_uint) -> Answer {
        of(function).map(drop)
    }

    pub fn cuFuncGetName(out: *mut *const c_char, function: CUfunction) -> Answer {
        put_name(out, function)
    }

    pub fn cuKernelGetName(out: *mut *const c_char, kernel: CUkernel) -> Answer {
        put_name(out, kernel)
    }

    pub fn cuFuncGetModule(out: *mut CUmodule, function: CUfunction) -> Answer {
        put(out, of(function)?.module.load(Ordering::Relaxed))
    }

    pub fn cuKernelGetFunction(out: *mut CUfunction, kernel: CUkernel) -> Answer {
        crate::context::current()?;
        put(out, of(kernel)?.handle.raw())
    }

    pub fn cuFuncIsLoaded(out: *mut c_uint, function: CUfunction) -> Answer {
        of(function)?;
        put(out, LOADED)
    }

    pub fn cuFuncLoad(function: CUfunction) -> Answer {
        of(function).map(drop)
    }

    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        out: *mut c_int,
        function: CUfunction,
        threads: c_int,
        shared_bytes: usize,
    ) -> Answer {
        occupancy(out, function, threads, shared_bytes)
    }

    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut c_int,
        function: CUfunction,
        threads: c_int,
        shared_bytes: usize,
        _flags: c_uint,
    ) -> Answer {
        occupancy(out, function, threads, shared_bytes)
    }

    pub fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        shared: CUoccupancyB2DSize,
        fixed: usize,
        limit: c_int,
    ) -> Answer {
        best_block(grid, block, function, shared, fixed, limit)
    }

    pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        shared: CUoccupancyB2DSize,
        fixed: usize,
        limit: c_int,
        _flags: c_uint,
    ) -> Answer {
        best_block(grid, block, function, shared, fixed, limit)
    }

    pub fn cuOccupancyAvailableDynamicSMemPerBlock(
        out: *mut usize,
        function: CUfunction,
        blocks: c_int,
        threads: c_int,
    ) -> Answer {
        of(function)?;
        let blocks =
            u32::try_from(blocks).ok().filter(|blocks| *blocks > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let threads = u32::try_from(threads).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if blocks > blocks_per_sm(threads, 0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, (SHARED_PER_SM / blocks).saturating_sub(SHARED_KEPT).min(SHARED_PER_BLOCK) as usize)
    }

    pub fn cuOccupancyMaxActiveClusters(
        out: *mut c_int,
        function: CUfunction,
        _config: *const CUlaunchConfig,
    ) -> Answer {
        of(function)?;
        put_optional(out, 0);
        Err(CUDA_ERROR_INVALID_CLUSTER_SIZE) // compute capability 8.0 has no clusters
    }
}
