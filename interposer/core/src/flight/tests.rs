//! A process on a GPU of which everything is known: streams in order, each with a clock of its own.

use std::collections::HashMap;

use weir_protocol::pages::{Stall, Stalls as Page};

use super::*;
use crate::gate::in_flight;
use crate::price::Estimate;
use crate::stall::Stalls;

const STREAM: u64 = 0x7f00_0000_1230;
const OTHER: u64 = STREAM + 0x40;

/// Always: any work, at any time.
const NOW: Due = Due { work: Nanos(1), time: Nanos(0), spare: 0 };

struct Process {
    flight: Flight,
    slot: Box<ProcessSlot>,
    gpu: Gpu,
    charged: i64,
    copied: i64,
}

/// Times in nanoseconds, the same on processor and GPU.
#[derive(Default)]
struct Gpu {
    now: u64,
    ends: HashMap<u64, u64>, // by stream
    here: u64,
    events: HashMap<u64, u64>,
    refuses: bool,
    neighbour: Option<u64>,
    launched: Vec<(u64, &'static Estimate, u64)>, // stream, signature, charged
    launches: u64,
    part: Option<f64>,           // beside others under MPS
    weight: f64,                 // that was asked for last
    words: Vec<(u64, u64, u64)>, // when the GPU writes, where, and what
    spent: Vec<Span>,
}

impl Driver for Gpu {
    fn record(&mut self, event: u64, place: Place) -> bool {
        assert_ne!(place, Place::NOWHERE, "a mark where none may be");
        let stream = if place == Place::HERE { self.here } else { place.0 };
        let at = self.now.max(self.ends.get(&stream).copied().unwrap_or(0));
        if !self.refuses {
            self.events.insert(event, at);
        }
        !self.refuses
    }

    fn write(&mut self, address: u64, value: u64) -> bool {
        let at = self.now.max(self.ends.get(&self.here).copied().unwrap_or(0));
        self.words.push((at, address, value));
        !self.refuses
    }

    fn reached(&mut self, event: u64) -> bool {
        self.events[&event] <= self.now
    }

    fn elapsed(&mut self, from: u64, to: u64) -> Option<f64> {
        Some(self.events[&to] as f64 - self.events[&from] as f64)
    }

    fn now(&mut self) -> Nanos {
        Nanos(self.now)
    }

    fn overlaps(&mut self) -> bool {
        self.part.is_some()
    }

    fn beside(&mut self, _: (Nanos, Nanos)) -> f64 {
        1.0
    }

    fn part(&mut self, weight: Weight, _: (Nanos, Nanos)) -> f64 {
        self.weight = weight.mean;
        self.part.unwrap_or(1.0)
    }

    fn launched(&mut self) -> u64 {
        self.launches
    }

    fn neighbours(&mut self) -> Option<u64> {
        self.neighbour
    }

    fn launches(&mut self, stream: u64, charged: u64, parts: &mut Parts) {
        parts.clear();
        let mine: Vec<_> = self.launched.extract_if(.., |launch| launch.0 == stream).collect();
        assert!(mine.is_empty() || mine.iter().map(|launch| launch.2).sum::<u64>() == charged);
        let mut counts: Vec<(&'static Estimate, u32)> = Vec::new();
        for (_, estimate, _) in mine {
            match counts.iter_mut().find(|(known, _)| std::ptr::eq(*known, estimate)) {
                Some((_, count)) => *count += 1,
                None => counts.push((estimate, 1)),
            }
        }
        assert!(counts.into_iter().all(|(estimate, count)| parts.add(estimate, count)));
    }

    fn spent(&mut self, span: Span) {
        self.spent.push(span);
    }
}

fn process() -> Process {
    let slot = Box::new(zerocopy::FromZeros::new_zeroed());
    let gpu = Gpu { now: 1, neighbour: Some(0), ..Gpu::default() };
    let process = Process { flight: Flight::default(), slot, gpu, charged: 0, copied: 0 };
    process.flight.add_events(1..=8);
    process.flight.opens(STREAM, Place(STREAM), || 0);
    process.flight.opens(OTHER, Place(OTHER), || 0);
    process
}

fn guess(price_ns: u64) -> &'static Estimate {
    Box::leak(Box::new(Estimate::guess(price_ns)))
}

impl Process {
    fn in_flight(&self) -> u64 {
        in_flight(&self.slot).0
    }

