//! Fillers' heavy graphs go out in segments, and nothing but their neighbours can tell.

use weir_tests::graphs::{COSTS, Spent};
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::GRAPHS;

const FILLER: Budget<'_> = Budget { name: "filler", request: "40%", limit: "100%", memory: "2GiB" };

/// Kernels by their places in `weir_tests::graphs::KERNELS`.
const US_5: u64 = 0;
const US_50: u64 = 1;
const US_5000: u64 = 3;

/// Longest segment, in microseconds.
const SEGMENT_US: u64 = 500;

fn client(gpu: &SimGpu, node: &Node<'_>, budget: Budget<'_>, class: &str) -> Memory {
    Memory::start(Program::under_weir_with(gpu, Some(node), budget, &["--class", class], GRAPHS))
}

fn counted(node: &Node<'_>, what: &str) -> u64 {
    let tenant = node.tenant(FILLER.name).expect("the tenant lives");
    tenant.gpus[0].total.graphs.get(what).copied().unwrap_or(0)
}

/// Launches a graph and waits for it, so often.
fn launches(client: &mut Memory, exec: u64, stream: u64, times: u64) {
    for _ in 0..times {
        client.does(&format!("launch {exec} {stream} 1"));
        client.does("wait");
    }
}

#[test]
fn a_heavy_graph_goes_out_in_segments_once_it_is_known_and_costs_what_it_did() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut filler = client(&gpu, &node, FILLER, "filler");
    let stream = filler.does("stream");
    let exec = filler.does(&format!("capture {stream} {US_50} 200"));
    launches(&mut filler, exec, stream, 12);
    let segments = counted(&node, "segments");
    assert_eq!(counted(&node, "split"), 1);
    assert!((20..=23).contains(&segments), "{segments}: 10 ms in pieces of 500 us, give or take a kernel");
    let (before, gone) = (Spent::of(&gpu, &node, FILLER.name, filler.pid), counted(&node, "split_launches"));
    let calls = gpu.calls()["cuGraphLaunch"];
    launches(&mut filler, exec, stream, 20);
    let spent = Spent::of(&gpu, &node, FILLER.name, filler.pid).since(before);
    assert!(spent.used_ns.abs_diff(200_000_000) < 2_000_000, "the same work: {spent:?}");
    assert!(spent.error_percent().abs() < 3.0, "{spent:?}");
    assert_eq!(counted(&node, "split_launches") - gone, 20);
    assert_eq!(gpu.calls()["cuGraphLaunch"] - calls, 20 * segments, "each in so many segments");
    let launched = node.tenant(FILLER.name).unwrap().gpus[0].total.calls["cuGraphLaunch"];
    assert_eq!(launched, 32, "what the program called");
    assert_eq!(filler.does(&format!("flags {exec}")), 0);
    filler.does(&format!("destroy {exec}"));
    assert_eq!(
        filler.tell(&format!("launch {exec} {stream} 1")).result,
        "CUDA_ERROR_INVALID_VALUE",
        "gone is gone"
    );
    let destroyed = gpu.calls();
    assert_eq!(destroyed["cuGraphExecDestroy"], 1 + segments, "with its segments");
    filler.finish().well();
}

#[test]
fn segments_that_turn_out_too_heavy_are_split_again() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut filler = client(&gpu, &node, FILLER, "filler");
    let stream = filler.does("stream");
    // All kernels look alike beforehand: of 200 us guessed each, the first half takes ten times the second.
    let exec = filler.does(&format!("capture {stream} {US_50} 100 {US_5} 100"));
    launches(&mut filler, exec, stream, 30);
    assert!(counted(&node, "segments") >= 11, "{} segments", counted(&node, "segments"));
    let before = Spent::of(&gpu, &node, FILLER.name, filler.pid);
    launches(&mut filler, exec, stream, 10);
    let spent = Spent::of(&gpu, &node, FILLER.name, filler.pid).since(before);
    assert!(spent.used_ns.abs_diff(55_000_000) < 1_000_000 && spent.error_percent().abs() < 4.0, "{spent:?}");
}

