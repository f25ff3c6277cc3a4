//! `weir run --oversubscribe`: beyond the limit plain allocations live on the host, counted and shown.

use weir_nodemgr::control::TenantStats;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::MEMORY;

const MIB: u64 = 1 << 20;

/// Only a filler may.
const FLAGS: [&str; 3] = ["--oversubscribe", "--class", "filler"];

/// A tenant with 1 GiB.
const SMALL: Budget<'_> = Budget { name: "small", request: "50%", limit: "100%", memory: "1GiB" };

#[test]
fn beyond_the_limit_plain_allocations_become_managed_memory_on_the_host() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let flags = FLAGS;
    let mut small = Memory::start(Program::under_weir_with(&gpu, Some(&node), SMALL, &flags, MEMORY));
    let tenant = || node.tenant("small").expect("the tenant lives");
    let by_kind =
        |tenant: &TenantStats| ["plain", "managed"].map(|kind| tenant.memory_of_kind_bytes(kind) / MIB);
    let within = small.does(&format!("allocate {}", 512 * MIB));
    let beyond = small.does(&format!("allocate {}", 512 * MIB));
    assert_eq!(by_kind(&tenant()), [512, 512]);
    let held = tenant().gpus[0].memory_held_bytes;
    assert!(tenant().oversubscribe && held > 1024 * MIB && !tenant().gpus[0].overcommitted, "{held}");
    assert_eq!(tenant().gpus[0].total.refused, 0);
    assert_eq!(small.free_bytes(), 0);
    assert_eq!(small.tell(&format!("allocate {}", 1024 * MIB)).result, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(
        (tenant().gpus[0].total.refused, by_kind(&tenant())),
        (1, [512, 512]),
        "as much again and no more"
    );
    let on_card = gpu.client(small.pid).expect("a client of the driver").memory_bytes;
    assert!(on_card <= 1024 * MIB, "the neighbours' part of the card is theirs: {on_card}");
    small.does(&format!("free {beyond}"));
    small.does(&format!("free {within}"));
    assert_eq!(by_kind(&tenant()), [0, 0]);
    small.does(&format!("allocate {}", 512 * MIB));
    assert_eq!(by_kind(&tenant()), [512, 0], "within the limit again");
}

#[test]
fn padded_rows_beyond_the_limit_are_as_far_apart_as_within_it() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let flags = FLAGS;
    let mut small = Memory::start(Program::under_weir_with(&gpu, Some(&node), SMALL, &flags, MEMORY));
    let rows = format!("rows 1000 {}", 512 << 10); // of 1,024 bytes each: 512 MiB
    let (within, beyond) = (small.tell(&rows).values, small.tell(&rows).values);
    assert_eq!((within[1], beyond[1]), (1024, 1024));
    let tenant = || node.tenant("small").expect("the tenant lives");
    let held = || ["plain", "managed"].map(|kind| tenant().memory_of_kind_bytes(kind) / MIB);
    assert_eq!(held(), [512, 512]);
    small.does(&format!("free {}", beyond[0]));
    small.does(&format!("free {}", within[0]));
    assert_eq!(held(), [0, 0]);
    assert_eq!(small.tell("rows 0 7").result, "CUDA_ERROR_INVALID_VALUE", "the driver's own answer");
}

#[test]
fn beyond_the_limit_only_plain_memory_and_padded_rows_are_had_and_all_else_is_refused() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = Memory::start(Program::under_weir_with(&gpu, Some(&node), SMALL, &FLAGS, MEMORY));
    let pool = small.does("pool_create");
    let graph = small.does(&format!("graph {} 1", 512 * MIB));
    let tenant = || node.tenant("small").expect("the tenant lives");
    let within = small.does(&format!("allocate {}", 512 * MIB));
    let kinds = [
        format!("pool_allocate {} 0", 512 * MIB),
        format!("pool_allocate {} {pool}", 512 * MIB),
        format!("create {}", 512 * MIB),
        "array_flat 16384 8192".to_owned(),
        "array 16384 8192".to_owned(),
        "levels 16384 8192 1".to_owned(),
        format!("managed {}", 512 * MIB),
        format!("graph_launch {graph}"),
        "context".to_owned(),
    ];
    for beyond_already in [false, true] {
        let before = tenant().gpus[0].memory_held_bytes;
        for (refused, line) in (tenant().gpus[0].total.refused..).zip(&kinds) {
            assert_eq!(small.tell(line).result, "CUDA_ERROR_OUT_OF_MEMORY", "{line}");
            let gpu = &tenant().gpus[0];
            assert_eq!((gpu.total.refused, gpu.memory_held_bytes), (refused + 1, before), "{line}");
        }
        if !beyond_already {
            small.does(&format!("allocate {}", 512 * MIB));
        }
    }
    assert_eq!(["plain", "managed"].map(|kind| tenant().memory_of_kind_bytes(kind) / MIB), [512, 512]);
    let on_card = gpu.client(small.pid).expect("a client of the driver").memory_bytes;
    assert!(on_card <= 1024 * MIB, "the neighbours' part of the card is theirs: {on_card}");
    small.does(&format!("free {within}"));
    small.does(&format!("pool_allocate {} 0", 32 * MIB));
}

#[test]
fn without_the_flag_the_limit_holds_and_a_refusal_is_counted_once() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = Memory::start(Program::under_weir(&gpu, Some(&node), SMALL, MEMORY));
    assert_eq!(small.tell(&format!("allocate {}", 2048 * MIB)).result, "CUDA_ERROR_OUT_OF_MEMORY");
    let tenant = node.tenant("small").expect("the tenant lives");
    assert_eq!((tenant.gpus[0].total.refused, tenant.oversubscribe), (1, false));
}
