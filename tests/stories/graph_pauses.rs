//! Graphs and streams in which nothing of the tenant runs for a while are charged what they truly use. Prices are told to nobody.

use weir_tests::graphs::COSTS;
use weir_tests::node::Node;
use weir_tests::simgpu::SimGpu;

use crate::graphs::{CLOSE, Story, US_50, US_200};

/// A host function of some `us` between two chains of kernels: one launch runs for 450 us, and takes a good deal longer.
fn interrupted(story: &mut Story<'_>, us: u64) -> u64 {
    let (graph, kernels) = story.chain(&[US_50, US_200]);
    let host = story.client.does(&format!("add_slow_host {graph} {} {us}", kernels[1]));
    story.client.does(&format!("add {graph} {host} {US_200}"));
    story.instantiate(graph)
}

/// Changes `exec` before each launch, until its price has followed and then for a while: one launch takes `us`, and that is charged.
fn costs_when_changed(story: &mut Story<'_>, change: &str, exec: u64, us: u64) {
    let stream = story.stream;
    let mut window = |launches: u64| {
        let before = story.spent();
        for _ in 0..launches {
            story.client.does(change);
            story.client.does(&format!("launch {exec} {stream} 1"));
            story.client.does("wait");
        }
        story.spent().since(before)
    };
    window(150); // a price follows within some twenty measurements
    let spent = window(100);
    assert!(spent.used_ns.abs_diff(us * 100_000) <= us * 1_000, "{change}: {spent:?}");
    assert!(spent.error_percent().abs() <= CLOSE, "{change}: {spent:?}, {} %", spent.error_percent());
}

#[test]
fn while_a_host_function_runs_that_is_a_node_nothing_is_charged() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    for us in [0, 200, 3_000] {
        let exec = interrupted(&mut story, us);
        story.costs(&format!("a host function of {us} us"), exec, 450);
    }
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
        assert!(spent.error_percent().abs() <= CLOSE, "{us} us: {spent:?}, {} %", spent.error_percent());
    }
}

#[test]
fn beside_a_host_function_only_what_another_branch_runs_is_charged() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    for us in [0, 300, 3_000] {
        // 50 us, then a host function beside 400 us of kernels, and 50 us behind both.
        let (graph, kernels) = story.chain(&[US_50, US_200, US_200]);
        let host = story.client.does(&format!("add_slow_host {graph} {} {us}", kernels[0]));
        let last = story.client.does(&format!("add {graph} {host} {US_50}"));
        story.client.does(&format!("depend {graph} {} {last}", kernels[2]));
        let exec = story.instantiate(graph);
        story.costs(&format!("beside a host function of {us} us"), exec, 500);
    }
}

#[test]
fn host_functions_inside_of_a_child_graph_and_at_both_ends_cost_nothing() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let graph = story.client.does("graph");
    let first = story.client.does(&format!("add_slow_host {graph} 0 500"));
    let kernel = story.client.does(&format!("add {graph} {first} {US_50}"));
    let child = story.client.does("graph");
    let before = story.client.does(&format!("add {child} 0 {US_50}"));
    let host = story.client.does(&format!("add_slow_host {child} {before} 500"));
    story.client.does(&format!("add {child} {host} {US_200}"));
    let child = story.client.does(&format!("add_child {graph} {kernel} {child}"));
    let kernel = story.client.does(&format!("add {graph} {child} {US_50}"));
    story.client.does(&format!("add_slow_host {graph} {kernel} 500"));
    let exec = story.instantiate(graph);
    story.costs("five hundred microseconds here and there", exec, 350);
}

#[test]
fn a_graph_with_a_host_function_that_is_updated_before_each_launch_is_charged_what_it_uses() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let mut graphs = [US_50, US_200].map(|last| {
        let (graph, kernels) = story.chain(&[US_200, US_200]);
        let host = story.client.does(&format!("add_slow_host {graph} {} 1_000", kernels[1]));
        story.client.does(&format!("add {graph} {host} {last}"));
        graph
    });
    let exec = story.instantiate(graphs[0]);
    for us in [450, 600] {
        costs_when_changed(&mut story, &format!("update {exec} {}", graphs[0]), exec, us);
        graphs.reverse();
    }
}

#[test]
fn a_graph_with_a_host_function_whose_nodes_are_changed_is_charged_what_it_uses() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let (graph, kernels) = story.chain(&[US_200, US_200]);
    let host = story.client.does(&format!("add_slow_host {graph} {} 1_000", kernels[1]));
    let last = story.client.does(&format!("add {graph} {host} {US_50}"));
    let (stream, first) = (story.stream, kernels[0]);
    for kernel in [US_50, US_200] {
        story.client.does(&format!("kernels {stream} {kernel} 100")); // what each of them takes is known
        story.client.does("wait");
    }
    let exec = story.instantiate(graph);
    story.costs("as it was made", exec, 450);
    let changes = [
        (format!("set_kernel {exec} {last} {US_200}"), 600),
        (format!("set_any {exec} {last} {US_50}"), 450),
        (format!("enable {exec} {first} 0"), 250),
        (format!("enable {exec} {first} 1"), 450),
    ];
    for (change, us) in changes {
        story.client.does(&change);
        story.costs(&change, exec, us);
    }
}

#[test]
fn a_graph_with_a_host_function_that_is_changed_before_each_launch_is_charged_what_it_uses() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let (graph, kernels) = story.chain(&[US_200, US_200]);
    let host = story.client.does(&format!("add_slow_host {graph} {} 1_000", kernels[1]));
    let last = story.client.does(&format!("add {graph} {host} {US_50}"));
    let exec = story.instantiate(graph);
    for (kernel, us) in [(US_50, 450), (US_200, 600)] {
        costs_when_changed(&mut story, &format!("set_kernel {exec} {last} {kernel}"), exec, us);
    }
}

#[test]
fn launches_of_a_graph_with_a_host_function_never_overlap_whatever_streams_they_go_to() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let (first, streams) = (story.stream, [story.client.does("stream"), 0, 2]);
    let before = story.spent();
    // The first launch of each is one that tells.
    for round in 0..12 {
        let exec = interrupted(&mut story, 200);
        for stream in [first, streams[round % 3]] {
            story.client.does(&format!("launch {exec} {stream} 1"));
        }
        story.client.does("wait");
    }
    // Of kernels on a third of the GPU each, those of two launches would run at once.
    let spent = story.spent().since(before);
    assert!(spent.used_ns.abs_diff(24 * 450_000) <= 24 * 4_500, "{spent:?}");
}
