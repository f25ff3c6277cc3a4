//! `weir park`: an idle tenant's device memory goes to the host, its calls wait, and the first of them brings it back
//! (docs/park.md; gpu-truths, rule 15; faults F46).

use std::time::Instant;

use weir_nodemgr::control::TenantStats;
use weir_nodemgr::registry::Stand;
use weir_tests::graphs::COSTS;
use weir_tests::looping::Looping;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::{GRAPHS, LOOP, MEMORY};

const GIB: u64 = 1 << 30;

const STATIC: &str = "policy = \"static\"\n";

/// Three quarters of the card.
const LARGE: Budget<'_> = Budget { name: "large", request: "30%", limit: "100%", memory: "30GiB" };

/// Fits beside it only while that one is parked.
const OTHER: Budget<'_> = Budget { name: "other", request: "30%", limit: "100%", memory: "20GiB" };

const FILLER: [&str; 2] = ["--class", "filler"];

/// A tenant of class `filler` that does what it is told.
fn filler(gpu: &SimGpu, node: &Node<'_>, budget: Budget<'_>, client: &str) -> Memory {
    Memory::start(Program::under_weir_with(gpu, Some(node), budget, &FILLER, client))
}

fn tenant(node: &Node<'_>, name: &str) -> TenantStats {
    node.tenant(name).unwrap_or_else(|| panic!("`{name}` is there:\n{}", node.log()))
}

fn wait_for_state(node: &Node<'_>, name: &str, state: &str) {
    wait::until(&format!("`{name}` to be {state}"), || (tenant(node, name).state == state).then_some(()));
}

/// Events of one kind.
fn events(node: &Node<'_>, kind: &str) -> Vec<serde_json::Value> {
    let lines = String::from_utf8(node.weir(&["events"])).expect("events are text");
    let all = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON lines"));
    all.filter(|event| event["event"] == kind).collect()
}

fn used(gpu: &SimGpu) -> u64 {
    gpu.books().gpus[0].memory_used
}

#[test]
fn a_parked_tenants_memory_is_off_the_gpu_and_whatever_it_calls_first_brings_it_back() {
    let gpu = SimGpu::new(COSTS);
    let node = Node::start(&gpu, STATIC);
    let mut large = filler(&gpu, &node, LARGE, GRAPHS);
    let stream = large.does("stream");
    let (memory, host) = (large.does(&format!("device_memory {}", GIB / 2)), large.does("host_memory 4096"));
    large.does(&format!("kernels {stream} 0 20"));
    large.does("wait");
    let (before, held) = (used(&gpu), tenant(&node, "large").gpus[0].memory_held_bytes);
    assert!(before >= GIB / 2 && held >= GIB / 2);
    let calls = [
        format!("kernels {stream} 0 20"),
        format!("device_memory {}", 1 << 20),
        format!("copy {stream} {host} {memory} 4096"),
        format!("wait_stream {stream}"),
    ];
    for (call, parks) in calls.iter().zip(1..) {
        let parked = node.park("large").unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(parked.stand, Stand::Parked);
        let stats = tenant(&node, "large");
        assert_eq!((stats.state.as_str(), used(&gpu)), ("parked", 0), "before `{call}`");
        let gpu_stats = &stats.gpus[0];
        assert_eq!((gpu_stats.memory_held_bytes, gpu_stats.memory_parked_bytes), (0, parked.memory_bytes));
        let called = Instant::now();
        large.does(call);
        eprintln!("`{call}` went on after {:?}", called.elapsed());
        wait_for_state(&node, "large", "enforced");
        assert_eq!(events(&node, "unparked").len(), parks, "once for each call");
    }
    large.does("wait");
    assert!(used(&gpu) > before, "it is back, and has the mebibyte more that it asked for");
    assert_eq!(events(&node, "unparked")[0]["by"], "call");
    large.finish().well();
    wait::until("an empty card", || (used(&gpu) == 0).then_some(()));
}

