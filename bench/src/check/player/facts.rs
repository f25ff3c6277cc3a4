//! Facts about a driver: what it answers where answers are a matter of choice. The same questions go to the simulated driver and to
//! a real one; each answer is a code, a number or a word, and comes out alike each time. Nothing here takes time as a measure.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use serde_json::{Map, Value, json};
use weir_abi::fns;
use weir_abi::types::*;

use super::work::SPIN;
use crate::client::{ClientError, Driver};
use crate::kernels::{Body, Kernel};

/// The kernel that takes so long that nobody is there before it has ended.
const WORK: &str = "check_5000us";

macro_rules! ask {
    ($facts:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the symbol is given the type that weir-abi's table has for it.
        let found = unsafe { $facts.library.get::<fns::$function>(concat!(stringify!($function), "\0").as_bytes()) };
        match found {
            // SAFETY: handles that the driver gave out, or such as it must refuse; places for answers.
            Ok(function) => unsafe { function($($argument),*) }.0,
            Err(_) => CUDA_ERROR_NOT_FOUND.0,
        }
    }};
}

/// Asks everything.
pub fn all() -> Result<Value, ClientError> {
    let kernels = [Kernel::work(WORK, 5_000.0), Kernel { name: SPIN, body: Body::Spin }];
    let driver = Driver::open_with(&kernels)?;
    // SAFETY: the driver is open already.
    let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL)? };
    let mut facts = Facts { library, driver, found: Map::new() };
    facts.memory();
    facts.handles();
    facts.streams()?;
    facts.events()?;
    facts.captures()?;
    facts.waits()?;
    facts.threads();
    super::say(json!({"ready": true}));
    Ok(Value::Object(facts.found))
}

struct Facts {
    library: Library,
    driver: Driver,
    found: Map<String, Value>,
}

impl Facts {
    fn note(&mut self, fact: &str, value: impl Into<Value>) {
        self.found.insert(fact.to_owned(), value.into());
    }

