//! Where the time went: stalls.

use weir_protocol::pages::Stall;

use super::*;

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
    process.flight.drained(&before, &process.slot, Nanos(process.gpu.now));
    assert_eq!(parts(&mut process, &mut stalls, &page)[0], 0.0, "a mark may come");
    process.gpu.now += 6_000_000;
    let parts = parts(&mut process, &mut stalls, &page);
    assert_eq!((parts[0], parts.iter().sum::<f64>()), (40_000.0, 6_049_999.0));
}

#[test]
fn work_that_a_neighbours_slows_down_at_the_same_time_computes_for_as_long_as_it_would_alone() {
    for (weight, took) in [(1.0, 200_000), (0.5, 150_000), (0.1, 110_000)] {
        let mut process = process();
        let page: Box<Page> = Box::new(zerocopy::FromZeros::new_zeroed());
        let (mut stalls, kernel) = (Stalls::default(), guess(100_000));
        kernel.weigh([weight, weight * weight, weight * weight * weight], weight);
        process.mark(STREAM);
        (0..20).for_each(|_| process.launch(STREAM, kernel, 100_000));
        process.mark(STREAM);
        process.drain();
        process.gpu.spent.clear();
        stalls.begin(Nanos(process.gpu.now));
        let charged = process.charged;
        (process.gpu.neighbour, process.gpu.part) = (None, Some(weight / (weight + 1.0))); // it weighs 1
        for _ in 0..50 {
            (0..10).for_each(|_| process.launch(STREAM, kernel, took));
            process.mark(STREAM);
            process.wait(process.gpu.ends[&STREAM] - 10_000);
        }
        process.drain();
        let (parts, slowed) =
            (parts(&mut process, &mut stalls, &page).map(|ns| ns / 50e6), took as f64 / 1e5);
        assert!(
            (parts[0] - 1.0).abs() < 0.02 && (parts[3] - (slowed - 1.0)).abs() < 0.02,
            "{weight}: {parts:?}"
        );
        let per_work = (process.charged - charged) as f64 / 50e6;
        assert!((per_work / weight - 1.0).abs() < 0.02, "{weight}: charged {per_work} of the work's time");
    }
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