#[test]
fn what_cannot_be_split_is_launched_whole_and_told_with_its_reason() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut filler = client(&gpu, &node, FILLER, "filler");
    let stream = filler.does("stream");
    let heavy = filler.tell(&format!("capture {stream} {US_50} 40")).values;
    let conditional = filler.does("graph");
    let made = filler.tell(&format!("add_conditional {conditional} 0 0 1 1"));
    filler.does(&format!("add_child {} 0 {}", made.values[2], heavy[1]));
    let conditional = filler.does(&format!("instantiate {conditional} 0"));
    let one = filler.does(&format!("capture {stream} {US_5000} 1"));
    let changed = filler.does("graph");
    let first = filler.does(&format!("add {changed} 0 {US_50}"));
    filler.does(&format!("add_child {changed} {first} {}", heavy[1]));
    let changed = filler.does(&format!("instantiate {changed} 0"));
    let memory = filler.does(&format!("capture_with_memory {stream} {US_50} 40"));
    let signals = filler.does("graph");
    let event = filler.does("event");
    let first_of_all = filler.does(&format!("add_record {signals} 0 {event}"));
    filler.does(&format!("add_child {signals} {first_of_all} {}", heavy[1]));
    let signals = filler.does(&format!("instantiate {signals} 0"));
    for exec in [conditional, one, memory, signals] {
        launches(&mut filler, exec, stream, 10);
    }
    filler.does(&format!("set_kernel {changed} {first} {US_5}"));
    launches(&mut filler, changed, stream, 10);
    let on_device = filler.does(&format!("instantiate {} 4", heavy[1]));
    launches(&mut filler, on_device, stream, 10);
    for reason in ["device_launchable", "conditional", "indivisible", "updated", "memory", "signals"] {
        assert_eq!(counted(&node, &format!("whole_{reason}")), 1, "{reason}");
    }
    assert_eq!(counted(&node, "split"), 0);
}

#[test]
fn a_split_graph_that_is_changed_or_captured_runs_as_the_program_has_it() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut filler = client(&gpu, &node, FILLER, "filler");
    let (stream, other) = (filler.does("stream"), filler.does("stream"));
    let graph = filler.does("graph");
    let first = filler.does(&format!("add {graph} 0 {US_50}"));
    let mut last = first;
    for _ in 0..39 {
        last = filler.does(&format!("add {graph} {last} {US_50}"));
    }
    let exec = filler.does(&format!("instantiate {graph} 0"));
    launches(&mut filler, exec, stream, 10);
    assert_eq!(counted(&node, "split"), 1);
    let used =
        |filler: &Memory| gpu.client(filler.pid).unwrap().contexts.iter().map(|c| c.true_use_ns).sum::<u64>();
    // Two streams take turns: launches of one graph never overlap, so the time is the sum.
    let before = used(&filler);
    for _ in 0..4 {
        filler.does(&format!("launch {exec} {stream} 1"));
        filler.does(&format!("launch {exec} {other} 1"));
    }
    filler.does("wait");
    assert!((used(&filler) - before).abs_diff(16_000_000) < 200_000, "{}", used(&filler) - before);
    // The default streams of the context and of the thread.
    let (before, split) = (used(&filler), counted(&node, "split_launches"));
    for default in [0, 1, 2] {
        filler.does(&format!("launch {exec} {default} 2"));
    }
    filler.does("wait");
    assert_eq!(counted(&node, "split_launches") - split, 6);
    assert!((used(&filler) - before).abs_diff(12_000_000) < 200_000, "{}", used(&filler) - before);
    // Into a capture it goes as it is, and the graph around it is split by itself once it is known.
    let split = counted(&node, "split_launches");
    let outer = filler.does(&format!("capture_launch {stream} {exec}"));
    assert_eq!(counted(&node, "split_launches"), split);
    let before = used(&filler);
    launches(&mut filler, outer, stream, 10);
    assert_eq!((used(&filler) - before) / 1_000_000, 20, "ms");
    assert_eq!(counted(&node, "whole_indivisible"), 1, "its one node is the other graph");
    filler.does(&format!("enable {exec} {first} 0"));
    filler.does(&format!("set_kernel {exec} {last} {US_5}"));
    let (before, split) = (used(&filler), counted(&node, "split_launches"));
    launches(&mut filler, exec, stream, 5);
    assert_eq!((used(&filler) - before) / 5_000, 38 * 50 + 5, "us: as it was changed");
    assert_eq!(counted(&node, "split_launches"), split, "for good");
}

#[test]
fn the_first_launch_in_segments_is_put_behind_a_last_one_of_the_graph_itself() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut filler = client(&gpu, &node, FILLER, "filler");
    let (stream, other) = (filler.does("stream"), filler.does("stream"));
    let exec = filler.does(&format!("capture {stream} {US_50} 40"));
    while counted(&node, "split") == 0 {
        launches(&mut filler, exec, stream, 1);
    }
    // The driver puts it behind all launches before it, in whatever stream: of those no segment knows.
    assert_eq!(counted(&node, "split_launches"), 0, "that one went as it is");
    let waits = || gpu.calls().get("cuStreamWaitEvent").copied().unwrap_or(0);
    assert_eq!(waits(), 0, "so there was nothing to wait for");
    launches(&mut filler, exec, other, 1);
    assert_eq!((counted(&node, "split_launches"), waits()), (1, 1));
}

