//! Graphs of every kind are charged what they truly use, however they are made and changed. Prices are told to nobody.

use weir_tests::graphs::{COSTS, Spent};
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

use crate::GRAPHS;

/// Alone on the GPU, and not held back.
const WHOLE: Budget<'_> = Budget { name: "whole", request: "100%", limit: "100%", memory: "2GiB" };

/// Charged and used may differ by this, in percent: what a few unmarked launches at the ends of a second come to.
const CLOSE: f64 = 1.0;

/// Kernels by their places in `weir_tests::graphs::KERNELS`.
pub const US_50: u64 = 1;
pub const US_200: u64 = 2;
const SET: u64 = 4;
const COUNT_DOWN: u64 = 5;

/// A client under Weir, alone on its GPU.
pub struct Story<'a> {
    gpu: &'a SimGpu,
    node: &'a Node<'a>,
    pub client: Memory,
    pub stream: u64,
}

impl<'a> Story<'a> {
    /// It begins, with one stream.
    pub fn begin(gpu: &'a SimGpu, node: &'a Node<'a>) -> Self {
        let mut client = Memory::start(Program::under_weir(gpu, Some(node), WHOLE, GRAPHS));
        let stream = client.does("stream");
        Self { gpu, node, client, stream }
    }

    /// What it has spent so far.
    pub fn spent(&self) -> Spent {
        Spent::of(self.gpu, self.node, WHOLE.name, self.client.pid)
    }

    /// Does this and waits for it; what it has spent.
    fn spends(&mut self, line: &str) -> Spent {
        let before = self.spent();
        self.client.does(line);
        self.client.does("wait");
        self.spent().since(before)
    }

    /// Launches `exec` until it is known, and then for a while: one launch takes `us`, and that is charged, in all windows together.
    pub fn costs(&mut self, what: &str, exec: u64, us: u64) {
        let stream = self.stream;
        for _ in 0..3 {
            self.spends(&format!("launch {exec} {stream} {}", 20_000 / us));
        }
        let launches = 50_000 / us;
        let window = |_| self.spends(&format!("launch {exec} {stream} {launches}"));
        let windows: Vec<_> = (0..3).map(window).collect();
        let sum = Spent::sum(&windows);
        let used_us = sum.used_ns / 1_000 / launches / 3;
        assert!(used_us.abs_diff(us) <= us / 100, "{what}: one launch truly took {used_us} us, not {us}");
        assert!(sum.error_percent().abs() <= CLOSE, "{what}: {windows:?}, {} %", sum.error_percent());
    }

    /// A built chain of kernels: the graph and its last node.
    pub fn chain(&mut self, kernels: &[u64]) -> (u64, Vec<u64>) {
        let graph = self.client.does("graph");
        let mut nodes = vec![0];
        for kernel in kernels {
            let after = nodes[nodes.len() - 1];
            nodes.push(self.client.does(&format!("add {graph} {after} {kernel}")));
        }
        (graph, nodes.split_off(1))
    }

    /// Makes a graph executable.
    pub fn instantiate(&mut self, graph: u64) -> u64 {
        self.client.does(&format!("instantiate {graph} 0"))
    }
}

#[test]
fn captured_built_and_child_graphs_are_charged_what_they_use() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let stream = story.stream;
    let captured = story.client.does(&format!("capture {stream} {US_50} 8 {US_200} 2"));
    story.costs("captured", captured, 800);
    let (built, _) = story.chain(&[US_50, US_50, US_200]);
    let exec = story.instantiate(built);
    story.costs("built", exec, 300);
    let (outer, nodes) = story.chain(&[US_50]);
    story.client.does(&format!("add_child {outer} {} {built}", nodes[0]));
    let exec = story.instantiate(outer);
    story.costs("with a child", exec, 350);
}

#[test]
fn branches_that_run_side_by_side_are_charged_once() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let graph = story.client.does("graph");
    let root = story.client.does(&format!("add {graph} 0 {US_50}"));
    for _ in 0..3 {
        story.client.does(&format!("add {graph} {root} {US_200}"));
    }
    // Each of the three wants a third of the GPU, so all of them take as long as one; their nodes' sum is 650 us.
    let exec = story.instantiate(graph);
    story.costs("with branches", exec, 250);
}