#[test]
fn what_a_parked_tenant_had_is_free_for_others_and_it_comes_back_when_there_is_room() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let mut large = filler(&gpu, &node, LARGE, MEMORY);
    large.does(&format!("allocate {}", 4 * GIB));
    let refused = Program::under_weir(&gpu, Some(&node), OTHER, "true").run();
    assert!(refused.stderr.contains("W0105") && refused.stderr.contains("weir park"), "{}", refused.stderr);
    node.park("large").unwrap_or_else(|why| panic!("{why}"));
    let mut other = Memory::start(Program::under_weir(&gpu, Some(&node), OTHER, MEMORY));
    other.does(&format!("allocate {}", 8 * GIB));
    assert!(node.unpark("large").expect_err("there is no room").contains("W0105"));
    large.begin(&format!("allocate {GIB}"));
    wait::until("the wish", || (!events(&node, "unpark_waits").is_empty()).then_some(()));
    assert_eq!(tenant(&node, "large").state, "parked", "nobody has to make room for it");
    other.finish().well();
    assert_eq!(large.ended().result, "CUDA_SUCCESS");
    wait_for_state(&node, "large", "enforced");
    assert_eq!(events(&node, "unpark_waits").len(), 1, "said once");
    large.finish().well();
}

#[test]
fn an_operator_brings_a_tenant_back_that_has_not_called() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let mut large = filler(&gpu, &node, LARGE, MEMORY);
    let before = used(&gpu);
    assert_eq!(node.unpark("large").map(|done| (done.stand, done.took_ms)), Ok((Stand::Running, 0)));
    node.park("large").unwrap_or_else(|why| panic!("{why}"));
    let stats = wait::until("a reading of NVML's that began after the park", || {
        let stats = node.stats();
        let compared = stats.tenants[0].gpus[0].memory_drift_bytes.is_some();
        (compared && stats.gpus[0].memory_used_bytes == Some(0)).then_some(stats)
    });
    assert_eq!(stats.tenants[0].gpus[0].memory_drift_bytes, Some(0), "its ledger says the same");
    assert_eq!(stats.gpus[0].memory_limits_bytes, 0);
    assert_eq!(node.park("large").map(|done| (done.stand, done.took_ms)), Ok((Stand::Parked, 0)));
    assert_eq!(node.unpark("large").map(|done| done.stand), Ok(Stand::Running));
    assert_eq!((tenant(&node, "large").state.as_str(), used(&gpu)), ("enforced", before));
    large.does("info");
    large.finish().well();
}

#[test]
fn whoever_cannot_be_parked_is_left_as_he_was() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let budget = |name| Budget { name, request: "10%", limit: "100%", memory: "4GiB" };
    let mut primary = Memory::start(Program::under_weir(&gpu, Some(&node), budget("primary"), MEMORY));
    let mut managed = filler(&gpu, &node, budget("managed"), MEMORY);
    managed.does(&format!("managed {GIB}"));
    let mut given = filler(&gpu, &node, budget("given"), MEMORY);
    let pointer = given.does(&format!("allocate {GIB}"));
    given.does(&format!("ipc_get {pointer}"));
    let before = used(&gpu);
    let cases = [("primary", "primary"), ("managed", "managed memory"), ("given", "crosses processes")];
    for (name, why) in cases {
        let refused = node.park(name).expect_err("no checkpoint can be taken of it");
        assert!(refused.contains("W0122") && refused.contains(why), "{refused}");
        assert_eq!((tenant(&node, name).state.as_str(), used(&gpu)), ("enforced", before), "{name}");
    }
    for client in [&mut primary, &mut managed, &mut given] {
        client.does(&format!("allocate {}", 1 << 20));
    }
    let calls = gpu.calls();
    assert!(!calls.keys().any(|call| call.starts_with("cuCheckpoint")), "{calls:?}");
}

