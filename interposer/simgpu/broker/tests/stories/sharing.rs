//! How honest clients share the GPUs.

use weir_simgpu_link::{Refusal, Session, SessionError, StreamKind, Work};

use crate::harness::{Broker, EXACT, kernel, stream};

#[test]
fn a_kernel_takes_its_time_and_its_events_say_so() {
    let broker = Broker::start(EXACT);
    let session = broker.client();
    let stream = stream(&session);
    session.push(stream, kernel(1_000_000)).unwrap();
    let first = session.push_record(stream, 0, 0).unwrap();
    session.push(stream, kernel(3_000_000)).unwrap();
    let second = session.push_record(stream, 1, 0).unwrap();
    session.wait_event(1, second).unwrap();
    let span = session.event_stamp(1, second).unwrap() - session.event_stamp(0, first).unwrap();
    assert_eq!(span, 3_000_000, "the broker's own delays do not show");
}

#[test]
fn two_clients_share_by_slices_and_the_books_add_up() {
    let broker = Broker::start(EXACT);
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
    let switches = 400_000_000 / 2_060_000 - 2;
    assert!(gpu.switch_ns >= switches * 195_000, "each slice is followed by a switch: {}", gpu.switch_ns);
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
    let host = session.push(stream, Work::Hold { then_ns: 0 }).unwrap();
    let after = session.push(stream, kernel(1_000)).unwrap();
    session.resume(stream, host).unwrap();
    session.wait_completed(stream, after).unwrap();
}

#[test]
fn a_closed_stream_still_does_what_it_holds_and_keeps_its_slot_until_then() {
    let broker = Broker::start("");
    let session = broker.client();
    let context = session.create_context(0).unwrap();
    let open = |kind| session.open_stream(context, kind, 0).unwrap();
    let (closed, legacy) = (open(StreamKind::Blocking), open(StreamKind::Legacy));
    let host = session.push(closed, Work::Hold { then_ns: 0 }).unwrap();
    session.close_stream(closed).unwrap();
    assert_ne!(open(StreamKind::Blocking), closed);
    let after = session.push(legacy, kernel(1_000)).unwrap();
    session.wait_completed(open_and_run(&session, context), 1).unwrap();
    assert!(session.completed(legacy).unwrap() < after, "the legacy stream waits for the closed one");
    session.resume(closed, host).unwrap();
    session.wait_completed(legacy, after).unwrap();
    assert_eq!(open(StreamKind::Blocking), closed, "its slot is free again");
}

/// A stream that takes no notice of others, with one kernel.
fn open_and_run(session: &Session, context: u32) -> u32 {
    let stream = session.open_stream(context, StreamKind::NonBlocking, 0).unwrap();
    session.push(stream, kernel(1_000)).unwrap();
    stream
}

#[test]
fn what_a_context_held_is_over_with_it() {
    let broker = Broker::start("");
    let session = broker.client();
    let context = session.create_context(0).unwrap();
    let stream = session.open_stream(context, StreamKind::Blocking, 0).unwrap();
    session.push(stream, Work::Hold { then_ns: 0 }).unwrap();
    let last = session.push(stream, kernel(1_000)).unwrap();
    session.close_stream(stream).unwrap();
    session.destroy_context(context).unwrap();
    session.wait_completed(stream, last).unwrap();
    let context = session.create_context(0).unwrap();
    assert_eq!(session.open_stream(context, StreamKind::Blocking, 0).unwrap(), stream);
}
