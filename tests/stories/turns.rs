//! Turns: under time-slicing tenants launch one after the other, and nobody who does not move is waited for.

use std::time::Duration;

use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const STATIC: &str = "policy = \"static\"\n";

/// How long switches are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// A GPU that slices by itself switches once in 2.1 ms; with turns of half a round of 12 ms it does so once in 6. Between
/// the two, since programs that do not get a processor lose their turn early.
const MOST_SWITCHES: f64 = 350.0;

fn start(gpu: &SimGpu, node: &Node<'_>, name: &str) -> Looping {
    let budget = Budget { name, request: "50%", limit: "50%", memory: "2GiB" };
    Looping::start(Program::under_weir(gpu, Some(node), budget, LOOP))
}

/// The books' time in seconds, and switches between contexts until then.
fn switches(gpu: &SimGpu) -> (f64, f64) {
    let books = gpu.books();
    let contexts = books.gpus.iter().flat_map(|gpu| &gpu.clients).flat_map(|client| &client.contexts);
    (books.now_ns as f64 / 1e9, contexts.map(|context| context.switches).sum::<u64>() as f64)
}

#[test]
fn the_gpu_switches_between_turns_and_not_within_them() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let (_one, _other) = (start(&gpu, &node, "one"), start(&gpu, &node, "other"));
    let before = switches(&gpu);
    wait::pass(WINDOW);
    let after = switches(&gpu);
    let each_second = (after.1 - before.1) / (after.0 - before.0);
    assert!(each_second < MOST_SWITCHES, "{each_second:.0} switches a second");
    let tenants = ["one", "other"].map(|name| node.tenant(name).expect("it runs").gpus.remove(0).total);
    for total in tenants {
        assert!(total.measured_ns * 3 > total.charged_ns, "most of a turn is measured: {total:?}");
    }
    for turns in ["waits", "dense"] {
        let shown = || (node.tenant("one").expect("it runs").gpus[0].turns == turns).then_some(());
        wait::until(&format!("one of them to be shown as {turns}"), shown);
    }
}

/// How often a neighbour is stopped or killed. At a random moment it holds the turn, or wants it, as often as not.
const TIMES: usize = 10;

/// Who does not move is waited for 20 ms here, and a launch that nobody gives way to goes after 250 ms. The
/// middle one of several waits lies well between: a machine that runs tests may pause at any one of them.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Asserts that the neighbour's pauses were short.
#[track_caller]
fn goes_on_soon(mut waits: [Duration; TIMES]) {
    waits.sort();
    eprintln!("{waits:?}");
    assert!(waits[TIMES / 2] < LONGEST_WAIT, "{waits:?}");
}

#[test]
fn whoever_is_stopped_or_dies_in_its_turn_holds_nobody_up() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let mut goes_on = start(&gpu, &node, "goes-on");
    for end in [libc::SIGSTOP, libc::SIGKILL] {
        goes_on_soon(std::array::from_fn(|_| {
            let ends = start(&gpu, &node, "ends");
            goes_on.goes_on(1_000);
            program::signal(ends.pid, end);
            let wait = goes_on.goes_on(1_000);
            program::kill(ends.pid);
            assert_eq!(ends.finish().status.code(), Some(137));
            wait
        }));
    }
}

#[test]
fn without_a_manager_turns_go_on_and_who_does_not_move_is_not_waited_for() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let (mut goes_on, mut stops) = (start(&gpu, &node, "goes-on"), start(&gpu, &node, "stops"));
    node.kill();
    goes_on_soon(std::array::from_fn(|_| {
        goes_on.goes_on(1_000);
        program::signal(stops.pid, libc::SIGSTOP);
        let wait = goes_on.goes_on(1_000);
        program::signal(stops.pid, libc::SIGCONT);
        stops.goes_on(1_000);
        wait
    }));
    program::kill(stops.pid);
    goes_on.goes_on(10_000);
    assert_eq!(stops.finish().status.code(), Some(137));
}

#[test]
fn a_filler_queues_little_beside_others_and_the_gpu_itself_writes_how_far_it_has_come() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let mut better = start(&gpu, &node, "better");
    let budget = Budget { name: "filler", request: "20%", limit: "40%", memory: "2GiB" };
    let flags = ["--class", "filler"];
    let mut filler = Looping::start(Program::under_weir_with(&gpu, Some(&node), budget, &flags, LOOP));
    filler.goes_on(2_000);
    better.goes_on(2_000);
    let cap = |name| node.tenant(name).expect("it runs").gpus[0].in_flight_cap_ns;
    assert!(
        cap("filler") == 400_000 && cap("better") > 10_000_000,
        "{} and {} ns",
        cap("filler"),
        cap("better")
    );
    let words = gpu.calls().get("cuStreamWriteValue64_v2").copied().unwrap_or(0);
    // 2,000 launches of 20 us are 40 ms of work: 400 words of 100 us each, less those that a mark stood for.
    assert!(words > 100, "{words} words were written");
}
