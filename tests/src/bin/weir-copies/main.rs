//! A client that copies, sets, launches, waits and pauses as its arguments say, in rounds: for stories that say what each of
//! these must count for.
//!
//! Steps: `launch:NAME`, `graph:NAME` (a graph of [`NODES`] such kernels, captured when the steps are read), `spin` (a kernel that runs until the first word of the buffer is set), `to:SIZE`, `from:SIZE`,
//! `within:SIZE`, `fill:SIZE` (asynchronous, in the first stream; with `@2` behind it in the second), `now-to:SIZE`,
//! `now-from:SIZE`, `now-fill:SIZE` (calls without a stream), `set` (the first word, by an asynchronous copy in the second
//! stream), `wait` (for everything), `pause:MS`.

use std::ffi::{CString, c_void};
use std::io::Write;
use std::process::ExitCode;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use clap::Parser;
use libloading::os::unix::Library;
use weir_abi::CUresult;
use weir_abi::types::*;
use weir_protocol::units::Bytes;
use weir_tests::copies::Done;
use weir_tests::driver;

/// Bytes of the buffers: no step copies more.
const BUFFER: usize = 64 << 20;

/// Kernels of a graph, one behind the other.
const NODES: usize = 5;

/// Bytes of the host's pages.
const PAGE: usize = 4096;

/// Copies, sets, launches, waits and pauses.
#[derive(Parser)]
struct Cli {
    /// Steps that come once, before the clock starts.
    #[arg(long = "first")]
    first: Vec<String>,
    /// Rounds of the steps.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// End after the round in which so many seconds were over.
    #[arg(long)]
    seconds: Option<f64>,
    /// The steps of a round.
    steps: Vec<String>,
}

/// One step.
enum Step {
    Launch(CUfunction),
    Graph(CUgraphExec),
    Spin(CUfunction),
    To(usize, CUstream),
    From(usize, CUstream),
    Within(usize, CUstream),
    Fill(usize, CUstream),
    NowTo(usize),
    NowFrom(usize),
    NowFill(usize),
    Set(CUstream),
    Wait,
    Pause(Duration),
}

/// Calls a driver function, and ends the program where it fails.
macro_rules! call {
    ($client:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let result: CUresult = weir_tests::call!($client, $function($($argument),*));
        assert!(result == CUDA_SUCCESS, "{}: {result:?}", stringify!($function));
    }};
}

/// The driver, and what the steps work on.
struct Client {
    library: Library,
    context: CUcontext,
    streams: [CUstream; 2],
    module: CUmodule,
    device: CUdeviceptr,
    other: CUdeviceptr,
    host: *mut c_void,
    began: Instant,
}

impl Client {
    fn start(kernels: &[String]) -> Result<Self, libloading::Error> {
        let library = driver::open()?;
        let (context, module) = (null_mut(), null_mut());
        let (streams, host, began) = ([null_mut(); 2], null_mut(), Instant::now());
        let mut client = Self { library, context, streams, module, device: 0, other: 0, host, began };
        call!(client, cuInit(0));
        call!(client, cuDevicePrimaryCtxRetain(&raw mut client.context, 0));
        client.began = Instant::now();
        call!(client, cuCtxSetCurrent(client.context));
        for stream in &mut client.streams {
            call!(client, cuStreamCreate(stream, 1)); // CU_STREAM_NON_BLOCKING
        }
        call!(client, cuMemAlloc_v2(&raw mut client.device, BUFFER));
        call!(client, cuMemAlloc_v2(&raw mut client.other, BUFFER));
        call!(client, cuMemHostAlloc(&raw mut client.host, BUFFER, 0));
        let image = driver::image(kernels.iter().map(String::as_str));
        call!(client, cuModuleLoadData(&raw mut client.module, image.as_ptr().cast()));
        // Pages that were never touched would cost the first copies milliseconds of the host: a byte of each, which is
        // next to nothing for the GPU.
        for buffer in [client.device, client.other] {
            call!(client, cuMemsetD2D8_v2(buffer, PAGE, 0, 1, BUFFER / PAGE));
        }
        // SAFETY: as many bytes as were just allocated.
        unsafe { std::ptr::write_bytes(client.host.cast::<u8>(), 1, BUFFER) };
        call!(client, cuCtxSynchronize());
        Ok(client)
    }

    fn function(&self, name: &str) -> CUfunction {
        let (mut function, name) = (null_mut(), CString::new(name).unwrap_or_default());
        call!(self, cuModuleGetFunction(&raw mut function, self.module, name.as_ptr()));
        function
    }

