//! Copies and memsets: counted as the simulated GPU counts them, no launch's charge, held to their budget. Everything here
//! is *simulated*.

use std::time::Duration;

use serde_json::Value;
use weir_tests::copies::Run;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

use crate::{COPIES, SWEEP};

/// Engines at 1 and 2 GB/s: slower than the host's own copying, so that the engines' time counts.
const SLOW_ENGINES: &str = "linger_ms = 3_600_000\nhost_to_device_gb_s = 2\ndevice_to_host_gb_s = 1\n\
    [[kernel]]\nname = \"spin\"\ntime_us = 10\nspins = true\n[[kernel]]\nname = \"*\"\ntime_us = 400\n";

fn run(gpu: &SimGpu, budget: Budget<'_>, arguments: &[&str]) -> Run {
    Run::of(gpu, Program::under_weir(gpu, None, budget, COPIES).args(arguments).run())
}

#[track_caller]
fn assert_within(percent: f64, got: f64, wanted: f64, what: &str) {
    assert!((got / wanted - 1.0).abs() <= percent / 100.0, "{what}: {got}, not {wanted} within {percent} %");
}

#[test]
fn copies_are_counted_by_way_with_their_bytes_and_their_time() {
    let gpu = SimGpu::new(SLOW_ENGINES);
    let steps =
        ["to:8MiB", "from:4MiB", "within:1MiB", "fill:2MiB", "now-to:16MiB", "now-from:16MiB", "wait"];
    let run = run(&gpu, Budget::default(), &[&["--rounds", "40"], &steps[..]].concat());
    for (way, calls, mib) in [
        ("host_to_device", 80, 40 * 24),
        ("device_to_host", 80, 40 * 20),
        ("device_to_device", 40, 40),
        ("fill", 42, 40 * 2),
    ] {
        let first = if way == "fill" { 2 << 14 } else { 0 }; // a byte of each page
        let copied = &run.summary["copies"][way];
        let counted = (copied["calls"].as_u64(), copied["bytes"].as_u64());
        assert_eq!(counted, (Some(calls), Some(first + (mib << 20))), "{way}");
    }
    assert_eq!(run.engines_bytes, [(40 * 24) << 20, (40 * 20) << 20]);
    for (way, engine) in [("host_to_device", 0), ("device_to_host", 1)] {
        assert_within(5.0, run.copied(way, "time_ns"), run.engines_ns[engine], way);
    }
}

#[test]
fn every_way_to_copy_or_to_set_memory_is_counted() {
    let gpu = SimGpu::new("linger_ms = 3_600_000\n");
    let run = Program::under_weir(&gpu, None, Budget::default(), SWEEP).run().well();
    let made: Value = serde_json::from_str(&run.stdout[0]).expect("one JSON line");
    let (made, summary) = (made["copied"].as_object().expect("copies by way").clone(), run.summary());
    assert_eq!(made.len(), 4, "{made:?}");
    for (way, made) in made {
        let seen = &summary["copies"][&way];
        assert_eq!([&seen["calls"], &seen["bytes"]], [&made["calls"], &made["bytes"]], "{way}");
    }
}

#[test]
fn large_asynchronous_copies_are_timed_as_the_engines_time_them() {
    let gpu = SimGpu::new(SLOW_ENGINES);
    let run = run(&gpu, Budget::default(), &["--rounds", "60", "to:8MiB", "from:2MiB@2", "wait"]);
    for (way, engine) in [("host_to_device", 0), ("device_to_host", 1)] {
        assert_within(5.0, run.copied(way, "time_ns"), run.engines_ns[engine], way);
    }
}

#[test]
fn copies_between_kernels_in_one_stream_are_not_charged() {
    let gpu = SimGpu::new(SLOW_ENGINES);
    let steps = ["--rounds", "800", "launch:a", "to:1MiB", "launch:b", "from:3MiB"];
    let run = run(&gpu, Budget::default(), &steps);
    assert_within(2.0, run.counter("charged_ns"), run.true_use_ns, "charged");
    assert!(run.engines_ns[0] + run.engines_ns[1] > run.true_use_ns, "there were more copies than kernels");
}

#[test]
fn copies_beside_kernels_in_another_stream_are_not_charged() {
    let gpu = SimGpu::new(SLOW_ENGINES);
    let steps = ["--rounds", "800", "launch:a", "to:1MiB@2", "launch:b", "from:1MiB@2"];
    let run = run(&gpu, Budget::default(), &steps);
    assert_within(2.0, run.counter("charged_ns"), run.true_use_ns, "charged");
}

#[test]
fn memsets_and_copies_within_the_device_are_charged_as_sm_time() {
    let gpu = SimGpu::new(&format!("device_gb_s = 5\n{SLOW_ENGINES}"));
    let steps = ["--rounds", "900", "fill:2MiB", "launch:a", "within:1MiB", "fill:1MiB@2"];
    let run = run(&gpu, Budget::default(), &steps);
    assert_within(2.0, run.counter("charged_ns"), run.true_use_ns, "charged");
}

