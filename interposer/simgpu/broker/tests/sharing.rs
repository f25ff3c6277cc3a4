//! Real broker, real clients over the socket and the page: sharing, death, hostile pages.
#![allow(clippy::unwrap_used, reason = "a test: its helpers fail by panicking, too")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_simgpu_link::books::Books;
use weir_simgpu_link::{Kernel, Kind, Refusal, Session, SessionError, StreamKind, Work, place, socket};

/// Events are waited for this long at most.
const PATIENCE: Duration = Duration::from_secs(20);
/// In the environment of a child that is the client: the directory of its broker.
const VICTIM: &str = "WEIR_SIMGPU_TEST_VICTIM";

/// A broker of one test's own; killed when dropped.
struct Broker {
    process: Child,
    dir: TempDir,
}

impl Broker {
    fn start(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-simgpu"));
        command.args(["broker", "--foreground", "--dir"]).arg(dir.path()).arg("--config").arg(file);
        let process = command.spawn().unwrap();
        let broker = Self { process, dir };
        until(|| socket::connect(&broker.dir.path().join(place::SOCKET)).is_ok());
        broker
    }

    fn client(&self) -> Session {
        connect(self.dir.path())
    }

    fn books(&self) -> Books {
        let socket = socket::connect(&self.dir.path().join(place::SOCKET)).unwrap();
        Session::over(socket, Kind::Observer).unwrap().books().unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have left already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn connect(dir: &Path) -> Session {
    Session::over(socket::connect(&dir.join(place::SOCKET)).unwrap(), Kind::Cuda).unwrap()
}

fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it did not happen within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn kernel(solo_ns: u64) -> Work {
    Work::Kernel(Kernel { solo_ns, blocks: 108, bandwidth_permille: 0, spins: false })
}

/// A client with a stream.
fn stream(session: &Session) -> u32 {
    let context = session.create_context(0).unwrap();
    session.open_stream(context, StreamKind::Blocking, 0).unwrap()
}

#[test]
fn a_kernel_takes_its_time_and_its_events_say_so() {
    let broker = Broker::start("");
    let session = broker.client();
    let stream = stream(&session);
    session.push(stream, kernel(1_000_000)).unwrap();
    let first = session.push_record(stream, 0).unwrap();
    session.push(stream, kernel(3_000_000)).unwrap();
    let second = session.push_record(stream, 1).unwrap();
    session.wait_event(1, second).unwrap();
    let span = session.event_stamp(1, second).unwrap() - session.event_stamp(0, first).unwrap();
    assert_eq!(span, 3_000_000, "the broker's own delays do not show");
}

#[test]
fn two_clients_share_by_slices_and_the_books_add_up() {
    let broker = Broker::start("");
    let sessions = [broker.client(), broker.client()];
    let streams = sessions.each_ref().map(stream);
    let mut last = sessions.each_ref().map(|session| (session, 0));
    for _ in 0..200 {
        for (place, session) in sessions.iter().enumerate() {
            last[place].1 = session.push(streams[place], kernel(1_000_000)).unwrap();
        }
    }
    for (place, (session, sequence)) in last.into_iter().enumerate() {
        session.wait_completed(streams[place], sequence).unwrap();
    }
    let gpu = broker.books().gpus.remove(0);
    let used: Vec<u64> =
        gpu.clients.iter().flat_map(|client| &client.contexts).map(|c| c.true_use_ns).collect();
    assert_eq!(used, [200_000_000, 200_000_000]);
    assert_eq!(gpu.busy_ns, 400_000_000);
    assert!(gpu.switch_ns >= 190 * 100_000, "each slice of 2 ms is followed by a switch: {}", gpu.switch_ns);
}

#[test]
fn memory_is_enforced_across_clients() {
    let broker = Broker::start("memory = \"1GiB\"\ncontext_overhead = \"1MiB\"\n");
    let (first, second) = (broker.client(), broker.client());
    first.reserve(0, 600 << 20).unwrap();
    let refused = second.reserve(0, 600 << 20);
    assert!(matches!(refused, Err(SessionError::Refused(Refusal::OutOfMemory))));
    first.release(0, 600 << 20).unwrap();
    second.reserve(0, 600 << 20).unwrap();
    assert!(matches!(first.release(0, 1), Err(SessionError::Refused(Refusal::NotHeld))));
}

#[test]
fn the_launcher_waits_when_the_queue_is_full() {
    let broker = Broker::start("queue_depth = 4\n");
    let session = broker.client();
    let stream = stream(&session);
    for expected in 1..=40 {
        assert_eq!(session.push(stream, kernel(100_000)).unwrap(), expected);
        assert!(expected - session.completed(stream).unwrap() <= 4);
    }
}

#[test]
fn a_host_function_holds_its_stream_until_it_is_resumed() {
    let broker = Broker::start("");
    let session = broker.client();
    let stream = stream(&session);
    let host = session.push(stream, Work::Host).unwrap();
    let after = session.push(stream, kernel(1_000)).unwrap();
    session.resume(stream, host).unwrap();
    session.wait_completed(stream, after).unwrap();
}

/// Not a story of its own: what the child of the next one does.
#[test]
fn victim() {
    let Some(dir) = std::env::var_os(VICTIM) else { return };
    let session = connect(Path::new(&dir));
    let stream = stream(&session);
    session.reserve(0, 1 << 30).unwrap();
    session.page().unwrap().calls[0].store(7, Ordering::Relaxed);
    let spin = Kernel { solo_ns: 0, blocks: 108, bandwidth_permille: 0, spins: true };
    session.push(stream, Work::Kernel(spin)).unwrap();
    session.wait_completed(stream, 1).unwrap();
}

#[test]
fn a_killed_client_gives_back_its_memory_and_the_gpu_and_stays_in_the_books() {
    let broker = Broker::start("");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "victim"]).env(VICTIM, broker.dir.path()).stdout(Stdio::null());
    let mut victim = command.spawn().unwrap();
    until(|| broker.books().gpus[0].busy_ns > 0);
    victim.kill().unwrap();
    victim.wait().unwrap();
    until(|| broker.books().gpus[0].memory_used == 0);
    let gpu = broker.books().gpus.remove(0);
    let gone = &gpu.clients[0];
    assert!(!gone.alive && gone.memory_peak_bytes > 1 << 30 && gone.contexts[0].true_use_ns > 0);
    assert_eq!(gone.calls.values().copied().collect::<Vec<_>>(), [7], "counters outlive the process");
    let session = broker.client();
    let stream = stream(&session);
    let sequence = session.push(stream, kernel(1_000)).unwrap();
    session.wait_completed(stream, sequence).unwrap();
}

