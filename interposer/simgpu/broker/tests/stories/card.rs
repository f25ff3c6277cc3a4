//! What a card does, through a broker: words that streams wait for, memory in steps, and drivers with locks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_simgpu_link::{Session, Work, now_ns};

use crate::harness::{Broker, EXACT, kernel, stream, until};

/// What a word takes of the GPU in these stories, ns.
const WORD: u64 = 2_000;

/// Records an event, and says when the stream came to it, ns.
fn stamp(session: &Session, stream: u32, slot: u32) -> u64 {
    let record = session.push_record(stream, slot, 0).unwrap();
    session.wait_event(slot, record).unwrap();
    session.event_stamp(slot, record).unwrap()
}

#[test]
fn a_stream_that_is_let_go_goes_on_from_that_moment_and_not_from_when_the_broker_saw_it() {
    let broker = Broker::start(EXACT);
    let session = broker.client();
    let stream = stream(&session);
    for slot in 0..20 {
        let held = session.push(stream, Work::Hold { then_ns: WORD }).unwrap();
        session.push(stream, kernel(100_000)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
        let before = now_ns();
        session.resume(stream, held).unwrap();
        let after = now_ns();
        let went_on = stamp(&session, stream, slot) - 100_000 - WORD;
        assert!((before..=after).contains(&went_on), "{} ns late", went_on.saturating_sub(after));
    }
}

#[test]
fn what_is_let_go_before_the_stream_comes_there_holds_nobody_up() {
    let broker = Broker::start(EXACT);
    let session = broker.client();
    let stream = stream(&session);
    let first = session.push_record(stream, 0, 0).unwrap();
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(session.push(stream, Work::Hold { then_ns: WORD }).unwrap());
        session.push(stream, kernel(1_000_000)).unwrap();
    }
    session.wait_event(0, first).unwrap();
    let before = now_ns();
    held.iter().for_each(|held| session.resume(stream, *held).unwrap()); // long before the stream comes to the second
    let after = now_ns();
    let went_on = stamp(&session, stream, 1) - 50 * (1_000_000 + WORD);
    assert!(session.event_stamp(0, first).is_some_and(|first| first < before));
    assert!((before..=after).contains(&went_on), "{went_on} ns is not within {before} to {after}");
}

#[test]
fn free_memory_falls_in_steps_and_the_books_are_exact() {
    let broker = Broker::start(EXACT);
    let session = broker.client();
    session.create_context(0).unwrap();
    let used = || session.memory(0).unwrap().1;
    let before = used();
    session.reserve(0, 3 << 20).unwrap();
    assert_eq!((used() - before, used() % (2 << 20)), (4 << 20, 0));
    session.release(0, 3 << 20).unwrap();
    session.reserve(0, 1).unwrap();
    assert_eq!(used() - before, 2 << 20);
    assert_eq!(broker.books().gpus[0].memory_used, before + 1);
}

#[test]
fn with_driver_locks_a_launch_into_a_full_queue_holds_up_calls_but_no_store() {
    let broker = Broker::start(&format!("{EXACT}driver_locks = true\nqueue_depth = 4\n"));
    let session = broker.client();
    let stream = stream(&session);
    let held = session.push(stream, Work::Hold { then_ns: 0 }).unwrap();
    for _ in 0..3 {
        session.push(stream, kernel(1_000)).unwrap();
    }
    let calls = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let launch = scope.spawn(|| session.push(stream, kernel(1_000)).unwrap());
        let call = scope.spawn(|| {
            until(|| session.is_held_up());
            calls.store(true, Ordering::Relaxed);
            session.begin_call();
            session.end_call();
            session.completed(stream).unwrap()
        });
        until(|| calls.load(Ordering::Relaxed));
        assert!(!call.is_finished() && !launch.is_finished());
        session.resume(stream, held).unwrap();
        launch.join().unwrap();
        assert!(call.join().unwrap() > 0, "it went on only when the queue had room");
    });
}
