//! Where a tenant's wall time goes, judged against the simulated GPU's books and against what the program was told to do.
//! Everything here is *simulated*.

use weir_tests::copies::Run;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::{COPIES, LOOP};

/// Engines at 2 GB/s, kernels of 400 us.
const MACHINE: &str =
    "linger_ms = 3_600_000\nhost_to_device_gb_s = 2\n[[kernel]]\nname = \"*\"\ntime_us = 400\n";

fn run(gpu: &SimGpu, budget: Budget<'_>, arguments: &[&str]) -> Run {
    let run = Run::of(gpu, Program::under_weir(gpu, None, budget, COPIES).args(arguments).run());
    let off = run.stalls() / run.done.wall_ns as f64 - 1.0;
    assert!(off.abs() < 0.02, "the parts sum to {} of {}: {}", run.stalls(), run.done.wall_ns, run.summary);
    run
}

/// Within five percent, and two milliseconds of the start.
#[track_caller]
fn assert_part(run: &Run, part: &str, wanted: f64) {
    let (got, most) = (run.stall(part), 0.05 * wanted + 2e6);
    assert!((got - wanted).abs() <= most, "{part}: {got}, not {wanted}; {}", run.summary["stalls_ns"]);
}

#[test]
fn alone_and_backlogged_a_tenant_computes_all_the_time() {
    let gpu = SimGpu::new(MACHINE);
    let run = run(&gpu, Budget::default(), &["--rounds", "2000", "launch:a"]);
    assert_part(&run, "compute", run.true_use_ns);
}

/// One waits for each of its rounds and rests, the other never lacks work.
#[test]
fn the_words_of_two_processes_of_a_tenant_sum_to_the_wall_time_of_both() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let budget = Budget { request: "40%", limit: "40%", ..Budget::default() };
    let start = |steps: &[&str]| {
        let program = Program::under_weir(&gpu, Some(&node), budget, COPIES);
        program.args(["--seconds", "2"]).args(steps).start()
    };
    let holder = Program::under_weir(&gpu, Some(&node), budget, "cat").start();
    let both = [start(&["launch:a"]), start(&["launch:a", "to:2MiB", "wait", "pause:1"])];
    let runs = both.map(|running| Run::of(&gpu, running.finish()));
    let wall_ns: u64 = runs.iter().map(|run| run.done.wall_ns).sum();
    let tenant = node.tenant(budget.name).expect("it is held");
    let words = &tenant.gpus[0].total.stalls_ns;
    let off = words.values().sum::<u64>() as f64 / wall_ns as f64 - 1.0;
    eprintln!("{:.2} % off: {words:?} of {wall_ns} ns", 100.0 * off);
    assert!(off.abs() < 0.02, "{off}: {words:?} of {wall_ns} ns");
    holder.finish().well();
}

#[test]
fn pauses_are_the_hosts_and_copies_the_copies() {
    let gpu = SimGpu::new(MACHINE);
    let steps = ["launch:a", "launch:a", "to:2MiB", "wait", "pause:3"];
    let run = run(&gpu, Budget::default(), &[&["--rounds", "150"], &steps[..]].concat());
    assert_part(&run, "compute", run.true_use_ns);
    assert_part(&run, "copies", run.engines_ns[0]);
    let host = run.done.wall_ns as f64 - run.true_use_ns - run.engines_ns[0];
    assert!(host > 150.0 * 3e6, "{host}");
    assert_part(&run, "host", host);
}

#[test]
fn copies_behind_which_kernels_run_do_not_count_twice() {
    let gpu = SimGpu::new(MACHINE);
    let steps = ["launch:a", "launch:a", "launch:a", "to:2MiB@2"]; // 1.2 ms beside 1.05 ms
    let run = run(&gpu, Budget::default(), &[&["--rounds", "400"], &steps[..]].concat());
    assert_part(&run, "compute", run.true_use_ns);
    assert!(run.stall("copies") < 0.1 * run.engines_ns[0], "{}", run.summary["stalls_ns"]);
}