#[test]
fn whoever_works_is_not_parked_and_goes_on() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let mut busy = Looping::start(Program::under_weir_with(&gpu, Some(&node), LARGE, &FILLER, LOOP));
    for _ in 0..5 {
        let refused = node.park("large").expect_err("it is not idle");
        assert!(refused.contains("W0123"), "{refused}");
        busy.goes_on(100);
    }
    assert_eq!(tenant(&node, "large").state, "enforced");
    assert_eq!(events(&node, "park_failed").len(), 5);
    busy.finish().well();
}

#[test]
fn a_step_that_the_driver_refuses_is_undone() {
    let fault = "[[fault]]\ncall = \"cuCheckpointProcessCheckpoint\"\nnth = 2\naction = \"error:801\"\n";
    let gpu = SimGpu::new(&format!("{EVERY_KERNEL_20_US}{fault}"));
    let node = Node::start(&gpu, STATIC);
    let (mut first, mut second) = (filler(&gpu, &node, LARGE, MEMORY), filler(&gpu, &node, LARGE, MEMORY));
    let before = used(&gpu);
    let refused = node.park("large").expect_err("the second process cannot be parked");
    assert!(refused.contains("W0123") && refused.contains("CUDA_ERROR_NOT_SUPPORTED"), "{refused}");
    assert_eq!((tenant(&node, "large").state.as_str(), used(&gpu)), ("enforced", before));
    first.does(&format!("allocate {GIB}"));
    second.does(&format!("allocate {GIB}"));
}

#[test]
fn all_processes_of_a_tenant_go_and_one_that_calls_brings_all_back() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let (mut first, mut second) = (filler(&gpu, &node, LARGE, MEMORY), filler(&gpu, &node, LARGE, MEMORY));
    first.does(&format!("allocate {GIB}"));
    let before = used(&gpu);
    node.park("large").unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(used(&gpu), 0);
    second.does("info");
    wait_for_state(&node, "large", "enforced");
    assert_eq!(used(&gpu), before);
    node.park("large").unwrap_or_else(|why| panic!("{why}"));
    program::kill(second.pid);
    assert_eq!(second.finish().status.code(), Some(137));
    wait::until("its end", || (tenant(&node, "large").pids == [first.pid]).then_some(()));
    assert_eq!(tenant(&node, "large").state, "parked", "the other one is still idle");
    first.does("info");
    first.finish().well();
    wait::until("an empty card", || (used(&gpu) == 0).then_some(()));
}

#[test]
fn a_parked_tenant_stays_parked_over_a_restart_and_a_call_without_a_manager_is_heard_by_the_next() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let mut large = filler(&gpu, &node, LARGE, MEMORY);
    large.does(&format!("allocate {GIB}"));
    let before = used(&gpu);
    node.park("large").unwrap_or_else(|why| panic!("{why}"));
    node.restart();
    assert_eq!((tenant(&node, "large").state.as_str(), used(&gpu)), ("parked", 0), "{}", node.log());
    assert_eq!(tenant(&node, "large").gpus[0].memory_parked_bytes, before);
    node.kill();
    large.begin(&format!("allocate {GIB}"));
    node.restart();
    assert_eq!(large.ended().result, "CUDA_SUCCESS");
    wait_for_state(&node, "large", "enforced");
    assert_eq!(used(&gpu), before + GIB);
    large.finish().well();
}

#[test]
fn under_pressure_whoever_is_idle_makes_room_and_a_primary_does_not() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\npark_idle_s = 1\n");
    let small = Budget { name: "small", request: "10%", limit: "100%", memory: "4GiB" };
    let primary = Memory::start(Program::under_weir(&gpu, Some(&node), small, MEMORY));
    let large = filler(&gpu, &node, LARGE, MEMORY);
    let run = || Program::under_weir(&gpu, Some(&node), OTHER, "true").run();
    wait::until("room", || run().status.success().then_some(()));
    assert_eq!(tenant(&node, "large").state, "parked");
    assert_eq!(tenant(&node, "small").state, "enforced");
    let parked = events(&node, "parked");
    assert_eq!((parked.len(), &parked[0]["by"]), (1, &"pressure".into()), "{parked:?}");
    let whole = Budget { memory: "38GiB", ..OTHER };
    let refused = Program::under_weir(&gpu, Some(&node), whole, "true").run();
    assert!(
        refused.stderr.contains("W0105") && refused.stderr.contains("`small` holds"),
        "{}",
        refused.stderr
    );
    primary.finish().well();
    large.finish().well();
}

