//! The gate in the stream: launches that may not go yet wait there, and the program goes on. They are let go as launches on the host
//! would be, and none is left behind.

use std::time::{Duration, Instant};

use weir_tests::graphs::COSTS;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::GRAPHS;

/// A tenth of the GPU: what takes 5 ms is paid for in 50.
const TENTH: Budget<'_> = Budget { name: "tenth", request: "10%", limit: "10%", memory: "2GiB" };

/// Half of the GPU: turns of 5 ms, of which the host may run ahead by two.
const HALF: Budget<'_> = Budget { name: "half", request: "50%", limit: "50%", memory: "2GiB" };

/// By its place in `weir_tests::graphs::KERNELS`.
const US_5000: u64 = 3;
const NS_5000: u64 = 5_000_000;

fn config(gate: &str) -> String {
    format!("policy = \"static\"\ngate = \"{gate}\"\n[[price]]\nname = \"*\"\ntime_us = 5000\n")
}

fn client(gpu: &SimGpu, node: &Node<'_>, budget: Budget<'_>) -> (Memory, u64) {
    let mut client = Memory::start(Program::under_weir(gpu, Some(node), budget, GRAPHS));
    let stream = client.does("stream");
    client.does(&format!("kernels {stream} {US_5000} 4"));
    client.does("wait");
    (client, stream)
}

fn used(gpu: &SimGpu, client: &Memory) -> u64 {
    gpu.true_use([client.pid]).1[0]
}

#[test]
fn a_launch_that_may_not_go_yet_returns_at_once_and_runs_when_it_is_paid_for() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, &config("stream"));
    let (mut client, stream) = client(&gpu, &node, HALF);
    let before = used(&gpu, &client);
    let begun = Instant::now();
    client.does(&format!("kernels {stream} {US_5000} 3"));
    let launched = begun.elapsed();
    client.does("wait");
    let ended = begun.elapsed();
    assert!(
        launched < ended / 2,
        "on the host they would have waited for 20 ms of 25: {launched:?} of {ended:?}"
    );
    assert_eq!(used(&gpu, &client) - before, 3 * NS_5000);
    let total = &node.tenant(HALF.name).expect("it runs").gpus[0].total;
    assert!(total.throttled >= 2 && total.waited_ns > 20_000_000 && total.forced == 0, "{total:?}");
}

#[test]
fn in_the_stream_and_on_the_host_a_limit_holds_alike() {
    let gpu = SimGpu::new(COSTS);
    let shares = ["stream", "host"].map(|gate| {
        let node = Node::start(&gpu, &config(gate));
        let (mut client, stream) = client(&gpu, &node, TENTH);
        client.begin(&format!("kernels {stream} {US_5000} 20"));
        let [share] = gpu.shares([client.pid], Duration::from_millis(900));
        client.ended();
        share
    });
    assert!(shares.iter().all(|share| (share - 10.0).abs() < 2.0), "{shares:?} %, of 10");
}

#[test]
fn where_the_driver_refuses_waits_launches_wait_on_the_host() {
    let gpu = SimGpu::new(&format!("stream_waits = false\n{COSTS}"));
    let node = Node::start(&gpu, &config("stream"));
    let (mut client, stream) = client(&gpu, &node, TENTH);
    let before = used(&gpu, &client);
    client.does(&format!("kernels {stream} {US_5000} 3"));
    assert!(
        used(&gpu, &client) - before >= NS_5000,
        "the last one has waited until the others were paid for"
    );
    assert_eq!(node.tenant(TENTH.name).expect("it runs").state, "enforced");
}

#[test]
fn no_launch_is_left_behind_when_its_context_goes_or_its_program_ends() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, &config("stream"));
    let (mut gone, stream) = client(&gpu, &node, TENTH);
    gone.does(&format!("kernels {stream} {US_5000} 3"));
    gone.does("primary_reset");
    drop(gone);
    let (mut ends, stream) = client(&gpu, &node, TENTH);
    ends.does(&format!("kernels {stream} {US_5000} 3"));
    ends.finish().well();
}
