//! Attaching: once per process, at the first `cuInit`, the first NVML query that we answer, or the first latency that a
//! program tells.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::mapping::{Access, MapError, Mapped};
use weir_protocol::message::{FailMode, Hello, PAGES, Reply, Welcome};
use weir_protocol::pages::PROCESS_SLOTS;
use weir_protocol::transport::{self, TransportError};

use super::client::{Client, Papers};
use super::connection::{self, Connection, has_ended};
use super::gpu::{Gpu, TenantPages};
use super::local;
use super::stale;
use crate::say::Once;

/// Where the tenant's socket is if nobody says otherwise: what a container gets mounted.
const DEFAULT_DIR: &str = "/run/weir/tenant";

/// The tenant's socket in its directory.
pub(super) const SOCKET: &str = "tenant.sock";

/// Longest that a program's start may wait for a manager.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a process runs without its budget.
#[derive(Debug)]
enum Unattached {
    /// Nobody listens.
    NoManager(io::Error),
    /// The conversation broke off.
    Broken(TransportError),
    /// The manager said no.
    Refused(String),
    /// What came is not what this build understands.
    Unfit(String),
}

/// The process that has tried to attach; a forked child is another one, and may try for itself.
static DONE_BY: AtomicU32 = AtomicU32::new(0);

/// The process that is attaching, or has. A parent's number is no owner here: what it was doing, the child is not.
static TURN: AtomicU32 = AtomicU32::new(0);

/// The process may not have the GPU. Judged once: a program may tell latencies for as long as it likes, and others of its
/// threads change the environment meanwhile.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Attaches if nobody in this process has yet, and says whether the program may have the GPU. Only a strict tenant that
/// could not be attached may not; every other one then keeps to the limits of its launch file, or has none, and hears which.
pub fn attach() -> bool {
    let me = std::process::id();
    while DONE_BY.load(Ordering::Acquire) != me {
        let owner = TURN.load(Ordering::Relaxed);
        // Acquire and Release pair with each other and with `DONE_BY`: whoever comes second finds the first one's client.
        let mine =
            owner != me && TURN.compare_exchange(owner, me, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !mine {
            std::thread::yield_now();
            continue;
        }
        let place = place();
        match enter(&place, PATIENCE) {
            Ok(client) => client.install(),
            Err(reason) => do_without(&place, &reason),
        }
        REFUSED.store(is_refused(&place), Ordering::Relaxed);
        DONE_BY.store(me, Ordering::Release);
    }
    !REFUSED.load(Ordering::Relaxed)
}

fn is_refused(place: &Path) -> bool {
    Client::get().is_none() && is_strict(place)
}

/// What follows from a fault of ours while attaching: as if nobody had answered.
pub fn fault() -> bool {
    static SAY: Once = Once::new();
    let place = place();
    SAY.say(|| {
        let consequence = consequence(&place);
        let pid = std::process::id();
        format!("process {pid} {consequence}: a fault in libweir.so. help: please report it")
    });
    REFUSED.store(is_refused(&place), Ordering::Relaxed);
    DONE_BY.store(std::process::id(), Ordering::Release);
    !is_strict(&place)
}

/// What it means for the program that it is not attached.
fn consequence(place: &Path) -> &'static str {
    if is_strict(place) { "gets no GPU (strict mode)" } else { "runs WITHOUT limits" }
}

fn place() -> PathBuf {
    std::env::var_os("WEIR_DIR").map_or_else(|| PathBuf::from(DEFAULT_DIR), PathBuf::from)
}

/// The manager leaves this file beside the socket of a strict tenant: its absence cannot be forged by the tenant,
/// to whom the directory is not writable.
fn is_strict(place: &Path) -> bool {
    mark(place).exists()
}

fn mark(place: &Path) -> PathBuf {
    place.join("strict")
}

/// Waits for a manager that restarts, be it before we speak to it or in the middle; for so long in all.
fn enter(place: &Path, patience: Duration) -> Result<Client, Unattached> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        match connect_to(place).and_then(|stream| converse(place, stream, left)) {
            // A directory without a listener, or with one that does not get round to us: the manager restarts. No directory:
            // there is none to wait for.
            Err(
                Unattached::NoManager(_)
                | Unattached::Broken(TransportError::Closed | TransportError::TimedOut),
            ) if begun.elapsed() < patience && place.is_dir() => {
                std::thread::sleep(pause.min(patience.saturating_sub(begun.elapsed())));
                pause *= 2;
            }
            done => return done,
        }
    }
}

fn connect_to(place: &Path) -> Result<UnixStream, Unattached> {
    let connected = connection::connect(&place.join(SOCKET)).map(UnixStream::from);
    match connected {
        Ok(stream) => stream.set_nonblocking(false).map_err(Unattached::NoManager).map(|()| stream),
        Err(rustix::io::Errno::AGAIN) => Err(Unattached::Broken(TransportError::TimedOut)), // its backlog is full
        Err(error) => Err(Unattached::NoManager(error.into())),
    }
}

/// Each answer may take as long as there is `left`.
fn converse(place: &Path, stream: UnixStream, left: Duration) -> Result<Client, Unattached> {
    let left = Some(left.max(Duration::from_millis(1))); // zero would be for ever
    let timeouts = stream.set_read_timeout(left).and(stream.set_write_timeout(left));
    timeouts.map_err(Unattached::NoManager)?;
    let hello = Hello {
        protocol: PROTOCOL_VERSION,
        build: env!("CARGO_PKG_VERSION").into(),
        driver: "libcuda.so.1".into(),
        slot: None,
    };
    transport::send(stream.as_fd(), &hello, &[]).map_err(Unattached::Broken)?;
    let (reply, fds) = transport::receive::<Reply>(stream.as_fd()).map_err(Unattached::Broken)?;
    match reply {
        Reply::Refused { reason } => Err(Unattached::Refused(reason)),
        Reply::Welcome(welcome) => settle_in(place, welcome, fds, stream),
        Reply::Rejoined => Err(Unattached::Unfit("the node manager takes this process for another".into())),
    }
}

