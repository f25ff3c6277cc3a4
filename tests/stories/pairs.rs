//! Launches that may overlap the kernel before them (programmatic dependent launch): nothing of ours stands in between.

use weir_tests::graphs::{COSTS, Spent};
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::GRAPHS;

/// By their places in `weir_tests::graphs::KERNELS`.
const US_5: u64 = 0;
const US_50: u64 = 1;

const BUDGET: Budget<'_> = Budget { name: "pairs", request: "100%", limit: "100%", memory: "2GiB" };

/// Rounds in which prices are learnt.
const LEARNING: u64 = 20;

/// So many pairs may be split in them: some launches are measured by themselves, and some wait at the gate.
const AT_FIRST: u64 = 16;

/// Launches that may overlap, and those that cannot since something stands before them.
fn pairs(gpu: &SimGpu, pid: i32) -> (u64, u64) {
    let client = gpu.client(pid).expect("a client of the driver");
    (client.dependent_launches, client.split_pairs)
}

/// Rounds of 8 ms of work, each behind a wait; returns how many pairs were split while prices were learnt and afterwards, and how
/// far the charge is from the use afterwards.
fn split(line: impl Fn(u64) -> String, rounds: u64, each: u64) -> ([u64; 2], f64) {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), BUDGET, GRAPHS));
    let (stream, pid) = (client.does("stream"), client.pid);
    let mut run = |rounds| {
        (0..rounds).for_each(|_| {
            client.does(&line(stream));
            client.does("wait");
        })
    };
    run(LEARNING);
    let begun = Spent::of(&gpu, &node, BUDGET.name, pid);
    let (_, learning) = pairs(&gpu, pid);
    run(rounds);
    let (launches, all) = pairs(&gpu, pid);
    assert_eq!(launches, (LEARNING + rounds) * each);
    let error = Spent::of(&gpu, &node, BUDGET.name, pid).since(begun).error_percent();
    eprintln!(
        "{learning} of {launches} pairs split at first, {} later, charge off by {error:.2} %",
        all - learning
    );
    ([learning, all - learning], error)
}

#[test]
fn marks_stand_before_pairs_and_not_within_them_and_the_charge_is_right() {
    let (split, error) = split(|stream| format!("pairs {stream} {US_50} {US_5} 145"), 60, 145);
    assert!(split[0] <= AT_FIRST && split[1] == 0, "{split:?}");
    assert!(error.abs() < 3.0, "{error:.2} %");
}

#[test]
fn a_chain_of_launches_that_overlap_is_split_only_where_its_end_would_not_be_seen() {
    let (split, error) = split(|stream| format!("chain {stream} {US_50} 160"), 60, 160);
    assert!(split[0] <= AT_FIRST && split[1] <= 4, "{split:?}");
    assert!(error.abs() < 3.0, "{error:.2} %");
}
