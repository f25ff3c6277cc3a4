//! What one client's death, silence or malice does to the others: nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::Signal;
use weir_simgpu_link::{Session, Work};

use crate::harness::{Broker, EXACT, kernel, stream, until};
use crate::roles::Role;

/// Clients killed in one story, and how many live at a time.
const VICTIMS: u64 = 200;
const AT_ONCE: usize = 4;
/// Longest time between two of their deaths, us.
const BETWEEN_US: u64 = 10_000;
/// Times that a neighbour is stopped and continued.
const STOPS: u64 = 10;

/// Runs a kernel of 3 ms; how long it took by its events, ns.
fn span_of_3_ms(session: &Session, stream: u32) -> u64 {
    // Nothing runs before all is queued: this process may be held up between two of its calls.
    let held = session.push(stream, Work::Hold { then_ns: 0 }).unwrap();
    // The GPU turns to this context for it, so that the switch is not in the span.
    session.push(stream, kernel(1_000)).unwrap();
    let first = session.push_record(stream, 0, 0).unwrap();
    session.push(stream, kernel(3_000_000)).unwrap();
    let second = session.push_record(stream, 1, 0).unwrap();
    session.resume(stream, held).unwrap();
    session.wait_event(1, second).unwrap();
    session.event_stamp(1, second).unwrap() - session.event_stamp(0, first).unwrap()
}

#[test]
fn a_killed_client_gives_back_its_memory_and_the_gpu_and_stays_in_the_books() {
    let broker = Broker::start("");
    let victim = broker.play(Role::Spins);
    until(|| broker.books().gpus[0].busy_ns > 0);
    drop(victim);
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

/// A number below `below` that looks random and is the same at each run (splitmix64).
fn scattered(number: u64, below: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ z >> 27) % below
}

#[test]
fn after_two_hundred_kills_at_any_point_all_memory_is_back() {
    let broker = Broker::start("context_overhead = \"10MiB\"\n");
    let mut alive = std::collections::VecDeque::new();
    for number in 0..VICTIMS {
        alive.push_back(broker.play(Role::Churns));
        // Nothing is waited for: this scatters the points at which they die, from before they connect.
        std::thread::sleep(Duration::from_micros(scattered(number, BETWEEN_US)));
        if alive.len() == AT_ONCE {
            drop(alive.pop_front());
        }
    }
    drop(alive);
    until(|| broker.books().gpus[0].memory_used == 0);
    let gpu = broker.books().gpus.remove(0);
    assert!(gpu.clients.iter().all(|client| !client.alive && client.memory_bytes == 0));
    let caught = gpu.clients.iter().filter(|client| client.memory_peak_bytes > 0).count();
    assert!(caught > 50, "most of them held memory at some time: {caught}");
    let used: u64 = gpu.clients.iter().flat_map(|client| &client.contexts).map(|c| c.true_use_ns).sum();
    assert_eq!(used, gpu.busy_ns, "the books of the dead add up to what the GPU did");
    let session = broker.client();
    session.reserve(0, gpu.memory_total).unwrap();
}

#[test]
fn a_stopped_client_harms_nobody_and_goes_on_when_it_is_continued() {
    let broker = Broker::start(EXACT);
    let (session, neighbour) = (broker.client(), broker.play(Role::Works));
    let stream = stream(&session);
    for _ in 0..STOPS {
        let before = broker.progress(neighbour.pid()).0;
        until(|| broker.progress(neighbour.pid()).0 > before);
        neighbour.stop();
        // What it had queued is its own and still runs.
        until(|| broker.progress(neighbour.pid()).1 == 0);
        assert_eq!(span_of_3_ms(&session, stream), 3_000_000, "the GPU is ours alone");
        neighbour.signal(Signal::CONT);
    }
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
