//! The driver's calls that programs make, by `dlsym`, and the two kinds of memory that they watch.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use weir_abi::types::*;
use weir_abi::{CUresult, fns};

use super::generate::KERNELS;
use super::program::Reach;
use crate::client::{ClientError, Driver};
use crate::kernels::{Body, Kernel};

/// What a call answered, with its name if it was an error.
pub type Answer = Result<(), ClientError>;

/// The kernel that spins until the word at its first parameter is set.
pub const SPIN: &str = "live_spin";

/// Another one, that is known as a collective by its name.
pub const COLLECTIVE: &str = "ncclDevKernel_live";

macro_rules! calls {
    ($($field:ident: $symbol:ident),* $(,)?) => {
        /// The functions, looked up once.
        struct Functions {
            $($field: fns::$symbol,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: each symbol is given the type that weir-abi's table has for it.
                unsafe {
                    Ok(Self { $($field: *library.get(concat!(stringify!($symbol), "\0").as_bytes())?,)* })
                }
            }
        }
    };
}

calls! {
    set_current: cuCtxSetCurrent,
    get_current: cuCtxGetCurrent,
    synchronize: cuCtxSynchronize,
    host_alloc: cuMemHostAlloc,
    host_register: cuMemHostRegister_v2,
    alloc: cuMemAlloc_v2,
    free: cuMemFree_v2,
    launch: cuLaunchKernel,
    stream_create: cuStreamCreate,
    stream_destroy: cuStreamDestroy_v2,
    stream_synchronize: cuStreamSynchronize,
    stream_query: cuStreamQuery,
    stream_wait_event: cuStreamWaitEvent,
    wait_value: cuStreamWaitValue32_v2,
    write_value: cuStreamWriteValue32_v2,
    host_function: cuLaunchHostFunc,
    event_create: cuEventCreate,
    event_destroy: cuEventDestroy_v2,
    event_record: cuEventRecord,
    event_query: cuEventQuery,
    event_synchronize: cuEventSynchronize,
    event_handle: cuIpcGetEventHandle,
    open_event: cuIpcOpenEventHandle,
    begin_capture: cuStreamBeginCapture_v2,
    end_capture: cuStreamEndCapture,
    instantiate: cuGraphInstantiateWithFlags,
    graph_launch: cuGraphLaunch,
    graph_destroy: cuGraphDestroy,
    exec_destroy: cuGraphExecDestroy,
}

/// The driver.
pub struct Calls {
    functions: Functions,
    context: usize,
    kernels: Vec<usize>,
    spin: usize,
    meeting: usize, // the one of both that processes meet in
    _library: Library,
}

fn check(call: &'static str, result: CUresult) -> Answer {
    if result == CUDA_SUCCESS { Ok(()) } else { Err(ClientError::Call { call, result }) }
}

/// A question: "not yet" is an answer, too.
fn asked(call: &'static str, result: CUresult) -> Answer {
    if result == CUDA_ERROR_NOT_READY { Ok(()) } else { check(call, result) }
}

fn pointer(number: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(number)
}

/// Calls one of the functions: `call!(functions, free(place))`.
macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),*)) => {{
        let function = $functions.$function;
        // SAFETY: handles come from the driver and live until the program that made them has synchronized; places for
        // answers are the caller's own.
        unsafe { function($($argument),*) }
    }};
}

impl Calls {
    /// Opens the driver; its primary context is current on this thread. Processes may meet in what is known as a collective.
    pub fn open(collective: bool) -> Result<Self, ClientError> {
        let work = KERNELS.iter().map(|(name, time_us, _)| Kernel::work(name, *time_us));
        let spins = [SPIN, COLLECTIVE].map(|name| Kernel { name, body: Body::Spin });
        let all: Vec<_> = work.chain(spins).collect();
        let driver = Driver::open_with(&all)?;
        let found = all.iter().enumerate().map(|(n, kernel)| driver.function(kernel.name, n));
        let mut kernels = found
            .map(|function| function.map(|function| function.expose_provenance()))
            .collect::<Result<Vec<usize>, _>>()?;
        let known = kernels.pop().unwrap_or(0);
        let spin = kernels.pop().unwrap_or(0);
        let meeting = if collective { known } else { spin };
        std::mem::forget(driver); // its module is in use as long as the process lives
        // SAFETY: the driver's constructors do nothing but load it, and it is loaded.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL)? };
        let functions = Functions::find(&library)?;
        let mut context = null_mut();
        check("cuCtxGetCurrent", call!(functions, get_current(&raw mut context)))?;
        Ok(Self {
            functions,
            context: context.expose_provenance(),
            kernels,
            spin,
            meeting,
            _library: library,
        })
    }

