//! `weir run`: a program within a budget.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::signals::Signals;
use super::standalone::Standalone;
use super::visible::{self, Before, Visible};
use super::{Class, Context, preload, printer, summary};
use crate::codes;
use crate::control::Client;
use crate::control::schema::{CreateTenant, Created};
use crate::fault::Fault;
use crate::latency::Source;
use crate::mps;
use crate::place::name_of_program;
use crate::typed::{bandwidth, share, size};

/// A program that has not loaded the library after this time is not going to.
const LOADING: Duration = Duration::from_secs(2);

/// Looks at what a program has loaded come this often, while it starts.
const LOOK: Duration = Duration::from_millis(20);

#[derive(clap::Args)]
pub(super) struct Args {
    /// The tenant's name [default: the program's, made unique]; the same name and budget join a running tenant
    #[arg(long)]
    name: Option<String>,
    /// GPUs by index or UUID; the budget holds on each. Under CUDA_VISIBLE_DEVICES an index counts what that shows
    #[arg(long, value_delimiter = ',', default_value = "0")]
    gpu: Vec<String>,
    /// How CUDA_VISIBLE_DEVICES tells the program its GPUs
    #[arg(long, value_enum, default_value_t = Visible::Index)]
    visible: Visible,
    /// Share of the GPU's time that is guaranteed, such as 30%; optional for fillers
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    request: Option<String>,
    /// Share that is never exceeded [default: 100%]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    limit: Option<String>,
    /// Memory on each GPU, such as 2GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<String>,
    /// What may be copied between host and device, such as 4GiB/s, on each GPU [default: unlimited]
    #[arg(long, value_name = "BANDWIDTH", allow_hyphen_values = true)]
    copy_limit: Option<String>,
    /// Beyond the memory limit, let plain allocations become managed memory on the host: fillers only, as much again at most
    #[arg(long)]
    oversubscribe: bool,
    /// What the program is to its neighbours
    #[arg(long, value_enum, default_value_t = Class::Primary)]
    class: Class,
    /// What it promises its users, such as 'p95 < 200ms'; with --latency-from
    #[arg(long, value_name = "SLO")]
    slo: Option<String>,
    /// Where its latencies come from: a page of Prometheus text, and a histogram or summary on it; or `hint` and a name
    ///
    /// Such as http://127.0.0.1:8000/metrics vllm:time_to_first_token_seconds. The node manager asks once a second. With
    /// `hint` the program tells each request by that name (weir.h, weir.py).
    #[arg(long, num_args = 2, value_names = ["URL", "METRIC"])]
    latency_from: Option<Vec<String>>,
    /// The library that enforces the budget [default: $WEIR_PRELOAD, else libweir.so beside this program]
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let Some((program, rest)) = args.program.split_first() else {
        let help = "weir run --request 30% --memory 2GiB -- PROGRAM ...";
        return Err(Fault::new(&codes::USAGE, "there is no program to run", help));
    };
    let before = Before::of_environment();
    if before.hides_all() {
        return run_without_gpu(program, rest);
    }
    let gpus = before.meant(&args.gpu)?;
    let wanted = wanted(args, gpus, &program.to_string_lossy())?;
    let library = preload::find(args.preload.as_deref())?;
    // Before any thread starts. The terminal's own interrupt reaches the program by itself.
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT]);
    let (mut client, _standalone) = manager(context)?;
    let created = client.create(wanted).map_err(|fault| before.shown(fault))?;
    if created.simulated {
        printer::talk(format_args!("weir: {}", printer::SIMULATED));
    }
    let started = Instant::now();
    let mut command = Command::new(program);
    command.args(rest).envs(environment(&created, &library)).envs(visible::on_node(&created, args.visible));
    if let Some(mps) = &created.mps {
        mps.check()?;
        command.envs(mps.environment());
        tell_of_mps(mps);
    }
    signals.spare(&mut command);
    let child = command.spawn().map_err(|error| not_started(program, &error))?;
    let status = accompany(child, signals, &library)?;
    summary::print(context, &mut client, &created, started.elapsed());
    Ok(exit_code(status))
}

/// It runs as it would without us: there is nothing that could be limited.
fn run_without_gpu(program: &OsString, rest: &[OsString]) -> Result<u8, Fault> {
    printer::talk("weir: CUDA_VISIBLE_DEVICES shows no GPU: the program starts without a budget");
    let error = Command::new(program).args(rest).exec();
    Err(not_started(program, &error))
}