#[test]
fn nonsense_on_a_page_harms_nobody_else() {
    let broker = Broker::start("");
    let (hostile, honest) = (broker.client(), broker.client());
    let page = hostile.page().unwrap();
    for (place, word) in page.ring.iter().flatten().enumerate() {
        word.store((place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
    }
    page.armed.0.store(u64::MAX, Ordering::Relaxed);
    for tail in [u64::MAX, 0, 5_000] {
        page.tail.0.store(tail, Ordering::Release);
        hostile.look().unwrap();
    }
    let stream = stream(&honest);
    let sequence = honest.push(stream, kernel(1_000)).unwrap();
    honest.wait_completed(stream, sequence).unwrap();
}

#[test]
fn a_bad_configuration_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    std::fs::write(&file, "gpus = 1\nsms = 0\n").unwrap();
    for arguments in [vec!["check"], vec!["broker", "--dir", dir.path().to_str().unwrap(), "--config"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-simgpu"));
        let output = command.args(arguments).arg(&file).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{text}");
        assert!(text.contains("line 2") && text.contains("sms = 0") && text.contains("help:"), "{text}");
    }
}

#[test]
fn the_broker_leaves_after_its_last_client() {
    let mut broker = Broker::start("linger_ms = 300\n");
    drop(broker.client());
    until(|| broker.process.try_wait().unwrap().is_some());
    assert!(!broker.dir.path().join(place::SOCKET).exists());
}
