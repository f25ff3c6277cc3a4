//! Liveness: throttled hard, no program hangs that ends by itself. The benchmark's short form; its figure is the bar.

use std::process::{Command, Stdio};

use serde::Deserialize;
use weir_tests::dist::Dist;

#[derive(Deserialize)]
struct Document {
    bars: Vec<Bar>,
    figures: Figures,
}

#[derive(Debug, Deserialize)]
struct Bar {
    name: String,
    value: f64,
}

#[derive(Deserialize)]
struct Figures {
    throttled: Throttled,
}

#[derive(Deserialize)]
struct Throttled {
    programs: u64,
    throttled: u64,
}

/// `weir-bench live` with these arguments: nothing hangs, no call fails, and the gate did hold launches back.
fn nothing_hangs(arguments: &[&str]) -> u64 {
    let dist = Dist::find();
    let mut command = Command::new(dist.bench());
    command.args(["live", "--json"]).args(arguments).env("WEIR_DIST", dist.root()).stdin(Stdio::null());
    let output = command.output().expect("weir-bench starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let document: Document =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"));
    assert!(document.bars.iter().all(|bar| bar.value == 0.0), "{:?}\n{said}", document.bars);
    assert!(document.bars.iter().any(|bar| bar.name == "live.hangs"));
    assert!(document.figures.throttled.throttled > 0, "nothing was held back");
    document.figures.throttled.programs
}

/// The directed programs of `weir-bench live`, by number.
fn directed_program_ends(number: u64) {
    assert_eq!(nothing_hangs(&["--programs", "1", "--seed", &number.to_string()]), 1);
}

#[test]
fn a_kernel_that_spins_for_a_flag_behind_a_gated_kernel_sees_it() {
    directed_program_ends(0);
}

#[test]
fn a_stream_that_waits_for_a_value_behind_a_gated_kernel_goes_on() {
    directed_program_ends(1);
}

#[test]
fn a_host_function_that_waits_for_a_gated_thread_hears_of_it() {
    directed_program_ends(2);
}

#[test]
fn a_thread_that_waits_for_a_host_function_behind_a_gated_kernel_hears_of_it() {
    directed_program_ends(3);
}

#[test]
fn a_lock_that_is_held_at_the_gate_is_given_back() {
    directed_program_ends(4);
}

#[test]
fn a_thread_in_debt_that_captures_and_launches_elsewhere_ends_its_capture() {
    directed_program_ends(5);
}

#[test]
fn a_launch_by_a_host_function_is_answered() {
    directed_program_ends(6);
}

#[test]
fn two_processes_that_spin_for_each_other_meet() {
    directed_program_ends(7);
}

#[test]
fn a_mark_behind_an_older_launch_does_not_wait_for_the_parked_legacy_stream() {
    directed_program_ends(8);
}

#[test]
fn a_mark_in_the_legacy_stream_does_not_wait_for_a_parked_blocking_one() {
    directed_program_ends(9);
}

#[test]
fn streams_of_two_processes_that_wait_for_each_others_events_go_on() {
    directed_program_ends(10);
}

#[test]
fn a_thread_that_waits_for_the_context_while_another_one_is_held_back_goes_on() {
    directed_program_ends(11);
}

#[test]
fn a_lock_that_is_held_at_the_gate_and_that_host_functions_need_is_given_back() {
    directed_program_ends(12);
}

#[test]
fn random_programs_end() {
    assert!(nothing_hangs(&["--programs", "150", "--seed", "1000"]) >= 150);
}
