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
use weir_protocol::pages::UsagePage;
use weir_protocol::transport;

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

/// Starts one of the tenant whose directory is `place`: it begins with a byte from `gate`, says so with a byte to `tell`
/// when it is registered, and ends with the end of `gate`.
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
    gate.read_exact(&mut byte)?;
    let (_socket, slot, pages) = register(Path::new(&place))?;
    let usage = pages.chunks(PAGES).filter_map(|page| page.get(2));
    let usage = usage.map(|usage| Mapped::open(usage, Access::ReadWrite).map_err(io::Error::other));
    let usage: Vec<Mapped<UsagePage>> = usage.collect::<Result<_, _>>()?;
    io::stdout().write_all(&byte)?;
    io::stdout().flush()?;
    if life == Life::Works {
        std::thread::spawn(move || work(slot, &usage));
    }
    // The end of the gate, without a look at the bytes in it: those are the others'.
    let mut end = libc::pollfd { fd: gate.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one descriptor of ours, which outlives the call.
    while unsafe { libc::poll(&raw mut end, 1, -1) } < 1 {}
    Ok(())
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

/// Counts a launch on each GPU, again and again.
fn work(slot: usize, pages: &[Mapped<UsagePage>]) {
    loop {
        for slot in pages.iter().filter_map(|page| page.slots.get(slot)) {
            slot.submitted_ns.fetch_add(100_000, Ordering::Relaxed);
            slot.completed_ns.fetch_add(100_000, Ordering::Relaxed);
        }
        std::thread::sleep(STEP); // the pace of its work
    }
}