    /// Launches of it, captured.
    fn graph(&self, function: CUfunction) -> CUgraphExec {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        call!(self, cuStreamBeginCapture_v2(self.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
        (0..NODES).for_each(|_| self.launch(function, null_mut()));
        call!(self, cuStreamEndCapture(self.streams[0], &raw mut graph));
        call!(self, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        exec
    }

    fn parse(&self, text: &str) -> Step {
        let (text, stream) = match text.strip_suffix("@2") {
            Some(text) => (text, self.streams[1]),
            None => (text, self.streams[0]),
        };
        let (word, value) = text.split_once(':').unwrap_or((text, ""));
        let size = || usize::try_from(value.parse::<Bytes>().expect("a size").0).expect("a size").min(BUFFER);
        match word {
            "launch" => Step::Launch(self.function(value)),
            "graph" => Step::Graph(self.graph(self.function(value))),
            "spin" => Step::Spin(self.function("spin")),
            "to" => Step::To(size(), stream),
            "from" => Step::From(size(), stream),
            "within" => Step::Within(size(), stream),
            "fill" => Step::Fill(size(), stream),
            "now-to" => Step::NowTo(size()),
            "now-from" => Step::NowFrom(size()),
            "now-fill" => Step::NowFill(size()),
            "set" => Step::Set(self.streams[1]),
            "wait" => Step::Wait,
            "pause" => Step::Pause(Duration::from_secs_f64(value.parse::<f64>().expect("ms") / 1e3)),
            _ => panic!("no such step: {text}"),
        }
    }

    fn launch(&self, function: CUfunction, parameters: *mut *mut c_void) {
        let stream = self.streams[0];
        call!(self, cuLaunchKernel(function, 108, 1, 1, 128, 1, 1, 0, stream, parameters, null_mut()));
    }

    fn step(&self, step: &Step) {
        match *step {
            Step::Launch(function) => self.launch(function, null_mut()),
            Step::Graph(exec) => call!(self, cuGraphLaunch(exec, self.streams[0])),
            Step::Spin(function) => {
                let mut word = self.other;
                self.launch(function, [(&raw mut word).cast()].as_mut_ptr());
            }
            Step::To(bytes, stream) => {
                call!(self, cuMemcpyHtoDAsync_v2(self.device, self.host, bytes, stream))
            }
            Step::From(bytes, stream) => {
                call!(self, cuMemcpyDtoHAsync_v2(self.host, self.device, bytes, stream))
            }
            Step::Within(bytes, stream) => {
                call!(self, cuMemcpyAsync(self.device, self.other, bytes, stream));
            }
            Step::Fill(bytes, stream) => call!(self, cuMemsetD8Async(self.device, 0, bytes, stream)),
            Step::NowTo(bytes) => call!(self, cuMemcpyHtoD_v2(self.device, self.host, bytes)),
            Step::NowFrom(bytes) => call!(self, cuMemcpyDtoH_v2(self.host, self.device, bytes)),
            Step::NowFill(bytes) => call!(self, cuMemsetD8_v2(self.device, 0, bytes)),
            Step::Set(stream) => call!(self, cuMemcpyHtoDAsync_v2(self.other, self.host, 4, stream)),
            Step::Wait => call!(self, cuCtxSynchronize()),
            Step::Pause(time) => std::thread::sleep(time),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let all = || cli.first.iter().chain(&cli.steps);
    let mut kernels: Vec<String> = all()
        .filter_map(|step| step.split_once(':'))
        .filter(|(word, _)| matches!(*word, "launch" | "graph"))
        .map(|(_, name)| name.to_owned())
        .collect();
    kernels.sort_unstable();
    kernels.dedup();
    kernels.push("spin".into());
    let client = match Client::start(&kernels) {
        Ok(client) => client,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "weir-copies: {error}");
            return ExitCode::FAILURE;
        }
    };
    cli.first.iter().for_each(|step| client.step(&client.parse(step)));
    call!(client, cuCtxSynchronize());
    let steps: Vec<_> = cli.steps.iter().map(|step| client.parse(step)).collect();
    let (began, mut rounds) = (Instant::now(), 0);
    let limit = cli.seconds.map_or(Duration::MAX, Duration::from_secs_f64);
    let most = if cli.seconds.is_some() { u64::MAX } else { cli.rounds };
    while rounds < most && began.elapsed() < limit {
        steps.iter().for_each(|step| client.step(step));
        rounds += 1;
    }
    call!(client, cuCtxSynchronize());
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let done = Done {
        pid: i32::try_from(std::process::id()).unwrap_or(0),
        rounds,
        took_ns: ns(began.elapsed()),
        wall_ns: ns(client.began.elapsed()),
    };
    let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(&done).unwrap_or_default());
    ExitCode::SUCCESS
}
