//! Resizing: `weir set` while programs run. Shares are judged by the simulated GPU's own books.

use std::time::Duration;

use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

/// The price table says what the simulated GPU's configuration says: how well prices are learnt is not the question.
const PRICED: &str = "policy = \"static\"\n[[price]]\nname = \"*\"\ntime_us = 20\n";

/// How long shares are measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Of what a tenant has under its first grant some is still queued when the next one comes.
const SETTLE: Duration = Duration::from_millis(200);

/// How far a measured share may lie from the set one, in points. No bar (those are benchmarks'): other programs run
/// on the machine's processors, and a loop that does not get one cannot use its share.
const TOLERANCE: f64 = 5.0;

/// True use of each process's contexts over a window, in percent of the window.
fn shares(gpu: &SimGpu, pids: [i32; 2]) -> [f64; 2] {
    wait::pass(SETTLE);
    gpu.shares(pids, WINDOW)
}

#[track_caller]
fn assert_near(measured: [f64; 2], set: [f64; 2]) {
    let near = measured.iter().zip(set).all(|(measured, set)| (measured - set).abs() <= TOLERANCE);
    assert!(near, "measured {measured:.1?} %, set {set:?} %");
}

fn start(gpu: &SimGpu, node: &Node<'_>, name: &str, share: &str) -> Looping {
    let budget = Budget { name, request: share, limit: share, memory: "2GiB" };
    Looping::start(Program::under_weir(gpu, Some(node), budget, LOOP))
}

#[test]
fn a_swap_of_shares_holds_within_a_second_while_both_run() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, PRICED);
    let (big, small) = (start(&gpu, &node, "big", "60%"), start(&gpu, &node, "small", "30%"));
    let pids = [big.pid, small.pid];
    assert_near(shares(&gpu, pids), [60.0, 30.0]);
    // Down first: at no moment may more than the whole GPU be promised.
    let down = node.set("big", &["--request", "30%", "--limit", "30%"]);
    let up = node.set("small", &["--request", "60%", "--limit", "60%"]);
    for done in [down, up] {
        assert!(done.first_launch_us.is_some(), "a busy tenant answers with a launch: {done:?}");
    }
    assert_near(shares(&gpu, pids), [30.0, 60.0]);
}

#[test]
fn prices_that_nobody_told_are_learnt_while_two_share() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (big, small) = (start(&gpu, &node, "big", "60%"), start(&gpu, &node, "small", "30%"));
    assert_near(shares(&gpu, [big.pid, small.pid]), [60.0, 30.0]);
}

#[test]
fn graphs_are_charged_as_the_launches_in_them() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, PRICED);
    let budget = |name, share| Budget { name, request: share, limit: share, memory: "2GiB" };
    let program = |name, share| Program::under_weir(&gpu, Some(&node), budget(name, share), LOOP);
    let graphs = Looping::start(program("graphs", "30%").arg("--graph"));
    let kernels = Looping::start(program("kernels", "60%"));
    assert_near(shares(&gpu, [graphs.pid, kernels.pid]), [30.0, 60.0]);
}

#[test]
fn what_an_idle_tenant_leaves_is_lent_and_given_back() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, PRICED);
    let budget = |name| Budget { name, request: "50%", limit: "100%", memory: "2GiB" };
    let start = |name| Looping::start(Program::under_weir(&gpu, Some(&node), budget(name), LOOP));
    let idle = Program::under_weir(&gpu, Some(&node), budget("idle"), "cat").start();
    let busy = start("busy");
    let [alone, _] = shares(&gpu, [busy.pid, 0]);
    assert!(alone > 90.0, "the idle tenant's half is lent: {alone:.1} %");
    let back = start("idle");
    assert_near(shares(&gpu, [busy.pid, back.pid]), [47.5, 47.5]);
    idle.finish().well();
}

#[test]
fn a_tenant_alone_has_its_limit_however_far_that_lies_above_its_request() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, PRICED);
    for (limit, percent) in [("30%", 30.0), ("50%", 50.0)] {
        let budget = Budget { name: "alone", request: "10%", limit, memory: "2GiB" };
        let alone = Looping::start(Program::under_weir(&gpu, Some(&node), budget, LOOP));
        assert_near(shares(&gpu, [alone.pid, 0]), [percent, 0.0]);
    }
}
