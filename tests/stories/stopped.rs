//! F03: a process that stands still, by SIGSTOP or with its control group. Its neighbour has what it had, what it holds stays
//! charged, and it comes back with no more than a burst.

use std::time::Duration;

use weir_tests::cgroup::Group;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const STOPS: Budget<'_> = Budget { name: "stops", request: "40%", limit: "40%", memory: "2GiB" };
const NEIGHBOUR: Budget<'_> = Budget { name: "neighbour", request: "40%", limit: "40%", memory: "2GiB" };

/// The neighbour's share, before and while the other stands still: to what it may have, in points (faults A.5, F03).
const SHARE: f64 = 40.0;
const MOST_POINTS: f64 = 2.0;

/// How long shares are looked at.
const WINDOW: Duration = Duration::from_secs(2);

/// How long is looked at what the process does when it goes on; its tokens of the standstill would last for longer.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// Asserts that the neighbour has its share, no more and no less.
#[track_caller]
fn has_its_share(gpu: &SimGpu, neighbour: &Looping, when: &str) {
    let [share] = gpu.shares([neighbour.pid], WINDOW);
    eprintln!("{when}: {share:.1} %");
    assert!((share - SHARE).abs() <= MOST_POINTS, "{when}: {share:.1} %");
}

/// Has a process stand still beside another one, by `stop` until `go_on`; `seen` waits until it does.
fn stands_still(stop: impl Fn(i32), seen: impl Fn(&Node<'_>), go_on: impl Fn(i32)) {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let program = Program::under_weir(&gpu, Some(&node), STOPS, LOOP).args(["--allocate", "256MiB"]);
    let mut stops = Looping::start(program);
    let mut neighbour = Looping::start(Program::under_weir(&gpu, Some(&node), NEIGHBOUR, LOOP));
    // Past what is learnt of prices, and what is saved up at the start.
    stops.goes_on(10_000);
    neighbour.goes_on(10_000);
    let on_gpu = |pid| gpu.client(pid).expect("a client of the driver").memory_bytes;
    let of = || node.tenant(STOPS.name).expect("it is there").gpus.remove(0);
    has_its_share(&gpu, &neighbour, "before");
    let held = of().memory_held_bytes;
    assert_eq!(held, on_gpu(stops.pid));

    stop(stops.pid);
    seen(&node);
    has_its_share(&gpu, &neighbour, "while it stands still");
    let still = of();
    assert_eq!((still.memory_held_bytes, on_gpu(stops.pid)), (held, held), "what it holds stays charged");
    let (_, [ran]) = gpu.true_use([stops.pid]);
    let [none] = gpu.shares([stops.pid], WINDOW);
    assert!(none.abs() < f64::EPSILON, "it does stand still, and what it had queued is long done: {none} %");

    let (before_ns, [_]) = gpu.true_use([stops.pid]);
    go_on(stops.pid);
    std::thread::sleep(AFTERWARDS); // real processes take their shares in real time
    let (after_ns, [runs]) = gpu.true_use([stops.pid]);
    let (had_ns, accrued_ns) = ((runs - ran) as f64, (after_ns - before_ns) as f64 * SHARE / 100.0);
    let burst_ns = still.capacity_ns as f64 + still.in_flight_cap_ns as f64;
    eprintln!("afterwards {:.0} of {:.0} + {:.0} ms", had_ns / 1e6, accrued_ns / 1e6, burst_ns / 1e6);
    assert!(runs > ran, "it goes on");
    assert!(
        had_ns <= accrued_ns + burst_ns,
        "more than its rate and a burst: {had_ns} ns, {accrued_ns} and {burst_ns}"
    );
    let hoarded_ns = (2 * WINDOW).as_nanos() as f64 * SHARE / 100.0;
    assert!(
        burst_ns < hoarded_ns / 4.0,
        "what it may have at once is far from what it would have saved: {burst_ns} ns"
    );
    stops.goes_on(1_000);
    has_its_share(&gpu, &neighbour, "afterwards");
    stops.finish().well();
    neighbour.finish().well();
}

#[test]
fn a_stopped_process_takes_nothing_from_its_neighbour_keeps_its_memory_and_saves_up_no_more_than_a_burst() {
    let shown = |node: &Node<'_>| {
        wait::until("the sight of it", || {
            (node.tenant(STOPS.name).expect("it is there").state == "stopped").then_some(())
        });
    };
    stands_still(|pid| program::signal(pid, libc::SIGSTOP), shown, |pid| program::signal(pid, libc::SIGCONT));
}

#[test]
fn a_process_that_is_frozen_with_its_control_group_fares_no_differently() {
    let Some(group) = Group::new() else {
        return eprintln!("skipped: this user may make no control groups of version 2");
    };
    let freeze = |pid| {
        group.take(pid);
        group.freeze();
    };
    let frozen = |_: &Node<'_>| wait::until("the freeze", || group.is_frozen().then_some(()));
    stands_still(freeze, frozen, |_| group.thaw());
}
