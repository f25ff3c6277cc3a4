//! Programs whose clocks are not the node manager's (faults A.4, T12; A.5, F33): their share is what it would be. A
//! tenant's times are compared only with each other.

use std::process::Command;
use std::time::Duration;

use weir_tests::life::Workshop;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const PRICED: &str = "policy = \"static\"\n[[price]]\nname = \"*\"\ntime_us = 20\n";

const BUDGET: Budget<'_> = Budget { name: "late", request: "20%", limit: "20%", memory: "2GiB" };

/// How long a share is measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Between these, in percent, a limit of 20 % is kept and nobody starves: other programs run on the machine's processors.
const KEPT: std::ops::RangeInclusive<f64> = 16.0..=22.0;

/// Once it has spent what its bucket held at first, it keeps its limit, and neither bursts nor starves.
fn keeps_its_share(gpu: &SimGpu, looping: Looping) {
    let share = || gpu.shares([looping.pid], WINDOW)[0];
    wait::until("its share", || KEPT.contains(&share()).then_some(()));
    let next = share();
    assert!(next <= *KEPT.end(), "a burst: {next} %");
    assert_eq!(looping.finish().status.code(), Some(0));
}

#[test]
fn a_wall_clock_that_jumps_by_a_year_and_a_monotonic_one_at_double_speed_change_no_share() {
    let (gpu, workshop) = (SimGpu::new(EVERY_KERNEL_20_US), Workshop::default());
    let node = Node::start(&gpu, PRICED);
    let program = Program::under_weir(&gpu, Some(&node), BUDGET, "env");
    let preload =
        format!("LD_PRELOAD={}:{}", gpu.dist().preload().display(), workshop.preload("clock").display());
    keeps_its_share(&gpu, Looping::start(program.args([&preload, LOOP])));
}

#[test]
fn a_program_in_a_time_namespace_a_day_ahead_has_its_share() {
    const AHEAD: [&str; 5] = ["--time", "--monotonic", "86400", "--boottime", "86400"];
    if !Command::new("unshare").args(AHEAD).arg("true").status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no time namespaces here, or not for this user");
    }
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, PRICED);
    let program =
        Program::under_weir(&gpu, Some(&node), BUDGET, "unshare").args(AHEAD).args(["--fork", LOOP]);
    keeps_its_share(&gpu, Looping::start(program));
}