/// Ten launches of a graph of 2 ms by a filler, on a driver with this fault: all succeed, and use what they would. What is
/// counted of the graph, and the driver's launches so far after each launch.
fn ten_launches(fault: &str) -> (u64, u64, Vec<u64>) {
    let gpu = SimGpu::new(&format!("{COSTS}{fault}"));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut filler = client(&gpu, &node, FILLER, "filler");
    let stream = filler.does("stream");
    let exec = filler.does(&format!("capture {stream} {US_50} 40"));
    let launch = |_| {
        launches(&mut filler, exec, stream, 1);
        gpu.calls()["cuGraphLaunch"]
    };
    let calls = (0..10).map(launch).collect();
    let used =
        gpu.client(filler.pid).expect("it has a context").contexts.iter().map(|c| c.true_use_ns).sum::<u64>();
    assert!(used.abs_diff(20_000_000) < 200_000, "{used} ns with {fault}");
    (counted(&node, "whole_refused"), counted(&node, "split_launches"), calls)
}

#[test]
fn a_driver_that_refuses_a_step_of_ours_runs_the_programs_own_graph() {
    let fault =
        |call: &str, nth: u64| format!("[[fault]]\ncall = \"{call}\"\nnth = {nth}\naction = \"error:1\"\n");
    for (call, nth) in [
        ("cuGraphClone", 1),
        ("cuGraphClone", 3),
        ("cuGraphGetEdges_v2", 4), // two tell whether the kernels run in a row
        ("cuGraphNodeFindInClone", 30),
        ("cuGraphDestroyNode", 30),
        ("cuGraphInstantiateWithFlags", 3),
    ] {
        let (refused, split, calls) = ten_launches(&fault(call, nth));
        assert_eq!((refused, split, calls.last()), (1, 0, Some(&10)), "{call} {nth}");
    }
    let (refused, split, calls) = ten_launches("");
    assert!(refused == 0 && split > 0, "{calls:?}");
    // The first segment that is ever launched.
    let whole = calls.windows(2).find(|pair| pair[1] > pair[0] + 1).map_or(0, |pair| pair[0]);
    let (_, split, calls) = ten_launches(&fault("cuGraphLaunch", whole + 1));
    assert_eq!((split, calls.last()), (0, Some(&11)), "the program's own in its place");
}

#[test]
fn primaries_graphs_are_left_alone() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut primary = client(&gpu, &node, FILLER, "primary");
    let stream = primary.does("stream");
    let exec = primary.does(&format!("capture {stream} {US_50} 200"));
    launches(&mut primary, exec, stream, 12);
    assert_eq!((counted(&node, "split"), gpu.calls()["cuGraphLaunch"]), (0, 12));
}

/// How long a neighbour's kernel waits at most, in microseconds, beside a tenant of this class that may use a tenth of the GPU
/// and launches graphs of 20 ms: in the GPU's queue by its books, and there and at its own gate.
fn longest_wait_us(class: &str) -> (u64, u64) {
    // Time slices so long that a context runs until it is drained.
    let gpu = SimGpu::new(&format!("slice_us = 100_000\n{COSTS}"));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let tenth = Budget { request: "10%", limit: "10%", ..FILLER };
    let mut filler = client(&gpu, &node, tenth, class);
    let stream = filler.does("stream");
    let exec = filler.does(&format!("capture {stream} {US_50} 400"));
    launches(&mut filler, exec, stream, 8);
    let budget = Budget { name: "neighbour", request: "50%", limit: "100%", memory: "2GiB" };
    let mut neighbour = client(&gpu, &node, budget, "primary");
    let own = neighbour.does("stream");
    let waited_ns = |neighbour: &Memory| {
        // Time in which it had something queued, less the time in which that ran.
        let contexts = gpu.client(neighbour.pid).expect("it has a context").contexts;
        let queued: u64 = contexts.iter().map(|context| context.queued_ns - context.true_use_ns).sum();
        (queued, queued + node.tenant("neighbour").expect("it lives").gpus[0].total.waited_ns)
    };
    filler.begin(&format!("launch {exec} {stream} 6"));
    let (mut before, mut longest) = (waited_ns(&neighbour), (0, 0));
    for _ in 0..100 {
        neighbour.does(&format!("kernels {own} {US_5} 1"));
        neighbour.does("wait");
        let after = waited_ns(&neighbour);
        longest = (longest.0.max(after.0 - before.0), longest.1.max(after.1 - before.1));
        before = after;
    }
    assert_eq!(filler.ended().result, "CUDA_SUCCESS");
    (longest.0 / 1_000, longest.1 / 1_000)
}

#[test]
fn a_neighbour_waits_for_a_turn_of_segments_and_not_for_a_graph() {
    let (split, whole) = (longest_wait_us("filler"), longest_wait_us("primary"));
    assert!(whole.1 > 10_000, "a whole graph keeps the neighbour waiting: {whole:?} us");
    // At a tenth a turn has 1 ms and the bucket 2 ms at the most; then the segment that was under way, and two switches.
    assert!(
        split.0 <= 2_000 + SEGMENT_US + 200,
        "{split:?} us beside segments, {whole:?} us beside whole graphs"
    );
}