fn settle_in(
    place: &Path,
    welcome: Welcome,
    fds: Vec<OwnedFd>,
    stream: UnixStream,
) -> Result<Client, Unattached> {
    let pages = pages_of(&welcome, &fds).map_err(Unattached::Unfit)?;
    let slot = welcome.slot as usize;
    let granted = welcome.gpus.iter().zip(pages).enumerate();
    let gpus = granted.map(|(index, (granted, pages))| Gpu::new(index, granted, slot, pages)).collect();
    // A manager that has died by now may have been followed by one that did not find the pages here yet, and made others.
    // One that dies from here on has its pages found.
    if has_ended(stream.as_fd()) {
        return Err(Unattached::Broken(TransportError::Closed));
    }
    stale::expect((welcome.mode == FailMode::Strict).then(|| mark(place)).as_deref());
    let connection = Connection::new(stream, place.join(SOCKET), welcome.slot);
    Ok(Client::new(welcome, gpus, Papers { connection, pages: fds }))
}

/// The pages that have come with a welcome, mapped, for each GPU.
///
/// # Errors
/// They are not what this build understands.
pub(super) fn pages_of(welcome: &Welcome, fds: &[OwnedFd]) -> Result<Vec<TenantPages>, String> {
    if welcome.protocol != PROTOCOL_VERSION {
        let ours = PROTOCOL_VERSION;
        return Err(format!(
            "the node manager speaks protocol {}, this libweir.so speaks {ours}: update the older of the two",
            welcome.protocol
        ));
    }
    let (slot, gpus) = (welcome.slot as usize, welcome.gpus.len());
    if slot >= PROCESS_SLOTS || fds.len() != gpus * PAGES {
        return Err(format!("slot {slot} and {} pages for {gpus} GPUs", fds.len()));
    }
    let pages = fds.chunks_exact(PAGES).map(|four| match four {
        [grant, bucket, usage, activity] => Ok(TenantPages {
            grant: Mapped::open(grant, Access::ReadOnly)?,
            bucket: Mapped::open(bucket, Access::ReadWrite)?,
            usage: Mapped::open(usage, Access::ReadWrite)?,
            activity: Mapped::open(activity, Access::ReadWrite)?,
        }),
        _ => unreachable_chunk(),
    });
    pages.collect::<Result<_, _>>().map_err(|error: MapError| error.to_string())
}

/// `chunks_exact(4)` yields fours; an error in place of a panic all the same.
fn unreachable_chunk<T>() -> Result<T, MapError> {
    let (got, needed) = (0, PAGES);
    Err(weir_protocol::pages::PageError::TooSmall { got, needed }.into())
}

/// What follows for a program that has not been let in: in strict mode no GPU, else the limits of the launch file, and none if
/// there is none. It hears which.
fn do_without(place: &Path, reason: &Unattached) {
    if is_strict(place) {
        return say(place, reason, consequence(place));
    }
    let own = local::read(place).and_then(|launch| {
        let Some(launch) = launch else { return Ok(None) };
        let limits = local::told(&launch);
        Ok(Some((local::client(place, launch).map_err(|error| error.to_string())?, limits)))
    });
    match own {
        Ok(None) => say(place, reason, consequence(place)),
        Err(flaw) => say(place, reason, &format!("{} ({flaw})", consequence(place))),
        Ok(Some((client, limits))) => {
            client.install();
            say(place, reason, &limits);
        }
    }
}

fn say(place: &Path, reason: &Unattached, consequence: &str) {
    static SAY: Once = Once::new();
    SAY.say(|| {
        let (what, help) = match reason {
            Unattached::NoManager(error) => (
                format!("no node manager at `{}`: {error}", place.join(SOCKET).display()),
                "start programs with `weir run`, and `weir node` again if it has ended",
            ),
            Unattached::Broken(error) => {
                (format!("the node manager did not answer: {error}"), "look at `weir ps`")
            }
            Unattached::Refused(reason) => {
                (format!("the node manager refused: {reason}"), "look at `weir ps`")
            }
            Unattached::Unfit(what) => (what.clone(), "install `weir` and `libweir.so` of one version"),
        };
        format!("process {} {consequence}: {what}. help: {help}", std::process::id())
    });
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_manager_that_accepts_nobody_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _queue: Vec<_> = std::iter::from_fn(|| connect_to(dir.path()).ok()).collect();
        let (place, (send, answer)) = (dir.path().to_owned(), mpsc::channel());
        std::thread::spawn(move || send.send(enter(&place, Duration::from_millis(50)).err()));
        let answer = answer.recv_timeout(PATIENCE).expect("an end to its patience");
        assert!(matches!(answer, Some(Unattached::Broken(TransportError::TimedOut))), "{answer:?}");
    }

    #[test]
    fn a_manager_that_does_not_speak_is_waited_for_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        let begun = Instant::now();
        let answer = enter(dir.path(), Duration::from_millis(50)).err();
        assert!(matches!(answer, Some(Unattached::Broken(TransportError::TimedOut))), "{answer:?}");
        assert!(begun.elapsed() < PATIENCE);
    }
}
