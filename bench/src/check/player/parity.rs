//! What the twin computes: copies and fills of device memory of every way to get some, by every way that a stream and a graph have, and
//! what the driver says of the device. Kernels are no part of it: on the simulated GPU they compute nothing.

use std::ffi::{c_int, c_void};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use serde_json::{Map, Value, json};
use weir_abi::types::*;
use weir_abi::{CUresult, fns};

use super::memory::on_device;
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

/// `{"results": {NAME: {"digest", "numbers"}}, "skipped": {}, "failed": {}}`, as `torch_parity.py` has it, after a line that says that it has begun.
pub fn results() -> Result<Value, ClientError> {
    let driver = Driver::open(&["check_nothing"])?;
    super::say(json!({"ready": true}));
    // SAFETY: the driver is open already.
    let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL)? };
    let stream = driver.stream()?;
    let buffers = Buffers::new(&library, stream)?;
    let mut told = Told::default();
    told.tell("fills", || buffers.fills());
    told.tell("copies", || buffers.copies());
    told.tell("graph", || buffers.graph());
    told.tell("ordered", || buffers.ordered());
    told.tell("virtual", || buffers.mapped());
    match attributes(&library) {
        Ok(values) => told.result(
            "attributes",
            &digest(&values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>()),
            &values,
        ),
        Err(why) => told.failure("attributes", &why),
    }
    Ok(json!({"results": told.results, "skipped": {}, "failed": told.failed}))
}

/// What became of each case; one that fails ends no other.
#[derive(Default)]
struct Told {
    results: Map<String, Value>,
    failed: Map<String, Value>,
}

impl Told {
    fn tell(&mut self, name: &str, case: impl FnOnce() -> Result<String, ClientError>) {
        match case() {
            Ok(digest) => self.result(name, &digest, &[]),
            Err(why) => self.failure(name, &why),
        }
    }

    fn result(&mut self, name: &str, digest: &str, numbers: &[c_int]) {
        self.results.insert(name.into(), json!({"digest": digest, "numbers": numbers}));
    }

    fn failure(&mut self, name: &str, why: &ClientError) {
        self.failed.insert(name.into(), why.to_string().into());
    }
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

    /// Memory of the stream's pool, which the next allocation gets again.
    fn ordered(&self) -> Result<String, ClientError> {
        let (mut first, mut second) = (0, 0);
        call!(self.library, cuMemAllocAsync(&raw mut first, BYTES, self.stream));
        self.pattern(first, 3)?;
        call!(self.library, cuMemFreeAsync(first, self.stream));
        call!(self.library, cuMemAllocAsync(&raw mut second, BYTES, self.stream));
        self.pattern(second, 5)?;
        let digest = self.digest(second)?;
        call!(self.library, cuMemFreeAsync(second, self.stream));
        Ok(digest)
    }

    /// Two pieces of physical memory behind each other at one address, of which the first one is taken away and mapped elsewhere, as
    /// allocators do whose segments grow.
    fn mapped(&self) -> Result<String, ClientError> {
        let (mut least, on_device) = (0, on_device());
        call!(self.library, cuMemGetAllocationGranularity(&raw mut least, &raw const on_device, 0));
        let piece = BYTES.next_multiple_of(least.max(1));
        let (mut at, mut handles) = (0, [0; 2]);
        call!(self.library, cuMemAddressReserve(&raw mut at, 3 * piece, 0, 0, 0));
        for (handle, place) in handles.iter_mut().zip([at, at + piece as u64]) {
            call!(self.library, cuMemCreate(&raw mut *handle, piece, &raw const on_device, 0));
            self.map(place, piece, *handle)?;
        }
        self.pattern(at + (piece - BYTES / 2) as u64, 7)?; // across both
        call!(self.library, cuStreamSynchronize(self.stream));
        call!(self.library, cuMemUnmap(at, piece));
        self.map(at + 2 * piece as u64, piece, handles[0])?;
        let halves = [at + (3 * piece - BYTES) as u64, at + piece as u64];
        let digests = halves.map(|half| self.digest(half));
        call!(self.library, cuMemUnmap(at + piece as u64, 2 * piece));
        for handle in handles {
            call!(self.library, cuMemRelease(handle));
        }
        call!(self.library, cuMemAddressFree(at, 3 * piece));
        let [first, second] = digests;
        Ok(format!("{}{}", first?, second?))
    }

    fn map(
        &self,
        at: CUdeviceptr,
        bytes: usize,
        handle: CUmemGenericAllocationHandle,
    ) -> Result<(), ClientError> {
        let location = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
        let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        call!(self.library, cuMemMap(at, bytes, 0, handle, 0));
        call!(self.library, cuMemSetAccess(at, bytes, &raw const access, 1));
        // So that nothing is told of what was there before.
        call!(self.library, cuMemsetD8Async(at, 0, bytes, self.stream));
        Ok(())
    }

    /// Fills a buffer with a word in its first half, and a copy of the other buffer's begin behind that.
    fn pattern(&self, at: CUdeviceptr, word: u32) -> Result<(), ClientError> {
        call!(self.library, cuMemsetD32Async(at, word, BYTES / 8, self.stream));
        call!(self.library, cuMemcpyDtoDAsync_v2(at + (BYTES / 2) as u64, self.two, BYTES / 2, self.stream));
        Ok(())
    }

    /// FNV-1a of what is there once everything is done.
    fn digest(&self, from: CUdeviceptr) -> Result<String, ClientError> {
        let mut bytes = vec![0_u8; BYTES];
        call!(self.library, cuStreamSynchronize(self.stream));
        call!(self.library, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast::<c_void>(), from, BYTES));
        Ok(digest(&bytes))
    }
}

fn digest(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
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
