//! Attaching: once per process, at the first `cuInit` (or the first NVML query that we answer).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_core::lock::Lock;
use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::mapping::{Access, Mapped};
use weir_protocol::message::{Hello, Reply, Welcome};
use weir_protocol::pages::PROCESS_SLOTS;
use weir_protocol::transport::{self, TransportError};

use super::client::Client;
use super::gpu::Gpu;
use crate::say::Once;

/// Where the tenant's socket is if nobody says otherwise: what a container gets mounted.
const DEFAULT_DIR: &str = "/run/weir/tenant";

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

/// Attaches if nobody has yet, and says whether the program may have the GPU. Only a strict tenant that could not
/// be attached may not; every other one then runs without limits, and hears so.
pub fn attach() -> bool {
    static TRIED: AtomicBool = AtomicBool::new(false);
    static TURN: Lock<()> = Lock::new(());
    let place = place();
    let outcome = || Client::get().is_some() || !is_strict(&place);
    if TRIED.load(Ordering::Acquire) {
        return outcome();
    }
    let _turn = TURN.lock(); // whoever comes second waits for the first one's answer
    if !TRIED.load(Ordering::Acquire) {
        match connect(&place).and_then(converse) {
            Ok(client) => client.install(),
            Err(reason) => say_unattached(&place, &reason),
        }
        TRIED.store(true, Ordering::Release);
    }
    outcome()
}

fn place() -> PathBuf {
    std::env::var_os("WEIR_DIR").map_or_else(|| PathBuf::from(DEFAULT_DIR), PathBuf::from)
}

/// The manager leaves this file beside the socket of a strict tenant: its absence cannot be forged by the tenant,
/// to whom the directory is not writable.
fn is_strict(place: &Path) -> bool {
    place.join("strict").exists()
}

fn connect(place: &Path) -> Result<UnixStream, Unattached> {
    let socket = place.join("tenant.sock");
    let mut waited = Duration::ZERO;
    let mut pause = Duration::from_millis(10);
    loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => return Ok(stream),
            // A directory without a listener: the manager restarts. No directory: there is none to wait for.
            Err(error) if waited < PATIENCE && error.kind() == io::ErrorKind::ConnectionRefused => {
                std::thread::sleep(pause);
                waited += pause;
                pause *= 2;
            }
            Err(error) => return Err(Unattached::NoManager(error)),
        }
    }
}

fn converse(stream: UnixStream) -> Result<Client, Unattached> {
    let timeouts = stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
    timeouts.map_err(Unattached::NoManager)?;
    let hello = Hello {
        protocol: PROTOCOL_VERSION,
        build: env!("CARGO_PKG_VERSION").into(),
        driver: "libcuda.so.1".into(),
    };
    transport::send(stream.as_fd(), &hello, &[]).map_err(Unattached::Broken)?;
    let (reply, fds) = transport::receive::<Reply>(stream.as_fd()).map_err(Unattached::Broken)?;
    match reply {
        Reply::Refused { reason } => Err(Unattached::Refused(reason)),
        Reply::Welcome(welcome) => settle_in(welcome, fds, stream),
    }
}

fn settle_in(welcome: Welcome, fds: Vec<OwnedFd>, stream: UnixStream) -> Result<Client, Unattached> {
    let unfit = |what: String| Unattached::Unfit(what);
    if welcome.protocol != PROTOCOL_VERSION {
        let ours = PROTOCOL_VERSION;
        return Err(unfit(format!(
            "the node manager speaks protocol {}, this libweir.so speaks {ours}: update the older of the two",
            welcome.protocol
        )));
    }
    let slot = welcome.slot as usize;
    if slot >= PROCESS_SLOTS || fds.len() != welcome.gpus.len() * 3 {
        return Err(unfit(format!("slot {slot} and {} pages for {} GPUs", fds.len(), welcome.gpus.len())));
    }
    let pages = fds.chunks_exact(3).map(|three| match three {
        [grant, bucket, usage] => Ok((
            Mapped::open(grant, Access::ReadOnly)?,
            Mapped::open(bucket, Access::ReadWrite)?,
            Mapped::open(usage, Access::ReadWrite)?,
        )),
        _ => unreachable_chunk(),
    });
    let mut gpus = Vec::with_capacity(welcome.gpus.len());
    for (index, (granted, pages)) in welcome.gpus.iter().zip(pages).enumerate() {
        gpus.push(Gpu::new(index, granted.uuid, slot, pages.map_err(|error| unfit(error.to_string()))?));
    }
    Ok(Client::new(welcome.tenant, gpus, welcome.prices, stream))
}

/// `chunks_exact(3)` yields threes; an error in place of a panic all the same.
fn unreachable_chunk<T>() -> Result<T, weir_protocol::mapping::MapError> {
    let (got, needed) = (0, 3);
    Err(weir_protocol::pages::PageError::TooSmall { got, needed }.into())
}

fn say_unattached(place: &Path, reason: &Unattached) {
    static SAY: Once = Once::new();
    SAY.say(|| {
        let consequence = if is_strict(place) { "gets no GPU (strict mode)" } else { "runs WITHOUT limits" };
        let (what, help) = match reason {
            Unattached::NoManager(error) => (
                format!("no node manager at `{}`: {error}", place.join("tenant.sock").display()),
                "start programs with `weir run`",
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
