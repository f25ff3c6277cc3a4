//! Orders about memory.
//!
//! | order | answer |
//! | --- | --- |
//! | `fill KIND MIB` | `{"pieces", "code"}`: so many pieces of a kind ([`super::kinds`]) until refused, and how; all are given back |
//! | `hold MIB` | `{"code"}`: one piece, filled with a pattern |
//! | `check` | `{"bytes", "ok"}`: whether all that is held is as it was filled |
//! | `free` | `{"bytes"}` |
//! | `copy WAY MIB` | `{"gb_s"}`: `in`, `out` or `within`, the best of five |
//!
//! and those of [`super::budget`].

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use serde_json::{Value, json};
use weir_abi::types::*;

use crate::client::{ClientError, Driver, check};

/// What held memory is filled with.
const PATTERN: u32 = 0x5745_4952;

/// The driver's functions, and what is held.
pub struct Memory {
    pub(super) library: Library,
    pub(super) held: Vec<(CUdeviceptr, usize)>,
    /// Other processes' memory that is open.
    pub(super) imported: Vec<CUdeviceptr>,
}

/// Calls a function of the driver, looked up anew each time; the answer as it is.
macro_rules! ask {
    ($memory:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the symbol is given the type that weir-abi's table has for it.
        let function = unsafe { $memory.library.get::<weir_abi::fns::$function>(concat!(stringify!($function), "\0").as_bytes()) };
        // SAFETY: handles that the driver gave out, and places for answers.
        function.map(|function| unsafe { function($($argument),*) }).map_err(ClientError::from)
    }};
}
pub(super) use ask;

impl Memory {
    /// Opens the driver, which is open already.
    pub fn open() -> Result<Self, ClientError> {
        // SAFETY: its constructors have run.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL)? };
        Ok(Self { library, held: Vec::new(), imported: Vec::new() })
    }

    /// Does what it is told, if it knows what that is.
    pub fn obey(&mut self, driver: &Driver, word: &str, rest: &str) -> Result<Option<Value>, ClientError> {
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        let mib = |text: &str| text.trim().parse::<usize>().map_or(0, |mib| mib << 20);
        Ok(Some(match word {
            "fill" => self.fill(first, mib(second))?,
            "hold" => self.hold(mib(first))?,
            "check" => self.check(driver)?,
            "free" => self.free()?,
            "copy" => json!({"gb_s": self.copy(driver, first, mib(second))?}),
            _ => return self.told(word, rest),
        }))
    }

    /// Two pieces to copy between.
    pub(super) fn two(&self, bytes: usize) -> Result<[CUdeviceptr; 2], ClientError> {
        let mut two = [0; 2];
        for pointer in &mut two {
            check("cuMemAlloc_v2", ask!(self, cuMemAlloc_v2(&raw mut *pointer, bytes))?)?;
        }
        Ok(two)
    }

    /// Copies one piece to the other, behind what is in the stream.
    pub(super) fn copy_within(
        &self,
        [from, to]: [CUdeviceptr; 2],
        bytes: usize,
        stream: CUstream,
    ) -> Result<(), ClientError> {
        let answer = ask!(self, cuMemcpyDtoDAsync_v2(to, from, bytes, stream))?;
        check("cuMemcpyDtoDAsync_v2", answer)
    }

    /// An attribute of the first GPU, by number.
    pub fn attribute(&self, number: u32) -> Result<i32, ClientError> {
        let mut value = 0;
        let answer = ask!(self, cuDeviceGetAttribute(&raw mut value, number, 0))?;
        check("cuDeviceGetAttribute", answer).map(|()| value)
    }

    fn hold(&mut self, bytes: usize) -> Result<Value, ClientError> {
        let mut pointer = 0;
        let result = ask!(self, cuMemAlloc_v2(&raw mut pointer, bytes))?;
        if result == CUDA_SUCCESS {
            check("cuMemsetD32_v2", ask!(self, cuMemsetD32_v2(pointer, PATTERN, bytes / 4))?)?;
            check("cuCtxSynchronize", ask!(self, cuCtxSynchronize())?)?;
            self.held.push((pointer, bytes));
        }
        Ok(json!({"code": result.0}))
    }

    fn check(&self, driver: &Driver) -> Result<Value, ClientError> {
        let (mut ok, mut sum) = (true, 0);
        for (pointer, bytes) in &self.held {
            let mut copy = vec![0_u32; bytes / 4];
            let to = copy.as_mut_ptr().cast();
            check("cuMemcpyDtoH_v2", ask!(self, cuMemcpyDtoH_v2(to, *pointer, *bytes))?)?;
            ok &= copy.iter().all(|word| *word == PATTERN);
            sum += bytes;
        }
        driver.synchronize()?;
        Ok(json!({"bytes": sum, "ok": ok}))
    }

    fn free(&mut self) -> Result<Value, ClientError> {
        let mut sum = 0;
        for (pointer, bytes) in std::mem::take(&mut self.held) {
            check("cuMemFree_v2", ask!(self, cuMemFree_v2(pointer))?)?;
            sum += bytes;
        }
        Ok(json!({"bytes": sum}))
    }

    /// Bytes by the time of the best of five copies; a gigabyte is 10^9 of them.
    fn copy(&self, driver: &Driver, way: &str, bytes: usize) -> Result<f64, ClientError> {
        let (mut device, mut other, mut host) = (0, 0, null_mut::<c_void>());
        check("cuMemAlloc_v2", ask!(self, cuMemAlloc_v2(&raw mut device, bytes))?)?;
        check("cuMemAlloc_v2", ask!(self, cuMemAlloc_v2(&raw mut other, bytes))?)?;
        check("cuMemHostAlloc", ask!(self, cuMemHostAlloc(&raw mut host, bytes, 0))?)?;
        let mut best_s = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            let answer = match way {
                "in" => ask!(self, cuMemcpyHtoD_v2(device, host.cast_const(), bytes))?,
                "out" => ask!(self, cuMemcpyDtoH_v2(host, device, bytes))?,
                _ => ask!(self, cuMemcpyDtoD_v2(other, device, bytes))?,
            };
            check("cuMemcpy", answer)?;
            driver.synchronize()?;
            best_s = best_s.min(start.elapsed().as_secs_f64());
        }
        check("cuMemFreeHost", ask!(self, cuMemFreeHost(host))?)?;
        for pointer in [device, other] {
            check("cuMemFree_v2", ask!(self, cuMemFree_v2(pointer))?)?;
        }
        Ok(bytes as f64 / best_s / 1e9)
    }
}

/// Memory of the first GPU, for nobody else.
pub(super) fn on_device() -> CUmemAllocationProp {
    CUmemAllocationProp {
        kind: CU_MEM_ALLOCATION_TYPE_PINNED,
        requested_handle_types: CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        win32_handle_meta_data: null_mut(),
        compression_type: 0,
        gpu_direct_rdma_capable: 0,
        usage: 0,
        reserved: [0; 4],
    }
}
