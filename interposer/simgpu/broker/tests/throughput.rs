//! How many kernels per second the broker sustains and what of a core it uses. Not a timed test: it prints.
//! `cargo test --release -p weir-simgpu-broker --test throughput -- --ignored --nocapture`
#![allow(clippy::unwrap_used, reason = "a test: its helpers fail by panicking, too")]

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use weir_simgpu_link::{Kernel, Kind, Session, StreamKind, Work, place, socket};

/// How long each client pushes.
const WINDOW: Duration = Duration::from_secs(2);
/// Clock ticks per second of `/proc`, as on every Linux of today.
const TICKS: f64 = 100.0;

/// CPU time of a process, s.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS
}

/// Pushes 5 us kernels without a pause; returns how many were complete at the end.
fn push(path: &std::path::Path) -> u64 {
    let session = Session::over(socket::connect(path).unwrap(), Kind::Cuda).unwrap();
    let context = session.create_context(0).unwrap();
    let stream = session.open_stream(context, StreamKind::Blocking, 0).unwrap();
    let kernel = Kernel { solo_ns: 5_000, blocks: 54, bandwidth_permille: 0, spins: false };
    let start = Instant::now();
    while start.elapsed() < WINDOW {
        session.push(stream, Work::Kernel(kernel)).unwrap();
    }
    session.completed(stream).unwrap()
}

#[test]
#[ignore = "prints figures; meant for release builds"]
fn two_clients_push_kernels_of_5_us() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(place::SOCKET);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-simgpu"));
    command.args(["broker", "--foreground", "--dir"]).arg(dir.path()).env("WEIR_SIMGPU_MODE", "mps");
    let mut broker = command.spawn().unwrap();
    let deadline = Instant::now() + WINDOW;
    while socket::connect(&path).is_err() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let (start, cpu) = (Instant::now(), cpu_seconds(broker.id()));
    let done: u64 = std::thread::scope(|scope| {
        let clients = [(); 2].map(|()| scope.spawn(|| push(&path)));
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let seconds = start.elapsed().as_secs_f64();
    let percent = (cpu_seconds(broker.id()) - cpu) / seconds * 100.0;
    let rate = done as f64 / seconds;
    writeln!(std::io::stdout(), "{rate:.0} kernels/s, {percent:.0} % of one core").unwrap();
    broker.kill().unwrap();
    broker.wait().unwrap();
}
