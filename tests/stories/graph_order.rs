//! What a launch of a graph waits for, and what it does not: with Weir as without.

use weir_tests::graphs::COSTS;
use weir_tests::node::Node;
use weir_tests::simgpu::SimGpu;

use crate::graphs::{Story, US_50, US_200};

/// A second stream beside the story's, and a word of memory.
fn stream_and_word(story: &mut Story<'_>) -> (u64, u64) {
    (story.client.does("stream"), story.client.does("word"))
}

/// What one branch of a graph is. A host function makes of a launch one that Weir may let a copy do, with events inside.
#[derive(Clone, Copy)]
enum Branch {
    Kernel,
    Host,
}

/// Two branches that meet again, and then this event.
fn branching(story: &mut Story<'_>, branch: Branch, event: u64) -> u64 {
    let graph = story.client.does("graph");
    let root = story.client.does(&format!("add {graph} 0 {US_50}"));
    let one = story.client.does(&match branch {
        Branch::Kernel => format!("add {graph} {root} {US_50}"),
        Branch::Host => format!("add_slow_host {graph} {root} 100"),
    });
    let kernel = story.client.does(&format!("add {graph} {root} {US_200}"));
    let last = story.client.does(&format!("add {graph} {one} {US_50}"));
    story.client.does(&format!("depend {graph} {kernel} {last}"));
    story.client.does(&format!("add_record {graph} {last} {event}"));
    story.instantiate(graph)
}

fn is_reached(story: &mut Story<'_>, event: u64) -> bool {
    match story.client.tell(&format!("is_reached {event}")).result.as_str() {
        "CUDA_SUCCESS" => true,
        "CUDA_ERROR_NOT_READY" => false,
        other => panic!("{other}"),
    }
}

#[test]
fn branches_of_one_graph_wait_for_nothing_that_parks_another_ones_stream() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    for branch in [Branch::Kernel, Branch::Host] {
        let mut story = Story::begin(&gpu, &node);
        let (parked, (other, word)) = (story.stream, stream_and_word(&mut story));
        let events = [0; 2].map(|_| story.client.does("event"));
        let [first, second] = events.map(|event| branching(&mut story, branch, event));
        story.client.does(&format!("await_word {parked} {word}"));
        story.client.does(&format!("launch {first} {parked} 2"));
        story.client.does(&format!("launch {second} {other} 2"));
        story.client.does(&format!("wait_stream {other}"));
        assert_eq!(events.map(|event| is_reached(&mut story, event)), [false, true]);
        story.client.does(&format!("set_word {word} 1"));
        story.client.does("wait");
        assert!(is_reached(&mut story, events[0]));
        story.client.finish().well();
    }
}

#[test]
fn a_graph_waits_for_its_launch_in_another_stream() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    for branch in [Branch::Kernel, Branch::Host] {
        let mut story = Story::begin(&gpu, &node);
        let (parked, (other, word)) = (story.stream, stream_and_word(&mut story));
        let event = story.client.does("event");
        let exec = branching(&mut story, branch, event);
        story.client.does(&format!("await_word {parked} {word}"));
        story.client.does(&format!("launch {exec} {parked} 1"));
        story.client.does(&format!("launch {exec} {other} 1"));
        // Time for a launch that waits for nothing.
        let third = story.client.does("stream");
        story.client.does(&format!("kernels {third} {US_200} 20"));
        story.client.does(&format!("wait_stream {third}"));
        assert!(!is_reached(&mut story, event));
        story.client.does(&format!("set_word {word} 1"));
        story.client.does(&format!("wait_stream {other}"));
        assert!(is_reached(&mut story, event));
        story.client.finish().well();
    }
}

#[test]
fn a_graph_waits_for_nothing_that_came_behind_its_launch_in_another_stream() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    for branch in [Branch::Kernel, Branch::Host] {
        let mut story = Story::begin(&gpu, &node);
        let (parked, (other, word)) = (story.stream, stream_and_word(&mut story));
        let event = story.client.does("event");
        let exec = branching(&mut story, branch, event);
        story.client.does(&format!("launch {exec} {parked} 1"));
        story.client.does(&format!("await_word {parked} {word}"));
        story.client.does(&format!("launch {exec} {other} 1"));
        story.client.does(&format!("wait_stream {other}"));
        assert!(is_reached(&mut story, event));
        story.client.does(&format!("set_word {word} 1"));
        story.client.does("wait");
        story.client.finish().well();
    }
}