#[test]
fn every_way_to_change_an_executable_graph_changes_what_it_is_charged() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let (graph, nodes) = story.chain(&[US_50, US_50, US_200]);
    let (child, _) = story.chain(&[US_50]);
    let (longer, _) = story.chain(&[US_200]);
    let inner = story.client.does(&format!("add_child {graph} {} {child}", nodes[2]));
    let exec = story.instantiate(graph);
    story.costs("as it was", exec, 350);
    story.client.does(&format!("set_kernel {exec} {} {US_200}", nodes[0]));
    story.costs("after cuGraphExecKernelNodeSetParams", exec, 500);
    story.client.does(&format!("set_any {exec} {} {US_200}", nodes[1]));
    story.costs("after cuGraphExecNodeSetParams", exec, 650);
    story.client.does(&format!("set_child {exec} {inner} {longer}"));
    story.costs("after cuGraphExecChildGraphNodeSetParams", exec, 800);
    story.client.does(&format!("enable {exec} {} 0", nodes[2]));
    story.costs("with a node disabled", exec, 600);
    story.client.does(&format!("enable {exec} {} 1", nodes[2]));
    story.costs("with the node enabled again", exec, 800);
    story.client.does(&format!("update {exec} {graph}"));
    story.costs("after cuGraphExecUpdate", exec, 350);
}

#[test]
fn events_and_words_that_are_nodes_cost_nothing_and_do_what_they_are_changed_to() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let words: Vec<_> = (0..2).map(|_| story.client.does("word")).collect();
    let events: Vec<_> = (0..2).map(|_| story.client.does("event")).collect();
    let (graph, kernels) = story.chain(&[US_50]);
    let mut does = |line: String| story.client.does(&line);
    let recorded = does(format!("add_record {graph} {} {}", kernels[0], events[0]));
    let waits = does(format!("add_event_wait {graph} {recorded} {}", events[0]));
    let written = does(format!("add_write {graph} {waits} {} 7", words[0]));
    does(format!("add {graph} {written} {US_200}"));
    let exec = story.instantiate(graph);
    story.costs("as it was", exec, 250);
    let word = |story: &mut Story<'_>, at: usize| story.client.does(&format!("get_word {}", words[at]));
    assert_eq!((word(&mut story, 0), word(&mut story, 1)), (7, 0));
    for change in [
        format!("set_record {exec} {recorded} {}", events[1]),
        format!("set_event_wait {exec} {waits} {}", events[1]),
        format!("set_write {exec} {written} {} 9", words[1]),
    ] {
        story.client.does(&change);
    }
    story.client.does(&format!("set_word {} 0", words[0]));
    story.costs("changed", exec, 250);
    assert_eq!((word(&mut story, 0), word(&mut story, 1)), (0, 9), "the new word, and the old one no more");
    story.client.does(&format!("is_reached {}", events[1]));
}

#[test]
fn a_host_function_that_is_a_node_is_called_at_each_launch_and_the_new_one_after_a_change() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let (before, after) = (story.client.does("word"), story.client.does("word"));
    let (graph, kernels) = story.chain(&[US_50]);
    let called = story.client.does(&format!("add_host {graph} {} {before}", kernels[0]));
    let exec = story.instantiate(graph);
    let mut counts_after = |change: &str| {
        story.client.does(change);
        story.spends(&format!("launch {exec} {} 20", story.stream));
        [before, after].map(|word| story.client.does(&format!("get_word {word}")))
    };
    assert_eq!(counts_after("wait"), [20, 0]);
    assert_eq!(counts_after(&format!("set_host {exec} {called} {after}")), [20, 20]);
}

/// What the next launch is charged when it goes out, in microseconds: nothing of it has been measured yet.
fn charged_at_once_us(story: &mut Story<'_>, exec: u64) -> u64 {
    story.client.does("wait");
    let before = story.spent().charged_ns;
    story.client.does(&format!("launch {exec} {} 1", story.stream));
    (story.spent().charged_ns - before + 500) / 1_000
}