fn wanted(args: &Args, gpus: Vec<String>, program: &str) -> Result<CreateTenant, Fault> {
    Ok(CreateTenant {
        name: args.name.clone().unwrap_or_else(|| name_of_program(program)),
        unique: args.name.is_none(),
        gpus,
        request_permille: share("--request", args.request.as_deref())?,
        limit_permille: share("--limit", args.limit.as_deref())?,
        memory_bytes: size("--memory", args.memory.as_deref())?,
        copy_limit_bytes_per_s: bandwidth("--copy-limit", args.copy_limit.as_deref())?.unwrap_or(0),
        class: args.class.into(),
        oversubscribe: args.oversubscribe,
        slo: args.slo.clone(),
        latency_from: args.latency_from.as_deref().and_then(source),
    })
}

/// Both values of the flag.
fn source(values: &[String]) -> Option<Source> {
    let [url, metric] = values else { return None };
    Some(Source { url: url.clone(), metric: metric.clone() })
}

/// The daemon of the place; where none is named and none is there, a manager of our own.
fn manager(context: &Context) -> Result<(Client, Option<Standalone>), Fault> {
    let place = context.place()?;
    let Some(absence) = Client::absence(&place).filter(|_| context.dir.is_none()) else {
        return Ok((Client::connect(&place)?, None));
    };
    let standalone = Standalone::start(&place, absence)?;
    Ok((Client::connect(&standalone.place()?)?, Some(standalone)))
}

fn not_started(program: &OsString, error: &std::io::Error) -> Fault {
    let shown = program.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            let help = "check the name, the PATH, and the interpreter in its first line";
            Fault::new(&codes::NOT_FOUND, format!("program `{shown}` was not found"), help)
        }
        _ => {
            let message = format!("program `{shown}` cannot be executed: {error}");
            Fault::new(&codes::NOT_EXECUTABLE, message, format!("chmod +x {shown}, if it is a program"))
        }
    }
}

/// Passes signals on until the program ends.
fn accompany(mut child: Child, signals: Signals, library: &Path) -> Result<ExitStatus, Fault> {
    let pid = child.id();
    let ended = Arc::new(AtomicBool::new(false));
    let (seen, path) = (ended.clone(), library.to_path_buf());
    let verify = move || verify_preload(pid, &path, &seen);
    let _ = std::thread::Builder::new().name("weir-verify".into()).spawn(verify);
    let seen = ended.clone();
    let forward = move || {
        while let Some(signal) = signals.wait(None) {
            if signal.from_process && !seen.load(Ordering::Acquire) {
                pass_on(pid, signal.number);
            }
        }
    };
    let _ = std::thread::Builder::new().name("weir-signals".into()).spawn(forward);
    let failed =
        |error| Fault::system(&codes::SYSTEM, "wait for the program", error, "look whether it still runs");
    // First without reaping, so that no signal can reach a stranger with the same number.
    wait_without_reaping(pid);
    ended.store(true, Ordering::Release);
    child.wait().map_err(failed)
}

fn pass_on(pid: u32, signal: i32) {
    if let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) {
        // SAFETY: `kill` takes numbers only. The child is reaped after `ended` is set, so the number is its own.
        unsafe { libc::kill(pid, signal) };
    }
}

fn wait_without_reaping(pid: u32) {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let _ =
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
}

/// Looks whether the program has loaded the library, and says so if it has not: a static or set-uid program, or
/// one built for another C library, runs without limits.
fn verify_preload(pid: u32, library: &Path, ended: &AtomicBool) {
    let deadline = Instant::now() + LOADING;
    while !ended.load(Ordering::Acquire) {
        match preload::is_mapped(pid, library) {
            Some(true) | None => return,
            Some(false) if Instant::now() < deadline => std::thread::park_timeout(LOOK),
            Some(false) => break,
        }
    }
    if !ended.load(Ordering::Acquire) {
        printer::talk(format_args!(
            "weir: WARNING: process {pid} has not loaded {}: what it does on the GPU is NOT limited\n\
             help: static and set-uid programs cannot be limited this way; `weir doctor` shows which ways are covered",
            library.display()
        ));
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// What is fixed for the program's life, and what it costs to share a GPU this way.
fn tell_of_mps(mps: &mps::Client) {
    let priority = if mps.priority == 0 { "normal" } else { "below normal" };
    printer::talk(format_args!(
        "weir: under MPS, with at most {} % of the SMs, at {priority} priority, as long as it runs; a fatal GPU fault of any \
         program on this GPU is one of all of them",
        mps.active_thread_percentage
    ));
}

/// What makes a program the tenant's.
fn environment(created: &Created, library: &Path) -> [(&'static str, OsString); 2] {
    [("LD_PRELOAD", preload::variable(library)), ("WEIR_DIR", created.dir.clone().into())]
}
