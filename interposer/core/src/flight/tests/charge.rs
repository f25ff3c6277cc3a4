//! What work is charged and what it teaches: alone, with other streams, beside a neighbour.

use super::*;

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
fn a_driver_that_tells_late_what_was_reached_makes_no_kernel_dearer() {
    let mut process = process();
    let (kernel, mut took) = (guess(5_000), 0);
    process.flight.add_events(9..=64);
    process.mark(STREAM);
    process.harvest();
    process.gpu.tells_late = 1_000_000;
    for n in 0..400 {
        process.gpu.now += if n % 4 == 3 { 400_000 } else { 1_000 }; // the stream has drained, and nobody knows
        (0..10).for_each(|_| process.launch(STREAM, kernel, 5_000));
        process.mark(STREAM);
        process.harvest();
        took += 50_000;
    }
    process.gpu.now += 2_000_000;
    process.drain();
    assert!((kernel.mean() / 5_000.0 - 1.0).abs() < 0.02, "{}", kernel.mean());
    assert!((process.charged as f64 / f64::from(took) - 1.0).abs() < 0.02, "{} of {took}", process.charged);
}

#[test]
fn a_driver_that_tells_late_from_the_first_mark_on_does_not_make_a_new_kernel_dear() {
    let mut process = process();
    let kernel = guess(5_000);
    process.gpu.tells_late = 300_000;
    for held_up in [20_000, 0, 0, 0, 0, 0, 0] {
        process.mark(STREAM);
        process.gpu.now += held_up; // the host, with an idle stream
        process.launch(STREAM, kernel, 5_000);
        process.mark(STREAM);
        process.gpu.now += 1_000_000;
        process.drain();
    }
    assert!((kernel.mean() / 5_000.0 - 1.0).abs() < 0.2, "{}", kernel.mean());
}

#[test]
fn a_stream_did_not_idle_before_its_last_mark_was_reached() {
    let mut process = process();
    let (ahead, kernel) = (guess(900_000), guess(200_000));
    for (estimate, took) in [(ahead, 900_000), (kernel, 200_000)].repeat(10) {
        process.mark(STREAM);
        process.launch(STREAM, estimate, took);
        process.mark(STREAM);
        process.drain();
    }
    process.charged = 0;
    process.launch(STREAM, ahead, 900_000);
    process.mark(STREAM);
    process.gpu.now += 1_000_000; // it idles for a tenth of that
    (0..10).for_each(|_| process.launch(STREAM, kernel, 300_000)); // this once they take longer than their price
    process.mark(STREAM);
    process.drain();
    assert!((process.charged - 3_900_000).abs() < 10_000, "{}", process.charged);
}

