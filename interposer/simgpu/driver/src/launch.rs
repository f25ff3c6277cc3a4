//! Launches: the hot path. A launch is two look-ups without a lock and one command in the ring.

use std::ffi::*;

use weir_abi::types::*;

use crate::api::Driver;
use crate::attributes::{SHARED_PER_BLOCK, THREADS_PER_BLOCK};
use crate::edge::{Answer, get, list};
use crate::function::{self, Function};
use crate::occupancy::blocks_per_sm;
use crate::stream::{self, Stream};
use crate::work::{MemoryOperation, Work};
use crate::{capture, event, host_time, locked, session};

/// A kernel with its grid: what a stream runs and a graph node holds.
#[derive(Clone, Copy)]
pub struct Launch {
    /// What to run.
    pub function: &'static Function,
    /// Blocks in x, y, z.
    pub grid: [c_uint; 3],
    /// Threads of a block in x, y, z.
    pub block: [c_uint; 3],
    /// Dynamic shared memory of a block, bytes.
    pub shared_bytes: c_uint,
    /// The client's arrays of parameters. Kernels compute nothing here, so only a spinning one's is ever read.
    pub params: [*mut *mut c_void; 2],
}

// SAFETY: the parameter pointers are the client's, handed back to it unread.
unsafe impl Send for Launch {}
// SAFETY: as above.
unsafe impl Sync for Launch {}

/// Block shape and shared memory as `cuFuncSetBlockShape` and its kin set them.
#[derive(Clone, Copy)]
pub struct Older {
    block: [c_uint; 3],
    shared_bytes: c_uint,
}

impl Default for Older {
    fn default() -> Self {
        Older { block: [1; 3], shared_bytes: 0 }
    }
}

impl Launch {
    /// Refuses a shape that no device takes.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an empty dimension or more threads or shared memory than a block has.
    #[inline]
    pub fn check(&self) -> Answer {
        let threads = self.threads();
        let empty = threads == 0 || self.blocks() == 0;
        let wide = threads > u64::from(THREADS_PER_BLOCK) || self.shared_bytes > SHARED_PER_BLOCK;
        if empty || wide { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    }

    /// Blocks of the whole grid; the product of three 32-bit numbers can pass 64 bits, so it saturates.
    #[inline]
    pub fn blocks(&self) -> u64 {
        let [x, y, z] = self.grid.map(u64::from);
        (x * y).saturating_mul(z)
    }

    #[inline]
    fn threads(&self) -> u64 {
        let [x, y, z] = self.block.map(u64::from);
        (x * y).saturating_mul(z)
    }

    /// How many of its blocks one SM holds.
    pub fn blocks_per_sm(&self) -> u32 {
        blocks_per_sm(u32::try_from(self.threads()).unwrap_or(0), self.shared_bytes as usize)
    }

    /// Puts it into a stream.
    #[inline]
    pub fn submit(&self, stream: &Stream) -> Answer {
        session::current()?.launch(stream, self).map(drop)
    }

    /// The word that a spinning kernel runs for: its address is the first parameter.
    #[cold]
    fn word(&self) -> Answer<MemoryOperation> {
        let address = self.parameter(0)?;
        Ok(MemoryOperation::Wait { address, value: 1, flags: 0, wide: false })
    }

    /// A parameter of 64 bits.
    fn parameter(&self, place: usize) -> Answer<u64> {
        if self.params[0].is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        get(get(self.params[0].wrapping_add(place).cast_const())?.cast_const().cast())
    }

    /// As what a stream is given or a graph node holds: parameters that mean something here are read now.
    pub fn work(self) -> Answer<Work> {
        if self.function.price.spins() {
            return Ok(Work::Spin(self, self.word()?));
        }
        match self.function.price.sets {
            Some(sets) => Ok(Work::Switch(self, sets.with(|place| self.parameter(place))?)),
            None => Ok(Work::Kernel(self)),
        }
    }

    #[inline]
    fn run(self, stream: CUstream) -> Answer {
        self.check()?;
        if self.function.price.is_special() {
            return stream::enqueue(stream, self.work()?);
        }
        let stream = stream::of(stream)?;
        if capture::any() && capture::take(stream, &Work::Kernel(self))? {
            return Ok(());
        }
        let _takes = host_time::takes(|session| session.config().launch_cpu_ns)?;
        self.submit(stream)
    }
}

fn of_config(config: &CUlaunchConfig, function: CUfunction, params: [*mut *mut c_void; 2]) -> Answer<Launch> {
    Ok(Launch {
        function: function::of(function)?,
        grid: [config.grid_dim_x, config.grid_dim_y, config.grid_dim_z],
        block: [config.block_dim_x, config.block_dim_y, config.block_dim_z],
        shared_bytes: config.shared_mem_bytes,
        params,
    })
}

/// Whether the launch may begin before the one before it has ended.
fn follows_closely(config: &CUlaunchConfig) -> Answer<bool> {
    let mut attributes = list(config.attrs.cast_const(), config.num_attrs as usize)?.iter();
    // SAFETY: the identifier says which member of the union the caller has set.
    let set = |a: &CUlaunchAttribute| unsafe { a.value.programmatic_stream_serialization_allowed } != 0;
    Ok(attributes.any(|a| a.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION && set(a)))
}

/// Events that a launch attribute asks for: both kinds are recorded behind the kernel.
fn record_attributes(config: &CUlaunchConfig) -> Answer {
    for attribute in list(config.attrs.cast_const(), config.num_attrs as usize)? {
        let event = match attribute.id {
            // SAFETY: the identifier says which member of the union the caller has set.
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT => unsafe { attribute.value.programmatic_event.event },
            CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                // SAFETY: as above.
                unsafe { attribute.value.launch_completion_event.event }
            }
            _ => continue,
        };
        event::record_in(stream::of(config.stream)?, event::of(event)?, 0)?;
    }
    Ok(())
}

