//! Faults of the driver: Weir passes them on unchanged, and keeps no account of what was not given.

use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::{GRAPHS, LOOP, MEMORY};

const BUDGET: Budget<'_> = Budget { name: "unlucky", request: "100%", limit: "100%", memory: "2GiB" };

/// A simulated GPU on which one call goes wrong.
fn gpu_with_fault(row: &str) -> SimGpu {
    SimGpu::new(&format!("{EVERY_KERNEL_20_US}[[fault]]\n{row}\n"))
}

/// Codes that a driver may answer to any call, by number and name (F41 in docs/FAULTS.md).
const CODES: [(u32, &str); 7] = [
    (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
];

/// A simulated GPU on which one call of each of these, in one program, is answered with this code.
fn gpu_that_fails(costs: &str, program: &str, calls: &[(&str, u64)], code: u32) -> SimGpu {
    let row = |(call, nth): &(&str, u64)| {
        format!(
            "[[fault]]\ncall = \"{call}\"\nprocess = \"{program}\"\nnth = {nth}\naction = \"error:{code}\"\n"
        )
    };
    SimGpu::new(&(costs.to_owned() + &calls.iter().map(row).collect::<String>()))
}

#[test]
fn no_kind_of_memory_that_the_driver_fails_to_give_is_charged_whatever_its_code() {
    const BYTES: u64 = 64 << 20;
    let kinds = [
        ("cuMemAlloc_v2", format!("allocate {BYTES}")),
        ("cuMemAllocPitch_v2", "rows 1000 65536".to_owned()),
        ("cuMemAllocManaged", format!("managed {BYTES}")),
        ("cuMemAllocAsync", format!("pool_allocate {BYTES} 0")),
        ("cuMemAllocFromPoolAsync", format!("pool_allocate {BYTES} POOL")),
        ("cuMemCreate", format!("create {BYTES}")),
        ("cuArrayCreate_v2", "array_flat 4096 4096".to_owned()),
        ("cuArray3DCreate_v2", "array 4096 4096".to_owned()),
        ("cuMipmappedArrayCreate", "levels 4096 4096 2".to_owned()),
        ("cuGraphLaunch", "graph_launch GRAPH".to_owned()),
        ("cuCtxCreate_v2", "context".to_owned()),
    ];
    // The graph is captured, with such a call of its own.
    let nth = |call: &str| if call == "cuMemAllocAsync" { 2 } else { 1 };
    let calls = kinds.each_ref().map(|(call, _)| (*call, nth(call)));
    for (code, name) in CODES {
        let gpu = gpu_that_fails(EVERY_KERNEL_20_US, "weir-memory", &calls, code);
        let node = Node::start(&gpu, "policy = \"static\"\n");
        let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), BUDGET, MEMORY));
        let (pool, graph) = (client.does("pool_create"), client.does(&format!("graph {BYTES} 0")));
        let held = || node.tenant(BUDGET.name).expect("it runs").gpus[0].memory_held_bytes;
        for (call, line) in &kinds {
            let line = line.replace("POOL", &pool.to_string()).replace("GRAPH", &graph.to_string());
            let before = held();
            assert_eq!(client.tell(&line).result, name, "{call}: the driver's own code");
            assert_eq!(held(), before, "{call}, {name}: nothing is charged for what was not given");
            client.does(&line);
            assert!(held() > before, "{call}: what is given is charged");
        }
        client.finish().well();
    }
}

#[test]
fn no_kind_of_launch_that_the_driver_fails_is_charged_whatever_its_code() {
    const MS: u64 = 1_000_000;
    let costs = weir_tests::graphs::COSTS;
    let kinds = [
        ("cuLaunchKernel", "kernels 0 3 1"),
        ("cuLaunchKernel_ptsz", "threads 1 3 1"),
        ("cuLaunchKernelEx", "chain 0 3 1"),
        ("cuLaunchCooperativeKernelMultiDevice", "on_devices 3 100"),
    ];
    let calls = kinds.map(|(call, _)| (call, 1));
    for (code, name) in CODES {
        let gpu = gpu_that_fails(costs, "weir-graphs", &calls, code);
        let node = Node::start(&gpu, "policy = \"static\"\n[[price]]\nname = \"us_5000\"\ntime_us = 5000\n");
        let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), BUDGET, GRAPHS));
        let charged = || node.tenant(BUDGET.name).expect("it runs").gpus[0].total.charged_ns;
        for (call, line) in kinds {
            let before = charged();
            assert_eq!(client.tell(line).result, name, "{call}: the driver's own code");
            let after = charged();
            assert!(after.abs_diff(before) < MS, "{call}, {name}: {before} {after}, for 5 ms that never ran");
            client.does(line);
            client.does("wait");
            assert!(charged() > before + 4 * MS, "{call}: what runs is charged");
        }
        client.finish().well();
    }
}

#[test]
fn a_launch_that_the_driver_refuses_reaches_the_program_as_it_is() {
    let gpu = gpu_with_fault("call = \"cuLaunchKernel\"\nnth = 100\naction = \"error:719\"");
    let ended = Program::under_weir(&gpu, None, BUDGET, LOOP).args(["--launches", "1000"]).run();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED"), "{}", ended.stderr);
}

#[test]
fn a_program_that_dies_inside_of_an_allocation_leaves_nothing_charged() {
    let gpu = gpu_with_fault("call = \"cuMemAlloc_v2\"\nnth = 3\naction = \"sigkill\"");
    let node = Node::start(&gpu, "policy = \"static\"\n");
    // Holds the tenant while its other process dies.
    let heir = Program::under_weir(&gpu, Some(&node), BUDGET, "cat").start();
    let doomed = Program::under_weir(&gpu, Some(&node), BUDGET, LOOP)
        .args(["--churn", "64MiB", "--launches", "1000000"])
        .run();
    assert_eq!(doomed.status.code(), Some(137), "{}", doomed.stderr);
    weir_tests::wait::until("an empty ledger", || {
        let tenant = node.tenant("unlucky").expect("its other process runs");
        (tenant.pids.is_empty() && tenant.gpus[0].memory_held_bytes == 0).then_some(())
    });
    heir.finish().well();
}
