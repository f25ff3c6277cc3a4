//! Beside another program: streams that overlap, in turns with it, and work between whose launches it has the GPU for a moment.

use super::*;

const SWITCH: u64 = 100_000;

/// Two streams, each with a short launch and then ten of 0.1 ms in each turn, which takes the GPU a switch to begin. Beside each other
/// they take as long as `took` says of the nth turn, and the same again `ahead` times more, which is queued by then. The neighbour is at work whenever anybody looks. Returns what is charged for a
/// turn by what it took, and what a launch costs in the end.
fn turns(took: impl Fn(u64, u64) -> u64, ahead: u64) -> (f64, f64) {
    const TURNS: u64 = 200;
    let mut process = process();
    process.flight.add_events(9..=32);
    let (short, kernel) = (guess(5_000), guess(100_000));
    process.mark(STREAM);
    for (estimate, ns) in [(short, 5_000), (kernel, 100_000)].repeat(5) {
        (0..10).for_each(|_| process.launch(STREAM, estimate, ns)); // alone
        process.mark(STREAM);
        process.drain();
    }
    (process.gpu.neighbour, process.gpu.ended) = (None, Some(0));
    let (mut before, mut truth) = (0, 0);
    for n in 0..TURNS {
        if n == TURNS / 10 {
            (before, truth) = (process.charged, 0);
        }
        process.gpu.now += 5_000_000;
        process.gpu.ended = Some(n);
        let began = process.gpu.now + SWITCH + n % 3 * 50_000; // the neighbour's last kernel
        for stream in [STREAM, OTHER] {
            process.mark(stream);
            process.gpu.now += 1_000;
            process.flight.launches(stream, Nanos(process.gpu.now));
            process.gpu.ends.insert(stream, began);
            process.launch(stream, short, 5_000);
            process.mark(stream);
        }
        for round in 0..=ahead {
            for (stream, part) in [(STREAM, 9), (OTHER, 10)] {
                (0..10).for_each(|_| process.launch(stream, kernel, took(n, round) * part / 100));
                process.mark(stream);
                process.gpu.now += 20_000;
            }
        }
        process.drain();
        truth += process.gpu.now - began;
    }
    ((process.charged - before) as f64 / truth as f64, kernel.mean())
}

#[test]
fn the_switch_at_the_beginning_of_a_turn_is_not_taken_for_work_of_streams_that_overlap() {
    // design 5: within 1 %. The switch and the wait for the neighbour's last kernel are 10 % of the turn.
    let (charged, price) = turns(|n, _| 1_300_000 + n % 7 * 50_000, 0);
    assert!((charged - 1.0).abs() < 0.01, "{charged}");
    assert!((price / 100_000.0 - 1.0).abs() < 0.01, "{price}");
}

#[test]
fn a_neighbours_slice_in_a_turn_of_streams_that_overlap_is_not_charged() {
    let slice = |n: u64| if n % 5 == 4 { 2_200_000 } else { 0 };
    let (charged, price) = turns(|n, _| 1_300_000 + slice(n), 0);
    let own = 1_305_000.0 / (1_305_000.0 + 2_200_000.0 / 5.0);
    assert!((charged / own - 1.0).abs() < 0.01, "{charged} of {own}");
    assert!((price / 100_000.0 - 1.0).abs() < 0.01, "{price}");
}

#[test]
fn what_is_queued_behind_it_does_not_make_a_neighbours_slice_seem_our_work() {
    let slice = |n: u64, round: u64| if n % 5 == 4 && round == 0 { 2_200_000 } else { 0 };
    let (charged, price) = turns(|n, round| 1_300_000 + slice(n, round), 3);
    let work = 5_000.0 + 4.0 * 1_300_000.0;
    let own = work / (work + 2_200_000.0 / 5.0);
    assert!((charged / own - 1.0).abs() < 0.01, "{charged} of {own}");
    assert!((price / 100_000.0 - 1.0).abs() < 0.01, "{price}");
}

#[test]
fn what_a_neighbour_does_between_the_launches_of_who_passes_is_not_charged() {
    let mut process = process();
    process.flight.add_events(9..=32);
    let kernel = guess(50_000);
    process.mark(STREAM);
    for _ in 0..5 {
        (0..10).for_each(|_| process.launch(STREAM, kernel, 50_000)); // alone
        process.mark(STREAM);
        process.drain();
    }
    (process.gpu.neighbour, process.gpu.ended, process.gpu.pass) = (None, Some(0), true);
    let before = process.charged;
    for _ in 0..100 {
        (0..20).for_each(|_| process.launch(STREAM, kernel, 70_000)); // 20 us each are the neighbour's
        process.mark(STREAM);
        process.wait(process.gpu.ends[&STREAM] - 100_000);
    }
    process.drain();
    let charged = (process.charged - before) as f64 / (100.0 * 20.0 * 50_000.0);
    assert!((charged - 1.0).abs() < 0.02, "{charged}");
    assert!((kernel.mean() / 50_000.0 - 1.0).abs() < 0.02, "{}", kernel.mean());
}
