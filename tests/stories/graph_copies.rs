//! What graphs copy is counted at each launch, as they are then, and held to the budget of bandwidth. *Simulated*.

use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::GRAPHS;

const TENANT: Budget<'_> = Budget { name: "copier", request: "100%", limit: "100%", memory: "2GiB" };

/// Engines whose time counts.
const CONFIG: &str = "linger_ms = 3_600_000\nhost_to_device_gb_s = 2\ndevice_to_host_gb_s = 1\n";

const MIB: u64 = 1 << 20;

struct Story<'a> {
    gpu: &'a SimGpu,
    node: &'a Node<'a>,
    client: Memory,
    stream: u64,
    /// Eight MiB each: on the device, on the host.
    places: [u64; 2],
}

/// (calls, bytes) by way: to the device, to the host, within it, memsets.
type Copied = [(u64, u64); 4];

impl<'a> Story<'a> {
    fn begin(gpu: &'a SimGpu, node: &'a Node<'a>, flags: &[&str]) -> Self {
        let program = Program::under_weir_with(gpu, Some(node), TENANT, flags, GRAPHS);
        let mut client = Memory::start(program);
        let stream = client.does("stream");
        let places = ["device_memory", "host_memory"].map(|kind| client.does(&format!("{kind} {}", 8 * MIB)));
        Self { gpu, node, client, stream, places }
    }

    fn does(&mut self, line: &str) -> u64 {
        self.client.does(line)
    }

    /// A graph that copies so much to the device and then half of it back, and sets as much: its copies and itself.
    fn graph(&mut self, bytes: u64) -> (u64, Vec<u64>) {
        let ([device, host], graph) = (self.places, self.does("graph"));
        let to = self.does(&format!("add_copy {graph} 0 {device} {host} {bytes}"));
        let from = self.does(&format!("add_copy {graph} {to} {host} {device} {}", bytes / 2));
        let within =
            self.does(&format!("add_copy {graph} {from} {device} {} {}", device + 4 * MIB, bytes / 4));
        let fill = self.does(&format!("add_fill {graph} {within} {device} {bytes}"));
        (graph, vec![to, from, within, fill])
    }

    /// What so many launches copy, as Weir counts it; for the engines the GPU's own books must agree.
    fn copies(&mut self, exec: u64, launches: u64) -> Copied {
        let (seen, books) = (self.seen(), self.books());
        let stream = self.stream;
        self.client.does(&format!("launch {exec} {stream} {launches}"));
        self.client.does("wait");
        let (after, books_after) = (self.seen(), self.books());
        let less = |at: usize| (after[at].0 - seen[at].0, after[at].1 - seen[at].1);
        let copied = [0, 1, 2, 3].map(less);
        let by_books = [0, 1].map(|at| books_after[at] - books[at]);
        assert_eq!([copied[0].1, copied[1].1], by_books, "bytes to the device and to the host, by the books");
        copied
    }

    fn seen(&self) -> Copied {
        let copies = self.node.tenant(TENANT.name).expect("it runs").gpus[0].total.copies.clone();
        ["host_to_device", "device_to_host", "device_to_device", "fill"]
            .map(|way| copies.get(way).map_or((0, 0), |copied| (copied.calls, copied.bytes)))
    }

    fn books(&self) -> [u64; 2] {
        let contexts = self.gpu.client(self.client.pid).map(|client| client.contexts).unwrap_or_default();
        [0, 1].map(|way| contexts.iter().map(|context| context.copied[way].bytes).sum())
    }
}

/// What `launches` of [`Story::graph`] come to.
fn of(launches: u64, bytes: u64) -> Copied {
    [bytes, bytes / 2, bytes / 4, bytes].map(|bytes| (launches, launches * bytes))
}

#[test]
fn what_a_graph_copies_is_counted_at_each_launch_whatever_kind_of_graph_it_is() {
    let gpu = SimGpu::new(CONFIG);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, &[]);
    let (graph, _) = story.graph(4 * MIB);
    let exec = story.does(&format!("instantiate {graph} 0"));
    assert_eq!(story.copies(exec, 0), [(0, 0); 4], "nothing is copied before a launch");
    assert_eq!(story.copies(exec, 10), of(10, 4 * MIB), "built");
    let outer = story.does("graph");
    story.does(&format!("add_child {outer} 0 {graph}"));
    let outer = story.does(&format!("instantiate {outer} 0"));
    assert_eq!(story.copies(outer, 3), of(3, 4 * MIB), "within another");
    let ([device, host], stream) = (story.places, story.stream);
    let captured = story.does(&format!("capture_copy {stream} {device} {host} {MIB}"));
    assert_eq!(story.copies(captured, 7), [(7, 7 * MIB), (0, 0), (0, 0), (0, 0)], "captured");
    let recaptured = story.does(&format!("capture_launch {stream} {captured}"));
    assert_eq!(
        story.copies(recaptured, 2),
        [(2, 2 * MIB), (0, 0), (0, 0), (0, 0)],
        "its launch was captured"
    );
}

