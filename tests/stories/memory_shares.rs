//! Memory that crosses processes: charged once, to its owner; after the owner's death to whoever has had it open longest.

use weir_nodemgr::control::ProcessStats;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::MEMORY;
use crate::small::SMALL;

const MIB: u64 = 1 << 20;

/// What a context of the simulated driver costs, in bytes.
const CONTEXT: u64 = 400 * MIB;

/// What is shared, in bytes.
const SHARED: u64 = 256 * MIB;

/// Ticks within which the node manager looks for memory that was let go of.
const LOOK: u64 = 250;

/// The neighbour.
const OTHER: Budget<'_> = Budget { name: "other", request: "50%", limit: "100%", memory: "2GiB" };

fn client(gpu: &SimGpu, node: &Node<'_>, budget: Budget<'_>) -> Memory {
    Memory::start(Program::under_weir(gpu, Some(node), budget, MEMORY))
}

fn stats(node: &Node<'_>, process: &Memory) -> ProcessStats {
    let all = node.stats().tenants.into_iter().flat_map(|tenant| tenant.gpus).flat_map(|gpu| gpu.processes);
    let mut own = all.filter(|stats| stats.pid == process.pid);
    own.next().expect("the process is registered")
}

/// What a process is charged beyond its context, and what it has open of others, in bytes.
fn charged_and_shared(node: &Node<'_>, process: &Memory) -> (u64, u64) {
    let stats = stats(node, process);
    (stats.memory_held_bytes - CONTEXT, stats.memory_shared_bytes)
}

/// An allocation that the first process gives out: its pointer, and the command that opens it.
fn give_out(owner: &mut Memory) -> (u64, String) {
    let pointer = owner.does(&format!("allocate {SHARED}"));
    let ticket = owner.tell(&format!("ipc_get {pointer}")).values;
    let words: Vec<_> = ticket.iter().map(u64::to_string).collect();
    (pointer, format!("ipc_open {}", words.join(" ")))
}

#[test]
fn memory_that_is_opened_is_charged_to_its_owner_alone() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut owner, mut opener) = (client(&gpu, &node, SMALL), client(&gpu, &node, SMALL));
    let (pointer, open) = give_out(&mut owner);
    let address = opener.does(&open);
    assert_eq!(charged_and_shared(&node, &owner), (SHARED, 0));
    assert_eq!(charged_and_shared(&node, &opener), (0, SHARED), "shown as shared");
    let held = node.tenant("small").expect("the tenant lives").gpus[0].memory_held_bytes;
    assert_eq!(held, 2 * CONTEXT + SHARED, "the tenant pays once");
    opener.does(&format!("ipc_close {address}"));
    assert_eq!(charged_and_shared(&node, &opener), (0, 0));
    owner.does(&format!("free {pointer}"));
    assert_eq!(charged_and_shared(&node, &owner), (0, 0));
}

#[test]
fn after_its_owners_death_memory_is_charged_to_whoever_has_had_it_open_for_longest() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut owner = client(&gpu, &node, SMALL);
    let (mut first, mut second) = (client(&gpu, &node, OTHER), client(&gpu, &node, SMALL));
    let (_, open) = give_out(&mut owner);
    let addresses = [first.does(&open), second.does(&open)];
    program::kill(owner.pid);
    wait::until("the charge to move", || (charged_and_shared(&node, &first) == (SHARED, 0)).then_some(()));
    assert_eq!(charged_and_shared(&node, &second), (0, SHARED));
    program::kill(first.pid);
    wait::until("the charge to move on", || {
        (charged_and_shared(&node, &second) == (SHARED, 0)).then_some(())
    });
    second.does(&format!("ipc_close {}", addresses[1]));
    assert_eq!(charged_and_shared(&node, &second), (0, 0), "closed, it is charged to nobody");
}

#[test]
fn physical_memory_is_charged_to_its_owner_and_handed_on_with_its_last_reference() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut owner, mut opener) = (client(&gpu, &node, SMALL), client(&gpu, &node, SMALL));
    let physical = owner.does(&format!("create {SHARED}"));
    let file = owner.does(&format!("export {physical}"));
    let imported = opener.does(&format!("import {} {file}", owner.pid));
    let mapped = opener.does(&format!("map {imported} {SHARED}"));
    assert_eq!(charged_and_shared(&node, &owner), (SHARED, 0));
    assert_eq!(charged_and_shared(&node, &opener), (0, SHARED));
    owner.does(&format!("release {physical}"));
    assert_eq!(charged_and_shared(&node, &owner), (0, 0));
    assert_eq!(charged_and_shared(&node, &opener), (SHARED, 0), "it lives on there");
    opener.does(&format!("release {imported}"));
    assert_eq!(charged_and_shared(&node, &opener), (SHARED, 0), "the mapping keeps it");
    opener.does(&format!("unmap {mapped} {SHARED}"));
    assert_eq!(charged_and_shared(&node, &opener), (0, 0));
}

