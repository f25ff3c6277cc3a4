//! Functions and kernels: a name, attributes, and what a launch of it costs. A library's kernel and a
//! module's function are the same thing here, and either handle can be launched.

use std::ffi::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use weir_abi::types::*;

use crate::api::Driver;
use crate::attributes::{REGISTERS_PER_THREAD, SHARED_PER_BLOCK, THREADS_PER_BLOCK};
use crate::edge::{Answer, put, put_optional};
use crate::image::Parameter;
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
    /// `None` for one of a binary image, which is not read that far.
    parameters: Option<Vec<Parameter>>,
    module: AtomicPtr<c_void>,
    /// What launches of it cost.
    pub price: Price,
    set: [AtomicI32; ATTRIBUTES],
    /// Block shape and parameters set by the calls of CUDA 2 and 3.
    pub older: Mutex<Older>,
}

/// A new function.
pub fn create(name: &CStr, module: &Module, parameters: Option<Vec<Parameter>>) -> Answer<&'static Function> {
    let price = Price::of_name(&name.to_string_lossy(), session::current()?.config());
    let set = [const { AtomicI32::new(0) }; ATTRIBUTES];
    set[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as usize].store(SHARED_BY_DEFAULT, Ordering::Relaxed);
    set[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT as usize].store(-1, Ordering::Relaxed);
    let module = AtomicPtr::new(module.handle.raw());
    let name = name.to_owned();
    Ok(FUNCTIONS
        .insert_with(|handle| Function {
            handle,
            name,
            parameters,
            module,
            price,
            set,
            older: Mutex::default(),
        })?
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

    fn parameters(&self) -> Answer<&[Parameter]> {
        self.parameters.as_deref().ok_or(CUDA_ERROR_NOT_SUPPORTED)
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

fn put_parameter(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize) -> Answer {
    let parameter = of(function)?.parameters()?.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    put_optional(bytes, parameter.bytes);
    put(offset, parameter.offset)
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

    pub fn cuFuncGetParamInfo(
        function: CUfunction,
        index: usize,
        offset: *mut usize,
        bytes: *mut usize,
    ) -> Answer {
        put_parameter(function, index, offset, bytes)
    }

    pub fn cuKernelGetParamInfo(
        kernel: CUkernel,
        index: usize,
        offset: *mut usize,
        bytes: *mut usize,
    ) -> Answer {
        put_parameter(kernel, index, offset, bytes)
    }

    pub fn cuFuncGetParamCount(function: CUfunction, count: *mut usize) -> Answer {
        put(count, of(function)?.parameters()?.len())
    }

    pub fn cuKernelGetParamCount(kernel: CUkernel, count: *mut usize) -> Answer {
        put(count, of(kernel)?.parameters()?.len())
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
}