    fn submit(&mut self, stream: u64, ns: u64) {
        self.gpu.here = stream;
        self.flight.submitted(stream, ns, &self.slot);
    }

    /// Launches a kernel that truly takes `took`, charged by its estimate.
    fn launch(&mut self, stream: u64, estimate: &'static Estimate, took: u64) {
        let price = estimate.price().unsigned_abs();
        let end = self.gpu.ends.entry(stream).or_default();
        *end = (*end).max(self.gpu.now) + took;
        self.gpu.launched.push((stream, estimate, price));
        self.charged += price.cast_signed();
        self.submit(stream, price);
    }

    /// Copies to the device what truly takes `took`.
    fn copy(&mut self, stream: u64, bytes: u64, took: u64) {
        let end = self.gpu.ends.entry(stream).or_default();
        *end = (*end).max(self.gpu.now) + took;
        self.gpu.here = stream;
        self.copied += self.flight.copied(stream, CopyWay::HostToDevice, 1, bytes).cast_signed();
    }

    fn mark(&mut self, stream: u64) -> bool {
        self.gpu.here = stream;
        self.flight.mark(stream, Due { work: Nanos(0), time: Nanos(0), spare: 0 }, &mut self.gpu)
    }

    fn harvest(&mut self) -> Settled {
        let settled = self.flight.harvest(&self.slot, &mut self.gpu);
        self.charged += settled.correction_ns;
        self.copied += settled.copies_ns[0];
        settled
    }

    fn wait(&mut self, until: u64) {
        self.gpu.now = self.gpu.now.max(until);
        self.harvest();
    }