#[test]
fn somebody_elses_checkpoint_of_a_throttled_tenant_is_shown_and_kills_nobody() {
    // faults.md, F46: cuda-checkpoint lock and restore during throttling.
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\npark_idle_s = 3600\n");
    let throttled = Budget { name: "slow", request: "10%", limit: "10%", memory: "4GiB" };
    let mut slow = Looping::start(Program::under_weir_with(&gpu, Some(&node), throttled, &FILLER, LOOP));
    slow.goes_on(100);
    let budget = tenant(&node, "slow").budget;
    let mut other = Memory::start(Program::bare(&gpu, MEMORY));
    let pid = slow.pid;
    other.does(&format!("lock {pid}"));
    other.does(&format!("checkpoint {pid}"));
    assert_eq!(gpu.client(pid).expect("it lives").memory_bytes, 0);
    wait_for_state(&node, "slow", "checkpointed");
    assert!(node.park("slow").expect_err("it is another's").contains("somebody else"));
    other.does(&format!("restore {pid}"));
    other.does(&format!("unlock {pid}"));
    slow.goes_on(100);
    wait_for_state(&node, "slow", "enforced");
    assert_eq!((tenant(&node, "slow").pids, tenant(&node, "slow").budget), (vec![pid], budget));
    assert_eq!(events(&node, "checkpointed").len(), 1);
    slow.finish().well();
}

#[test]
fn a_driver_that_hangs_keeps_its_tenant_and_nobody_else_and_the_next_manager_undoes_it() {
    let fault = "[[fault]]\ncall = \"cuCheckpointProcessCheckpoint\"\nnth = 2\naction = \"hang\"\n";
    let gpu = SimGpu::new(&format!("{EVERY_KERNEL_20_US}{fault}"));
    let mut node = Node::start(&gpu, STATIC);
    let (mut first, mut second) = (filler(&gpu, &node, LARGE, MEMORY), filler(&gpu, &node, LARGE, MEMORY));
    let small = Budget { name: "small", request: "10%", limit: "100%", memory: "4GiB" };
    let mut small = Looping::start(Program::under_weir(&gpu, Some(&node), small, LOOP));
    let before = used(&gpu);
    let park = Program::bare(&gpu, gpu.dist().weir()).arg("--dir").arg(node.dir()).args(["park", "large"]);
    let _waits = park.start();
    wait::until("the first of its two processes", || (used(&gpu) < before).then_some(()));
    let epoch = node.stats().node.epoch;
    small.goes_on(100);
    assert!(node.stats().node.epoch > epoch, "the manager ticks");
    assert_eq!(tenant(&node, "large").state, "parking");
    assert!(node.unpark("large").expect_err("it is under way").contains("W0133"));
    node.restart();
    wait_for_state(&node, "large", "enforced");
    assert_eq!(used(&gpu), before, "{}", node.log());
    first.does("info");
    second.does("info");
    small.finish().well();
}

#[test]
fn a_process_that_joins_a_parked_tenant_brings_it_back() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, STATIC);
    let mut first = filler(&gpu, &node, LARGE, MEMORY);
    node.park("large").unwrap_or_else(|why| panic!("{why}"));
    let second = filler(&gpu, &node, LARGE, MEMORY);
    wait_for_state(&node, "large", "enforced");
    first.does("info");
    second.finish().well();
    first.finish().well();
}