#[test]
fn a_tenant_that_sets_memory_pays_when_it_launches() {
    let gpu = SimGpu::new(&format!("device_gb_s = 5\n{SLOW_ENGINES}"));
    let budget = Budget { request: "20%", limit: "20%", ..Budget::default() };
    let run = run(&gpu, budget, &["--rounds", "300", "fill:2MiB", "launch:a"]);
    let share = run.true_use_ns / run.done.took_ns as f64 * 100.0;
    assert!((15.0..=22.0).contains(&share), "{share:.1} % under a limit of 20 %");
}

/// Bytes per second between host and device, of a run of about a second.
fn bandwidth(run: &Run) -> f64 {
    let bytes = run.copied("host_to_device", "bytes") + run.copied("device_to_host", "bytes");
    bytes * 1e9 / run.done.took_ns as f64
}

#[test]
fn a_limited_tenant_copies_at_its_limit_beside_one_without_a_limit() {
    let gpu = SimGpu::new("linger_ms = 3_600_000\n");
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let start = |name, flags: &[&str], steps: &[&str]| {
        let budget = Budget { name, request: "50%", limit: "100%", memory: "2GiB" };
        Program::under_weir_with(&gpu, Some(&node), budget, flags, COPIES)
            .args(["--seconds", "1.5"])
            .args(steps)
            .start()
    };
    let limited = start("limited", &["--copy-limit", "512MiB/s"], &["to:2MiB", "from:1MiB@2"]);
    let free = start("free", &[], &["to:2MiB", "wait", "pause:2"]);
    let (limited, free) = (Run::of(&gpu, limited.finish()), Run::of(&gpu, free.finish()));
    assert_within(5.0, bandwidth(&limited), f64::from(512 << 20), "bytes per second");
    assert!(limited.counter("throttled") > 10.0, "it waited at the gate");
    assert_eq!(free.counter("throttled"), 0.0, "nobody else waited");
}

#[test]
fn calls_that_wait_for_their_copy_leave_their_debt_to_the_next_launch() {
    let gpu = SimGpu::new("linger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 20\n");
    let budget = Budget::default();
    let program = Program::under_weir_with(&gpu, None, budget, &["--copy-limit", "256MiB/s"], COPIES);
    let steps = ["--seconds", "1.5", "now-to:4MiB", "launch:a", "now-from:4MiB", "launch:a"];
    let run = Run::of(&gpu, program.args(steps).run());
    assert_within(5.0, bandwidth(&run), f64::from(256 << 20), "bytes per second");
}

#[test]
fn a_limit_can_be_set_and_taken_away_while_a_program_copies() {
    let gpu = SimGpu::new("linger_ms = 3_600_000\n");
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let budget = Budget { name: "copier", request: "50%", limit: "100%", memory: "2GiB" };
    let program = Program::under_weir(&gpu, Some(&node), budget, COPIES);
    let running = program.args(["--seconds", "4", "to:1MiB", "wait"]).start();
    let copied = || {
        let tenant = node.tenant("copier");
        let gpu = tenant.as_ref().and_then(|tenant| tenant.gpus.first());
        gpu.and_then(|gpu| gpu.total.copies.get("host_to_device")).map_or(0, |copied| copied.bytes)
    };
    wait::until("copies", || (copied() > 0).then_some(()));
    let mib_per_s = || {
        let (bytes, at_ns) = (copied(), gpu.books().now_ns);
        wait::pass(Duration::from_millis(500));
        (copied() - bytes) as f64 / f64::from(1 << 20) * 1e9 / (gpu.books().now_ns - at_ns) as f64
    };
    node.set("copier", &["--copy-limit", "64MiB/s"]);
    let slow = mib_per_s();
    assert!(slow < 80.0, "{slow} MiB/s at 64 MiB/s");
    node.set("copier", &["--copy-limit", "unlimited"]);
    let fast = mib_per_s();
    assert!(fast > 2.0 * slow, "{fast} MiB/s without a limit, {slow} with one");
    Run::of(&gpu, running.finish());
}

#[test]
fn a_kernel_that_spins_for_a_copy_that_has_no_budget_left_sees_it() {
    let gpu = SimGpu::new(SLOW_ENGINES);
    let flags = ["--copy-limit", "1MiB/s"]; // the first copy is paid for after a minute
    let program = Program::under_weir_with(&gpu, None, Budget::default(), &flags, COPIES);
    let run = Run::of(&gpu, program.args(["to:64MiB", "spin", "set", "wait"]).run());
    assert!(run.counter("forced") >= 1.0 && run.done.took_ns < 20_000_000_000, "{:?}", run.done);
}
