//! What the twin computes: copies and fills of device memory, by every way that a stream and a graph have, and what the driver says
//! of the device. Kernels are no part of it: on the simulated GPU they compute nothing.

use std::ffi::{c_int, c_void};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use serde_json::{Value, json};
use weir_abi::types::*;
use weir_abi::{CUresult, fns};

use crate::client::{ClientError, Driver, check};
use crate::graphs::Graphs;

/// Bytes of each buffer.
const BYTES: usize = 1 << 20;

/// Attributes of a device, by number.
const ATTRIBUTES: std::ops::RangeInclusive<u32> = 1..=120;

macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the symbol is given the type that weir-abi's table has for it.
        let function = unsafe { $driver.get::<fns::$function>(concat!(stringify!($function), "\0").as_bytes()) }?;
        // SAFETY: handles that the driver gave out, and places for answers.
        check(stringify!($function), unsafe { function($($argument),*) })?
    }};
}

/// `{"results": {NAME: [..]}, "skipped": {}}`, after a line that says that it has begun.
pub fn results() -> Result<Value, ClientError> {
    let driver = Driver::open(&["check_nothing"])?;
    super::say(json!({"ready": true}));
    // SAFETY: the driver is open already.
    let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL)? };
    let stream = driver.stream()?;
    let buffers = Buffers::new(&library, stream)?;
    let results = json!({
        "fills": [buffers.fills()?],
        "copies": [buffers.copies()?],
        "graph": [buffers.graph()?],
        "attributes": attributes(&library)?,
    });
    Ok(json!({"results": results, "skipped": {}}))
}

struct Buffers<'a> {
    library: &'a Library,
    stream: CUstream,
    one: CUdeviceptr,
    two: CUdeviceptr,
}

impl<'a> Buffers<'a> {
    fn new(library: &'a Library, stream: CUstream) -> Result<Self, ClientError> {
        let (mut one, mut two) = (0, 0);
        call!(library, cuMemAlloc_v2(&raw mut one, BYTES));
        call!(library, cuMemAlloc_v2(&raw mut two, BYTES));
        Ok(Self { library, stream, one, two })
    }

    fn fills(&self) -> Result<String, ClientError> {
        let quarter = BYTES / 4;
        call!(self.library, cuMemsetD8_v2(self.one, 0x5a, quarter));
        call!(self.library, cuMemsetD16_v2(self.one + quarter as u64, 0x1234, quarter / 2));
        call!(self.library, cuMemsetD32_v2(self.one + 2 * quarter as u64, 0xdead_beef, quarter / 4));
        call!(self.library, cuMemsetD32Async(self.one + 3 * quarter as u64, 7, quarter / 4, self.stream));
        self.digest(self.one)
    }

    fn copies(&self) -> Result<String, ClientError> {
        let source: Vec<u8> = (0..BYTES).map(|n| (n * 31 % 251).to_le_bytes()[0]).collect();
        call!(self.library, cuMemcpyHtoD_v2(self.one, source.as_ptr().cast(), BYTES));
        call!(self.library, cuMemcpyDtoDAsync_v2(self.two, self.one, BYTES / 2, self.stream));
        let rest = (BYTES / 2) as u64;
        call!(
            self.library,
            cuMemcpyDtoDAsync_v2(self.two + rest, self.one + rest / 2, BYTES / 2, self.stream)
        );
        self.digest(self.two)
    }

    /// Three launches of a graph whose copies reach one step further each time.
    fn graph(&self) -> Result<String, ClientError> {
        let (graphs, half) = (Graphs::open()?, BYTES / 2);
        let captured = graphs.capture(self.stream, || {
            call!(self.library, cuMemsetD32Async(self.one, 11, half / 4, self.stream));
            call!(self.library, cuMemcpyDtoDAsync_v2(self.two, self.one + 4096, half, self.stream));
            call!(self.library, cuMemcpyDtoDAsync_v2(self.one + half as u64, self.two, half, self.stream));
            Ok(())
        })?;
        let exec = graphs.instantiate(captured)?;
        for _ in 0..3 {
            call!(self.library, cuGraphLaunch(exec, self.stream));
        }
        self.digest(self.one)
    }

    /// FNV-1a of what is there once everything is done.
    fn digest(&self, from: CUdeviceptr) -> Result<String, ClientError> {
        let mut bytes = vec![0_u8; BYTES];
        call!(self.library, cuStreamSynchronize(self.stream));
        call!(self.library, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast::<c_void>(), from, BYTES));
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Ok(format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)))
    }
}

/// What each attribute of the device is; those that the driver does not know are -1.
fn attributes(library: &Library) -> Result<Vec<c_int>, ClientError> {
    let mut values = Vec::new();
    for number in ATTRIBUTES {
        let mut value: c_int = 0;
        // SAFETY: the symbol has this type; a place for the answer.
        let answer: CUresult = unsafe {
            let ask = library.get::<fns::cuDeviceGetAttribute>(b"cuDeviceGetAttribute\0")?;
            ask(&raw mut value, number, 0)
        };
        values.push(if answer == CUDA_SUCCESS { value } else { -1 });
    }
    Ok(values)
}