#[test]
fn the_first_launch_after_each_change_is_charged_by_it_where_prices_are_told() {
    let gpu = SimGpu::new(COSTS);
    let prices = "[[price]]\nname = \"us_50\"\ntime_us = 50\n[[price]]\nname = \"us_200\"\ntime_us = 200\n";
    let node = Node::start(&gpu, &format!("policy = \"static\"\n{prices}"));
    let mut story = Story::begin(&gpu, &node);
    let (graph, nodes) = story.chain(&[US_50, US_50, US_200]);
    let (child, _) = story.chain(&[US_50]);
    let (longer, _) = story.chain(&[US_200, US_200]);
    let inner = story.client.does(&format!("add_child {graph} {} {child}", nodes[2]));
    let exec = story.instantiate(graph);
    assert_eq!(charged_at_once_us(&mut story, exec), 350, "the sum of its nodes");
    story.costs("known", exec, 350);
    let (first, second, third) = (nodes[0], nodes[1], nodes[2]);
    for (change, us) in [
        (format!("set_kernel {exec} {first} {US_200}"), 500),
        (format!("set_any {exec} {second} {US_200}"), 650),
        (format!("enable {exec} {third} 0"), 450),
        (format!("enable {exec} {third} 1"), 650),
        (format!("update {exec} {graph}"), 350),
    ] {
        story.client.does(&change);
        let charged = charged_at_once_us(&mut story, exec);
        assert!(charged.abs_diff(us) <= us / 50, "{change}: {charged} us, not {us}");
    }
    let grown = story.client.tell(&format!("set_child {exec} {inner} {longer}"));
    assert_eq!(grown.result, "CUDA_ERROR_INVALID_VALUE", "another topology");
    let charged = charged_at_once_us(&mut story, exec);
    assert!(charged.abs_diff(350) <= 7, "what the driver refused changes nothing: {charged} us");
    let (other, _) = story.chain(&[US_200]);
    story.client.does(&format!("set_child {exec} {inner} {other}"));
    let charged = charged_at_once_us(&mut story, exec);
    assert!(charged.abs_diff(500) <= 10, "the child's nodes: {charged} us");
    let graph = story.client.does("graph");
    let made = story.client.tell(&format!("add_conditional {graph} 0 2 2 1"));
    for (body, kernel) in made.values[2..].iter().zip([US_200, US_50]) {
        story.client.does(&format!("add {body} 0 {kernel}"));
    }
    let exec = story.instantiate(graph);
    assert_eq!(charged_at_once_us(&mut story, exec), 250, "both bodies, until it is measured");
}

#[test]
fn a_graph_that_took_over_another_is_still_changed_by_its_own_nodes() {
    let gpu = SimGpu::new(COSTS);
    let prices = "[[price]]\nname = \"us_50\"\ntime_us = 50\n[[price]]\nname = \"us_200\"\ntime_us = 200\n";
    let node = Node::start(&gpu, &format!("policy = \"static\"\n{prices}"));
    let mut story = Story::begin(&gpu, &node);
    let (graph, nodes) = story.chain(&[US_50, US_50]);
    let (other, _) = story.chain(&[US_200, US_200]);
    let exec = story.instantiate(graph);
    story.costs("known", exec, 100);
    let (first, second) = (nodes[0], nodes[1]);
    for (change, us) in [
        (format!("update {exec} {other}"), 400),
        (format!("set_kernel {exec} {first} {US_50}"), 250),
        (format!("enable {exec} {second} 0"), 50),
        (format!("update {exec} {other}"), 200),
        (format!("enable {exec} {second} 1"), 400),
    ] {
        story.client.does(&change);
        let charged = charged_at_once_us(&mut story, exec);
        assert!(charged.abs_diff(us) <= us / 50, "{change}: {charged} us, not {us}");
    }
}