    /// Makes the context current on the calling thread.
    pub fn enter(&self) -> Answer {
        check("cuCtxSetCurrent", call!(self.functions, set_current(pointer(self.context))))
    }

    /// Words that the GPU sees; never given back.
    pub fn words(&self, count: usize) -> Result<u64, ClientError> {
        let mut place = null_mut();
        check("cuMemHostAlloc", call!(self.functions, host_alloc(&raw mut place, count * 4, 0)))?;
        Ok(place.expose_provenance() as u64)
    }

    /// Makes memory of the process's own known to the GPU.
    pub fn register(&self, place: *mut c_void, bytes: usize) -> Result<u64, ClientError> {
        check("cuMemHostRegister", call!(self.functions, host_register(place, bytes, 0)))?;
        Ok(place.expose_provenance() as u64)
    }

    /// Launches the kernel of this number.
    pub fn launch(&self, stream: CUstream, kernel: usize) -> Answer {
        self.launch_with(stream, self.kernels[kernel], null_mut())
    }

    /// Launches a kernel that spins until the word is set.
    pub fn spin(&self, stream: CUstream, word: u64) -> Answer {
        self.wait_in(self.spin, stream, word)
    }

    /// The same, in the kernel that processes meet in.
    pub fn meet(&self, stream: CUstream, word: u64) -> Answer {
        self.wait_in(self.meeting, stream, word)
    }

    fn wait_in(&self, function: usize, stream: CUstream, mut word: u64) -> Answer {
        let mut parameters = [(&raw mut word).cast::<c_void>()];
        self.launch_with(stream, function, parameters.as_mut_ptr())
    }

    fn launch_with(&self, stream: CUstream, function: usize, parameters: *mut *mut c_void) -> Answer {
        let function = pointer(function);
        let result =
            call!(self.functions, launch(function, 1, 1, 1, 128, 1, 1, 0, stream, parameters, null_mut()));
        check("cuLaunchKernel", result)
    }

    /// The stream waits until the word is set.
    pub fn wait_value(&self, stream: CUstream, word: u64) -> Answer {
        check("cuStreamWaitValue32", call!(self.functions, wait_value(stream, word, 1, 0)))
    }

    /// The stream sets the word.
    pub fn write_value(&self, stream: CUstream, word: u64) -> Answer {
        check("cuStreamWriteValue32", call!(self.functions, write_value(stream, word, 1, 0)))
    }

