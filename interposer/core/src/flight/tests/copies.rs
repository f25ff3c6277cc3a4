//! Copies between launches, beside them, and alone.

use super::*;

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
    process.flight.drained(&before, &process.slot, Nanos(process.gpu.now));
    assert!(!process.flight.is_busy(STREAM));
}