#[test]
fn a_graph_that_is_changed_before_each_launch_is_charged_what_it_uses() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let (graph, nodes) = story.chain(&[US_50, US_200]);
    let (exec, stream, first) = (story.instantiate(graph), story.stream, nodes[0]);
    let rounds = |story: &mut Story<'_>, count: u64| {
        for round in 0..count {
            let kernel = if round % 2 == 0 { US_200 } else { US_50 };
            story.client.does(&format!("set_kernel {exec} {first} {kernel}"));
            story.client.does(&format!("launch {exec} {stream} 1"));
        }
        story.client.does("wait");
    };
    rounds(&mut story, 50);
    let mut window = |_| {
        let before = story.spent();
        rounds(&mut story, 100);
        story.spent().since(before)
    };
    let spent = wait::in_time(|| Spent::sum(&(0..5).map(&mut window).collect::<Vec<_>>()));
    assert!(spent.error_percent().abs() <= CLOSE, "{spent:?}, {} %", spent.error_percent());
}

#[test]
fn conditional_nodes_are_charged_the_bodies_that_run() {
    const IF: u64 = 0;
    const WHILE: u64 = 1;
    const SWITCH: u64 = 2;
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let mut graph = |kind: u64, bodies: u64, default: u64| {
        let graph = story.client.does("graph");
        let first = story.client.does(&format!("add {graph} 0 {US_50}"));
        let made = story.client.tell(&format!("add_conditional {graph} {first} {kind} {bodies} {default}"));
        assert_eq!(made.result, "CUDA_SUCCESS");
        for (body, kernel) in made.values[2..].iter().zip([US_200, US_50]) {
            story.client.does(&format!("add {body} 0 {kernel}"));
        }
        (graph, made.values)
    };
    let (taken, _) = graph(IF, 1, 1);
    let (skipped, _) = graph(IF, 1, 0);
    let (otherwise, _) = graph(IF, 2, 0);
    let (second, _) = graph(SWITCH, 2, 1);
    let (none, _) = graph(SWITCH, 2, 7);
    let (round, parts) = graph(WHILE, 1, 4);
    let [_, switch, body, ..] = parts[..] else { panic!("a node, a switch and a body: {parts:?}") };
    story.client.does(&format!("add_setting {body} 0 {COUNT_DOWN} {switch} 0"));
    for (what, graph, us) in [
        ("if", taken, 250),
        ("not", skipped, 50),
        ("else", otherwise, 100),
        ("switch", second, 100),
        ("none", none, 50),
    ] {
        let exec = story.instantiate(graph);
        story.costs(what, exec, us);
        let clone = story.client.tell(&format!("instantiate {graph} 0"));
        assert_eq!(clone.result, "CUDA_ERROR_INVALID_VALUE", "one at a time");
    }
    let exec = story.instantiate(round);
    story.costs("four rounds", exec, 50 + 4 * (200 + 2));
}

#[test]
fn a_kernel_that_sets_the_switch_decides_what_runs() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let graph = story.client.does("graph");
    let made = story.client.tell(&format!("add_conditional {graph} 0 0 1 0"));
    let [conditional, switch, body] = made.values[..] else { panic!("{made:?}") };
    story.client.does(&format!("add {body} 0 {US_200}"));
    let exec = story.instantiate(graph);
    assert!(story.spends(&format!("launch {exec} {} 10", story.stream)).used_ns == 0, "the default is no");
    story.client.does(&format!("destroy {exec}"));
    let setting = story.client.does(&format!("add_setting {graph} 0 {SET} {switch} 1"));
    story.client.does(&format!("depend {graph} {setting} {conditional}"));
    let exec = story.instantiate(graph);
    story.costs("set before it is asked", exec, 202);
}

