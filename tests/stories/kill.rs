//! SIGKILL: at whatever instruction a tenant's process dies, its budget is whole again, and nobody else waits for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_protocol::pages::PROCESS_SLOTS;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const VICTIM: Budget<'_> = Budget { name: "victim", request: "40%", limit: "100%", memory: "2GiB" };
const NEIGHBOUR: Budget<'_> = Budget { name: "neighbour", request: "40%", limit: "100%", memory: "2GiB" };

/// How often a process is killed: more often than a tenant has slots, so that one not given back would be missed.
const KILLS: u32 = 200;

/// Longest that a victim lives, in microseconds: it dies in its start, in an allocation, or at its gate.
const LIFE_US: u64 = 20_000;

/// Longest gap in the neighbour's launches. The bar is 10 ms; a machine that runs tests has two processors for a
/// dozen processes, and is given ten times as much.
const LONGEST_GAP: Duration = Duration::from_millis(100);

/// SplitMix64 (Steele et al. 2014), for life spans that can be had again: `WEIR_SEED` is printed.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let clock =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_nanos()));
        let named = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok());
        let seed = named.unwrap_or_else(clock);
        eprintln!("WEIR_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Lets a victim live for a while (its first calls of the driver included), kills it, and waits until its tenant
/// holds nothing.
fn one_life(gpu: &SimGpu, node: &Node<'_>, life: Duration) {
    let program = Program::under_weir(gpu, Some(node), VICTIM, LOOP);
    let program = program.args(["--allocate", "256MiB", "--churn", "64MiB", "--step", "4"]);
    let victim = Looping::just_started(program);
    let pid = victim.pid;
    std::thread::park_timeout(life);
    program::kill(pid);
    let ended = victim.finish();
    assert_eq!(ended.status.code(), Some(137), "{}", ended.stderr);
    wait::until("the victim's budget", || {
        let tenant = node.tenant(VICTIM.name).expect("another process holds the tenant");
        (tenant.pids.is_empty() && tenant.gpus[0].memory_held_bytes == 0).then_some(())
    });
    wait::until("the victim's device memory", || {
        // It may have died before the GPU knew of it.
        gpu.client(pid).is_none_or(|client| !client.alive && client.memory_bytes == 0).then_some(())
    });
}

#[test]
fn two_hundred_sigkills_at_random_points_lose_no_budget_and_stall_no_neighbour() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    // Holds the tenant between its processes' lives.
    let holder = Program::under_weir(&gpu, Some(&node), VICTIM, "cat").start();
    let mut neighbour = Looping::start(Program::under_weir(&gpu, Some(&node), NEIGHBOUR, LOOP));
    let alone = gpu.books().gpus[0].memory_used;
    let mut random = Random::seeded();
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        one_life(&gpu, &node, Duration::from_micros(random.next() % LIFE_US));
        // A short life may end within one of the neighbour's own pauses at the gate: its next launch tells how long.
        wait::until("a launch of the neighbour", || {
            let progress = neighbour.report();
            longest = longest.max(Duration::from_nanos(progress.longest_gap_ns));
            (progress.launches > 0).then_some(())
        });
    }
    eprintln!("longest gap in the neighbour's launches: {longest:?}");
    assert!(longest <= LONGEST_GAP, "{longest:?}");
    assert_eq!(gpu.books().gpus[0].memory_used, alone, "all device memory of the dead is free");
    let tenant = node.tenant(VICTIM.name).expect("its holder runs");
    assert!(
        tenant.processes_ever > PROCESS_SLOTS as u64,
        "no slot was used twice: {}",
        tenant.processes_ever
    );
    holder.finish().well();
    neighbour.finish().well();
    wait::until("the end of the tenants", || node.stats().tenants.is_empty().then_some(()));
    assert_eq!(node.stats().gpus[0].requested_permille, 0, "the whole share can be promised again");
}

#[test]
fn a_killed_waiter_at_the_gate_leaves_the_gate_to_its_sibling() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let slow = Budget { request: "10%", limit: "10%", ..VICTIM };
    let start = || Looping::start(Program::under_weir(&gpu, Some(&node), slow, LOOP));
    // With 10 % between them, either is at the gate nearly all the time.
    let (doomed, mut heir) = (start(), start());
    program::kill(doomed.pid);
    heir.goes_on(1000);
    assert_eq!(doomed.finish().status.code(), Some(137));
}

#[test]
fn a_stopped_process_holds_nobody_up_and_goes_on_when_it_may() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut stopped = Looping::start(Program::under_weir(&gpu, Some(&node), VICTIM, LOOP));
    let mut neighbour = Looping::start(Program::under_weir(&gpu, Some(&node), NEIGHBOUR, LOOP));
    program::signal(stopped.pid, libc::SIGSTOP);
    wait::until("the sight of it", || {
        (node.tenant(VICTIM.name).expect("it is there").state == "stopped").then_some(())
    });
    neighbour.goes_on(1000);
    program::signal(stopped.pid, libc::SIGCONT);
    stopped.goes_on(1000);
}

#[test]
fn a_killed_node_manager_stops_nobody_and_the_memory_limit_stays() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, "policy = \"static\"\n");
    let mut orphan = Looping::start(Program::under_weir(&gpu, Some(&node), VICTIM, LOOP));
    node.kill();
    // More than a second's worth, alone on the GPU: past the moment at which the manager counts as gone.
    orphan.goes_on(60_000);
    assert_eq!(orphan.allocate("1GiB"), "CUDA_SUCCESS");
    assert_eq!(orphan.allocate("1100MiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(orphan.finish().status.code(), Some(0), "the program ends as it would");
}
