//! Work that waits in its stream until it is let go.

use super::*;

/// Between two pieces that are let go, and when the nth is.
const CLOSED: u64 = 30_000_000;

fn opens(n: u64) -> u64 {
    (n + 10) * CLOSED
}

/// A program that runs ahead of its gate: two pieces of ten launches of 40 us wait, and one of them is let go every 30 ms.
struct RunsAhead {
    process: Process,
    kernel: &'static Estimate,
    put: u64,
    let_go: u64,
}

impl RunsAhead {
    fn new() -> Self {
        let mut process = process();
        process.gpu.now = opens(0);
        process.flight.set_words(Words::new(Box::leak(Box::new(WordPage::default())), 0));
        process.flight.add_events(9..=128);
        Self { process, kernel: guess(20_000), put: 0, let_go: 0 }
    }

    /// The next piece goes into the stream, to be let go at `opens`.
    fn put(&mut self, opens: u64) {
        let Self { process, kernel, put, .. } = self;
        *put += 1;
        (process.gpu.here, process.gpu.opens) = (STREAM, opens);
        assert!(process.flight.wait_for_piece(STREAM, *put, &mut process.gpu));
        for _ in 0..10 {
            let price = kernel.price().unsigned_abs();
            process.gpu.launched.push((STREAM, kernel, price));
            process.charged += price.cast_signed();
            *process.gpu.ends.entry(STREAM).or_default() += 40_000;
            process.flight.joined(STREAM, price);
        }
    }

    /// The oldest one goes, and everybody looks when it is done.
    fn let_go(&mut self) -> Settled {
        let process = &mut self.process;
        self.let_go += 1;
        process.flight.let_go(self.let_go, Nanos(process.gpu.now));
        process.gpu.now += 500_000;
        process.harvest()
    }
}

#[test]
fn work_that_waited_in_its_stream_is_charged_what_it_took_and_not_for_its_wait() {
    let mut ahead = RunsAhead::new();
    for n in 1..=100 {
        ahead.put(opens(n));
        ahead.put(opens(n) + 450_000); // behind it
        ahead.process.gpu.now = opens(n);
        ahead.let_go();
        ahead.let_go();
    }
    let (charged, took) = (ahead.process.charged, 200.0 * 10.0 * 40_000.0);
    let at_first = 2.0 * 10.0 * 20_000.0; // by guess, in a piece without marks
    assert!((took - at_first..took * 1.01).contains(&(charged as f64)), "{charged} of {took}");
    assert!((ahead.kernel.mean() / 40_000.0 - 1.0).abs() < 0.01, "{}", ahead.kernel.mean());
}

#[test]
fn work_that_waits_in_its_stream_is_not_in_flight() {
    let mut ahead = RunsAhead::new();
    ahead.put(opens(1));
    assert_eq!(ahead.process.in_flight(), 0);
    assert!(ahead.process.flight.is_busy(STREAM), "for the stream it is queued");
    assert_eq!((ahead.process.flight.behind(STREAM), ahead.process.flight.behind(OTHER)), (1, 0));
}

#[test]
fn a_mark_behind_a_wait_does_not_set_the_clocks_apart_by_the_wait() {
    let mut ahead = RunsAhead::new();
    for n in 1..=50 {
        ahead.put(opens(n));
        ahead.process.gpu.now = opens(n);
        let until = ahead.let_go().until;
        assert!(until.0.abs_diff(opens(n)) <= 500_000, "{n}: {until:?}");
    }
}

#[test]
fn nothing_comes_before_a_wait_in_a_stream_that_is_seen_to_be_empty() {
    let mut ahead = RunsAhead::new();
    ahead.put(opens(1));
    let snapshot = ahead.process.flight.snapshot(Some(STREAM));
    ahead.process.gpu.now = opens(1);
    ahead.let_go();
    let (now, slot) = (Nanos(ahead.process.gpu.now), &ahead.process.slot);
    ahead.process.flight.drained(&snapshot, slot, now);
    let at = ahead.process.gpu.ends[&STREAM];
    let early = |process: &Process| process.gpu.events.values().filter(|when| **when == at).count();
    let (marks, words) = (early(&ahead.process), ahead.process.gpu.words.len());
    ahead.process.gpu.now = at;
    ahead.put(opens(2));
    assert_eq!((early(&ahead.process), ahead.process.gpu.words.len()), (marks, words));
    ahead.put(opens(3));
    assert_eq!(ahead.process.gpu.words.len(), words + 1, "what is not seen to be done is told of");
}