#[test]
fn a_graph_with_a_host_function_is_charged_from_begin_to_end_and_reported() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let (graph, kernels) = story.chain(&[US_50, US_200]);
    let host = story.client.does(&format!("add_slow_host {graph} {} 2_000", kernels[1]));
    story.client.does(&format!("add {graph} {host} {US_200}"));
    let exec = story.instantiate(graph);
    let launch = format!("launch {exec} {} 20", story.stream);
    story.spends(&launch);
    let spent = story.spends(&launch);
    assert_eq!(spent.used_ns, 20 * 450_000);
    assert!(spent.charged_ns >= 20 * 2_400_000, "{spent:?}");
    let ps = node.says(&["ps"]);
    let told = "graphs of whole on GPU 0: 1 with host functions or waits inside, charged from begin to end";
    assert!(ps.lines().any(|line| line == told), "{ps}");
}

#[test]
fn while_a_host_function_runs_in_a_stream_nothing_is_charged() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let stream = story.stream;
    let mut rounds = |us: u64| {
        let before = story.spent();
        for _ in 0..30 {
            story.client.does(&format!("kernels {stream} {US_200} 3"));
            story.client.does(&format!("slow_host {stream} {us}"));
            story.client.does(&format!("kernels {stream} {US_50} 6"));
        }
        story.client.does("wait");
        story.spent().since(before)
    };
    for us in [300, 2_000] {
        rounds(us);
        let spent = rounds(us);
        assert!(spent.error_percent().abs() <= 3.0, "{us} us: {spent:?}, {} %", spent.error_percent());
    }
}

#[test]
fn a_graph_that_kernels_may_launch_is_reported() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let (graph, _) = story.chain(&[US_50]);
    let exec = story.client.does(&format!("instantiate {graph} 4"));
    assert_eq!(story.client.does(&format!("flags {exec}")), 4);
    let counted = |story: &Story<'_>| {
        story.node.tenant(WHOLE.name).unwrap().gpus[0].total.graphs.get("device_launchable").copied()
    };
    assert_eq!(counted(&story), Some(1));
    let unfit = story.client.does("graph");
    let made = story.client.tell(&format!("add_conditional {unfit} 0 0 1 0"));
    let refused = story.client.tell(&format!("instantiate_params {unfit} 4"));
    assert_eq!(
        (refused.result.as_str(), refused.values[1]),
        ("CUDA_ERROR_INVALID_VALUE", 3),
        "not supported there"
    );
    assert_eq!(refused.values[2], made.values[0], "and the node says which");
    assert_eq!(counted(&story), Some(1), "what was refused is no graph");
    story.costs("launched from the host", exec, 50);
    let ps = node.says(&["ps"]);
    let told = "graphs of whole on GPU 0: 1 can be launched by the tenant's own kernels, uncharged";
    assert!(ps.lines().any(|line| line == told), "{ps}");
    let stderr = story.client.finish().stderr;
    let lines = stderr.lines().filter(|line| line.contains("can be launched by its own kernels")).count();
    assert_eq!(lines, 1, "{stderr}");
}

#[test]
fn a_graph_heavier_than_a_period_runs_and_its_debt_is_carried() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let tenth = Budget { name: "tenth", request: "10%", limit: "10%", memory: "2GiB" };
    let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), tenth, GRAPHS));
    let stream = client.does("stream");
    let exec = client.does(&format!("capture {stream} 3 6")); // 30 ms
    for _ in 0..4 {
        client.does(&format!("launch {exec} {stream} 1"));
        client.does("wait");
    }
    let balance = |node: &Node<'_>| node.tenant("tenth").unwrap().gpus[0].balance_ns;
    let before = (balance(&node), Spent::of(&gpu, &node, "tenth", client.pid));
    let started = std::time::Instant::now();
    for _ in 0..5 {
        client.does(&format!("launch {exec} {stream} 1"));
    }
    client.does("wait");
    let took = started.elapsed();
    let spent = Spent::of(&gpu, &node, "tenth", client.pid).since(before.1);
    assert!(
        spent.used_ns.abs_diff(150_000_000) < 2_000_000 && spent.error_percent().abs() < CLOSE,
        "{spent:?}"
    );
    assert!(balance(&node) < -15_000_000, "the last one is a debt still: {} ns", balance(&node));
    // The first of five may go out at once on what was saved, the others each wait for 30 ms at a tenth.
    assert!(took.as_millis() >= 1_000, "150 ms of work at 10 % within {took:?}");
}
