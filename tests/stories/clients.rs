//! Real, unmodified clients: what they do under Weir is what they do without, and Weir has seen all of it.

use std::collections::BTreeMap;

use weir_protocol::pages::{COUNTED_LAUNCHES, COUNTED_MEMORY_CALLS};
use weir_tests::program::{Budget, Finished, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::{SWEEP, bare_python, budgeted_python};

pub type Counts = BTreeMap<String, u64>;

/// Of `calls`, those that Weir counts.
pub fn counted(calls: Counts) -> Counts {
    let counted = |name: &str| COUNTED_LAUNCHES.contains(&name) || COUNTED_MEMORY_CALLS.contains(&name);
    calls.into_iter().filter(|(name, _)| counted(name)).collect()
}

/// What Weir counted, from the summary at the end of the run.
pub fn seen_by_weir(run: &Finished) -> Counts {
    let summary = run.summary();
    let part = |key: &str| serde_json::from_value::<Counts>(summary[key].clone()).expect("counts by name");
    part("calls").into_iter().chain(part("memory_calls")).collect()
}

/// Calls that wait for the GPU: what Weir measures it must not measure by these.
fn waits(calls: Counts) -> Counts {
    calls.into_iter().filter(|(name, _)| name.contains("Synchronize")).collect()
}

/// Calls that copy or set memory, by the driver's own count.
fn copies(calls: &Counts) -> u64 {
    let copy = |name: &&String| name.starts_with("cuMemcpy") || name.starts_with("cuMemset");
    calls.iter().filter(|(name, _)| copy(name)).map(|(_, count)| count).sum()
}

/// The same by Weir's, whichever way they went.
fn copies_seen_by_weir(run: &Finished) -> u64 {
    let summary = run.summary();
    let ways = summary["copies"].as_object().into_iter().flatten();
    ways.filter_map(|(_, copied)| copied["calls"].as_u64()).sum()
}

/// Runs a client on its own, then under Weir, each on a GPU that nobody else uses.
#[track_caller]
fn does_the_same_and_is_seen(script: &str) {
    let (gpu_alone, gpu) = (SimGpu::new(EVERY_KERNEL_20_US), SimGpu::new(EVERY_KERNEL_20_US));
    let alone = bare_python(&gpu_alone, script).run().well();
    let under_weir = budgeted_python(&gpu, None, Budget::default(), script).run().well();
    assert_eq!(alone.stdout, under_weir.stdout, "the program's own figures");
    let (by_driver_alone, by_driver) = (counted(gpu_alone.calls()), counted(gpu.calls()));
    assert_eq!(by_driver_alone, by_driver, "calls that reach the driver, without and with Weir");
    let waited = waits(gpu_alone.calls());
    assert!(!waited.is_empty(), "it waits for what it launched");
    assert_eq!(waited, waits(gpu.calls()), "the program's own waits reach the driver, and none of ours");
    assert!(COUNTED_LAUNCHES.iter().any(|name| by_driver.contains_key(*name)), "it launched: {by_driver:?}");
    assert_eq!(seen_by_weir(&under_weir), by_driver, "Weir's count against the driver's own");
    assert_eq!(copies_seen_by_weir(&under_weir), copies(&gpu.calls()), "and of copies and memsets");
}

#[test]
fn every_way_to_launch_or_to_get_memory_is_counted_under_its_own_name() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let run = Program::under_weir(&gpu, None, Budget::default(), SWEEP).run().well();
    let made: serde_json::Value = serde_json::from_str(&run.stdout[0]).expect("one JSON line");
    let made = counted(serde_json::from_value(made["calls"].clone()).expect("counts by name"));
    let mut all = COUNTED_LAUNCHES.iter().chain(&COUNTED_MEMORY_CALLS).filter(|name| !name.is_empty());
    assert!(all.all(|name| made.contains_key(*name)), "the program does not call all: {made:?}");
    assert_eq!(made, counted(gpu.calls()), "the program's own count against the driver's");
    assert_eq!(made, seen_by_weir(&run), "the program's own count against Weir's");
}

#[test]
fn tinygrad_trains_with_its_cuda_graph_as_without_weir_and_every_call_is_counted() {
    does_the_same_and_is_seen("tinygrad_train.py");
}

#[test]
fn numba_cuda_runs_as_without_weir_and_every_call_is_counted() {
    does_the_same_and_is_seen("numba_loop.py");
}

#[test]
fn cuda_core_runs_as_without_weir_and_every_call_is_counted() {
    does_the_same_and_is_seen("cuda_core_loop.py");
}

#[test]
fn cuda_python_runs_as_without_weir_and_every_call_is_counted() {
    does_the_same_and_is_seen("cuda_python_loop.py");
}