#[test]
fn physical_memory_that_its_living_owner_lets_go_of_is_charged_to_the_tenant_that_has_it_open() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut owner, mut opener) = (client(&gpu, &node, SMALL), client(&gpu, &node, OTHER));
    let physical = owner.does(&format!("create {SHARED}"));
    let file = owner.does(&format!("export {physical}"));
    let imported = opener.does(&format!("import {} {file}", owner.pid));
    let mapped = opener.does(&format!("map {imported} {SHARED}"));
    assert_eq!(charged_and_shared(&node, &opener), (0, SHARED));
    owner.does(&format!("release {physical}"));
    wait::until("the charge to move", || (charged_and_shared(&node, &opener) == (SHARED, 0)).then_some(()));
    assert_eq!(charged_and_shared(&node, &owner), (0, 0));
    opener.does(&format!("release {imported}"));
    opener.does(&format!("unmap {mapped} {SHARED}"));
    assert_eq!(charged_and_shared(&node, &opener), (0, 0));
}

#[test]
fn physical_memory_that_is_opened_only_after_its_owner_let_go_of_it_is_charged_where_it_is_opened() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut owner, mut opener) = (client(&gpu, &node, SMALL), client(&gpu, &node, OTHER));
    let mut held = || {
        let physical = owner.does(&format!("create {SHARED}"));
        let file = owner.does(&format!("export {physical}"));
        let held = opener.does(&format!("hold {} {file}", owner.pid));
        (physical, held)
    };
    let ((first, first_held), (_, second_held)) = (held(), held());
    owner.does(&format!("release {first}"));
    let released_at = node.stats().node.epoch;
    wait::until("a look of the node manager's", || {
        (node.stats().node.epoch > released_at + LOOK).then_some(())
    });
    let pid = opener.pid;
    let open = |opener: &mut Memory, file: u64| {
        let imported = opener.does(&format!("import {pid} {file}"));
        let mapped = opener.does(&format!("map {imported} {SHARED}"));
        opener.does(&format!("release {imported}"));
        mapped
    };
    let mapped = open(&mut opener, first_held);
    wait::until("the charge", || (charged_and_shared(&node, &opener) == (SHARED, 0)).then_some(()));
    assert_eq!(charged_and_shared(&node, &owner), (SHARED, 0), "of the second, which it still has");
    let other = open(&mut opener, second_held);
    assert_eq!(charged_and_shared(&node, &opener), (SHARED, SHARED), "that is its owner's");
    opener.does(&format!("unmap {mapped} {SHARED}"));
    assert_eq!(charged_and_shared(&node, &opener), (0, SHARED));
    drop(owner); // dies with nothing handed on: the second is open
    wait::until("the charge", || (charged_and_shared(&node, &opener) == (SHARED, 0)).then_some(()));
    opener.does(&format!("unmap {other} {SHARED}"));
    assert_eq!(charged_and_shared(&node, &opener), (0, 0));
}

#[test]
fn memory_that_its_heir_closes_is_charged_to_the_next_one_who_has_it_open() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut owner = client(&gpu, &node, SMALL);
    let [mut first, mut second, mut third] = [OTHER, OTHER, SMALL].map(|budget| client(&gpu, &node, budget));
    let (_, open) = give_out(&mut owner);
    let places = [&mut first, &mut second, &mut third].map(|process| process.does(&open));
    drop(owner);
    let charged = |process: &Memory| {
        wait::until("the charge", || (charged_and_shared(&node, process) == (SHARED, 0)).then_some(()));
    };
    charged(&first);
    first.does(&format!("ipc_close {}", places[0]));
    assert_eq!(charged_and_shared(&node, &first), (0, 0));
    charged(&second); // of the same tenant
    assert_eq!(charged_and_shared(&node, &third), (0, SHARED));
    second.does(&format!("ipc_close {}", places[1]));
    charged(&third); // of another
    assert_eq!(charged_and_shared(&node, &second), (0, 0));
    third.does(&format!("ipc_close {}", places[2]));
    assert_eq!(charged_and_shared(&node, &third), (0, 0));
}

