//! A process that registers with the node manager when it is told to, as `libweir.so` does at a program's first call of
//! the driver, and is there until it is told to end. A thousand of them cost less than a thousand CUDA programs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::mapping::{Access, Mapped};
use weir_protocol::message::{Hello, PAGES, Reply};
use weir_protocol::pages::{ActivityPage, GrantPage, UsagePage};
use weir_protocol::transport;
use weir_protocol::units::Nanos;

use crate::stage::THIS_PROGRAM;

/// Work of one who is awake comes this often.
const STEP: Duration = Duration::from_millis(1);

/// What a registrant does once it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Life {
    /// Nothing.
    Sleeps,
    /// It counts a launch each millisecond.
    Works,
}

/// Starts one of the tenant whose directory is `place`: it says that it is there with a byte to `tell`, registers with a byte
/// from `gate`, says that with another byte, and ends with the end of `gate`.
pub fn start(place: &Path, life: Life, gate: OwnedFd, tell: OwnedFd) -> io::Result<Child> {
    let life = match life {
        Life::Sleeps => "sleeps",
        Life::Works => "works",
    };
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["registrant", life]).env("WEIR_DIR", place);
    command.stdin(gate).stdout(tell).stderr(Stdio::inherit()).spawn()
}

/// Runs as a registrant: what [`start`] starts.
pub fn run(life: Life) -> ExitCode {
    match live(life) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "registrant: {error}");
            ExitCode::FAILURE
        }
    }
}

fn live(life: Life) -> io::Result<()> {
    let place = std::env::var_os("WEIR_DIR").unwrap_or_default();
    // Not through the library's buffer, which would take the others' bytes too.
    let mut gate = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut byte = [0];
    say(byte)?;
    gate.read_exact(&mut byte)?;
    let (_socket, slot, pages) = register(Path::new(&place))?;
    let gpus = pages.chunks(PAGES).map(Gpu::of).collect::<io::Result<Vec<_>>>()?;
    say(byte)?;
    if life == Life::Works {
        std::thread::spawn(move || work(slot, &gpus));
    }
    // The end of the gate, without a look at the bytes in it: those are the others'.
    let mut end = libc::pollfd { fd: gate.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one descriptor of ours, which outlives the call.
    while unsafe { libc::poll(&raw mut end, 1, -1) } < 1 {}
    Ok(())
}

fn say(byte: [u8; 1]) -> io::Result<()> {
    io::stdout().write_all(&byte)?;
    io::stdout().flush()
}

/// Makes this process one of the tenant's: its connection, its slot, and the pages of each GPU.
pub fn register(place: &Path) -> io::Result<(UnixStream, usize, Vec<OwnedFd>)> {
    let socket = UnixStream::connect(place.join("tenant.sock"))?;
    let hello =
        Hello { protocol: PROTOCOL_VERSION, build: "registrant".into(), driver: "none".into(), slot: None };
    transport::send(&socket, &hello, &[]).map_err(io::Error::other)?;
    let (reply, fds) = transport::receive::<Reply>(&socket).map_err(io::Error::other)?;
    let Reply::Welcome(welcome) = reply else { return Err(io::Error::other(format!("{reply:?}"))) };
    Ok((socket, welcome.slot as usize, fds))
}

/// What it has of the tenant on one GPU.
struct Gpu {
    grant: Mapped<GrantPage>,
    usage: Mapped<UsagePage>,
    activity: Mapped<ActivityPage>,
}

impl Gpu {
    fn of(pages: &[OwnedFd]) -> io::Result<Self> {
        let [grant, _, usage, activity] = pages else { return Err(io::Error::other("not all pages")) };
        Ok(Self {
            grant: Mapped::open(grant, Access::ReadOnly).map_err(io::Error::other)?,
            usage: Mapped::open(usage, Access::ReadWrite).map_err(io::Error::other)?,
            activity: Mapped::open(activity, Access::ReadWrite).map_err(io::Error::other)?,
        })
    }
}

/// Counts a launch on each GPU, again and again: it begins, as the board shows, and is done at once.
fn work(slot: usize, gpus: &[Gpu]) {
    loop {
        for gpu in gpus {
            gpu.activity.begin(slot, Nanos::default);
            if gpu.grant.bell.wants().stir
                && let Some(first) = gpus.first()
            {
                first.usage.stir();
            }
            if let Some(counted) = gpu.usage.slots.get(slot) {
                counted.submitted_ns.fetch_add(100_000, Ordering::Relaxed);
                counted.completed_ns.fetch_add(100_000, Ordering::Relaxed);
            }
            gpu.activity.end(slot);
        }
        std::thread::sleep(STEP); // the pace of its work
    }
}