    fn memory(&mut self) {
        let (mut pointer, mut free, mut total, mut whole) = (0, 0, 0, 0);
        self.note("allocate 0 bytes", ask!(self, cuMemAlloc_v2(&raw mut pointer, 0)));
        self.note("allocate more than there is", ask!(self, cuMemAlloc_v2(&raw mut pointer, 1 << 50)));
        self.note("free nothing", ask!(self, cuMemFree_v2(0)));
        self.note("free what was never allocated", ask!(self, cuMemFree_v2(0x1234_5600)));
        self.note("allocate one byte", ask!(self, cuMemAlloc_v2(&raw mut pointer, 1)));
        self.note("alignment of an allocation is 256 at least", pointer.is_multiple_of(256));
        self.note("free", ask!(self, cuMemFree_v2(pointer)));
        self.note("free twice", ask!(self, cuMemFree_v2(pointer)));
        self.note("ask for free memory", ask!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total)));
        self.note("ask for all memory", ask!(self, cuDeviceTotalMem_v2(&raw mut whole, 0)));
        self.note("all memory is the same by both ways", total == whole);
        self.note("some of it is taken", free < total);
        self.note("free memory falls by what is allocated, in steps of 2 MiB", self.falls(3 << 20));
        let mut range = 0;
        self.note(
            "reserve less than a granularity",
            ask!(self, cuMemAddressReserve(&raw mut range, 4096, 0, 0, 0)),
        );
        let (mut granularity, on_device) = (0, super::memory::on_device());
        ask!(self, cuMemGetAllocationGranularity(&raw mut granularity, &raw const on_device, 0));
        self.note("granularity of physical memory", granularity);
        let mut handle = 0;
        self.note(
            "physical memory of a part of it",
            ask!(self, cuMemCreate(&raw mut handle, 4096, &raw const on_device, 0)),
        );
    }

    /// By how much free memory falls if so much is allocated, in MiB.
    fn falls(&self, bytes: usize) -> u64 {
        let (mut pointer, mut before, mut after, mut total) = (0, 0, 0, 0);
        ask!(self, cuMemGetInfo_v2(&raw mut before, &raw mut total));
        ask!(self, cuMemAlloc_v2(&raw mut pointer, bytes));
        ask!(self, cuMemGetInfo_v2(&raw mut after, &raw mut total));
        ask!(self, cuMemFree_v2(pointer));
        (before.saturating_sub(after) >> 20) as u64
    }

    fn handles(&mut self) {
        let (mut device, mut value, mut module, mut function) = (0, 0, null_mut(), null_mut());
        self.note("a device that is not there", ask!(self, cuDeviceGet(&raw mut device, 99)));
        self.note("a negative device", ask!(self, cuDeviceGet(&raw mut device, -1)));
        let unknown = 100_000;
        self.note(
            "an attribute that is not there",
            ask!(self, cuDeviceGetAttribute(&raw mut value, unknown, 0)),
        );
        self.note(
            "a module of nonsense",
            ask!(self, cuModuleLoadData(&raw mut module, c"nonsense".as_ptr().cast())),
        );
        self.note("initialise again", ask!(self, cuInit(0)));
        self.note("initialise with flags", ask!(self, cuInit(1)));
        let image = crate::kernels::image(&[Kernel::nothing("there")]);
        self.note("a module", ask!(self, cuModuleLoadData(&raw mut module, image.as_ptr().cast())));
        self.note(
            "a function of it",
            ask!(self, cuModuleGetFunction(&raw mut function, module, c"there".as_ptr())),
        );
        let absent = ask!(self, cuModuleGetFunction(&raw mut function, module, c"absent".as_ptr()));
        self.note("a function that it lacks", absent);
        let parameters = null_mut();
        let launch = |blocks: u32, threads: u32| {
            ask!(
                self,
                cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, null_mut(), parameters, null_mut())
            )
        };
        let answers = [launch(1, 1), launch(0, 1), launch(1, 0), launch(1, 2_048)];
        let names =
            ["launch", "launch no block", "launch no thread", "launch more threads than a block may have"];
        for (name, answer) in names.iter().zip(answers) {
            self.note(name, answer);
        }
        self.note("all of it", ask!(self, cuCtxSynchronize()));
    }

    fn streams(&mut self) -> Result<(), ClientError> {
        let stream = self.driver.stream()?;
        let (mut low, mut high) = (0, 0);
        ask!(self, cuCtxGetStreamPriorityRange(&raw mut low, &raw mut high));
        self.note("lowest and highest priority", json!([low, high]));
        self.note("an idle stream is done", ask!(self, cuStreamQuery(stream)));
        let function = self.driver.function(WORK, 0)?;
        self.driver.launch_into(stream, function, 1)?;
        self.note("a busy stream is not", ask!(self, cuStreamQuery(stream)));
        self.note("wait for it", ask!(self, cuStreamSynchronize(stream)));
        let mut flags = 0;
        ask!(self, cuStreamGetFlags(stream, &raw mut flags));
        self.note("flags of a stream that takes no notice of the legacy one", flags);
        let mut made = null_mut();
        self.note("a stream of flags that are none", ask!(self, cuStreamCreate(&raw mut made, 0x40)));
        Ok(())
    }

    fn events(&mut self) -> Result<(), ClientError> {
        let (stream, mut events, mut ms) = (self.driver.stream()?, [null_mut(); 3], 0.0);
        for (event, flags) in events.iter_mut().zip([0, 0, CU_EVENT_DISABLE_TIMING]) {
            ask!(self, cuEventCreate(event, flags));
        }
        let [first, second, untimed] = events;
        self.note("an event that was never put is done", ask!(self, cuEventQuery(first)));
        self.note("time between such", ask!(self, cuEventElapsedTime(&raw mut ms, first, second)));
        ask!(self, cuEventRecord(first, stream));
        let function = self.driver.function(WORK, 0)?;
        self.driver.launch_into(stream, function, 1)?;
        ask!(self, cuEventRecord(second, stream));
        ask!(self, cuEventRecord(untimed, stream));
        self.note("an event behind work is not done", ask!(self, cuEventQuery(second)));
        self.note(
            "time to an event that is not done",
            ask!(self, cuEventElapsedTime(&raw mut ms, first, second)),
        );
        self.note("wait for an event", ask!(self, cuEventSynchronize(untimed)));
        self.note("time between both", ask!(self, cuEventElapsedTime(&raw mut ms, first, second)));
        self.note("it is no less than the work's", ms > 2.0);
        self.note(
            "time to an event without times",
            ask!(self, cuEventElapsedTime(&raw mut ms, first, untimed)),
        );
        Ok(())
    }

    fn captures(&mut self) -> Result<(), ClientError> {
        let (stream, other) = (self.driver.stream()?, self.driver.stream()?);
        let (mut event, mut graph, mut status) = (null_mut(), null_mut(), 0);
        ask!(self, cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING));
        let function = self.driver.function(WORK, 0)?;
        let relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
        self.note("begin a capture", ask!(self, cuStreamBeginCapture_v2(stream, relaxed)));
        self.note("begin it again", ask!(self, cuStreamBeginCapture_v2(stream, relaxed)));
        self.driver.launch_into(stream, function, 1)?;
        self.note("ask a stream that captures whether it is done", ask!(self, cuStreamQuery(stream)));
        // SAFETY: the enumeration is a number of this size.
        let place = (&raw mut status).cast();
        self.note("whether it still captures", ask!(self, cuStreamIsCapturing(stream, place)));
        self.note("how it captures", status);
        self.note("end what was broken", ask!(self, cuStreamEndCapture(stream, &raw mut graph)));
        self.note("end what never began", ask!(self, cuStreamEndCapture(stream, &raw mut graph)));
        ask!(self, cuStreamBeginCapture_v2(stream, relaxed));
        ask!(self, cuEventRecord(event, stream));
        self.note("another stream joins by an event", ask!(self, cuStreamWaitEvent(other, event, 0)));
        self.driver.launch_into(other, function, 1)?;
        self.note("end without joining back", ask!(self, cuStreamEndCapture(stream, &raw mut graph)));
        ask!(self, cuStreamEndCapture(other, &raw mut graph));
        self.empty_graph(stream);
        Ok(())
    }

    fn empty_graph(&mut self, stream: CUstream) {
        let (mut graph, mut exec, mut count) = (null_mut(), null_mut(), 0);
        ask!(self, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        self.note("a capture of nothing", ask!(self, cuStreamEndCapture(stream, &raw mut graph)));
        self.note("is a graph", !graph.is_null());
        self.note("its nodes", ask!(self, cuGraphGetNodes(graph, null_mut(), &raw mut count)));
        self.note("how many they are", count);
        self.note("make it executable", ask!(self, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)));
        self.note("launch it", ask!(self, cuGraphLaunch(exec, stream)));
        self.note("wait for it all", ask!(self, cuStreamSynchronize(stream)));
        self.note("destroy it", ask!(self, cuGraphExecDestroy(exec)));
    }

    /// Words that streams wait for and write.
    fn waits(&mut self) -> Result<(), ClientError> {
        let (stream, mut word) = (self.driver.stream()?, null_mut::<c_void>());
        self.note("pinned memory", ask!(self, cuMemHostAlloc(&raw mut word, 4096, 0)));
        let address = word.expose_provenance() as u64;
        // SAFETY: a page of the driver's, as long as this process lives.
        unsafe { word.cast::<u32>().write_volatile(0) };
        self.note("a stream waits for a word", ask!(self, cuStreamWaitValue32_v2(stream, address, 1, 0)));
        self.note("and is not done", ask!(self, cuStreamQuery(stream)));
        let other = self.driver.stream()?;
        self.note("another one writes it", ask!(self, cuStreamWriteValue32_v2(other, address, 1, 0)));
        self.note("then the first is done", ask!(self, cuStreamSynchronize(stream)));
        // SAFETY: as above.
        self.note("the host sees the word", unsafe { word.cast::<u32>().read_volatile() });
        let (spin, mut parameter) = (self.driver.function(SPIN, 1)?, address);
        // SAFETY: as above: a kernel looks at it from now on.
        unsafe { word.cast::<u32>().write_volatile(0) };
        let mut parameters = [(&raw mut parameter).cast::<c_void>()];
        let place = parameters.as_mut_ptr();
        let launched = ask!(self, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, place, null_mut()));
        self.note("a kernel spins for a word", launched);
        self.note("while it spins its stream is not done", ask!(self, cuStreamQuery(stream)));
        // SAFETY: as above.
        unsafe { word.cast::<u32>().write_volatile(1) };
        self.note("the host sets it, and it ends", ask!(self, cuStreamSynchronize(stream)));
        Ok(())
    }

    /// A thread that has no context.
    fn threads(&mut self) {
        let answers = std::thread::scope(|scope| {
            let library = &self.library;
            let there = scope.spawn(move || {
                let facts = Borrowed { library };
                let (mut context, mut pointer) = (null_mut(), 0);
                let current = ask!(facts, cuCtxGetCurrent(&raw mut context));
                let none = context.is_null();
                let allocated = ask!(facts, cuMemAlloc_v2(&raw mut pointer, 1 << 20));
                let flags = ask!(facts, cuCtxSynchronize());
                (current, none, allocated, flags)
            });
            there.join().unwrap_or((u32::MAX, false, u32::MAX, u32::MAX))
        });
        self.note("ask for the context in a new thread", answers.0);
        self.note("there is none", answers.1);
        self.note("allocate there", answers.2);
        self.note("synchronize there", answers.3);
        let mut count: c_int = 0;
        self.note("count the devices", ask!(self, cuDeviceGetCount(&raw mut count)));
        self.note("ask for a function that is not there", self.address_of_nothing());
    }

    fn address_of_nothing(&self) -> u32 {
        let (mut address, mut status) = (null_mut(), 0_u32);
        let status = (&raw mut status).cast();
        ask!(self, cuGetProcAddress_v2(c"cuNoSuchFunction".as_ptr(), &raw mut address, 12_000, 0, status))
    }
}

struct Borrowed<'a> {
    library: &'a Library,
}
