//! Faults of the driver: Weir passes them on unchanged, and keeps no account of what was not given.

use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::LOOP;

const BUDGET: Budget<'_> = Budget { name: "unlucky", request: "100%", limit: "100%", memory: "2GiB" };

/// A simulated GPU on which one call goes wrong.
fn gpu_with_fault(row: &str) -> SimGpu {
    SimGpu::new(&format!("{EVERY_KERNEL_20_US}[[fault]]\n{row}\n"))
}

#[test]
fn an_allocation_that_the_driver_fails_is_not_charged_and_its_code_is_passed_on() {
    let gpu = gpu_with_fault("call = \"cuMemAlloc_v2\"\nnth = 2\naction = \"error:214\"");
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut unlucky = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    let held = || node.tenant("unlucky").expect("it runs").gpus[0].memory_held_bytes;
    assert_eq!(unlucky.allocate("256MiB"), "CUDA_SUCCESS");
    let before = held();
    assert_eq!(unlucky.allocate("512MiB"), "CUDA_ERROR_ECC_UNCORRECTABLE", "the driver's own code");
    assert_eq!(held(), before, "nothing is charged for what was not given");
    assert_eq!(unlucky.allocate("512MiB"), "CUDA_SUCCESS");
    assert_eq!(held(), before + (512 << 20));
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
