//! Programs whose clocks are not the node manager's, and a node manager whose clocks are nobody else's (faults A.4, T12; A.5,
//! F33): shares are what they would be. A tenant's times are compared only with each other.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_nodemgr::events::Event;
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

/// The same for a limit of 40 %.
const KEPT_OF_40: std::ops::RangeInclusive<f64> = 32.0..=44.0;

/// Once it has spent what its bucket held at first, it keeps its limit, and neither bursts nor starves.
fn keeps(gpu: &SimGpu, looping: &Looping, kept: std::ops::RangeInclusive<f64>) {
    let share = || gpu.shares([looping.pid], WINDOW)[0];
    wait::until("its share", || kept.contains(&share()).then_some(()));
    let next = share();
    assert!(next <= *kept.end(), "a burst: {next} %");
}

fn keeps_its_share(gpu: &SimGpu, looping: Looping) {
    keeps(gpu, &looping, KEPT);
    assert_eq!(looping.finish().status.code(), Some(0));
}

/// A time namespace that is a day ahead.
const AHEAD: [&str; 6] = ["unshare", "--time", "--monotonic", "86400", "--boottime", "86400"];

fn there_are_time_namespaces() -> bool {
    let tried = Command::new(AHEAD[0]).args(&AHEAD[1..]).arg("true").status();
    tried.is_ok_and(|status| status.success())
}

/// Ticks, budgets and a change of them are what they would be with any other clock.
fn rules_well(gpu: &SimGpu, node: &Node<'_>) {
    let looping = Looping::start(Program::under_weir(gpu, Some(node), BUDGET, LOOP));
    keeps(gpu, &looping, KEPT);
    let (start, first) = (Instant::now(), node.stats().node.epoch);
    wait::pass(WINDOW);
    let ticks = node.stats().node.epoch - first;
    let most = u64::try_from(start.elapsed().as_millis()).expect("some seconds") + 1; // of a millisecond each
    assert!(
        (most / 8..=most).contains(&ticks),
        "{ticks} ticks in {most} ms: four at most are one run of the loop"
    );
    node.set(BUDGET.name, &["--limit", "40%", "--request", "40%"]);
    keeps(gpu, &looping, KEPT_OF_40);
    assert_eq!(looping.finish().status.code(), Some(0));
}

#[test]
fn a_manager_whose_wall_clock_jumps_by_a_year_ticks_and_grants_as_ever() {
    const DAY_MS: u64 = 24 * 3_600 * 1_000;
    let (gpu, workshop) = (SimGpu::new(EVERY_KERNEL_20_US), Workshop::default());
    let mut node = Node::start(&gpu, PRICED);
    node.restart_with(&[("LD_PRELOAD", workshop.preload("clock").as_os_str())]);
    rules_well(&gpu, &node);
    let events = String::from_utf8(node.weir(&["events"])).expect("JSON");
    let events: Vec<Event> =
        events.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let now = u64::try_from(now).expect("milliseconds fit");
    assert!(
        events.iter().all(|event| event.time_unix_ms.abs_diff(now) > 300 * DAY_MS),
        "its clock is another one"
    );
    assert!(events.windows(2).all(|two| two[1].seq > two[0].seq), "their order is that of their numbers");
}

#[test]
fn a_manager_in_a_time_namespace_a_day_ahead_ticks_and_grants_as_ever() {
    if !there_are_time_namespaces() {
        return eprintln!("skipped: no time namespaces here, or not for this user");
    }
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, PRICED);
    node.restart_by(&[&AHEAD[..], &["--fork", "--kill-child"]].concat(), &[], |_| {});
    rules_well(&gpu, &node);
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
    if !there_are_time_namespaces() {
        return eprintln!("skipped: no time namespaces here, or not for this user");
    }
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, PRICED);
    let program =
        Program::under_weir(&gpu, Some(&node), BUDGET, AHEAD[0]).args(&AHEAD[1..]).args(["--fork", LOOP]);
    keeps_its_share(&gpu, Looping::start(program));
}