#[test]
fn a_stream_that_never_idles_is_measured_however_far_it_is_behind() {
    let mut process = process();
    let (kernel, mut took) = (guess(5_000), 0);
    process.flight.add_events(9..=64);
    process.gpu.ends.insert(STREAM, 20_000_000); // of which nobody knows
    process.mark(STREAM); // the first one, and 20 ms before the others
    for _ in 0..200 {
        (0..10).for_each(|_| process.launch(STREAM, kernel, 20_000));
        process.mark(STREAM);
        process.gpu.now += 250_000;
        process.harvest();
        took += 200_000;
    }
    process.drain();
    assert!((kernel.mean() / 20_000.0 - 1.0).abs() < 0.02, "{}", kernel.mean());
    assert!((process.charged as f64 / f64::from(took) - 1.0).abs() < 0.02, "{} of {took}", process.charged);
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

/// Two streams at once, whose kernels take 0.1 ms by themselves, first alone, then in turns with a neighbour, where each round takes what
/// `took` says; he has come and stays. Returns what is charged there, and the kernel's price then.
fn streams_in_turns(took: impl Fn(u64) -> u64) -> (f64, f64) {
    let mut process = process();
    let kernel = guess(100_000);
    process.mark(STREAM);
    for _ in 0..10 {
        process.launch(STREAM, kernel, 100_000); // by itself
        process.mark(STREAM);
    }
    process.drain();
    process.mark(OTHER);
    let mut alone = 0;
    for n in 0..100 {
        if n == 50 {
            process.drain();
            (alone, process.gpu.neighbour, process.gpu.ended) = (process.charged, None, Some(0));
        }
        let took = if n < 50 { 1_000_000 } else { took(n) };
        for stream in [STREAM, OTHER] {
            (0..10).for_each(|_| process.launch(stream, kernel, took / 10));
            process.mark(stream);
        }
        process.wait(process.gpu.ends[&STREAM] - 50_000);
    }
    process.drain();
    ((process.charged - alone) as f64 / 50.0, kernel.mean())
}

#[test]
fn streams_that_overlap_in_a_turn_of_their_own_are_charged_the_time_that_they_had() {
    // design 5: within 1 %. By their prices and by what they shared before it would be 1 ms.
    let (longer, price) = streams_in_turns(|_| 1_200_000);
    assert!((longer / 1_200_000.0 - 1.0).abs() < 0.01, "{longer}");
    assert!((price / 100_000.0 - 1.0).abs() < 0.01, "what it takes beside others is no price: {price}");
    let (sliced, _) = streams_in_turns(|n| 1_000_000 + n % 5 / 4 * 2_200_000);
    assert!((sliced / 1_000_000.0 - 1.0).abs() < 0.01, "{sliced}");
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

/// Launches a kernel by tens, and more often beside a neighbour than alone, whose work has `ended` so often by the nth ten, which took
/// so long. Returns the price that the kernel has then; alone it seemed to cost `priced`.
fn beside_a_neighbour(priced: u64, ended: impl Fn(u64) -> u64, took: impl Fn(u64) -> u64) -> f64 {
    let mut process = process();
    let kernel = guess(5_000);
    process.mark(STREAM);
    for n in 0..1_000 {
        process.gpu.neighbour = (n < 8).then_some(0);
        process.gpu.ended = Some(ended(n));
        let took = if n < 8 { 10 * priced } else { took(n) };
        (0..10).for_each(|_| process.launch(STREAM, kernel, took / 10));
        process.mark(STREAM);
        process.wait(process.gpu.ends[&STREAM] - 10_000);
    }
    process.drain();
    kernel.mean()
}

#[test]
fn beside_a_neighbour_that_has_come_and_stays_prices_are_learnt_where_no_slice_of_his_can_lie() {
    let dearer = beside_a_neighbour(98_000, |_| 0, |_| 1_000_000);
    assert!((dearer / 100_000.0 - 1.0).abs() < 0.002, "{dearer}");
    let varied = beside_a_neighbour(90_000, |_| 0, |n| 700_000 + n * 7 % 13 * 50_000);
    assert!((varied / 100_000.0 - 1.0).abs() < 0.05, "{varied}");
    let sliced = beside_a_neighbour(100_000, |_| 0, |n| 1_000_000 + n % 4 / 3 * 2_200_000);
    assert!((sliced / 100_000.0 - 1.0).abs() < 0.002, "{sliced}");
    let visited = beside_a_neighbour(100_000, |n| n, |n| 1_000_000 + n % 4 / 3 * 300_000);
    assert!((visited / 100_000.0 - 1.0).abs() < 0.002, "he came for 0.1 ms: {visited}");
}

#[test]
fn behind_the_first_launch_of_a_turn_prices_are_learnt_however_late_the_neighbours_end_shows() {
    let mut process = process();
    let kernel = guess(5_000);
    process.mark(STREAM);
    for _ in 0..4 {
        (0..10).for_each(|_| process.launch(STREAM, kernel, 25_000)); // at first it is faster
        process.mark(STREAM);
        process.wait(process.gpu.ends[&STREAM] - 10_000);
    }
    process.drain();
    assert!((kernel.mean() / 25_000.0 - 1.0).abs() < 0.01, "{}", kernel.mean());
    for n in 1..60 {
        process.gpu.neighbour = None;
        process.gpu.now += 5_000_000;
        process.mark(STREAM);
        process.gpu.now += 1_000;
        process.flight.launches(STREAM, Nanos(process.gpu.now));
        process.gpu.ends.insert(STREAM, process.gpu.now + 200_000 + n % 7 * 300_000); // the rest of its slice
        process.launch(STREAM, kernel, 50_000);
        process.mark(STREAM);
        (0..4).for_each(|_| process.launch(STREAM, kernel, 50_000));
        process.mark(STREAM);
        (0..24).for_each(|_| process.launch(STREAM, kernel, 50_000 + n % 4 / 3 * 100_000)); // a slice, now and then
        process.mark(STREAM);
        (process.gpu.neighbour, process.gpu.ended) = (Some(2 * n), Some(n)); // it was done long ago, and says so now
        process.drain();
    }
    assert!((kernel.mean() / 50_000.0 - 1.0).abs() < 0.01, "{}", kernel.mean());
}

/// Programs that wait for each of their short steps would pay for two marks in each.
#[test]
fn a_burst_beside_a_neighbour_has_further_marks_only_behind_enough_work() {
    const DUE: Due = Due { work: Nanos(0), time: Nanos::from_millis(1), spare: 0 };
    let mut process = process();
    process.gpu.neighbour = None;
    let kernel = guess(20_000);
    for _ in 0..50 {
        process.gpu.now += 100_000;
        process.gpu.here = STREAM;
        if process.flight.mark(STREAM, DUE, &mut process.gpu) {
            process.flight.launches(STREAM, Nanos(process.gpu.now));
        }
        (0..4).for_each(|_| process.launch(STREAM, kernel, 20_000));
        process.flight.mark_ends(Some(STREAM), THREAD, &[DUE], &mut process.gpu);
        process.drain();
    }
    assert_eq!(process.gpu.records, 18, "9 ms: one around a burst each, behind the first");
}

/// A neighbour's own bursts may be shorter than half a slice: the end of a slice that the process had before would let one in.
#[test]
fn a_slice_that_may_be_older_than_the_burst_teaches_nothing_beside_a_neighbour() {
    let mut process = process();
    let kernel = guess(5_000);
    process.mark(STREAM);
    for _ in 0..6 {
        (0..4).for_each(|_| process.launch(STREAM, kernel, 20_000));
        process.mark(STREAM);
        process.wait(process.gpu.ends[&STREAM] - 10_000);
    }
    process.drain();
    for n in 1..100 {
        process.gpu.neighbour = None;
        process.gpu.now += 5_000_000;
        process.mark(STREAM);
        process.gpu.now += 1_000;
        process.flight.launches(STREAM, Nanos(process.gpu.now));
        process.launch(STREAM, kernel, 20_000); // waits for nobody
        process.mark(STREAM);
        (0..3).for_each(|at| process.launch(STREAM, kernel, if at == 0 { 240_000 } else { 20_000 })); // he and two switches
        process.mark(STREAM);
        (process.gpu.neighbour, process.gpu.ended) = (Some(2 * n), Some(n));
        process.drain();
    }
    assert!((kernel.mean() / 20_000.0 - 1.0).abs() < 0.01, "{}", kernel.mean());
}

/// A sibling that waits for its steps has less than a slice in it, and says that it has ended when we have looked.
#[test]
fn beside_a_sibling_work_is_charged_what_was_learnt_alone_and_what_was_never_measured_is_missed() {
    let mut process = process();
    let (kernel, new) = (guess(5_000), guess(5_000));
    process.mark(STREAM);
    // Ten launches behind the ten before, which are looked at: by how much those are charged more, what was missing, what they taught.
    let mut tens = |estimate: &'static Estimate, siblings: Option<u64>, took: u64| {
        (0..10).for_each(|_| process.launch(STREAM, estimate, took / 10));
        process.mark(STREAM);
        process.gpu.now = process.gpu.ends[&STREAM] - 10_000;
        let settled = process.harvest();
        (process.gpu.neighbour, process.gpu.ended, process.gpu.siblings) = (siblings, Some(0), siblings);
        (settled.correction_ns, settled.missing, settled.taught)
    };
    (0..2).for_each(|_| assert_eq!(tens(kernel, Some(0), 1_000_000).1, None));
    (0..60).for_each(|_| assert!(matches!(tens(kernel, Some(0), 1_000_000), (_, None, true))));
    tens(kernel, None, 1_450_000);
    for _ in 0..8 {
        let (charged, missing, taught) = tens(kernel, None, 1_450_000);
        assert_eq!((charged, taught), (0, false), "0.25 ms and two switches lie in it");
        assert!(missing.is_some_and(|missing| !missing.at_once && missing.longest.0.abs_diff(100_000) < 10));
    }
    tens(new, None, 1_000_000);
    let (_, missing, _) = tens(new, None, 1_000_000);
    assert!(missing.is_some_and(|missing| missing.at_once));
}

#[test]
fn a_price_that_was_measured_once_with_a_slice_in_it_is_corrected_beside_the_neighbour() {
    let mut process = process();
    let (kernel, short) = (guess(5_000), guess(5_000));
    process.gpu.ended = Some(0);
    process.mark(STREAM);
    let mut step = |estimate: &'static Estimate, neighbour: Option<u64>, took: u64| {
        process.gpu.neighbour = neighbour;
        process.launch(STREAM, estimate, took);
        process.mark(STREAM);
        process.wait(process.gpu.ends[&STREAM] - 10_000);
        kernel.mean()
    };
    (0..4).for_each(|_| assert!(step(short, Some(0), 300_000) > 0.0));
    (0..4).for_each(|_| assert!(step(kernel, None, 7_200_000) > 0.0));
    let wrong = (0..3).map(|_| step(kernel, Some(0), 5_000_000)).last().unwrap();
    assert!(wrong > 5_200_000.0 && kernel.known() != Known::Mean, "{wrong}");
    let corrected = (0..12).map(|_| step(kernel, None, 5_000_000)).last().unwrap();
    assert!((corrected / 5e6 - 1.0).abs() < 0.01, "{corrected}");
}

