//! Kernels that nobody has seen before: what they are charged at first, and what a tenant gets by them beyond its budget.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use weir_tests::graphs::{COSTS, Spent};
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::GRAPHS;

const BUDGET: Budget<'_> = Budget { name: "new", request: "20%", limit: "20%", memory: "2GiB" };

/// What accrues to it, and what its bucket holds at first, in nanoseconds: four rounds of 10 ms.
const RATE: f64 = 0.2;
const SAVED_NS: f64 = 8e6;

/// Kernels by their places in `weir_tests::graphs::KERNELS`, and what they take, in nanoseconds.
const MS_5: (u64, u64) = (3, 5_000_000);
const MS_50: (u64, u64) = (7, 50_000_000);
const US_2: (u64, u64) = (6, 2_000);

/// After so many launches a price is right, ...
const FIRST: u64 = 16;

/// ... within so much of it or a microsecond, and what was charged since the first launch within so much of the use, in percent.
const PRICE_OFF: f64 = 0.1;
const CHARGE_OFF: f64 = 1.0;

/// So many launches may be under way before anything is known of a kernel.
const AHEAD: f64 = 8.0;

struct Story<'a> {
    gpu: &'a SimGpu,
    node: &'a Node<'a>,
    client: Memory,
    stream: u64,
}

impl<'a> Story<'a> {
    fn begin(gpu: &'a SimGpu, node: &'a Node<'a>) -> Self {
        let mut client = Memory::start(Program::under_weir(gpu, Some(node), BUDGET, GRAPHS));
        let stream = client.does("stream");
        Self { gpu, node, client, stream }
    }

    fn launches(&mut self, (kernel, _): (u64, u64), count: u64) {
        self.client.does(&format!("kernels {} {kernel} {count}", self.stream));
    }

    /// Asserts what must be known of a kernel once all is done that was launched.
    #[track_caller]
    fn knows(&mut self, (kernel, takes_ns): (u64, u64)) {
        self.client.does("wait");
        let price = self.client.does(&format!("price {kernel}")) as f64;
        let spent = Spent::of(self.gpu, self.node, BUDGET.name, self.client.pid);
        eprintln!("{takes_ns} ns: price {price}, {spent:?}, {:.2} %", spent.error_percent());
        let most_off = (PRICE_OFF * takes_ns as f64).max(1e3);
        assert!((price - takes_ns as f64).abs() <= most_off, "{takes_ns} ns: a price of {price}");
        assert!(spent.error_percent().abs() <= CHARGE_OFF, "{takes_ns} ns: {spent:?}");
    }
}

/// Runs the story, and returns by how much the tenant was ahead of its budget at most, in nanoseconds of the GPU by the books.
fn ahead_ns(gpu: &SimGpu, pid: i32, story: impl FnOnce()) -> f64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let (mut began, mut most) = (0, 0.0f64);
            while !over.load(Ordering::Relaxed) {
                let (now, [used]) = gpu.true_use([pid]);
                if used == 0 {
                    began = now;
                }
                most = most.max(used as f64 - RATE * (now - began) as f64);
            }
            most
        });
        let told = catch_unwind(AssertUnwindSafe(story));
        over.store(true, Ordering::Relaxed); // whatever came of it
        let most = looks.join().expect("it only looks");
        told.map_or_else(|panic| resume_unwind(panic), |()| most)
    })
}

/// A program runs ahead with a kernel that is new: after a few launches all of it is known and charged, and until then the tenant
/// had no more than these.
fn run_ahead(kernel: (u64, u64)) {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let ahead = ahead_ns(&gpu, story.client.pid, || {
        story.launches(kernel, FIRST);
        story.knows(kernel);
        story.launches(kernel, FIRST);
        story.knows(kernel);
    });
    let most = SAVED_NS + AHEAD * kernel.1 as f64;
    eprintln!("{} ns: {ahead} ns ahead of its budget, of {most}", kernel.1);
    assert!(ahead <= most, "{ahead} of {most} ns");
}

#[test]
fn a_new_kernel_of_5_ms_is_known_and_charged_after_sixteen_launches_and_eight_were_ahead() {
    run_ahead(MS_5);
}

#[test]
fn a_new_kernel_of_50_ms_is_known_and_charged_after_sixteen_launches_and_eight_were_ahead() {
    run_ahead(MS_50);
}

/// Behind others that keep the stream at work: in an idle one the host's time between a mark and a launch would count, too
/// (`docs/time.md`, what this cannot do).
#[test]
fn a_new_kernel_of_2_us_behind_others_is_known_after_sixteen_launches() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut story = Story::begin(&gpu, &node);
    let ahead = ahead_ns(&gpu, story.client.pid, || {
        story.launches(MS_5, 2);
        story.launches(US_2, FIRST);
        story.knows(US_2);
    });
    let most = SAVED_NS + 2.0 * MS_5.1 as f64;
    assert!(ahead <= most, "{ahead} of {most} ns");
}

/// A program may launch each of its kernels once, and wait for it: there is never a second launch that tells what the first one took.
/// What the host takes between a launch and its wait (the client is told by a pipe) hides how long a short one ran.
#[test]
fn kernels_that_are_launched_once_each_are_charged_what_they_used_in_one_stream_and_in_one_each() {
    for apart in [false, true] {
        let gpu = SimGpu::new(COSTS);
        let node = Node::start(&gpu, "policy = \"static\"\n");
        let mut story = Story::begin(&gpu, &node);
        for kernel in [MS_5.0, MS_50.0, 0, 1, 2, US_2.0] {
            if apart {
                story.stream = story.client.does("stream");
            }
            story.launches((kernel, 0), 1);
            story.client.does("wait");
        }
        let spent = Spent::of(&gpu, &node, BUDGET.name, story.client.pid);
        eprintln!("apart: {apart}, {spent:?}");
        assert!(spent.error_percent().abs() <= CHARGE_OFF, "apart: {apart}, {spent:?}");
    }
}
