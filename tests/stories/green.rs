//! Green contexts, several contexts, streams of other contexts, per-thread default streams: each launch is charged, and
//! charged right, wherever it goes.

use weir_tests::graphs::{COSTS, Spent};
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::GRAPHS;

const WHOLE: Budget<'_> = Budget { name: "whole", request: "100%", limit: "100%", memory: "2GiB" };

/// Charged and used may differ by this, in percent: windows are of 5 ms, and a host of two cores pauses in some.
const CLOSE: f64 = 2.0;

/// A kernel of 50 us on the whole GPU.
const US_50: u64 = 1;

struct Story<'a> {
    gpu: &'a SimGpu,
    node: &'a Node<'a>,
    client: Memory,
}

impl<'a> Story<'a> {
    fn begin(gpu: &'a SimGpu, node: &'a Node<'a>, budget: Budget<'_>) -> Self {
        Self { gpu, node, client: Memory::start(Program::under_weir(gpu, Some(node), budget, GRAPHS)) }
    }

    fn spent(&self) -> Spent {
        Spent::of(self.gpu, self.node, WHOLE.name, self.client.pid)
    }

    /// So many kernels of 50 us into a stream until they are known, and then for a while: each truly takes `us`, and that
    /// is charged.
    fn costs(&mut self, what: &str, stream: u64, us: u64) {
        for _ in 0..3 {
            self.client.does(&format!("kernels {stream} {US_50} 100"));
            self.client.does(&format!("wait_stream {stream}"));
        }
        let window = |_| {
            let before = self.spent();
            self.client.does(&format!("kernels {stream} {US_50} 200"));
            self.client.does(&format!("wait_stream {stream}"));
            self.spent().since(before)
        };
        let spent = Spent::median((0..5).map(window).collect());
        let used_us = spent.used_ns / 200_000;
        assert!(used_us.abs_diff(us) <= us / 50, "{what}: one kernel truly took {used_us} us, not {us}");
        assert!(spent.error_percent().abs() <= CLOSE, "{what}: {spent:?}, {} %", spent.error_percent());
    }
}

#[test]
fn a_kernel_in_a_green_context_is_charged_the_time_that_it_takes_there() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, WHOLE);
    let made = story.client.tell("green 54");
    let [green, context, sms] = made.values[..] else { panic!("{made:?}") };
    assert_eq!((made.result.as_str(), sms), ("CUDA_SUCCESS", 54));
    let part = story.client.does(&format!("green_stream {green}"));
    let whole = story.client.does("stream");
    assert_eq!(story.client.does(&format!("stream_green {part}")), green);
    assert_eq!(story.client.does(&format!("stream_green {whole}")), 0);
    story.costs("a part's stream while the primary context is current", part, 100);
    story.costs("the whole GPU", whole, 50);
    story.client.does(&format!("current {context}"));
    story.costs("the part's stream while it is current itself", part, 100);
    story.costs("its default stream", 0, 100);
    let own = story.client.does("stream");
    assert_eq!(story.client.does(&format!("stream_green {own}")), green);
    story.costs("a stream made there", own, 100);
}

#[test]
fn a_green_context_that_is_gone_leaves_nothing_to_wait_for() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, WHOLE);
    let green = story.client.does("green 20");
    let stream = story.client.does(&format!("green_stream {green}"));
    story.client.does(&format!("kernels {stream} {US_50} 40"));
    story.client.does(&format!("green_destroy {green}"));
    let refused = story.client.tell(&format!("kernels {stream} {US_50} 1"));
    assert_eq!(refused.result, "CUDA_ERROR_STREAM_DETACHED");
    let outstanding = || {
        let tenant = node.tenant(WHOLE.name).unwrap();
        tenant.gpus[0].processes.iter().map(|process| process.outstanding_ns).sum::<u64>()
    };
    assert_eq!(outstanding(), 0, "nobody could ever see its end");
    let whole = story.client.does("stream");
    story.costs("and the rest goes on", whole, 50);
}

#[test]
fn a_context_that_another_thread_destroys_leaves_nothing_to_wait_for() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, WHOLE);
    let outstanding = || {
        let tenant = node.tenant(WHOLE.name).unwrap();
        tenant.gpus[0].processes.iter().map(|process| process.outstanding_ns).sum::<u64>()
    };
    let whole = story.client.does("stream");
    for _ in 0..10 {
        story.client.does(&format!("in_context_of_its_own {US_50} 40"));
        story.client.does(&format!("kernels {whole} {US_50} 5"));
        story.client.does("wait");
        assert_eq!(outstanding(), 0, "nobody could ever see its end");
    }
    story.costs("and the rest goes on", whole, 50);
}

