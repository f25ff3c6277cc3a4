//! GPUs that tenants share by MPS: partitions and priorities, and what happens where MPS itself would be silent.
//! What the variables mean: NVIDIA, Multi-Process Service (docs.nvidia.com/deploy/mps); that clients without a control daemon run
//! unlimited and unwarned is the first thing that its users meet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use weir_tests::copies::Run;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::shown;
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

use crate::{COPIES, LOOP};

/// What each kernel takes on the whole GPU, of which it fills every SM.
const KERNEL_US: f64 = 200.0;

/// How long progress is measured.
const WINDOW: Duration = Duration::from_millis(500);

/// A GPU under MPS, its control daemon's directory, and the node manager's configuration.
struct Machine {
    gpu: SimGpu,
    pipes: TempDir,
}

impl Machine {
    fn new() -> Self {
        let pipes = tempfile::tempdir().expect("a temporary directory");
        // The story is the daemon: it lives.
        let number = std::process::id().to_string();
        std::fs::write(pipes.path().join("nvidia-cuda-mps-control.pid"), number).expect("a file in it");
        let gpu = SimGpu::new(&format!(
            "linger_ms = 3_600_000\nmode = \"mps\"\nmps_pipe_directory = \"{}\"\n\
             [[kernel]]\nname = \"*\"\ntime_us = {KERNEL_US:?}\nblocks = 108\n",
            pipes.path().display()
        ));
        Self { gpu, pipes }
    }

    /// A node manager that looks for the control daemon there.
    fn node(&self, pipes: &Path) -> Node<'_> {
        let config = format!("policy = \"static\"\n[mps]\npipe_directory = \"{}\"\n", pipes.display());
        let prices = format!("[[price]]\nname = \"*\"\ntime_us = {KERNEL_US:?}\n");
        Node::start(&self.gpu, &(config + &prices))
    }

    fn served(&self) -> PathBuf {
        self.pipes.path().to_owned()
    }

    /// What the processes get done, in percent of what the whole GPU would: kernels completed in the same window.
    fn progress<const N: usize>(&self, pids: [i32; N]) -> [f64; N] {
        let done = || {
            let books = self.gpu.books();
            let of = |pid: i32| {
                let clients = books.gpus[0].clients.iter().filter(|client| client.pid == pid);
                clients.flat_map(|client| &client.contexts).map(|context| context.launches).sum::<u64>()
            };
            (books.now_ns, pids.map(of))
        };
        let before = done();
        wait::pass(WINDOW);
        let after = done();
        let us = (after.0 - before.0) as f64 / 1e3;
        std::array::from_fn(|at| (after.1[at] - before.1[at]) as f64 * KERNEL_US * 100.0 / us)
    }
}

fn budget<'a>(name: &'a str, request: &'a str, limit: &'a str) -> Budget<'a> {
    Budget { name, request, limit, memory: "2GiB" }
}

#[test]
fn a_limit_is_a_partition_that_holds_also_where_the_gate_does_not() {
    let machine = Machine::new();
    let node = machine.node(&machine.served());
    let train = Program::under_weir(&machine.gpu, Some(&node), budget("train", "30%", "30%"), LOOP);
    let train = Looping::start(train);
    // 33 of 108 SMs; a gate on top of that would leave a tenth of the GPU.
    let within = |share: &f64| (24.0..31.0).contains(share);
    wait::until("a partition's worth", || Some(machine.progress([train.pid])[0]).filter(within));
    node.weir(&["off"]);
    let [free] = machine.progress([train.pid]);
    assert!(free < 31.0, "without a gate the partition is left: {free} %");
    node.weir(&["on"]);
    // A lower limit cannot change the partition; the gate keeps it.
    node.set("train", &["--request", "10%", "--limit", "10%"]);
    wait::until("a third of the partition", || {
        Some(machine.progress([train.pid])[0]).filter(|share| (6.0..12.0).contains(share))
    });
    assert!(node.stats().gpus[0].mps);
    let stderr = train.finish().well().stderr;
    assert!(stderr.contains("at most 30 % of the SMs, at normal priority"), "{stderr}");
    assert!(stderr.contains("a fatal GPU fault of any program"), "{stderr}");
}

