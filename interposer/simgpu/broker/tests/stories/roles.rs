//! What the child processes of other stories do: they are this same test program, told its role by a variable.
//! A child connects as any program does, so it finds the broker, or starts it.

use std::io::{BufRead, Read};
use std::sync::atomic::Ordering;

use weir_simgpu_link::{Kernel, Kind, Obstacle, Session, Work};

use crate::harness::{kernel, stream};

/// In the environment of a child: its role.
pub const ROLE: &str = "WEIR_SIMGPU_TEST_ROLE";
/// Connections that [`Role::Reconnects`] makes, one after the other.
const CONNECTIONS: usize = 100;

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for the gun, connects, runs one kernel, stays until its input ends.
    Stays,
    /// Connects and leaves, many times, running one kernel each time.
    Reconnects,
    /// Holds memory and the GPU with a kernel that never ends; notes 7 calls of the first function.
    Spins,
    /// Keeps its queue full of short kernels.
    Works,
    /// Takes and gives back contexts, streams and memory without a pause, with kernels in flight.
    Churns,
    /// Holds memory; stays in a call until the gun, then runs short kernels, each within a call.
    Calls,
    /// The same with managed memory.
    Manages,
}

impl Role {
    const ALL: [Role; 7] =
        [Role::Stays, Role::Reconnects, Role::Spins, Role::Works, Role::Churns, Role::Calls, Role::Manages];

    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Not a story of its own: where a child begins.
#[test]
fn played() {
    let Ok(name) = std::env::var(ROLE) else { return };
    match Role::ALL.into_iter().find(|role| role.name() == name).unwrap() {
        Role::Stays => stay(),
        Role::Reconnects => (0..CONNECTIONS).for_each(|_| run_one_kernel(&connect())),
        Role::Spins => spin(&connect()),
        Role::Works => work(&connect()),
        Role::Churns => churn(&connect()),
        Role::Calls => call(&connect()),
        Role::Manages => manage(&connect()),
    }
}

fn connect() -> Session {
    Session::connect(Kind::Cuda).unwrap()
}

fn run_one_kernel(session: &Session) {
    let stream = stream(session);
    let sequence = session.push(stream, kernel(1_000)).unwrap();
    session.wait_completed(stream, sequence).unwrap();
}

fn stay() {
    let mut input = std::io::stdin().lock();
    input.read_line(&mut String::new()).unwrap();
    let session = connect();
    run_one_kernel(&session);
    input.read_to_end(&mut Vec::new()).unwrap();
}

fn spin(session: &Session) {
    let stream = stream(session);
    session.reserve(0, 1 << 30).unwrap();
    session.page().unwrap().calls[0].store(7, Ordering::Relaxed);
    let spin = Kernel { solo_ns: 0, blocks: 108, bandwidth_permille: 0, spins: true };
    let sequence = session.push(stream, Work::Kernel(spin)).unwrap();
    session.wait_completed(stream, sequence).unwrap();
}

fn work(session: &Session) {
    let stream = stream(session);
    loop {
        session.push(stream, kernel(10_000)).unwrap();
    }
}

fn churn(session: &Session) {
    loop {
        let context = session.create_context(0).unwrap();
        let stream = session.open_stream(context, weir_simgpu_link::StreamKind::Blocking, 0).unwrap();
        session.reserve(0, 64 << 20).unwrap();
        for _ in 0..20 {
            session.push(stream, kernel(5_000)).unwrap();
        }
        session.release(0, 32 << 20).unwrap();
        session.wait_completed(stream, 10).unwrap();
        session.destroy_context(context).unwrap();
        session.release(0, 32 << 20).unwrap();
    }
}

fn manage(session: &Session) {
    session.count_obstacle(Obstacle::Managed, true).unwrap();
    call(session);
}

fn call(session: &Session) {
    let stream = stream(session);
    session.reserve(0, 1 << 30).unwrap();
    session.begin_call();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    session.end_call();
    loop {
        session.begin_call();
        let sequence = session.push(stream, kernel(1_000)).unwrap();
        session.wait_completed(stream, sequence).unwrap();
        session.end_call();
    }
}
