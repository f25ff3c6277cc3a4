//! Memory nodes of graphs: charged when the graph is launched or uploaded, until the driver gives the memory back.

use weir_tests::node::Node;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::small::{self, client};

const MIB: u64 = 1 << 20;

/// What the ledger has for graphs, in bytes.
fn charged(node: &Node<'_>) -> u64 {
    small::charged(node, "graph")
}

#[test]
fn a_graph_is_charged_when_it_is_launched_or_uploaded_and_until_its_memory_is_trimmed() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    for first in ["graph_launch", "graph_upload"] {
        let graph = small.does(&format!("graph {} 1", 64 * MIB));
        assert_eq!(charged(&node), 0, "an address, and no memory yet");
        small.does(&format!("{first} {graph}"));
        assert_eq!((charged(&node), small.does("graph_reserved")), (64 * MIB, 64 * MIB), "after {first}");
        small.does(&format!("graph_launch {graph}"));
        small.does("wait");
        assert_eq!(charged(&node), 64 * MIB, "the driver keeps it for the next launch");
        small.does(&format!("graph_destroy {graph}"));
        small.does("graph_trim");
        assert_eq!((charged(&node), small.does("graph_reserved")), (0, 0));
    }
}

#[test]
fn what_a_graph_leaves_allocated_stays_charged_until_it_is_freed_and_trimmed() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let made = small.tell(&format!("graph {} 0", 64 * MIB));
    small.does(&format!("graph_launch {}", made.values[0]));
    small.does("wait");
    small.does("graph_trim");
    assert_eq!(charged(&node), 64 * MIB, "it is in use");
    small.does(&format!("pool_free {}", made.values[1]));
    small.does("wait");
    small.does("graph_trim");
    assert_eq!(charged(&node), 0);
}

#[test]
fn a_graph_that_does_not_fit_is_refused_at_its_launch_and_leaves_no_trace() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let large = small.does(&format!("graph {} 1", 1400 * MIB));
    small.does(&format!("allocate {}", 700 * MIB));
    assert_eq!(small.tell(&format!("graph_launch {large}")).result, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!((charged(&node), small.does("graph_reserved")), (0, 0));
    let fits = small.does(&format!("graph {} 1", 500 * MIB));
    small.does(&format!("graph_launch {fits}"));
    assert_eq!(charged(&node), 500 * MIB);
}

/// Ways to add memory nodes one by one: the calls of their own, `cuGraphAddNode`, and that of CUDA 12.3.
const WAYS: [u64; 3] = [0, 1, 2];

#[test]
fn memory_nodes_that_are_added_one_by_one_are_charged_at_upload_and_launch_and_refused_when_they_do_not_fit()
{
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    for (way, first) in WAYS.into_iter().flat_map(|way| [(way, "graph_launch"), (way, "graph_upload")]) {
        let graph = small.does(&format!("graph_of_nodes {} 1 {way}", 64 * MIB));
        assert_eq!(charged(&node), 0, "a description");
        small.does(&format!("{first} {graph}"));
        assert_eq!((charged(&node), small.does("graph_reserved")), (64 * MIB, 64 * MIB), "{way}, {first}");
        small.does("wait");
        small.does(&format!("graph_destroy {graph}"));
        small.does("graph_trim");
        assert_eq!((charged(&node), small.does("graph_reserved")), (0, 0), "{way}, {first}");
    }
    for way in WAYS {
        let kept = small.tell(&format!("graph_of_nodes {} 0 {way}", 64 * MIB)).values;
        small.does(&format!("graph_launch {}", kept[0]));
        small.does("wait");
        small.does("graph_trim");
        assert_eq!(charged(&node), 64 * MIB, "{way}: it has no node that frees it");
        small.does(&format!("pool_free {}", kept[1]));
        small.does("wait");
        small.does("graph_trim");
        assert_eq!(charged(&node), 0, "{way}");
    }
    small.does(&format!("allocate {}", 700 * MIB));
    for (way, first) in WAYS.into_iter().flat_map(|way| [(way, "graph_launch"), (way, "graph_upload")]) {
        let large = small.does(&format!("graph_of_nodes {} 1 {way}", 1400 * MIB));
        assert_eq!(small.tell(&format!("{first} {large}")).result, "CUDA_ERROR_OUT_OF_MEMORY", "{way}");
        assert_eq!((charged(&node), small.does("graph_reserved")), (0, 0), "{way}, {first}");
    }
}