    fn drain(&mut self) {
        self.wait(self.gpu.ends.values().copied().max().unwrap_or(0));
    }
}

#[test]
fn a_mark_that_was_reached_says_that_the_work_before_it_is_done() {
    let mut process = process();
    let hundred = Due { work: Nanos(100), time: Nanos(0), spare: 0 };
    process.submit(STREAM, 100);
    process.gpu.ends.insert(STREAM, 200);
    assert!(process.flight.mark(STREAM, hundred, &mut process.gpu));
    process.submit(STREAM, 50);
    assert!(!process.flight.mark(STREAM, hundred, &mut process.gpu), "50 ns are not worth a mark");
    process.harvest();
    assert_eq!(process.in_flight(), 150);
    process.wait(200);
    assert_eq!(process.in_flight(), 50);
    process.flight.mark_all(&mut process.gpu);
    process.gpu.refuses = true;
    process.flight.mark_all(&mut process.gpu);
    process.harvest();
    assert_eq!(process.in_flight(), 0, "all work had its mark already");
}

#[test]
fn marks_of_one_stream_keep_their_distance_in_time() {
    let mut process = process();
    let rare = Due { work: Nanos(1), time: Nanos(1_000), spare: 0 };
    process.submit(STREAM, 100);
    assert!(process.flight.mark(STREAM, rare, &mut process.gpu));
    process.submit(STREAM, 100);
    assert!(!process.flight.mark(STREAM, rare, &mut process.gpu));
    process.gpu.now += 1_000;
    assert!(process.flight.mark(STREAM, rare, &mut process.gpu));
}

#[test]
fn words_that_the_gpu_writes_say_how_far_it_has_come() {
    let mut process = process();
    let host: &'static [AtomicU64; BOOKS] = Box::leak(Box::new([const { AtomicU64::new(0) }; BOOKS]));
    let hundred = Nanos(100);
    process.submit(STREAM, 100);
    assert!(!process.flight.word(STREAM, hundred, &mut process.gpu), "there are none yet");
    process.flight.set_words(Words::new(host, 0));
    for (stream, end) in [(STREAM, 500), (OTHER, 300)] {
        process.gpu.ends.insert(stream, end);
        process.submit(stream, 100);
        assert!(process.flight.word(stream, hundred, &mut process.gpu));
        process.submit(stream, 20);
        assert!(!process.flight.word(stream, hundred, &mut process.gpu), "20 ns are not worth a word");
    }
    for (now, in_flight) in [(299, 340), (300, 240), (500, 40)] {
        for (_, address, value) in process.gpu.words.iter().filter(|word| word.0 <= now) {
            host[usize::try_from(*address).unwrap() / 8].store(*value, Ordering::Release);
        }
        process.harvest();
        assert_eq!(process.in_flight(), in_flight, "at {now}");
    }
}

#[test]
fn a_slow_stream_does_not_hide_a_drained_one() {
    let mut process = process();
    process.gpu.ends.insert(STREAM, 9_000);
    for stream in [STREAM, OTHER] {
        process.submit(stream, 100);
        assert!(process.flight.mark(stream, NOW, &mut process.gpu));
    }
    process.wait(10);
    assert_eq!(process.in_flight(), 100);
    assert!(process.flight.is_busy(STREAM) && !process.flight.is_busy(OTHER));
}

#[test]
fn the_applications_own_synchronize_drains_what_was_submitted_before_it() {
    let mut process = process();
    process.submit(STREAM, 100);
    let before = process.flight.snapshot(None);
    process.submit(STREAM, 30);
    process.flight.drained(&before, &process.slot);
    assert_eq!(process.in_flight(), 30);
    process.flight.drained(&before, &process.slot);
    assert_eq!(process.in_flight(), 30, "the same news twice counts once");
}

#[test]
fn an_event_of_the_applications_tells_what_lay_before_its_record() {
    let mut process = process();
    process.submit(STREAM, 100);
    process.flight.recorded(0xe0, STREAM);
    process.submit(STREAM, 30);
    process.flight.recorded(0xf0, STREAM + 1); // of a stream that was given nothing
    for event in [0xf0, 0xd0, 0xe0, 0xe0] {
        process.flight.event_reached(event, &process.slot);
    }
    assert_eq!(process.in_flight(), 30);
}

#[test]
fn without_spare_events_work_goes_unmarked_and_a_failed_record_gives_its_event_back() {
    let mut process = process();
    let put = |process: &mut Process| {
        process.submit(STREAM, 100);
        process.flight.mark(STREAM, NOW, &mut process.gpu)
    };
    assert_eq!((0..20).filter(|_| put(&mut process)).count(), 8);
    process.harvest();
    assert_eq!(process.in_flight(), 1_200);
    process.gpu.refuses = true;
    assert!(!put(&mut process));
    process.gpu.refuses = false;
    assert!(put(&mut process));
    process.flight.reset(&process.slot);
    assert_eq!(process.in_flight(), 0);
    assert!(!put(&mut process), "an event of a context that is gone");
}

#[test]
fn a_stream_whose_queue_may_be_full_gets_no_mark_from_elsewhere() {
    let mut process = process();
    process.gpu.ends.insert(STREAM, 2_000_000);
    process.submit(STREAM, 2_000_000);
    process.gpu.launches = FULL;
    process.flight.mark_all(&mut process.gpu);
    assert!(process.gpu.events.is_empty());
    assert!(process.mark(STREAM), "right behind a launch there, which would have waited just as well");
    process.wait(2_000_000);
    process.submit(STREAM, 2_000_000);
    process.flight.mark_all(&mut process.gpu);
    assert_eq!(process.gpu.events.len(), 2, "the mark that was reached says that the queue is short");
}

#[test]
fn nothing_is_put_into_a_stream_that_is_gone() {
    let mut process = process();
    process.submit(STREAM, 100);
    process.flight.stream_gone(STREAM, &process.slot);
    assert_eq!(process.in_flight(), 0);
    process.submit(STREAM, 100); // launched before, booked only now
    assert_eq!(process.in_flight(), 0);
    process.flight.mark_all(&mut process.gpu); // panics at a mark in a destroyed stream
}

#[test]
fn streams_whose_handles_are_alike_have_books_of_their_own() {
    let mut process = process();
    let alike: Vec<u64> = (0..PROBES as u64).map(|n| STREAM + n * 0x11_0000).collect();
    for stream in &alike {
        process.flight.opens(*stream, Place(*stream), || 0);
        process.submit(*stream, 100);
    }
    let before = process.flight.snapshot(Some(alike[1]));
    process.flight.drained(&before, &process.slot);
    assert_eq!(process.in_flight(), 100 * (PROBES as u64 - 1));
    assert!(process.flight.is_busy(alike[0]) && !process.flight.is_busy(alike[1]));
}

#[test]
fn a_backlogged_stream_is_charged_what_it_took_and_its_prices_are_learnt() {
    let mut process = process();
    let (small, large) = (guess(5_000), guess(5_000));
    process.mark(STREAM);
    let mut took = 93_000;
    for (estimate, time) in [(small, 3_000), (large, 90_000)] {
        process.launch(STREAM, estimate, time); // each once by itself
        process.mark(STREAM);
    }
    for round in 0..200 {
        for n in 0..10 {
            let (estimate, time) = if (n * n + round) % 11 < 7 { (small, 3_000) } else { (large, 90_000) };
            process.launch(STREAM, estimate, time);
            took += time.cast_signed();
        }
        process.mark(STREAM);
        process.wait(process.gpu.ends[&STREAM] - 50_000); // always behind
    }
    process.drain();
    assert_eq!(process.charged, took);
    assert!((small.mean() - 3_000.0).abs() < 300.0, "{}", small.mean());
    assert!((large.mean() / 90_000.0 - 1.0).abs() < 0.02, "{}", large.mean());
}

#[test]
fn steps_that_the_program_waits_for_are_charged_for_their_work_and_not_for_the_pauses() {
    let mut process = process();
    let kernel = guess(5_000);
    let mut took = 0;
    for _ in 0..100 {
        process.mark(STREAM); // on the idle stream
        process.gpu.now += 2_000; // until the first launch is submitted
        process.flight.launches(STREAM, Nanos(process.gpu.now));
        for _ in 0..20 {
            process.launch(STREAM, kernel, 40_000);
            process.gpu.now += 3_000; // the processor's time for a launch
            took += 40_000;
        }
        process.mark(STREAM);
        process.drain();
        process.gpu.now += 5_000_000; // the host does other things
    }
    let off = process.charged as f64 / took as f64 - 1.0;
    assert!(off.abs() < 0.01, "{off}");
    assert!((kernel.mean() / 40_000.0 - 1.0).abs() < 0.01, "{}", kernel.mean());
}

#[test]
fn a_sparse_small_kernel_is_learnt_without_the_time_before_it() {
    let mut process = process();
    let kernel = guess(50_000);
    for _ in 0..20 {
        process.mark(STREAM);
        process.gpu.now += 4_000;
        process.flight.launches(STREAM, Nanos(process.gpu.now));
        process.launch(STREAM, kernel, 2_000);
        process.mark(STREAM);
        process.gpu.now += 1_000_000;
        process.harvest();
    }
    assert!((kernel.mean() - 2_000.0).abs() < 100.0, "{}", kernel.mean());
}

#[test]
fn streams_that_overlap_are_charged_once_for_the_time_they_share() {
    let mut process = process();
    let kernel = guess(100_000);
    process.mark(STREAM);
    process.mark(OTHER);
    for _ in 0..50 {
        for stream in [STREAM, OTHER] {
            process.launch(stream, kernel, 100_000);
            process.launch(stream, kernel, 100_000);
            process.mark(stream);
        }
        process.wait(process.gpu.ends[&STREAM] - 50_000);
    }
    process.drain();
    let took = process.gpu.ends[&STREAM] as f64;
    assert!((process.charged as f64 / took - 1.0).abs() < 0.01, "{} of {took}", process.charged);
}

#[test]
fn beside_a_neighbour_nothing_is_learnt_and_what_was_known_before_is_charged() {
    let mut process = process();
    let kernel = guess(5_000);
    let steps = |process: &mut Process, took: u64| {
        for _ in 0..20 {
            (0..10).for_each(|_| process.launch(STREAM, kernel, took));
            process.mark(STREAM);
            process.wait(process.gpu.ends[&STREAM] - 10_000);
        }
        process.drain();
        kernel.mean()
    };
    process.mark(STREAM);
    let alone = steps(&mut process, 30_000);
    process.gpu.neighbour = None;
    let charged = process.charged;
    let beside = steps(&mut process, 63_000); // half of it the neighbour's slices
    assert!((alone / 30_000.0 - 1.0).abs() < 0.02 && beside == alone, "{alone}, {beside}");
    let per_launch = (process.charged - charged) as f64 / 200.0;
    assert!((per_launch / 30_000.0 - 1.0).abs() < 0.02, "{per_launch}");
}

#[test]
fn the_switch_from_a_neighbours_work_is_nobodys_charge() {
    let mut process = process();
    let kernel = guess(5_000);
    let mut turn = |neighbour: u64, switch: u64| {
        process.gpu.neighbour = Some(neighbour); // it has worked since, and is done
        process.mark(STREAM);
        process.gpu.now += 1_000;
        process.flight.launches(STREAM, Nanos(process.gpu.now));
        *process.gpu.ends.entry(STREAM).or_default() = process.gpu.now + switch;
        let (charged, mut settled) = (process.charged, Settled::default());
        for _ in 0..4 {
            (0..10).for_each(|_| process.launch(STREAM, kernel, 50_000));
            process.mark(STREAM);
        }
        process.gpu.now = process.gpu.ends[&STREAM];
        settled.switch_ns += process.harvest().switch_ns;
        process.gpu.now += 1_000_000;
        (process.charged - charged, settled.switch_ns)
    };
    assert_eq!((0..4).map(|_| turn(0, 0).1).sum::<u64>(), 0);
    for n in 1..4 {
        let (charged, switch) = turn(n, 100_000);
        assert!((charged as f64 / 2e6 - 1.0).abs() < 0.01, "{charged}");
        assert!((switch as f64 / 1e5 - 1.0).abs() < 0.1, "{switch}");
    }
    assert!((kernel.mean() / 50_000.0 - 1.0).abs() < 0.01, "{}", kernel.mean());
}

#[test]
fn work_that_overlaps_a_neighbours_is_charged_its_part_of_the_time_and_teaches_nothing() {
    let mut process = process();
    let kernel = guess(100_000);
    kernel.weigh([0.3, 0.09, 0.027]);
    process.mark(STREAM);
    for part in [None, Some(0.25)] {
        process.gpu.neighbour = part.is_none().then_some(0);
        process.gpu.part = part;
        let charged = process.charged;
        for _ in 0..20 {
            (0..10).for_each(|_| process.launch(STREAM, kernel, 100_000));
            process.mark(STREAM);
            process.wait(process.gpu.ends[&STREAM] - 10_000);
        }
        process.drain();
        let took = (process.charged - charged) as f64 / 20e6;
        assert!((took - part.unwrap_or(1.0)).abs() < 0.01, "{part:?}: {took}");
    }
    assert!((process.gpu.weight - 0.3).abs() < 1e-6 && (kernel.mean() - 100_000.0).abs() < 1.0);
}

#[test]
fn nothing_is_learnt_from_work_that_stood_still() {
    let mut process = process();
    let spinner = guess(5_000);
    let mut spin = |stands: bool, took: u64| {
        process.mark(STREAM);
        process.launch(STREAM, spinner, took);
        process.mark(STREAM);
        if stands {
            process.flight.stood_still();
        }
        process.drain();
        spinner.mean()
    };
    (0..4).for_each(|_| assert!(spin(false, 100_000) > 0.0));
    let before = spin(false, 100_000);
    assert!((before / 100_000.0 - 1.0).abs() < 0.05, "{before}");
    let after = spin(true, 80_000_000);
    assert!((after / before - 1.0).abs() < 0.05, "the gate taught itself: {before}, then {after}");
}

#[test]
fn copies_between_launches_are_not_charged_and_spoil_no_price() {
    let mut process = process();
    let kernel = guess(5_000);
    let mut took = 0;
    process.mark(STREAM);
    for _ in 0..3 {
        process.copy(STREAM, 4 << 20, 9_000 + (1 << 20)); // each once by itself
        process.mark(STREAM);
    }
    for round in 0..300u64 {
        for n in 0..4 {
            process.launch(STREAM, kernel, 100_000);
            took += 100_000;
            let bytes = (1 << 20) << ((round + n) % 4);
            process.copy(STREAM, bytes, 9_000 + bytes / 4); // 4 GB/s, five times slower than guessed
        }
        process.mark(STREAM);
        process.wait(process.gpu.ends[&STREAM] - 50_000);
        if round == 20 {
            (process.charged, took) = (0, 0); // from here on it is known what copies take
        }
    }
    process.drain();
    let off = process.charged as f64 / took as f64 - 1.0;
    assert!(off.abs() < 0.02, "{off}");
    assert!((kernel.mean() / 100_000.0 - 1.0).abs() < 0.02, "{}", kernel.mean());
}

#[test]
fn copies_beside_launches_are_timed_and_charge_nothing() {
    let mut process = process();
    let kernel = guess(5_000);
    process.mark(STREAM);
    process.mark(OTHER);
    let (mut kernels, mut copies) = (0, 0);
    for _ in 0..100 {
        process.launch(STREAM, kernel, 400_000);
        process.copy(OTHER, 8 << 20, 4 << 20); // 2 GB/s
        (kernels, copies) = (kernels + 400_000, copies + (4 << 20));
        process.mark(STREAM);
        process.mark(OTHER);
        process.wait(process.gpu.ends[&OTHER] - 1_000_000);
    }
    process.drain();
    assert!((process.charged as f64 / kernels as f64 - 1.0).abs() < 0.01, "{} of {kernels}", process.charged);
    assert!((process.copied as f64 / copies as f64 - 1.0).abs() < 0.05, "{} of {copies}", process.copied);
    assert!((kernel.mean() / 400_000.0 - 1.0).abs() < 0.01, "{}", kernel.mean());
}

#[test]
fn a_stream_with_nothing_but_copies_is_busy_and_the_gpu_is_not() {
    let mut process = process();
    process.copy(STREAM, 8 << 20, 4 << 20);
    assert!(process.flight.is_busy(STREAM) && process.flight.is_any_busy());
    assert_eq!(process.in_flight(), 0, "copies are no SM time");
    assert!(process.mark(STREAM), "and worth a mark");
    process.drain();
    assert!(!process.flight.is_any_busy());
    process.copy(STREAM, 8 << 20, 4 << 20);
    let before = process.flight.snapshot(Some(STREAM));
    process.flight.drained(&before, &process.slot);
    assert!(!process.flight.is_busy(STREAM));
}

/// Where the time went, by kind, up to the end.
fn parts(process: &mut Process, stalls: &mut Stalls, page: &Page) -> [f64; 6] {
    let now = Nanos(process.gpu.now);
    let horizon = process.flight.horizon(now, &mut process.gpu);
    process.gpu.spent.drain(..).for_each(|span| stalls.add(span));
    stalls.settle(horizon, page);
    std::array::from_fn(|kind| page.parts_ns[kind].load(Ordering::Relaxed) as f64)
}

#[test]
fn steps_of_launches_copies_and_pauses_are_told_apart_and_sum_to_wall_time() {
    let mut process = process();
    let (kernel, collective) = (guess(5_000), guess(5_000));
    let page: Box<Page> = Box::new(zerocopy::FromZeros::new_zeroed());
    let mut stalls = Stalls::default();
    process.mark(STREAM);
    for estimate in [kernel, collective, kernel, collective] {
        process.launch(STREAM, estimate, if std::ptr::eq(estimate, kernel) { 60_000 } else { 200_000 });
        process.mark(STREAM);
    }
    process.drain();
    process.gpu.spent.clear();
    let begun = process.gpu.now;
    stalls.begin(Nanos(begun));
    let mut last = [0.0; 6];
    for _ in 0..200 {
        process.mark(STREAM);
        process.gpu.now += 2_000;
        process.flight.launches(STREAM, Nanos(process.gpu.now));
        (0..10).for_each(|_| process.launch(STREAM, kernel, 60_000));
        process.launch(STREAM, collective, 200_000);
        process.flight.communicates(STREAM, collective.price().unsigned_abs());
        process.mark(STREAM);
        process.copy(STREAM, 4 << 20, 400_000);
        process.mark(STREAM);
        process.drain();
        process.gpu.now += 800_000; // the host does other things
        last = parts(&mut process, &mut stalls, &page);
    }
    let wall = 200.0 * 2_002_000.0;
    assert_eq!(last.iter().sum::<f64>(), (process.gpu.now - begun) as f64, "the sum is wall time");
    for (kind, wanted) in [(0, 0.3), (1, 0.1), (2, 0.2), (5, 0.4)] {
        let got: f64 = last[kind] / wall;
        assert!((got / wanted - 1.0).abs() < 0.05, "{:?}: {got:.3} for {wanted}", Stall::ALL[kind]);
    }
}

#[test]
fn work_that_no_mark_measured_counts_as_predicted_once_the_program_pauses() {
    let mut process = process();
    let page: Box<Page> = Box::new(zerocopy::FromZeros::new_zeroed());
    let mut stalls = Stalls::default();
    stalls.begin(Nanos(1));
    process.mark(STREAM);
    process.harvest();
    process.launch(STREAM, guess(40_000), 40_000);
    process.gpu.now = 50_000;
    let before = process.flight.snapshot(None);
    process.flight.drained(&before, &process.slot);
    assert_eq!(parts(&mut process, &mut stalls, &page)[0], 0.0, "a mark may come");
    process.gpu.now += 6_000_000;
    let parts = parts(&mut process, &mut stalls, &page);
    assert_eq!((parts[0], parts.iter().sum::<f64>()), (40_000.0, 6_049_999.0));
}

#[test]
fn beside_a_neighbour_what_the_work_did_not_take_is_the_neighbours() {
    let mut process = process();
    let page: Box<Page> = Box::new(zerocopy::FromZeros::new_zeroed());
    let (mut stalls, kernel) = (Stalls::default(), Box::leak(Box::new(Estimate::told(100_000))));
    stalls.begin(Nanos(1));
    process.gpu.neighbour = None;
    process.mark(STREAM);
    for _ in 0..50 {
        (0..10).for_each(|_| process.launch(STREAM, kernel, 200_000)); // half of it the neighbour's slices
        process.mark(STREAM);
        process.wait(process.gpu.ends[&STREAM] - 10_000);
    }
    process.drain();
    let parts = parts(&mut process, &mut stalls, &page);
    assert!((parts[0] / 50e6 - 1.0).abs() < 0.02 && (parts[3] / 50e6 - 1.0).abs() < 0.02, "{parts:?}");
}
