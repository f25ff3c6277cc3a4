//! The simulated GPU beside a card: what an H200 was measured to do, and what programs got on it without anybody's help.
#![allow(clippy::unwrap_used, reason = "a test: its helpers fail by panicking, too")]

mod duels;
mod host;
mod physics;
mod programs;
mod unkind;

/// Microseconds, in which cards are measured here.
type Micros = f64;

/// Whether `value` is as far from `measured` as `percent` of it at most.
#[track_caller]
fn assert_near(value: f64, measured: f64, percent: f64, what: &str) {
    let off = 100.0 * (value - measured).abs() / measured;
    assert!(off <= percent, "{what}: {value:.3}, the card {measured:.3}: {off:.1} % off");
}