#[test]
fn what_a_price_was_off_by_while_it_was_learnt_does_not_make_later_work_beside_a_neighbour_cheaper() {
    let mut process = process();
    let kernel = guess(5_000);
    let steps = |process: &mut Process, count: u32, took: u64| {
        for _ in 0..count {
            (0..10).for_each(|_| process.launch(STREAM, kernel, took));
            process.mark(STREAM);
            process.wait(process.gpu.ends[&STREAM] - 10_000);
        }
        process.drain();
    };
    process.mark(STREAM);
    steps(&mut process, 4, 60_000); // at first it is slow, as code is loaded
    steps(&mut process, 40, 30_000);
    assert!((kernel.mean() / 30_000.0 - 1.0).abs() < 0.01, "{}", kernel.mean());
    process.gpu.neighbour = None;
    let charged = process.charged;
    steps(&mut process, 20, 63_000); // more than half of it the neighbour's slices
    let per_launch = (process.charged - charged) as f64 / 200.0;
    assert!((per_launch / 30_000.0 - 1.0).abs() < 0.01, "{per_launch}");
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
        let charged = process.charged;
        for _ in 0..4 {
            (0..10).for_each(|_| process.launch(STREAM, kernel, 50_000));
            process.mark(STREAM);
        }
        process.gpu.now = process.gpu.ends[&STREAM];
        process.harvest();
        process.gpu.now += 1_000_000;
        process.charged - charged
    };
    (0..4).for_each(|_| assert!(turn(0, 0) > 0));
    for n in 1..4 {
        let charged = turn(n, 100_000);
        assert!((charged as f64 / 2e6 - 1.0).abs() < 0.01, "{charged}");
    }
    assert!((kernel.mean() / 50_000.0 - 1.0).abs() < 0.01, "{}", kernel.mean());
}