fn older(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> Answer {
    let function = function::of(function)?;
    let Older { block, shared_bytes } = *locked(&function.older);
    let side = |blocks: c_int| c_uint::try_from(blocks).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let grid = [side(width)?, side(height)?, 1];
    Launch { function, grid, block, shared_bytes, params: [std::ptr::null_mut(); 2] }.run(stream)
}

impl Driver {
    #[inline]
    pub fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Answer {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        Launch { function: function::of(function)?, grid, block, shared_bytes, params: [params, extra] }
            .run(stream)
    }

    pub fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Answer {
        let config = get(config)?;
        if follows_closely(&config)? {
            session::current()?.note_dependent(stream::of(config.stream)?)?;
        }
        of_config(&config, function, [params, extra])?.run(config.stream)?;
        record_attributes(&config)
    }

    pub fn cuLaunchCooperativeKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
    ) -> Answer {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let params = [params, std::ptr::null_mut()];
        let launch = Launch { function: function::of(function)?, grid, block, shared_bytes, params };
        let sms = crate::device::multiprocessors(stream::of(stream)?.context.device)?;
        if launch.blocks() > u64::from(launch.blocks_per_sm()) * u64::from(sms) {
            return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        launch.run(stream)
    }

    pub fn cuLaunchCooperativeKernelMultiDevice(
        launches: *mut CUDA_LAUNCH_PARAMS,
        count: c_uint,
        _flags: c_uint,
    ) -> Answer {
        if count as usize > session::current()?.devices.len() {
            return Err(CUDA_ERROR_INVALID_VALUE); // each launch goes to a device of its own
        }
        for launch in list(launches.cast_const(), count as usize)? {
            let CUDA_LAUNCH_PARAMS { function, shared_mem_bytes, stream, kernel_params, .. } = *launch;
            let [gx, gy, gz] = [launch.grid_dim_x, launch.grid_dim_y, launch.grid_dim_z];
            let [bx, by, bz] = [launch.block_dim_x, launch.block_dim_y, launch.block_dim_z];
            Self::cuLaunchCooperativeKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared_mem_bytes,
                stream,
                kernel_params,
            )?;
        }
        Ok(())
    }

    pub fn cuLaunch(function: CUfunction) -> Answer {
        older(function, 1, 1, std::ptr::null_mut())
    }

    pub fn cuLaunchGrid(function: CUfunction, width: c_int, height: c_int) -> Answer {
        older(function, width, height, std::ptr::null_mut())
    }

    pub fn cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> Answer {
        older(function, width, height, stream)
    }

    pub fn cuFuncSetBlockShape(function: CUfunction, x: c_int, y: c_int, z: c_int) -> Answer {
        let side = |threads: c_int| c_uint::try_from(threads).map_err(|_| CUDA_ERROR_INVALID_VALUE);
        locked(&function::of(function)?.older).block = [side(x)?, side(y)?, side(z)?];
        Ok(())
    }

    pub fn cuFuncSetSharedSize(function: CUfunction, bytes: c_uint) -> Answer {
        locked(&function::of(function)?.older).shared_bytes = bytes;
        Ok(())
    }

    pub fn cuParamSetSize(function: CUfunction, _bytes: c_uint) -> Answer {
        function::of(function).map(drop)
    }

    pub fn cuParamSeti(function: CUfunction, _offset: c_int, _value: c_uint) -> Answer {
        function::of(function).map(drop)
    }

    pub fn cuParamSetf(function: CUfunction, _offset: c_int, _value: c_float) -> Answer {
        function::of(function).map(drop)
    }

    pub fn cuParamSetv(function: CUfunction, _offset: c_int, _value: *mut c_void, _bytes: c_uint) -> Answer {
        function::of(function).map(drop)
    }
}
