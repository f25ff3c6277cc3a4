//! A limit holds in the long run whatever the size of a kernel: seldom and large, or small and without end.

use std::time::Duration;

use weir_tests::graphs::Spent;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::LOOP;

const COSTS: &str = "linger_ms = 3_600_000\n\
    [[kernel]]\nname = \"large\"\ntime_us = 50_000\n\
    [[kernel]]\nname = \"tiny\"\ntime_us = 5\n";

const BUDGET: Budget<'_> = Budget { name: "few", request: "5%", limit: "5%", memory: "2GiB" };

/// Until what the bucket held at first is spent, and the prices are known.
const FIRST: Duration = Duration::from_secs(3);

/// Twenty of the large kernel's turns at the limit's rate: one more or less is 0.25 %.
const LONG: Duration = Duration::from_secs(20);

/// Charged and used may differ by this, in percent.
const CLOSE: f64 = 1.0;

/// A program with these arguments has this part of the GPU in the long run, in percent; it is charged what it uses.
fn has(arguments: &[&str], part: std::ops::RangeInclusive<f64>) {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let program = Program::under_weir(&gpu, Some(&node), BUDGET, LOOP).args(arguments);
    let looping = Looping::start(program);
    gpu.shares([looping.pid], FIRST);
    let before = Spent::of(&gpu, &node, BUDGET.name, looping.pid);
    let [share] = gpu.shares([looping.pid], LONG);
    let spent = Spent::of(&gpu, &node, BUDGET.name, looping.pid).since(before);
    eprintln!("{arguments:?}: {share} %, {spent:?}, {} %", spent.error_percent());
    assert!(part.contains(&share), "{arguments:?}: {share} %");
    assert!(spent.error_percent().abs() <= CLOSE, "{arguments:?}: {spent:?}");
    looping.finish().well();
}

#[test]
fn large_kernels_that_come_seldom_do_not_slip_through() {
    has(&["--kernel", "large", "--step", "1", "--ahead", "0", "--rest-ms", "450"], 4.5..=5.5);
}

#[test]
fn a_stream_of_tiny_kernels_is_not_overcharged() {
    has(&["--kernel", "tiny"], 4.5..=5.5);
}
