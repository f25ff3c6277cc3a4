//! Memory pools: charged by what they reserve, which is what the neighbours cannot have.

use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::Program;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::MEMORY;
use crate::small::{self, SMALL, client};

const MIB: u64 = 1 << 20;

/// By how much the simulated driver's pools grow at a time, in bytes.
const STEP: u64 = 32 * MIB;

/// What the ledger has for pools, in bytes.
fn charged(node: &Node<'_>) -> u64 {
    small::charged(node, "pool")
}

#[test]
fn a_pool_is_charged_what_it_reserves_until_a_wait_gives_it_back() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    for wait in ["wait", "wait_stream", "wait_event"] {
        let pointer = small.does("pool_allocate 8388608");
        assert_eq!(
            (charged(&node), small.does("pool_reserved")),
            (STEP, STEP),
            "8 MiB make the pool grow by a step"
        );
        let second = small.does("pool_allocate 8388608");
        assert_eq!(charged(&node), STEP, "there is room");
        small.does(&format!("pool_free {pointer}"));
        small.does(&format!("pool_free {second}"));
        assert_eq!(charged(&node), STEP, "the pool keeps it");
        small.does(wait);
        assert_eq!((charged(&node), small.does("pool_reserved")), (0, 0), "after `{wait}`");
    }
}

#[test]
fn a_pool_that_keeps_its_memory_is_charged_until_it_is_trimmed() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    small.does(&format!("pool_keep 0 {}", u64::MAX));
    let pointers: Vec<_> = (0..3).map(|_| small.does(&format!("pool_allocate {STEP}"))).collect();
    for pointer in &pointers {
        small.does(&format!("pool_free {pointer}"));
    }
    small.does("wait");
    assert_eq!(charged(&node), 3 * STEP);
    small.does(&format!("pool_trim 0 {STEP}"));
    assert_eq!((charged(&node), small.does("pool_reserved")), (STEP, STEP));
    small.does("pool_trim 0 0");
    assert_eq!(charged(&node), 0);
}

#[test]
fn a_pool_that_cannot_use_its_small_pieces_is_charged_what_it_grows_by() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    small.does(&format!("pool_keep 0 {}", u64::MAX));
    // Two steps, of which every second piece is freed: half is idle, in pieces of 8 MiB.
    let pointers: Vec<_> = (0..8).map(|_| small.does(&format!("pool_allocate {}", 8 * MIB))).collect();
    for pointer in pointers.iter().step_by(2) {
        small.does(&format!("pool_free {pointer}"));
    }
    assert_eq!(charged(&node), 2 * STEP);
    small.does(&format!("pool_allocate {}", 12 * MIB));
    assert_eq!((charged(&node), small.does("pool_reserved")), (3 * STEP, 3 * STEP));
    small.does(&format!("pool_allocate {}", 8 * MIB));
    assert_eq!((charged(&node), small.does("pool_reserved")), (3 * STEP, 3 * STEP), "a piece that was freed");
}

#[test]
fn over_the_limit_a_pool_does_not_grow_and_what_it_has_given_back_can_be_had() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let pointer = small.does(&format!("pool_allocate {}", 1400 * MIB));
    let refused = small.tell(&format!("pool_allocate {}", 800 * MIB));
    assert_eq!(refused.result, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(small.tell(&format!("allocate {}", 800 * MIB)).result, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(charged(&node), small.does("pool_reserved"), "a refusal leaves no trace");
    small.does(&format!("pool_free {pointer}"));
    small.does("wait");
    small.does(&format!("allocate {}", 1400 * MIB));
}

#[test]
fn a_destroyed_pool_is_charged_until_its_last_piece_is_freed() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let before = gpu.client(small.pid).expect("a client of the driver").memory_bytes;
    let pool = small.does("pool_create");
    let pointer = small.does(&format!("pool_allocate {} {pool}", 8 * MIB));
    let other = small.does(&format!("pool_allocate {}", 8 * MIB));
    assert_eq!(charged(&node), 2 * STEP, "each pool has its own");
    small.does(&format!("pool_destroy {pool}"));
    assert_eq!(charged(&node), 2 * STEP);
    small.does(&format!("pool_free {pointer}"));
    assert_eq!(charged(&node), STEP);
    small.does(&format!("free {other}"));
    small.does("wait");
    assert_eq!(charged(&node), 0);
    assert_eq!(
        gpu.client(small.pid).expect("a client of the driver").memory_bytes,
        before,
        "the driver agrees"
    );
}

