//! A tenant in a container of podman: by the file of `weir container-spec`, taken as it is, and by its flags, which are those of
//! `docker run` as well.

use std::path::Path;

use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::podman::{CdiFile, Podman};
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::LOOP;

/// A program in a container is held to the budget of a tenant of this name, with the flags for podman that `give` makes of what
/// `weir container-spec` prints, asked with `options`. The reason if podman can run no containers here.
fn is_held(
    name: &str,
    options: &[&str],
    give: impl FnOnce(String) -> Result<Vec<String>, String>,
) -> Result<(), String> {
    let podman = Podman::find()?;
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let budget = Budget { name, memory: "2GiB", ..Budget::default() };
    let holder = Program::under_weir(&gpu, Some(&node), budget, "sh").args(["-c", "echo here; cat"]);
    let mut holder = holder.start();
    assert_eq!(holder.next_line().as_deref(), Some("here"));
    let spec = Program::bare(&gpu, gpu.dist().weir()).arg("--dir").arg(node.dir());
    let spec = spec.args(["container-spec", name]).args(options).run().well().stdout.concat();
    let mut looping = Looping::start(podman.program(&gpu, give(spec)?, Path::new(LOOP), &[LOOP]));
    assert_eq!(looping.pid, 1, "the first process of its namespace");
    looping.goes_on(100);
    assert_eq!(looping.allocate("1GiB"), "CUDA_SUCCESS");
    assert_eq!(looping.allocate("1100MiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    let tenant = node.tenant(name).expect("it runs");
    assert_eq!((tenant.pids.len(), tenant.state.as_str()), (1, "enforced"));
    looping.finish().well();
    Ok(())
}

#[test]
fn podman_makes_a_container_a_tenant_by_the_file_alone() {
    // Podman looks into one directory for all: the device's name is this story's alone.
    let (name, mut file) = (format!("boxed-{}", std::process::id()), None);
    let held = is_held(&name, &[], |spec| {
        file = Some(CdiFile::put(&name, &spec)?);
        Ok(vec![format!("--device=weir/tenant={name}")])
    });
    held.unwrap_or_else(|why| eprintln!("{why}"));
}

#[test]
fn the_flags_of_docker_run_make_a_container_a_tenant_without_a_file() {
    let held =
        is_held("flagged", &["--flags"], |flags| Ok(flags.split_whitespace().map(str::to_owned).collect()));
    held.unwrap_or_else(|why| eprintln!("{why}"));
}
