//! F01: SIGKILL inside of every hook, where the driver is called: between what we do before and what we do after. The budget is
//! whole again, and nobody else waits.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use weir_tests::life::Workshop;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use super::failpoints::{HIDDEN, OF_THE_CARD, hooked};
use crate::LOOP;

const DIES: Budget<'_> = Budget { name: "dies", request: "40%", limit: "100%", memory: "2GiB" };
const NEIGHBOUR: Budget<'_> = Budget { name: "neighbour", request: "40%", limit: "100%", memory: "2GiB" };

/// As in `kill`: the bar of 10 ms, ten times for a machine that runs tests.
const LONGEST_GAP: Duration = Duration::from_millis(100);

/// What `touch` calls before, once each, so that it holds memory.
const BEFORE: [&str; 3] = ["cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2"];

/// The name of the program that dies in the hook of this number: each has its own, since our own code calls hooked functions
/// of the driver too.
fn named(number: usize) -> String {
    format!("dies-{number}")
}

/// A simulated GPU on which each of those programs dies in a call of its function.
fn deadly() -> SimGpu {
    let mut config = EVERY_KERNEL_20_US.to_owned();
    for (number, call) in hooked().into_iter().enumerate() {
        let (process, nth) = (named(number), if BEFORE.contains(&call) { 2 } else { 1 });
        let row = format!("call = \"{call}\"\nprocess = \"{process}\"\nnth = {nth}\naction = \"sigkill\"\n");
        write!(config, "[[fault]]\n{row}").expect("into a string");
    }
    SimGpu::new(&config)
}

#[test]
fn whoever_dies_inside_of_any_hook_leaves_nothing_charged_and_holds_nobody_up() {
    let gpu = deadly();
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let workshop = Workshop::default();
    let touch = workshop.life("touch");
    let holder = Program::under_weir(&gpu, Some(&node), DIES, "cat").start();
    let mut neighbour = Looping::start(Program::under_weir(&gpu, Some(&node), NEIGHBOUR, LOOP));
    let alone = gpu.books().gpus[0].memory_used;
    let peak = || node.tenant(DIES.name).map_or(0, |tenant| tenant.gpus[0].total.memory_peak_bytes);
    let (mut spared, mut longest) = (BTreeSet::new(), Duration::ZERO);
    for (number, symbol) in hooked().into_iter().enumerate() {
        let touch_and_die = workshop.dir().join(named(number));
        std::fs::hard_link(&touch, &touch_and_die).expect("a second name");
        neighbour.report();
        let ended = Program::under_weir(&gpu, Some(&node), DIES, &touch_and_die)
            .arg(symbol)
            .env("TOUCH_HOLDS", "1")
            .run();
        match ended.status.code() {
            Some(137) => {}
            Some(0) => _ = spared.insert(symbol),
            _ => panic!("{symbol}: {ended:?}"),
        }
        wait::until("an empty ledger", || {
            let tenant = node.tenant(DIES.name).expect("its holder runs");
            (tenant.pids.is_empty() && tenant.gpus[0].memory_held_bytes == 0).then_some(())
        });
        wait::until("a launch of the neighbour", || {
            let progress = neighbour.report();
            longest = longest.max(Duration::from_nanos(progress.longest_gap_ns));
            (progress.launches > 0).then_some(())
        });
    }
    eprintln!("longest gap in the neighbour's launches: {longest:?}; spared: {spared:?}");
    assert!(longest <= LONGEST_GAP, "{longest:?}");
    let never_reach_it: BTreeSet<_> = OF_THE_CARD.into_iter().chain([HIDDEN.0]).collect();
    assert_eq!(spared, never_reach_it, "in every hook that calls the driver somebody has died");
    assert!(peak() >= 64 << 20, "they held memory when they died: {}", peak());
    assert_eq!(gpu.books().gpus[0].memory_used, alone, "all device memory of the dead is free");
    holder.finish().well();
    neighbour.finish().well();
    wait::until("the end of the tenants", || node.stats().tenants.is_empty().then_some(()));
    assert_eq!(node.stats().gpus[0].requested_permille, 0, "the whole share can be promised again");
}
