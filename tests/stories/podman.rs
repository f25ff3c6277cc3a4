//! A tenant in a container of podman: the file of `weir container-spec`, taken as it is.

use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::podman::{CdiFile, Podman};
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::LOOP;

#[test]
fn podman_makes_a_container_a_tenant_by_the_file_alone() {
    let podman = match Podman::find() {
        Ok(podman) => podman,
        Err(why) => return eprintln!("{why}"),
    };
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    // Podman looks into one directory for all: the device's name is this story's alone.
    let name = format!("boxed-{}", std::process::id());
    let budget = Budget { name: &name, memory: "2GiB", ..Budget::default() };
    let mut holder =
        Program::under_weir(&gpu, Some(&node), budget, "sh").args(["-c", "echo here; cat"]).start();
    assert_eq!(holder.next_line().as_deref(), Some("here"));
    let spec = Program::bare(&gpu, gpu.dist().weir()).arg("--dir").arg(node.dir());
    let spec = spec.args(["container-spec", &name]).run().well().stdout.concat();
    let _file = match CdiFile::put(&name, &spec) {
        Ok(file) => file,
        Err(why) => return eprintln!("{why}"),
    };
    let device = format!("weir/tenant={name}");
    let mut looping = Looping::start(podman.program(&gpu, &device, std::path::Path::new(LOOP), &[LOOP]));
    assert_eq!(looping.pid, 1, "the first process of its namespace");
    looping.goes_on(100);
    assert_eq!(looping.allocate("1GiB"), "CUDA_SUCCESS");
    assert_eq!(looping.allocate("1100MiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    let tenant = node.tenant(&name).expect("it runs");
    assert_eq!((tenant.pids.len(), tenant.state.as_str()), (1, "enforced"));
    looping.finish().well();
}
