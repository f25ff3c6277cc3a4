//! `weir-cluster profile` on real programs whose answer is known, and on such that cannot be profiled. Everything here is
//! *simulated*: the GPU's time, not the programs.

mod beside;
mod page;

use weir_cluster::profile::{Kind, Profile};
use weir_protocol::units::SmShare;
use weir_tests::dist::{client, python};
use weir_tests::node::Node;
use weir_tests::program::{Finished, Program, signal};
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

/// Each kernel takes 4 ms of the whole GPU.
const MACHINE: &str = "linger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 4000\n";

/// Windows that are as short as a story wants them.
const SHORT: [&str; 4] = ["--settle", "300ms", "--window", "500ms"];

/// `weir-cluster profile` with these flags; what follows is the program.
fn profiler(gpu: &SimGpu, node: &Node<'_>, flags: &[&str]) -> Program {
    let program = Program::bare(gpu, gpu.dist().cluster()).args(["profile", "--dir"]).arg(node.dir());
    let windows: &[&str] = if flags.contains(&"--window") { &[] } else { &SHORT };
    program.arg("--weir").arg(gpu.dist().weir()).args(windows).args(flags)
}

/// A program that steps once in `period_ms`, or less often if the GPU does not keep up.
fn fed_loop(program: Program, batch: &str, period_ms: &str) -> Program {
    program.arg("--").arg(python()).arg("-u").arg(client("fed_loop.py")).args([batch, period_ms])
}

/// A program that works for so long on its host and on the GPU in turn.
fn host_and_gpu(program: Program, host_ms: &str) -> Program {
    program.arg("--").arg(python()).arg("-u").arg(client("host_and_gpu.py")).arg(host_ms)
}

/// A failure that says this, and what to do.
#[track_caller]
fn assert_fails(finished: &Finished, code: i32, message: &str, help: &str) {
    assert_eq!(finished.status.code(), Some(code), "{finished:?}");
    assert!(finished.stderr.contains("error: ") && finished.stderr.contains(message), "{finished:?}");
    assert!(finished.stderr.contains("help: ") && finished.stderr.contains(help), "{finished:?}");
}

/// A kernel of 20 ms for each step, and data for one every 54 ms: with 40 % of the GPU it keeps up with all 18.5 steps a second, with
/// 35 % only with 17.5. 70 % of them, 13, need 30 %, with which it does 15. As long as that, so that what else the machine does is small
/// beside it.
#[test]
fn a_program_that_its_host_feeds_needs_the_share_at_which_the_gpu_keeps_up() {
    let gpu = SimGpu::new("linger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 20_000\n");
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let file = gpu.dir().join("fed.toml");
    let found = wait::in_time(|| {
        let flags = ["--keep", "70%", "--name", "fed", "--settle", "500ms", "--window", "1s"];
        let profiler = profiler(&gpu, &node, &flags).arg("--out").arg(&file);
        fed_loop(profiler, "1", "54").run().well();
        Profile::read(&file).unwrap()
    });
    assert_eq!(
        (found.kind, found.request, found.limit),
        (Kind::Training, SmShare::percent(30), SmShare::percent(40))
    );
    assert!((found.throughput.alone - 18.5).abs() < 0.6, "{:?}", found.throughput);
    assert!((found.throughput.gpu_ms.unwrap() - 20.0).abs() < 1.0, "{:?}", found.throughput);
    assert!((found.stalls.bubble - 0.63).abs() < 0.05, "{:?}", found.stalls);
    assert!(found.memory.0 > 0 && found.measured.simulated && found.measured.probes.len() > 10);
    assert!(node.stats().tenants.is_empty(), "the program was ended");
}

/// Batches take 4 ms a sample and nothing else, so each pair that keeps the SLO is as efficient as any: one sample per 4 ms of the GPU.
#[test]
fn under_an_slo_the_answer_was_measured_to_keep_it() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let file = gpu.dir().join("served.toml");
    let profile = wait::in_time(|| {
        let flags = ["--kind", "inference", "--slo", "p95 < 30ms", "--max-batch", "2"];
        let flags = [&flags[..], &["--confidence", "60%"]].concat();
        fed_loop(profiler(&gpu, &node, &flags).arg("--out").arg(&file), "{batch}", "0").run().well();
        Profile::read(&file).unwrap()
    });
    let inference = profile.inference.unwrap();
    assert!(inference.latency_ms <= 30.0 && inference.batch <= 2, "{inference:?}");
    let gpu_time_ms = profile.request.as_percent() / 100.0 * 1e3 / profile.throughput.at_request;
    assert!((gpu_time_ms - 4.0).abs() < 1.5, "what it gets of the GPU is what a sample takes: {gpu_time_ms}");
    let batches = profile.measured.probes.iter().filter_map(|probe| probe.batch);
    assert_eq!(
        batches.collect::<std::collections::BTreeSet<_>>().len(),
        2,
        "it was restarted with the other batch"
    );
}