    /// The stream calls a function of the host.
    pub fn host_function(
        &self,
        stream: CUstream,
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> Answer {
        check("cuLaunchHostFunc", call!(self.functions, host_function(stream, Some(function), data)))
    }

    /// A new stream.
    pub fn stream(&self, flags: c_uint) -> Result<CUstream, ClientError> {
        let mut stream = null_mut();
        check("cuStreamCreate", call!(self.functions, stream_create(&raw mut stream, flags)))?;
        Ok(stream)
    }

    /// Ends a stream.
    pub fn destroy_stream(&self, stream: CUstream) -> Answer {
        check("cuStreamDestroy", call!(self.functions, stream_destroy(stream)))
    }

    /// Asks whether a stream is drained.
    pub fn query_stream(&self, stream: CUstream) -> Answer {
        asked("cuStreamQuery", call!(self.functions, stream_query(stream)))
    }

    /// Waits for a stream.
    pub fn synchronize_stream(&self, stream: CUstream) -> Answer {
        check("cuStreamSynchronize", call!(self.functions, stream_synchronize(stream)))
    }

    /// Waits for everything.
    pub fn synchronize(&self) -> Answer {
        check("cuCtxSynchronize", call!(self.functions, synchronize()))
    }

    /// A new event.
    pub fn event(&self) -> Result<CUevent, ClientError> {
        let mut event = null_mut();
        check("cuEventCreate", call!(self.functions, event_create(&raw mut event, 0)))?;
        Ok(event)
    }

    /// An event for another process, and the handle by which that opens it.
    pub fn shared_event(&self) -> Result<(CUevent, CUipcEventHandle), ClientError> {
        let (mut event, mut handle) = (null_mut(), CUipcEventHandle { reserved: [0; 64] });
        let flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
        check("cuEventCreate", call!(self.functions, event_create(&raw mut event, flags)))?;
        check("cuIpcGetEventHandle", call!(self.functions, event_handle(&raw mut handle, event)))?;
        Ok((event, handle))
    }

    /// Another process's event.
    pub fn open_event(&self, handle: CUipcEventHandle) -> Result<CUevent, ClientError> {
        let mut event = null_mut();
        check("cuIpcOpenEventHandle", call!(self.functions, open_event(&raw mut event, handle)))?;
        Ok(event)
    }

    /// Ends an event.
    pub fn destroy_event(&self, event: CUevent) -> Answer {
        check("cuEventDestroy", call!(self.functions, event_destroy(event)))
    }

    /// Records an event.
    pub fn record(&self, event: CUevent, stream: CUstream) -> Answer {
        check("cuEventRecord", call!(self.functions, event_record(event, stream)))
    }

    /// The stream waits for an event.
    pub fn wait_event(&self, stream: CUstream, event: CUevent) -> Answer {
        check("cuStreamWaitEvent", call!(self.functions, stream_wait_event(stream, event, 0)))
    }

    /// Asks whether an event was reached.
    pub fn query_event(&self, event: CUevent) -> Answer {
        asked("cuEventQuery", call!(self.functions, event_query(event)))
    }

    /// Waits for an event.
    pub fn synchronize_event(&self, event: CUevent) -> Answer {
        check("cuEventSynchronize", call!(self.functions, event_synchronize(event)))
    }

    /// Takes device memory.
    pub fn allocate(&self) -> Result<CUdeviceptr, ClientError> {
        let mut place = 0;
        check("cuMemAlloc", call!(self.functions, alloc(&raw mut place, 1 << 20)))?;
        Ok(place)
    }

    /// Gives it back; waits for everything, as the driver does.
    pub fn free(&self, place: CUdeviceptr) -> Answer {
        check("cuMemFree", call!(self.functions, free(place)))
    }

    /// Begins a capture.
    pub fn begin_capture(&self, stream: CUstream, reach: Reach) -> Answer {
        let mode = match reach {
            Reach::Global => CU_STREAM_CAPTURE_MODE_GLOBAL,
            Reach::ThreadLocal => CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Reach::Relaxed => CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        check("cuStreamBeginCapture", call!(self.functions, begin_capture(stream, mode)))
    }

    /// Ends a capture and makes the graph executable.
    pub fn end_capture(&self, stream: CUstream) -> Result<CUgraphExec, ClientError> {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        check("cuStreamEndCapture", call!(self.functions, end_capture(stream, &raw mut graph)))?;
        check("cuGraphInstantiate", call!(self.functions, instantiate(&raw mut exec, graph, 0)))?;
        check("cuGraphDestroy", call!(self.functions, graph_destroy(graph)))?;
        Ok(exec)
    }

    /// Launches a graph.
    pub fn launch_graph(&self, stream: CUstream, exec: CUgraphExec) -> Answer {
        check("cuGraphLaunch", call!(self.functions, graph_launch(exec, stream)))
    }

    /// Ends an executable graph.
    pub fn destroy_graph(&self, exec: CUgraphExec) -> Answer {
        check("cuGraphExecDestroy", call!(self.functions, exec_destroy(exec)))
    }
}
