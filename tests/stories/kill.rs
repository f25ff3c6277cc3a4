//! SIGKILL: at whatever instruction a tenant's process dies, its budget is whole again, and nobody else waits for it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_nodemgr::Place;
use weir_nodemgr::control::Client;
use weir_nodemgr::control::history::AskEvents;
use weir_nodemgr::events::What;
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

/// Longest until the manager has noticed a death and told of it, in the middle of all: the bar of p99 (faults A.5, F01), which
/// on a machine that runs tests is another matter at its worst.
const NOTICED_WITHIN: Duration = Duration::from_millis(5);

/// A connection that hears of deaths as they are noticed.
struct Watch {
    client: Client,
    after: u64,
    noticed: Vec<Duration>,
}

impl Watch {
    fn start(node: &Node<'_>) -> Self {
        let place = Place::at(node.dir()).expect("its directory");
        Self { client: Client::connect(&place).expect("it answers"), after: 0, noticed: Vec::new() }
    }

    /// The events since the last look; with `wait` not none.
    fn hear(&mut self, wait: bool) -> Vec<What> {
        let asked = AskEvents { after: self.after, wait };
        let heard = self.client.events(asked).expect("it answers");
        self.after = heard.last;
        heard.events.into_iter().map(|event| event.what).collect()
    }

    /// Kills the process. If the manager knows it, waits until it has noticed that, and keeps how long that took.
    fn kill(&mut self, pid: i32) {
        let is_known = self.hear(false).contains(&What::ProcessJoined { pid });
        let killed = Instant::now();
        program::kill(pid);
        if !is_known {
            return;
        }
        while !self.hear(true).contains(&What::ProcessEnded { pid }) {
            assert!(killed.elapsed() < wait::PATIENCE, "nobody has noticed");
        }
        self.noticed.push(killed.elapsed());
    }
}

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
fn one_life(gpu: &SimGpu, node: &Node<'_>, watch: &mut Watch, life: Duration) {
    let program = Program::under_weir(gpu, Some(node), VICTIM, LOOP);
    let program = program.args(["--allocate", "256MiB", "--churn", "64MiB", "--step", "4"]);
    let victim = Looping::just_started(program);
    let pid = victim.pid;
    wait::pass(life);
    watch.kill(pid);
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
    let (mut random, mut watch) = (Random::seeded(), Watch::start(&node));
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        one_life(&gpu, &node, &mut watch, Duration::from_micros(random.next() % LIFE_US));
        // A short life may end within one of the neighbour's own pauses at the gate: its next launch tells how long.
        wait::until("a launch of the neighbour", || {
            let progress = neighbour.report();
            longest = longest.max(Duration::from_nanos(progress.longest_gap_ns));
            (progress.launches > 0).then_some(())
        });
    }
    eprintln!("longest gap in the neighbour's launches: {longest:?}");
    assert!(longest <= LONGEST_GAP, "{longest:?}");
    watch.noticed.sort();
    let (count, most) = (watch.noticed.len(), watch.noticed.last().copied().unwrap_or_default());
    let middle = watch.noticed[count / 2];
    eprintln!("{count} deaths were noticed, in the middle within {middle:?}, at most {most:?}");
    assert!(count > 50, "too few had registered: {count}");
    assert!(middle <= NOTICED_WITHIN, "{middle:?}");
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
