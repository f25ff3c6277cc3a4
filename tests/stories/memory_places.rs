//! Physical memory is charged where its properties say that it lies: on a device, whichever is current; on the host nowhere.

use weir_abi::types::*;
use weir_nodemgr::control::TenantGpuStats;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::MEMORY;

const GIB: u64 = 1 << 30;

/// 2 GiB on each of two GPUs.
const BOTH: Budget<'_> = Budget { name: "both", request: "50%", limit: "100%", memory: "2GiB" };

/// What the tenant holds on each GPU, in bytes.
fn held(node: &Node<'_>) -> Vec<u64> {
    let of = |gpu: &TenantGpuStats| gpu.processes.iter().map(|process| process.memory_held_bytes).sum();
    node.tenant(BOTH.name).expect("the tenant lives").gpus.iter().map(of).collect()
}

#[test]
fn physical_memory_is_charged_on_the_device_of_its_properties_and_host_memory_nowhere() {
    let gpu = SimGpu::new(&format!("gpus = 2\n{EVERY_KERNEL_20_US}"));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let program = Program::under_weir_with(&gpu, Some(&node), BOTH, &["--gpu", "0,1"], MEMORY);
    let mut client = Memory::start(program); // the first GPU is current
    let before = held(&node);
    let device = CU_MEM_LOCATION_TYPE_DEVICE;
    for (kind, charged) in [
        (format!("{device} 0"), [GIB, 0]),
        (format!("{device} 1"), [0, GIB]),
        (format!("{CU_MEM_LOCATION_TYPE_HOST} 0"), [0, 0]),
        (format!("{CU_MEM_LOCATION_TYPE_HOST_NUMA} 0"), [0, 0]),
        (format!("{CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT} 0"), [0, 0]),
    ] {
        let charged = [before[0] + charged[0], before[1] + charged[1]];
        let physical = client.does(&format!("create_at {GIB} {kind}"));
        assert_eq!(held(&node), charged, "{kind}");
        let mapped = client.does(&format!("map {physical} {GIB}"));
        client.does(&format!("release {physical}"));
        assert_eq!(held(&node), charged, "{kind}: mapped");
        client.does(&format!("unmap {mapped} {GIB}"));
        assert_eq!(held(&node), before, "{kind}: gone");
    }
    let second = client.does(&format!("create_at {} {device} 1", 2 * GIB)); // no context there
    let refused =
        |client: &mut Memory, id: u64| client.tell(&format!("create_at {GIB} {device} {id}")).result;
    assert_eq!(refused(&mut client, 1), "CUDA_ERROR_OUT_OF_MEMORY", "that GPU's limit");
    client.does(&format!("create_at {GIB} {device} 0"));
    assert_eq!(refused(&mut client, 0), "CUDA_ERROR_OUT_OF_MEMORY", "and this one's");
    client.does(&format!("release {second}"));
    client.does(&format!("create_at {GIB} {device} 1"));
}

#[test]
fn memory_that_another_gpu_may_use_is_charged_where_it_lies_and_only_there() {
    let gpu = SimGpu::new(&format!("gpus = 2\n{EVERY_KERNEL_20_US}"));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let program = Program::under_weir_with(&gpu, Some(&node), BOTH, &["--gpu", "0,1"], MEMORY);
    let mut client = Memory::start(program);
    let peer = client.does("peer 1"); // a context there, which costs what contexts cost
    let before = held(&node);
    client.does(&format!("peer_enable {peer}"));
    let plain = client.does(&format!("allocate {}", GIB / 4));
    let physical = client.does(&format!("create {}", GIB / 4));
    let mapped = client.does(&format!("map {physical} {}", GIB / 4));
    client.does(&format!("access {mapped} {} 1", GIB / 4));
    let pool = client.does("pool_create");
    client.does(&format!("pool_access {pool} 1"));
    let piece = client.does(&format!("pool_allocate {} {pool}", GIB / 4));
    assert_eq!(held(&node), [before[0] + 3 * GIB / 4, before[1]]);
    client.does(&format!("free {plain}"));
    client.does(&format!("release {physical}"));
    client.does(&format!("unmap {mapped} {}", GIB / 4));
    client.does(&format!("pool_destroy {pool}"));
    client.does(&format!("pool_free {piece}"));
    client.does("wait");
    assert_eq!(held(&node), before);
}

#[test]
fn an_unmapping_that_the_driver_refuses_changes_nothing() {
    let gpu = SimGpu::new(&format!("gpus = 2\n{EVERY_KERNEL_20_US}"));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let program = Program::under_weir_with(&gpu, Some(&node), BOTH, &["--gpu", "0,1"], MEMORY);
    let mut client = Memory::start(program);
    let before = held(&node);
    let physical = client.does(&format!("create {GIB}"));
    let mut mapped = [(); 2].map(|()| client.does(&format!("map {physical} {GIB}")));
    client.does(&format!("release {physical}"));
    mapped.sort_unstable();
    let beyond = mapped[1] - mapped[0] + 2 * GIB; // both, and where nothing is
    let refused = client.tell(&format!("unmap {} {beyond}", mapped[0])).result;
    assert_eq!(refused, "CUDA_ERROR_INVALID_VALUE");
    client.does(&format!("unmap {} {GIB}", mapped[0]));
    assert_eq!(held(&node), [before[0] + GIB, before[1]], "the other mapping holds it");
    client.does(&format!("unmap {} {GIB}", mapped[1]));
    assert_eq!(held(&node), before);
}