#[test]
fn a_stream_of_another_context_is_charged_and_seen_to_end() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, WHOLE);
    let primary = story.client.does("primary");
    story.client.does("context");
    let stream = story.client.does("stream");
    story.client.does(&format!("current {primary}"));
    story.costs("while another is current", stream, 50);
    story.client.does("current 0");
    story.client.does("current 0"); // the context that was made lies on the first one
    story.costs("while none is current", stream, 50);
    let before = story.spent();
    let refused = story.client.tell(&format!("kernels 0 {US_50} 1"));
    assert_eq!(refused.result, "CUDA_ERROR_INVALID_CONTEXT", "a default stream needs a context");
    assert_eq!(story.spent().since(before).charged_ns, 0, "and what did not run is not charged");
}

/// A client with a context on each of two GPUs: the second one's is current, the first one's is returned.
fn on_both(gpu: &SimGpu, node: &Node<'_>) -> (Memory, u64) {
    let mut client =
        Memory::start(Program::under_weir_with(gpu, Some(node), WHOLE, &["--gpu", "0,1"], GRAPHS));
    let primary = client.does("primary");
    client.does("context 1");
    (client, primary)
}

#[test]
fn a_stream_on_another_gpu_is_charged_there() {
    let gpu = SimGpu::new(&format!("gpus = 2\n{COSTS}"));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut client, primary) = on_both(&gpu, &node);
    let stream = client.does("stream");
    client.does(&format!("current {primary}"));
    let charged =
        || node.tenant(WHOLE.name).unwrap().gpus.iter().map(|gpu| gpu.total.charged_ns).collect::<Vec<_>>();
    let window = |_| {
        let before = charged();
        client.does(&format!("kernels {stream} {US_50} 100"));
        client.does(&format!("wait_stream {stream}"));
        let after = charged();
        assert_eq!(after[0], before[0], "nothing runs on the GPU whose context is current");
        Spent { charged_ns: after[1] - before[1], used_ns: 5_000_000 }
    };
    let spent = Spent::median((0..7).map(window).collect());
    assert!(spent.error_percent().abs() <= CLOSE, "on the other one: {spent:?}, {} %", spent.error_percent());
    let outstanding = |at: usize| node.tenant(WHOLE.name).unwrap().gpus[at].processes[0].outstanding_ns;
    assert_eq!((outstanding(0), outstanding(1)), (0, 0));
}

#[test]
fn a_copy_into_a_stream_on_another_gpu_is_counted_there_and_so_is_what_follows_it() {
    let gpu = SimGpu::new(&format!("gpus = 2\n{COSTS}"));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut client, primary) = on_both(&gpu, &node);
    let (stream, to, from) =
        (client.does("stream"), client.does("device_memory 4096"), client.does("host_memory 4096"));
    client.does(&format!("current {primary}"));
    client.does(&format!("copy {stream} {to} {from} 4096"));
    client.does(&format!("wait_stream {stream}"));
    client.does(&format!("kernels {stream} {US_50} 100"));
    client.does(&format!("wait_stream {stream}"));
    let tenant = node.tenant(WHOLE.name).unwrap();
    let of = |at: usize| {
        let total = &tenant.gpus[at].total;
        (total.copies.get("host_to_device").map_or(0, |copied| copied.calls), total.charged_ns > 0)
    };
    assert_eq!([of(0), of(1)], [(0, false), (1, true)]);
    assert_eq!(tenant.gpus.iter().map(|gpu| gpu.processes[0].outstanding_ns).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn many_threads_with_their_own_default_streams_are_charged_what_they_use() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node, WHOLE);
    for threads in [4, 12] {
        story.client.does(&format!("threads {threads} {US_50} 50"));
        story.client.does("wait");
        let window = |_| {
            let before = story.spent();
            story.client.does(&format!("threads {threads} {US_50} {}", 1_200 / threads));
            story.client.does("wait");
            story.spent().since(before)
        };
        let spent = Spent::median((0..7).map(window).collect());
        assert!(
            spent.error_percent().abs() <= CLOSE,
            "{threads} threads: {spent:?}, {} %",
            spent.error_percent()
        );
    }
}