#[test]
fn work_that_overlaps_a_neighbours_is_charged_its_part_of_the_time_and_teaches_nothing() {
    let mut process = process();
    let kernel = guess(100_000);
    kernel.weigh([0.3, 0.09, 0.027], 0.3);
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

/// A kernel of 5 ms, in turns with a neighbour, takes longer than a launch behind it waits for news: each time its work stands still.
#[test]
fn a_long_kernel_of_which_nothing_is_known_is_bounded_although_it_stands_still_each_time() {
    for neighbour in [true, false] {
        let mut process = process();
        let kernel = guess(5_000);
        process.mark(STREAM);
        for n in 0..10 {
            process.gpu.neighbour = neighbour.then_some(n);
            process.launch(STREAM, kernel, 5_000_000 + n % 3 * 2_100_000);
            process.mark(STREAM);
            process.flight.stood_still();
            process.drain();
            process.mark(STREAM);
        }
        assert_eq!(
            (kernel.known(), kernel.mean()),
            (Known::Bounds, 5_000_000.0),
            "beside another: {neighbour}"
        );
        assert!(process.charged >= 35_000_000, "beside another: {neighbour}: {}", process.charged);
    }
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
fn work_that_the_program_has_waited_for_lies_before_that_and_not_before_its_late_mark() {
    let mut process = process();
    let kernel = guess(5_000_000);
    for stream in [STREAM, OTHER, STREAM, OTHER] {
        process.gpu.now += 1_000_000; // as long as a request to the manager
        let (now, marked) = (process.gpu.now, stream == OTHER);
        process.mark(stream);
        process.flight.launches(stream, Nanos(now));
        process.launch(stream, kernel, 5_000_000);
        if marked {
            process.mark(stream);
        }
        process.drain();
        let before = process.flight.snapshot(None);
        process.flight.drained(&before, &process.slot, Nanos(process.gpu.now));
    }
    process.mark(STREAM);
    process.drain();
    assert_eq!(process.charged, 20_000_000, "no two of them ran at once");
}
