//! Sticky errors: one breaks its context, and every call that needs it has the error's code from then on. What was charged
//! stays charged until the context is gone, however it goes; nothing else is, and no neighbour notices.

use std::time::Duration;

use weir_tests::graphs::COSTS;
use weir_tests::looping::Looping;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::{GRAPHS, LOOP, MEMORY};

const MIB: u64 = 1 << 20;

/// What a context of the simulated driver costs, in bytes.
const CONTEXT: u64 = 400 * MIB;

const BUDGET: Budget<'_> = Budget { name: "unlucky", request: "50%", limit: "100%", memory: "4GiB" };

const NEIGHBOUR: Budget<'_> = Budget { name: "neighbour", request: "50%", limit: "100%", memory: "4GiB" };

/// Errors of a kernel's, or of the card's, after which a context is of no use.
const CODES: [(u32, &str); 3] = [
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
];

/// A simulated GPU on which the first wait for a context, in this program, finds that a kernel has broken it.
fn gpu_that_breaks(costs: &str, program: &str, code: u32) -> SimGpu {
    SimGpu::new(&format!(
        "{costs}[[fault]]\ncall = \"cuCtxSynchronize\"\nprocess = \"{program}\"\nnth = 1\naction = \"sticky:{code}\"\n"
    ))
}

fn node(gpu: &SimGpu) -> Node<'_> {
    Node::start(gpu, "policy = \"static\"\n[[price]]\nname = \"us_5000\"\ntime_us = 5000\n")
}

fn client(gpu: &SimGpu, node: &Node<'_>, budget: Budget<'_>, program: &str) -> Memory {
    Memory::start(Program::under_weir(gpu, Some(node), budget, program))
}

/// What the tenant is charged, and what the driver has in its books for the process.
fn held(gpu: &SimGpu, node: &Node<'_>, client: &Memory) -> [u64; 2] {
    let tenant = node.tenant(BUDGET.name).expect("it runs");
    [tenant.gpus[0].memory_held_bytes, gpu.client(client.pid).expect("the GPU knows it").memory_bytes]
}

/// Memory of each kind: commands, and what gives it back, with the first number that came of the command.
const KINDS: [(&str, &str); 9] = [
    ("allocate 67108864", "free"),
    ("rows 1000 65536", "free"),
    ("managed 67108864", "free"),
    ("pool_allocate 67108864 0", "pool_free"),
    ("create 67108864", "release"),
    ("array_flat 4096 4096", "array_destroy"),
    ("array 4096 4096", "array_destroy"),
    ("levels 4096 4096 2", "levels_destroy"),
    ("module 67108864", "module_unload"),
];

/// Other calls that need the context.
const OTHERS: [&str; 6] =
    ["wait", "wait_stream", "info", "heap 268435456", "pool_trim 0 0", "multicast 67108864"];

#[test]
fn after_a_sticky_error_every_call_has_its_code_and_no_charge_changes_until_the_context_is_reset() {
    for (code, name) in CODES {
        let gpu = gpu_that_breaks(EVERY_KERNEL_20_US, "weir-memory", code);
        let node = node(&gpu);
        let mut client = client(&gpu, &node, BUDGET, MEMORY);
        let values = KINDS.map(|(get, _)| client.does(get));
        let graph = client.does(&format!("graph {} 0", 64 * MIB));
        let before = held(&gpu, &node, &client);
        assert_eq!(before[0], before[1]);
        assert_eq!(client.tell("wait").result, name);
        let giving = KINDS.iter().zip(values).map(|((_, give), value)| format!("{give} {value}"));
        let getting = KINDS.iter().map(|(get, _)| (*get).to_owned());
        let graphs = ["graph_launch", "graph_upload"].map(|what| format!("{what} {graph}"));
        let others = OTHERS.map(str::to_owned);
        for line in giving.chain(getting).chain(graphs).chain(others) {
            assert_eq!(client.tell(&line).result, name, "{line}: the driver's own code");
            assert_eq!(held(&gpu, &node, &client), before, "{line}, {name}");
        }
        client.does("primary_reset");
        let [charged, given] = held(&gpu, &node, &client);
        assert_eq!(charged, given, "what outlives a context is charged, and nothing else");
        client.does("begin");
        let after = held(&gpu, &node, &client);
        assert_eq!(after, [charged + CONTEXT; 2], "a new context");
        client.does("wait");
        let pointer = client.does(&format!("allocate {}", 64 * MIB));
        assert_eq!(held(&gpu, &node, &client), after.map(|bytes| bytes + 64 * MIB));
        client.does(&format!("free {pointer}"));
        assert_eq!(held(&gpu, &node, &client), after);
        client.finish().well();
    }
}