#[test]
fn a_pool_on_another_gpu_than_the_threads_own_is_charged_there_and_only_there() {
    let gpu = SimGpu::new(&format!("gpus = 2\n{EVERY_KERNEL_20_US}"));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let both = Program::under_weir_with(&gpu, Some(&node), SMALL, &["--gpu", "0,1"], MEMORY);
    let mut small = Memory::start(both);
    let held = || -> Vec<u64> {
        let tenant = node.tenant("small").expect("the tenant lives");
        let of = |gpu: &weir_nodemgr::control::TenantGpuStats| {
            gpu.processes.iter().map(|process| process.memory_held_bytes).sum()
        };
        tenant.gpus.iter().map(of).collect()
    };
    let before = held();
    for _ in 0..3 {
        let pool = small.does("pool_create 1");
        let pointer = small.does(&format!("pool_allocate {} {pool}", 8 * MIB));
        assert_eq!(held(), [before[0], before[1] + STEP]);
        small.does(&format!("pool_destroy {pool}"));
        small.does(&format!("pool_free {pointer}"));
        assert_eq!(held(), before, "its last piece is freed");
    }
    small.does("stream_on 1");
    let before = held();
    let pointer = small.does(&format!("pool_allocate {}", 8 * MIB));
    assert_eq!(held(), [before[0], before[1] + STEP], "from the pool of its stream's device");
    small.does(&format!("pool_free {pointer}"));
    small.does("wait_stream");
    assert_eq!(held(), before);
}

#[test]
fn the_pool_that_a_program_sets_for_its_device_is_charged_for_what_names_no_pool() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let before = gpu.client(small.pid).expect("a client of the driver").memory_bytes;
    let pool = small.does("pool_create");
    small.does(&format!("pool_keep {pool} {}", u64::MAX));
    let of_default = small.does(&format!("pool_allocate {}", 8 * MIB));
    small.does(&format!("pool_set {pool}"));
    let of_pool = small.does(&format!("pool_allocate {}", 8 * MIB));
    let reserved = |small: &mut Memory| [0, pool].map(|pool| small.does(&format!("pool_reserved {pool}")));
    assert_eq!((charged(&node), reserved(&mut small)), (2 * STEP, [STEP, STEP]), "a step of each");
    let large = small.does(&format!("pool_allocate {}", 2 * STEP));
    assert_eq!((charged(&node), reserved(&mut small)), (4 * STEP, [STEP, 3 * STEP]));
    let refused = small.tell(&format!("pool_allocate {}", 1600 * MIB));
    assert_eq!(refused.result, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(charged(&node), 4 * STEP, "a refusal leaves no trace");
    small.does(&format!("pool_free {of_default}"));
    small.does("wait");
    assert_eq!((charged(&node), reserved(&mut small)), (3 * STEP, [0, 3 * STEP]), "it was the other pool's");
    small.does("pool_set 0");
    let of_default = small.does(&format!("pool_allocate {}", 8 * MIB));
    assert_eq!((charged(&node), reserved(&mut small)), (4 * STEP, [STEP, 3 * STEP]));
    small.does(&format!("pool_set {pool}"));
    small.does(&format!("pool_destroy {pool}")); // the device's own is the device's again, says the driver
    let last = small.does(&format!("pool_allocate {}", 8 * MIB));
    assert_eq!((charged(&node), small.does("pool_reserved")), (4 * STEP, STEP));
    for pointer in [last, of_default, of_pool] {
        small.does(&format!("pool_free {pointer}"));
    }
    small.does("wait");
    let pid = small.pid;
    let on_card = || gpu.client(pid).expect("a client of the driver").memory_bytes - before;
    assert_eq!(
        (charged(&node), on_card()),
        (3 * STEP, 3 * STEP),
        "a destroyed pool goes with its last piece"
    );
    small.does(&format!("pool_free {large}"));
    assert_eq!((charged(&node), on_card()), (0, 0));
}