#[test]
fn an_slo_that_the_whole_gpu_misses_is_told() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let flags = ["--kind", "inference", "--slo", "p95 < 2ms"];
    let finished = fed_loop(profiler(&gpu, &node, &flags), "1", "0").run();
    assert_fails(&finished, 1, "cannot be kept: batch 1 with 100 % of the GPU takes 4.", "promise more time");
    assert!(node.stats().tenants.is_empty(), "the program was ended");
}

#[test]
fn a_program_that_tells_no_rate_is_told_and_ended() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let flags = ["--patience", "1500ms", "--rate", "samples/s: ([0-9.]+)"];
    let finished = fed_loop(profiler(&gpu, &node, &flags), "1", "5").run();
    assert_fails(&finished, 1, "no rate within 1.5 s", "correct --rate");
    let none = profiler(&gpu, &node, &["--patience", "1s"]).args(["--", "sleep", "1000"]).run();
    assert_fails(&none, 1, "it prints too few lines", "python -u");
    assert!(node.stats().tenants.is_empty(), "the programs were ended");
}

#[test]
fn a_program_that_ends_early_is_told_with_its_last_words() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let ends = profiler(&gpu, &node, &[]).args(["--", "sh", "-c", "echo no such data set >&2; exit 7"]).run();
    assert_fails(&ends, 1, "the program ended before it was measured", "lasts until it is stopped");
    assert!(ends.stderr.contains("no such data set") && ends.stderr.contains('7'), "{ends:?}");
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_runs() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let refused = |flags: &[&str], message: &str, help: &str| {
        let finished = profiler(&gpu, &node, flags).args(["--", "sleep", "1000"]).run();
        assert_fails(&finished, 2, message, help);
    };
    refused(&["--kind", "trainig"], "no kind `trainig`", "did you mean `training`?");
    refused(&["--kind", "inference"], "needs an SLO", "--slo");
    refused(&["--slo", "p95 < 4ms"], "kind training has no SLO", "--kind inference");
    refused(&["--kind", "inference", "--slo", "p100 < 4ms"], "is no SLO", "p95 < 200ms");
    refused(&["--rate", "samples"], "has no group", "--rate");
    refused(&["--keep", "0.8"], "it has no unit", "30%");
    refused(&["--keep", "99%"], "out of range", "1% to 98%");
    refused(&["--patience", "2"], "is no time", "500ms");
    refused(&["--memory", "40Q"], "unknown unit `Q`", "40GiB");
    refused(&["--gpu", "7"], "no GPU `7`", "choose from: 0");
    let batch = profiler(&gpu, &node, &[]).args(["--", "sleep", "{batch}"]).run();
    assert_fails(&batch, 2, "no SLO under which a batch", "--kind inference");
    let nowhere = Program::bare(&gpu, gpu.dist().cluster()).args(["profile", "--dir"]).arg(gpu.no_node());
    assert_fails(&nowhere.args(["--", "true"]).run(), 69, "no node manager", "weir node");
}

#[test]
fn where_others_are_guaranteed_a_part_nothing_is_measured() {
    let gpu = SimGpu::new(MACHINE);
    let config = "[[tenant]]\nname = \"serve\"\nrequest = \"30%\"\nmemory = \"1GiB\"\n";
    let node = Node::start(&gpu, config);
    let finished = profiler(&gpu, &node, &[]).args(["--", "sleep", "1000"]).run();
    assert_fails(&finished, 1, "30 % of GPU 0 is guaranteed to others", "weir ps");
}

#[test]
fn interrupted_it_ends_the_program_and_writes_nothing() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let file = gpu.dir().join("never.toml");
    let running = fed_loop(profiler(&gpu, &node, &["--out", file.to_str().unwrap()]), "1", "5").start();
    wait::until("a program that launches", || {
        let tenant = node.stats().tenants.into_iter().next()?;
        tenant.gpus.first().filter(|gpu| gpu.total.launches > 20).map(|_| ())
    });
    signal(running.pid(), libc::SIGINT);
    assert_fails(&running.finish(), 130, "interrupted", "run it again");
    wait::until("the tenant's end", || node.stats().tenants.is_empty().then_some(()));
    assert!(!file.exists());
}