#[test]
fn a_context_of_its_own_that_an_error_has_broken_gives_its_memory_back_with_its_last_user() {
    let gpu = gpu_that_breaks(EVERY_KERNEL_20_US, "weir-memory", 700);
    let node = node(&gpu);
    let mut client = client(&gpu, &node, BUDGET, MEMORY);
    client.does(&format!("allocate {}", 64 * MIB));
    let (primary, own) = (client.does("which"), client.does("context"));
    client.does(&format!("context_attach {own}"));
    client.does(&format!("current {own}"));
    client.does(&format!("allocate {}", 64 * MIB));
    let of_kind = |kind| node.tenant(BUDGET.name).expect("it runs").memory_of_kind_bytes(kind);
    let all = [2 * (CONTEXT + 64 * MIB); 2];
    assert_eq!(held(&gpu, &node, &client), all);
    assert_eq!(client.tell("wait").result, "CUDA_ERROR_ILLEGAL_ADDRESS");
    client.does(&format!("context_detach {own}"));
    assert_eq!(held(&gpu, &node, &client), all, "its maker has it still");
    assert_eq!(of_kind("plain"), 128 * MIB, "as what it was");
    client.does(&format!("current {primary}"));
    client.does("wait");
    client.does(&format!("context_destroy {own}"));
    assert_eq!(held(&gpu, &node, &client), [CONTEXT + 64 * MIB; 2]);
    client.does(&format!("allocate {}", 64 * MIB));
    client.finish().well();
}

#[test]
fn a_program_that_ends_with_a_broken_context_leaves_nothing_charged() {
    let gpu = gpu_that_breaks(EVERY_KERNEL_20_US, "weir-memory", 719);
    let node = node(&gpu);
    // Holds the tenant when its other process has ended.
    let heir = Program::under_weir(&gpu, Some(&node), BUDGET, "cat").start();
    let mut client = client(&gpu, &node, BUDGET, MEMORY);
    for (get, _) in KINDS {
        client.does(get);
    }
    assert_eq!(client.tell("wait").result, "CUDA_ERROR_LAUNCH_FAILED");
    assert!(held(&gpu, &node, &client)[0] > CONTEXT + 512 * MIB);
    client.finish().well();
    wait::until("an empty ledger", || {
        let tenant = node.tenant(BUDGET.name).expect("its other process runs");
        (tenant.pids.is_empty() && tenant.gpus[0].memory_held_bytes == 0).then_some(())
    });
    assert_eq!(gpu.books().gpus[0].memory_used, 0);
    heir.finish().well();
}

/// How long the neighbour is looked at.
const WINDOW: Duration = Duration::from_secs(1);

/// How much of the neighbour's work is measured: only what nobody else was at work beside.
fn measured_percent(node: &Node<'_>) -> f64 {
    let total = || node.tenant(NEIGHBOUR.name).expect("it runs").gpus.remove(0).total;
    let before = total();
    wait::pass(WINDOW);
    let after = total();
    (after.measured_ns - before.measured_ns) as f64 * 100.0 / (after.charged_ns - before.charged_ns) as f64
}

#[test]
fn launches_into_a_broken_context_cost_nothing_and_what_it_never_finished_is_given_up() {
    const US_5000: &str = "3"; // its place among the kernels
    for (code, name) in CODES {
        let gpu = gpu_that_breaks(COSTS, "weir-graphs", code);
        let node = node(&gpu);
        let mut client = client(&gpu, &node, BUDGET, GRAPHS);
        let stream = client.does("stream");
        let graph = client.does(&format!("capture {stream} {US_5000} 1"));
        client.does(&format!("kernels {stream} {US_5000} 8"));
        assert_eq!(client.tell("wait").result, name);
        let charged = || node.tenant(BUDGET.name).expect("it runs").gpus[0].total.charged_ns;
        let before = charged();
        for way in 0..12 {
            let line = format!("launch_by {way} {US_5000} {graph}");
            assert_eq!(client.tell(&line).result, name, "{line}");
        }
        assert_eq!(client.tell(&format!("kernels {stream} {US_5000} 100")).result, name);
        assert_eq!(charged(), before, "{name}");
        let unlucky = node.tenant(BUDGET.name).expect("it runs").gpus.remove(0);
        assert_eq!(unlucky.processes[0].outstanding_ns, 0, "what nobody will see the end of is given up");
        let neighbour = Looping::start(Program::under_weir(&gpu, Some(&node), NEIGHBOUR, LOOP));
        let beside = measured_percent(&node);
        assert!(
            beside > 90.0,
            "{name}: {beside:.1} % of a neighbour's work is measured, as if it were not alone"
        );
        client.does("primary_reset");
        neighbour.finish().well();
        client.does("begin");
        client.does(&format!("kernels 0 {US_5000} 2"));
        client.does("wait");
        let cost = charged() - before;
        assert!((8_000_000..14_000_000).contains(&cost), "{cost} ns for twice 5 ms");
        client.finish().well();
    }
}