#[test]
fn a_throttled_tenant_waits_at_the_gate_what_its_limit_takes_away() {
    let gpu = SimGpu::new(MACHINE);
    let budget = Budget { request: "20%", limit: "20%", ..Budget::default() };
    // Until a few launches were measured, far too much is let through: none of that is what is asked here.
    let learn = ["--first", "launch:a", "--first", "wait"].repeat(6);
    let run = run(&gpu, budget, &[&learn[..], &["--rounds", "1000", "launch:a"]].concat());
    assert_part(&run, "compute", run.true_use_ns);
    let waited = run.done.took_ns as f64 - run.true_use_ns;
    assert!(waited > 2.0 * run.true_use_ns, "it was throttled");
    assert_part(&run, "gate", waited);
}

#[test]
fn kernels_named_as_collectives_are_communication() {
    let gpu = SimGpu::new(MACHINE);
    let steps = ["launch:a", "launch:ncclDevKernel_AllReduce", "launch:a", "wait"];
    let run = run(&gpu, Budget::default(), &[&["--rounds", "300"], &steps[..]].concat());
    assert_part(&run, "communication", run.true_use_ns / 3.0);
    assert_part(&run, "compute", run.true_use_ns * 2.0 / 3.0);
}

#[test]
fn graphs_and_copies_between_them_sum_to_the_wall_time_as_kernels_do() {
    let gpu = SimGpu::new(MACHINE);
    let first = ["--first", "graph:a", "--first", "wait"].repeat(4);
    let steps = ["graph:a", "graph:a", "to:2MiB", "wait", "pause:3"];
    let run = run(&gpu, Budget::default(), &[&first[..], &["--rounds", "100"], &steps[..]].concat());
    assert_part(&run, "compute", run.true_use_ns);
    assert_part(&run, "copies", run.engines_ns[0]);
}

/// Kernels of all SMs take twice as long beside others of all SMs: half of that is the neighbour's.
#[test]
fn where_kernels_run_at_once_the_time_by_which_others_slow_them_is_the_neighbours() {
    let gpu = SimGpu::new(&format!("mode = \"mps\"\n{MACHINE}"));
    let node = Node::start(&gpu, "policy = \"static\"\n[[price]]\nname = \"*\"\ntime_us = 400\n");
    let budget = |name| Budget { name, request: "50%", limit: "100%", memory: "2GiB" };
    let start = |name| {
        let program = Program::under_weir(&gpu, Some(&node), budget(name), COPIES);
        program.args(["--seconds", "2", "launch:a"]).start()
    };
    let both = ["one", "other"].map(start).map(|running| Run::of(&gpu, running.finish()));
    for run in &both {
        let off = run.stalls() / run.done.wall_ns as f64 - 1.0;
        assert!(off.abs() < 0.02, "{off}: {}", run.summary);
        let compute = run.stall("compute") / run.true_use_ns;
        assert!((compute - 1.0).abs() < 0.1, "{compute}: {}", run.summary["stalls_ns"]);
    }
}

#[test]
fn beside_another_tenant_the_time_of_its_slices_is_the_neighbours() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"static\"\n[[price]]\nname = \"*\"\ntime_us = 400\n");
    let budget = |name| Budget { name, request: "50%", limit: "100%", memory: "2GiB" };
    let other = Looping::start(Program::under_weir(&gpu, Some(&node), budget("other"), LOOP));
    let program = Program::under_weir(&gpu, Some(&node), budget("mine"), COPIES);
    let mine = Run::of(&gpu, program.args(["--seconds", "2", "launch:a"]).run());
    other.finish().well();
    let off = mine.stalls() / mine.done.wall_ns as f64 - 1.0;
    assert!(off.abs() < 0.02, "{off}: {}", mine.summary);
    let compute = mine.stall("compute") / mine.true_use_ns;
    assert!((compute - 1.0).abs() < 0.1, "{compute}: {}", mine.summary["stalls_ns"]);
    let waited = mine.stall("neighbour") + mine.stall("gate");
    assert!(waited > 0.2 * mine.done.took_ns as f64, "{}", mine.summary["stalls_ns"]);
}
