//! What waits for nothing, since it could wait for itself: launches by host functions, and launches while a stream waits for a
//! word. They leave a debt and are counted; nothing goes by the rule of liveness. And what waits beside a capture leaves it alone.

use std::time::Duration;

use weir_nodemgr::registry::Counters;
use weir_tests::graphs::COSTS;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::GRAPHS;

/// A tenth of the GPU: a second of debt takes ten.
const TENTH: Budget<'_> = Budget { name: "tenth", request: "10%", limit: "10%", memory: "2GiB" };

/// By their places in `weir_tests::graphs::KERNELS`.
const US_5: u64 = 0;
const US_5000: u64 = 3;

const PRICES: &str = "policy = \"static\"\n[[price]]\nname = \"us_5\"\ntime_us = 5\n\
    [[price]]\nname = \"us_5000\"\ntime_us = 5000\n";

fn counted(node: &Node<'_>) -> Counters {
    node.tenant(TENTH.name).expect("it runs").gpus[0].total.clone()
}

/// A tenant that owes 50 ms of the GPU and more: half a second of waiting for its next launch.
fn in_debt(client: &mut Memory) -> u64 {
    let stream = client.does("stream");
    client.does(&format!("kernels {stream} {US_5000} 2"));
    client.does("wait");
    stream
}

/// What was counted while the client did this.
fn while_it(client: &mut Memory, node: &Node<'_>, line: &str) -> (u64, u64, u64) {
    let before = counted(node);
    client.does(line);
    let after = counted(node);
    (after.excused - before.excused, after.throttled - before.throttled, after.forced - before.forced)
}

#[test]
fn what_a_host_function_launches_waits_for_nothing_and_is_charged() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, PRICES);
    let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), TENTH, GRAPHS));
    let stream = in_debt(&mut client);
    for command in ["kernels_by_host_function", "kernels_by_callback"] {
        let charged_ns = counted(&node).charged_ns;
        let line = format!("{command} {stream} {US_5} 20");
        let (excused, throttled, forced) = while_it(&mut client, &node, &line);
        assert!(excused > 0 && throttled == 0 && forced == 0, "{command}: {excused} {throttled} {forced}");
        assert!(counted(&node).charged_ns >= charged_ns + 100_000, "{command}");
    }
    // The debt is there, and the next launch that can wait pays it.
    let before = counted(&node);
    client.does(&format!("kernels {stream} {US_5000} 2"));
    client.does("wait");
    let after = counted(&node);
    let (excused, throttled) = (after.excused - before.excused, after.throttled - before.throttled);
    assert!(excused == 0 && throttled > 0, "{excused} {throttled}");
}

#[test]
fn a_captured_host_function_is_the_programs_own_and_runs_with_each_launch() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, PRICES);
    let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), TENTH, GRAPHS));
    let answer = client.tell("captured_host_function 3");
    assert_eq!((answer.result.as_str(), answer.values), ("CUDA_SUCCESS", vec![3, 1]));
}

/// Rule 7 of the facts about GPUs: a query of ours would end the capture with an error.
#[test]
fn a_thread_that_waits_at_the_gate_does_not_disturb_what_another_one_captures() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, PRICES);
    let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), TENTH, GRAPHS));
    let (stream, other) = (in_debt(&mut client), client.does("stream"));
    let before = counted(&node);
    // 150 ms of work: more than the host may run ahead by.
    let answer = client.tell(&format!("capture_beside {stream} {other} {US_5000} 30"));
    assert_eq!((answer.result.as_str(), answer.values), ("CUDA_SUCCESS", vec![1]));
    let after = counted(&node);
    assert!(after.throttled > before.throttled, "launches waited meanwhile");
    assert!(after.charged_ns >= before.charged_ns + 99_000_000, "and were charged: {}", after.charged_ns);
    client.does("wait");
    assert_eq!(node.tenant(TENTH.name).expect("it runs").state, "enforced");
}

#[test]
fn while_a_stream_waits_for_a_word_launches_go_at_once() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, PRICES);
    for wait in ["await_word", "await_word_in_batch"] {
        let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), TENTH, GRAPHS));
        let (stream, word) = (client.does("stream"), client.does("word"));
        client.does(&format!("kernels {stream} {US_5} 1"));
        client.does("wait");
        let other = client.does("stream");
        let before = counted(&node);
        client.does(&format!("{wait} {other} {word}"));
        client.does(&format!("kernels {other} {US_5000} 1"));
        client.does(&format!("kernels {stream} {US_5} 1"));
        client.does(&format!("set_word {word} 1"));
        client.does("wait");
        let after = counted(&node);
        let (excused, forced) = (after.excused - before.excused, after.forced - before.forced);
        assert!(excused > 0 && forced == 0, "{wait}: {excused} excused, {forced} forced");
        client.finish().well();
    }
}

#[test]
fn a_stream_that_waits_for_ever_makes_nobody_unlimited() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, PRICES);
    let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), TENTH, GRAPHS));
    let (stream, word) = (client.does("stream"), client.does("word"));
    let parked = client.does("stream");
    client.does(&format!("await_word {parked} {word}"));
    client.begin(&format!("kernels {stream} {US_5000} 40"));
    let [share] = gpu.shares([client.pid], Duration::from_millis(800));
    client.ended();
    client.does(&format!("set_word {word} 1"));
    assert!(share < 16.0, "{share:.1} % of the GPU, of 10");
    let seen = counted(&node);
    assert!(seen.throttled > 0 && seen.excused < 20, "{} excused", seen.excused);
}