#[test]
fn a_piece_of_another_processs_pool_is_shown_as_shared_until_it_is_freed_here() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut owner, mut opener) = (client(&gpu, &node, SMALL), client(&gpu, &node, OTHER));
    let pool = owner.does("pool_create_shareable");
    let piece = owner.does(&format!("pool_allocate {SHARED} {pool}"));
    let data = owner.tell(&format!("pool_export {piece}")).values;
    let words: Vec<_> = data.iter().map(u64::to_string).collect();
    let imported = opener.does("pool_import 0");
    let open = format!("pool_open {imported} {}", words.join(" "));
    let address = opener.does(&open);
    assert_eq!(charged_and_shared(&node, &owner), (SHARED, 0));
    assert_eq!(charged_and_shared(&node, &opener), (0, SHARED));
    opener.does(&format!("pool_free {address}"));
    assert_eq!(charged_and_shared(&node, &opener), (0, 0));
    let address = opener.does(&open);
    program::kill(owner.pid);
    wait::until("the charge to move", || (charged_and_shared(&node, &opener) == (SHARED, 0)).then_some(()));
    opener.does(&format!("free {address}"));
    assert_eq!(charged_and_shared(&node, &opener), (0, 0));
}

#[test]
fn memory_of_another_interface_is_shown_as_shared_until_it_is_destroyed() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node, SMALL);
    let memory = small.does(&format!("external {SHARED}"));
    assert_eq!(charged_and_shared(&node, &small), (0, SHARED));
    small.does(&format!("external_destroy {memory}"));
    assert_eq!(charged_and_shared(&node, &small), (0, 0));
    assert_eq!(small.tell(&format!("external_destroy {memory}")).result, "CUDA_ERROR_INVALID_HANDLE");
}

#[test]
fn a_multicast_object_is_charged_where_it_has_joined_and_keeps_what_is_bound_to_it() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node, SMALL);
    let object = small.does(&format!("multicast {SHARED}"));
    assert_eq!(charged_and_shared(&node, &small), (0, 0), "nobody has joined");
    small.does(&format!("multicast_join {object}"));
    assert_eq!(charged_and_shared(&node, &small), (SHARED, 0));
    let memory = small.does(&format!("create {SHARED}"));
    for unbind in [format!("multicast_unbind {object} {SHARED}"), format!("release {object}")] {
        small.does(&format!("multicast_bind {object} {memory} {SHARED}"));
        assert_eq!(charged_and_shared(&node, &small), (2 * SHARED, 0));
        small.does(&unbind);
    }
    assert_eq!(
        charged_and_shared(&node, &small),
        (SHARED, 0),
        "the object is gone, the memory has its handle"
    );
    let again = small.does(&format!("multicast {SHARED}"));
    small.does(&format!("multicast_join {again}"));
    small.does(&format!("multicast_bind {again} {memory} {SHARED}"));
    small.does(&format!("release {memory}"));
    assert_eq!(charged_and_shared(&node, &small), (2 * SHARED, 0), "what is bound lives on");
    small.does(&format!("release {again}"));
    assert_eq!(charged_and_shared(&node, &small), (0, 0));
}

#[test]
fn what_is_bound_by_its_address_outlives_its_handle_and_its_mapping() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node, SMALL);
    let object = small.does(&format!("multicast {SHARED}"));
    small.does(&format!("multicast_join {object}"));
    let memory = small.does(&format!("create {SHARED}"));
    let mapped = small.does(&format!("map {memory} {SHARED}"));
    small.does(&format!("multicast_bind_at {object} {mapped} {SHARED}"));
    for gone in [format!("release {memory}"), format!("unmap {mapped} {SHARED}")] {
        small.does(&gone);
        assert_eq!(charged_and_shared(&node, &small), (2 * SHARED, 0), "after `{gone}`");
    }
    small.does(&format!("multicast_unbind {object} {SHARED}"));
    assert_eq!(charged_and_shared(&node, &small), (SHARED, 0), "the object alone");
    small.does(&format!("release {object}"));
    assert_eq!(charged_and_shared(&node, &small), (0, 0));
}

#[test]
fn pointers_that_were_never_charged_pass_through_unharmed() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut owner, mut opener) = (client(&gpu, &node, SMALL), client(&gpu, &node, OTHER));
    let (pointer, open) = give_out(&mut owner);
    let address = opener.does(&open);
    for free in
        [format!("free {address}"), "free 4660".into(), format!("pool_free {address}"), "release 4660".into()]
    {
        let mut bare = Memory::start(Program::bare(&gpu, MEMORY));
        assert_eq!(opener.tell(&free).result, bare.tell(&free).result, "the driver's own answer to `{free}`");
        assert_eq!(charged_and_shared(&node, &opener), (0, SHARED), "after `{free}`");
    }
    assert_eq!(opener.tell("free 0").result, "CUDA_SUCCESS");
    owner.does(&format!("free {pointer}"));
    assert_eq!(owner.tell(&format!("free {pointer}")).result, "CUDA_ERROR_INVALID_VALUE", "twice");
    assert_eq!(charged_and_shared(&node, &owner), (0, 0));
}