#[test]
fn a_graph_that_was_changed_is_counted_as_it_is_now() {
    let gpu = SimGpu::new(CONFIG);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, &[]);
    let ([device, host], (graph, nodes)) = (story.places, story.graph(4 * MIB));
    let exec = story.does(&format!("instantiate {graph} 0"));
    story.does(&format!("set_copy {exec} {} {device} {host} {MIB}", nodes[0]));
    story.does(&format!("set_fill {exec} {} {device} {}", nodes[3], 2 * MIB));
    let changed = [(1, MIB), (1, 2 * MIB), (1, MIB), (1, 2 * MIB)];
    assert_eq!(story.copies(exec, 1), changed, "other sizes");
    story.does(&format!("set_copy_node {exec} {} {device} {host} {}", nodes[0], 3 * MIB));
    story.does(&format!("set_fill_node {exec} {} {device} {MIB}", nodes[3]));
    let by_kind = [(1, 3 * MIB), changed[1], changed[2], (1, MIB)];
    assert_eq!(story.copies(exec, 1), by_kind, "by the calls for nodes of one kind");
    story.does(&format!("set_copy {exec} {} {device} {host} {MIB}", nodes[0]));
    story.does(&format!("set_fill {exec} {} {device} {}", nodes[3], 2 * MIB));
    story.does(&format!("enable {exec} {} 0", nodes[0]));
    assert_eq!(story.copies(exec, 1), [(0, 0), changed[1], changed[2], changed[3]], "a node less");
    let (other, _) = story.graph(2 * MIB);
    story.does(&format!("update {exec} {other}"));
    let [_, rest @ ..] = of(1, 2 * MIB);
    assert_eq!(
        story.copies(exec, 1),
        [(0, 0), rest[0], rest[1], rest[2]],
        "another graph's, still a node less"
    );
    story.does(&format!("set_copy {exec} {} {host} {device} {MIB}", nodes[1]));
    story.does(&format!("enable {exec} {} 1", nodes[0]));
    assert_eq!(story.copies(exec, 1), [of(1, 2 * MIB)[0], (1, MIB), rest[1], rest[2]], "by its own nodes");
    story.does(&format!("destroy {exec}"));
    let next = story.does(&format!("instantiate {other} 0"));
    assert_eq!(story.copies(next, 1), of(1, 2 * MIB), "the next one of all");
}

#[test]
fn the_time_of_what_graphs_copy_is_what_such_copies_take_elsewhere() {
    let gpu = SimGpu::new(CONFIG);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, &[]);
    let ([device, host], stream) = (story.places, story.stream);
    for _ in 0..20 {
        story.does(&format!("copy {stream} {device} {host} {}", 4 * MIB));
        story.does(&format!("copy {stream} {host} {device} {}", 2 * MIB));
        story.does("wait");
    }
    let (graph, _) = story.graph(8 * MIB);
    let exec = story.does(&format!("instantiate {graph} 0"));
    let time = |story: &Story<'_>| {
        let copies = story.node.tenant(TENANT.name).expect("it runs").gpus[0].total.copies.clone();
        let seen = ["host_to_device", "device_to_host"].map(|way| copies.get(way).map_or(0, |c| c.time_ns));
        let contexts = story.gpu.client(story.client.pid).map(|client| client.contexts).unwrap_or_default();
        let books = [0, 1].map(|way| contexts.iter().map(|context| context.copied[way].time_ns).sum::<u64>());
        (seen, books)
    };
    let before = time(&story);
    story.copies(exec, 20);
    let after = time(&story);
    for way in [0, 1] {
        let (seen, truly) = (after.0[way] - before.0[way], after.1[way] - before.1[way]);
        let error = 100.0 * (seen as f64 / truly as f64 - 1.0);
        assert!(error.abs() <= 5.0, "way {way}: {seen} ns, by the engine {truly}, {error:.1} %");
    }
}

#[test]
fn graphs_that_copy_are_held_to_the_budget_of_bandwidth() {
    let gpu = SimGpu::new(CONFIG);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, &["--copy-limit", "64MiB/s"]);
    let ([device, host], stream) = (story.places, story.stream);
    let exec = story.does(&format!("capture_copy {stream} {device} {host} {}", 8 * MIB));
    let began = gpu.books().now_ns;
    assert_eq!(story.copies(exec, 20)[0], (20, 160 * MIB));
    let took_ns = gpu.books().now_ns - began;
    // All but the first ones wait for 8 MiB each.
    assert!((1_800_000_000..4_000_000_000).contains(&took_ns), "{took_ns} ns for 160 MiB at 64 MiB/s");
}
