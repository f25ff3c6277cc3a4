//! Containers without a cluster: `weir container-spec` makes a container a tenant, and `weir run` works inside of one.

use serde_json::Value;
use weir_tests::container::Container;
use weir_tests::life::Workshop;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program, Running};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::LOOP;

const BUDGET: Budget<'_> = Budget { name: "boxed", request: "100%", limit: "100%", memory: "2GiB" };

/// Makes the tenant, and holds it.
fn holder(gpu: &SimGpu, node: &Node<'_>) -> Running {
    let mut holder =
        Program::under_weir(gpu, Some(node), BUDGET, "sh").args(["-c", "echo here; cat"]).start();
    assert_eq!(holder.next_line().as_deref(), Some("here"));
    holder
}

/// `weir container-spec`.
fn container_spec(gpu: &SimGpu, node: &Node<'_>, arguments: &[&str]) -> Program {
    Program::bare(gpu, gpu.dist().weir()).arg("--dir").arg(node.dir()).arg("container-spec").args(arguments)
}

/// A container that is this tenant's.
fn container(gpu: &SimGpu, node: &Node<'_>, ways: &[&str]) -> Result<Container, String> {
    let mut container = Container::new(gpu)?;
    let spec = container_spec(gpu, node, &[&[BUDGET.name], ways].concat()).run().well();
    let cdi: Value = serde_json::from_str(&spec.stdout.concat()).expect("a CDI file is JSON");
    assert_eq!(cdi["devices"][0]["name"], BUDGET.name);
    assert!(cdi["devices"][0]["containerEdits"]["deviceNodes"].is_null(), "a simulated GPU has no nodes");
    container.apply(&cdi);
    Ok(container)
}

#[test]
fn a_container_by_any_way_is_the_tenant_and_its_launches_are_counted() {
    let (gpu, workshop) = (SimGpu::new(EVERY_KERNEL_20_US), Workshop::default());
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let _holder = holder(&gpu, &node);
    let plain = workshop.life("plain");
    let program = plain.to_str().expect("a plain path");
    // With an empty environment only what is mounted helps.
    let search = format!("LD_LIBRARY_PATH={}", gpu.dist().simgpu().display());
    let broker = format!("WEIR_SIMGPU_DIR={}", gpu.dir().display());
    let emptied = ["env", "-i", &search, &broker, program];
    let driver = gpu.dist().simgpu().join("libcuda.so.1");
    let driver = driver.to_str().expect("a plain path");
    let ways = [
        (&["--way", "preload"][..], &[program][..]),
        (&["--way", "ld-so-preload"], &emptied),
        (&["--way", "none", "--proxy", driver], &emptied),
        (&["--way", "ld-so-preload", "--proxy", driver], &emptied),
    ];
    for (at, (way, arguments)) in ways.into_iter().enumerate() {
        let mut container = match container(&gpu, &node, way) {
            Ok(container) => container,
            Err(why) => return eprintln!("{why}"),
        };
        container.share(workshop.dir());
        let (run, _bundle) = container.program(&gpu, arguments);
        let ended = run.run().well();
        assert_eq!(ended.stdout[0], "launched 100 allocated 0 freed 0", "{way:?}");
        assert_eq!(ended.stderr, "", "{way:?}: it is attached, and there is nothing to say");
        let tenant = node.tenant(BUDGET.name).expect("its holder runs");
        assert_eq!(tenant.gpus[0].total.launches, 100 * (at as u64 + 1), "{way:?}: once, by each");
    }
}

#[test]
fn in_a_container_the_limit_holds_and_the_manager_knows_the_process_by_its_true_number() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let _holder = holder(&gpu, &node);
    let mut container = match container(&gpu, &node, &["--way", "ld-so-preload"]) {
        Ok(container) => container,
        Err(why) => return eprintln!("{why}"),
    };
    container.share(std::path::Path::new(LOOP));
    let (program, _bundle) = container.program(&gpu, &[LOOP]);
    let mut looping = weir_tests::looping::Looping::start(program);
    assert_eq!(looping.pid, 1, "the first process of its namespace");
    assert_eq!(looping.allocate("1GiB"), "CUDA_SUCCESS");
    assert_eq!(looping.allocate("1100MiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    let tenant = node.tenant(BUDGET.name).expect("it runs");
    let [pid] = tenant.pids[..] else { panic!("{:?}", tenant.pids) };
    assert_ne!(pid, 1);
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("it runs");
    assert_eq!(command.trim(), "weir-loop");
    looping.finish().well();
}

#[test]
fn weir_run_inside_of_a_container_keeps_a_budget_of_its_own() {
    let (gpu, workshop) = (SimGpu::new(EVERY_KERNEL_20_US), Workshop::default());
    let mut container = match Container::new(&gpu) {
        Ok(container) => container,
        Err(why) => return eprintln!("{why}"),
    };
    let (plain, weir) = (workshop.life("plain"), gpu.dist().weir());
    container.share(workshop.dir());
    let root = weir.parent().and_then(std::path::Path::parent).expect("bin/weir");
    container.share(root);
    let (plain, weir) =
        (plain.to_str().expect("a plain path"), weir.to_str().expect("a plain path").to_owned());
    let arguments = [&weir, "--json", "run", "--request", "50%", "--memory", "1GiB", "--", plain];
    let (program, _bundle) = container.program(&gpu, &arguments);
    let ended = program.run().well();
    assert_eq!(ended.stdout[0], "launched 100 allocated 0 freed 0");
    assert_eq!(ended.summary()["calls"]["cuLaunchKernel"], 100);
    assert_eq!(ended.summary()["state"], "enforced");
}

#[test]
fn without_the_tenant_there_is_no_specification_and_the_answer_says_how_to_get_one() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let ended = container_spec(&gpu, &node, &["nobody"]).run();
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0));
    assert!(ended.stderr.contains("error[W0115]: there is no tenant `nobody`"), "{}", ended.stderr);
    assert!(ended.stderr.contains("help: start it: weir run --name nobody"), "{}", ended.stderr);
}