#[test]
fn a_latency_tenant_goes_before_a_filler_by_priority_alone() {
    let machine = Machine::new();
    let node = machine.node(&machine.served());
    let start = |budget: Budget<'_>, class: &str| {
        let flags = ["--class", class];
        Looping::start(Program::under_weir_with(&machine.gpu, Some(&node), budget, &flags, LOOP))
    };
    let online = start(budget("online", "50%", "100%"), "latency");
    let filler = start(budget("filler", "0%", "100%"), "filler");
    node.weir(&["off"]); // no gate, no board: what is left is MPS
    let pids = [online.pid, filler.pid];
    wait::until("one before the other", || {
        Some(machine.progress(pids)).filter(|[online, filler]| *online > 60.0 && *filler < online / 5.0)
    });
    for looping in [online, filler] {
        looping.finish().well();
    }
}

#[test]
fn without_a_control_daemon_in_the_directory_nothing_is_started() {
    let machine = Machine::new();
    let misspelt = machine.pipes.path().join("misspelt");
    let node = machine.node(&misspelt);
    let run = Program::under_weir(&machine.gpu, Some(&node), budget("train", "30%", "30%"), LOOP).run();
    assert_eq!(run.status.code(), Some(78), "{}", run.stderr);
    assert!(
        run.stderr.contains("no MPS control daemon at") && run.stderr.contains("W0124"),
        "{}",
        run.stderr
    );
    assert!(run.stdout.is_empty(), "the program has not run: {:?}", run.stdout);
}

#[test]
fn a_program_that_leaves_mps_by_itself_says_so_and_is_held_by_its_gate() {
    let machine = Machine::new();
    let node = machine.node(&machine.served());
    let script = format!("CUDA_MPS_PIPE_DIRECTORY=/nowhere exec {LOOP}");
    let left = Program::under_weir(&machine.gpu, Some(&node), budget("train", "30%", "30%"), "/bin/sh");
    let left = Looping::start(left.args(["-c", &script]));
    let held = |share: &f64| (15.0..33.0).contains(share);
    wait::until("what the gate leaves", || Some(machine.progress([left.pid])[0]).filter(held));
    shown::everywhere(&node, "train", "beside_mps");
    let stderr = left.finish().well().stderr;
    assert_eq!(stderr.matches("this process is no client of MPS").count(), 1, "{stderr}");
}

#[test]
fn what_a_kernel_takes_longer_beside_others_is_told_apart_and_not_charged() {
    let machine = Machine::new();
    let node = machine.node(&machine.served());
    let run = |name| {
        let program = Program::under_weir(&machine.gpu, Some(&node), budget(name, "50%", "100%"), COPIES);
        Run::of(&machine.gpu, program.args(["--seconds", "2", "launch:a"]).run())
    };
    let alone = run("alone");
    let other = Program::under_weir(&machine.gpu, Some(&node), budget("other", "50%", "100%"), LOOP);
    let other = Looping::start(other);
    let beside = run("beside");
    other.finish().well();
    let inflation = |run: &Run| run.done.took_ns as f64 / (run.done.rounds as f64 * KERNEL_US * 1e3);
    let (before, after) = (inflation(&alone), inflation(&beside));
    assert!(before < 1.1 && after > 1.7, "its kernels take {before:.2} of their time, then {after:.2}");
    for (run, waited) in [(&alone, 0.0), (&beside, 1.0 - 1.0 / after)] {
        let charged = run.counter("charged_ns") / run.true_use_ns;
        assert!((charged - 1.0).abs() < 0.1, "charged {charged:.3} of its true use: {}", run.summary);
        let neighbour = run.stall("neighbour") / run.done.took_ns as f64;
        assert!((neighbour - waited).abs() < 0.1, "{neighbour:.2}, not {waited:.2}: {}", run.summary);
    }
}
