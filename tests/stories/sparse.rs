//! A limit holds in the long run whatever the size of a kernel: seldom and large, or small and without end.

use std::time::Duration;

use weir_tests::graphs::Spent;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

use crate::LOOP;

/// Marks take none of the GPU's time, which the books say apart: a charge is held against kernels alone.
const COSTS: &str = "linger_ms = 3_600_000\n\
    [marks]\ntimed_event_ns = 0\nwrite_ns = 0\n\
    [[kernel]]\nname = \"large\"\ntime_us = 50_000\n\
    [[kernel]]\nname = \"tiny\"\ntime_us = 5\n";

const BUDGET: Budget<'_> = Budget { name: "few", request: "5%", limit: "5%", memory: "2GiB" };

/// Until what the bucket held at first is spent, and the prices are known.
const FIRST: Duration = Duration::from_secs(3);

/// Twenty of the large kernel's turns at the limit's rate: one more or less is 0.25 %.
const LONG: Duration = Duration::from_secs(20);

/// Charged and used may differ by this, in percent.
const CLOSE: f64 = 1.0;

/// A program with these arguments has this part of the GPU in the long run, in percent; it is charged what it uses, by what is `spent`
/// at two moments.
fn has(
    arguments: &[&str],
    part: std::ops::RangeInclusive<f64>,
    spent: fn(&SimGpu, &Node<'_>, i32) -> Option<Spent>,
) {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let program = Program::under_weir(&gpu, Some(&node), BUDGET, LOOP).args(arguments);
    let looping = Looping::start(program);
    let spent = || wait::until("a moment at which to look", || spent(&gpu, &node, looping.pid));
    gpu.shares([looping.pid], FIRST);
    let before = spent();
    let [share] = gpu.shares([looping.pid], LONG);
    let spent = spent().since(before);
    eprintln!("{arguments:?}: {share} %, {spent:?}, {} %", spent.error_percent());
    assert!(part.contains(&share), "{arguments:?}: {share} %");
    assert!(spent.error_percent().abs() <= CLOSE, "{arguments:?}: {spent:?}");
    looping.finish().well();
}

/// Whenever one looks.
fn now(gpu: &SimGpu, node: &Node<'_>, pid: i32) -> Option<Spent> {
    Some(Spent::of(gpu, node, BUDGET.name, pid))
}

/// Between two kernels: one that is under way is charged as a whole, and has used a part of that.
fn at_rest(gpu: &SimGpu, node: &Node<'_>, pid: i32) -> Option<Spent> {
    let outstanding = || {
        let tenant = node.tenant(BUDGET.name).expect("it lives");
        tenant.gpus[0].processes.iter().map(|process| process.outstanding_ns).sum::<u64>()
    };
    let (before, spent) = (outstanding(), Spent::of(gpu, node, BUDGET.name, pid));
    let again = Spent::of(gpu, node, BUDGET.name, pid);
    (before == 0 && outstanding() == 0 && again.charged_ns == spent.charged_ns).then_some(spent)
}

#[test]
fn large_kernels_that_come_seldom_do_not_slip_through() {
    has(&["--kernel", "large", "--step", "1", "--ahead", "0", "--rest-ms", "450"], 4.5..=5.5, at_rest);
}

#[test]
fn a_stream_of_tiny_kernels_is_not_overcharged() {
    has(&["--kernel", "tiny"], 4.5..=5.5, now);
}
