//! Memory: the limit binds, in the framework's own words, and one tenant's end of it is not another's.

use serde_json::Value;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Finished, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::small::{self, SMALL};
use crate::{LOOP, SWEEP, budgeted_python};

/// The neighbour.
const OTHER: Budget<'_> = Budget { name: "other", request: "50%", limit: "100%", memory: "2GiB" };

fn looping(gpu: &SimGpu, node: &Node<'_>, budget: Budget<'_>) -> Looping {
    Looping::start(Program::under_weir(gpu, Some(node), budget, LOOP))
}

fn figures(run: &Finished) -> Value {
    serde_json::from_str(run.stdout.last().expect("a line")).expect("figures are JSON")
}

/// Runs a client that wants 3 GiB in a tenant with 2 GiB; returns its own error.
fn error_over_the_limit(script: &str, steps: &str) -> String {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut other = looping(&gpu, &node, OTHER);
    let run = budgeted_python(&gpu, Some(&node), SMALL, script).args([steps, "3072"]).run().well();
    other.goes_on(1000);
    assert!(run.summary()["refused"].as_u64() > Some(0), "{}", run.stderr);
    assert_eq!(other.finish().well().summary()["refused"], 0);
    figures(&run)["error"].as_str().expect("an error").to_owned()
}

#[test]
fn over_its_limit_numba_gets_its_own_out_of_memory_error_and_the_other_goes_on() {
    let error = error_over_the_limit("numba_loop.py", "1");
    assert!(error.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
}

#[test]
fn over_its_limit_tinygrad_gets_its_own_out_of_memory_error_and_the_other_goes_on() {
    let error = error_over_the_limit("tinygrad_train.py", "1");
    assert!(error.starts_with("MemoryError"), "{error}");
}

#[test]
fn within_its_limit_the_same_programs_get_what_they_ask_for() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    for script in ["numba_loop.py", "tinygrad_train.py"] {
        let run = budgeted_python(&gpu, None, SMALL, script).args(["1", "1024"]).run().well();
        assert_eq!(figures(&run)["error"], Value::Null);
        assert_eq!(figures(&run)["steps"], 1);
    }
}

#[test]
fn driver_and_nvml_show_the_budget_and_the_tenants_own_use() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut other = looping(&gpu, &node, OTHER);
    assert_eq!(other.allocate("1GiB"), "CUDA_SUCCESS", "must not show at the neighbour");
    let run = budgeted_python(&gpu, Some(&node), SMALL, "view.py").arg("512").run().well();
    let seen = figures(&run);
    let bytes = |key: &str| -> Vec<u64> { serde_json::from_value(seen[key].clone()).expect("numbers") };
    assert!(bytes("total").iter().all(|total| *total == 2 << 30), "{seen}");
    let free = bytes("free");
    assert!(free.iter().all(|one| *one == free[0]), "one truth: {seen}");
    assert!(free[0] <= (2 << 30) - (512 << 20), "{seen}");
    assert!(bytes("used").iter().all(|used| used + free[0] == 2 << 30), "{seen}");
}

#[test]
fn every_way_to_get_device_memory_is_charged_and_all_of_it_given_back() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let run = Program::under_weir(&gpu, None, SMALL, SWEEP).run().well();
    let seen = figures(&run);
    let took = seen["took_bytes"].as_object().expect("bytes by function");
    for (function, bytes) in took {
        let (bytes, asked) = (bytes.as_u64(), Some(8 << 20));
        match function.as_str() {
            "cuMemRelease" => assert_eq!(bytes, Some(0), "the mapping keeps what the last handle leaves"),
            _ => assert!(bytes >= asked, "{function}: {bytes:?}"),
        }
    }
    assert!(took.len() >= 12, "{took:?}");
    assert_eq!(seen["free_bytes"][0], seen["free_bytes"][1], "all was given back");
}

#[test]
fn every_way_to_get_device_memory_is_refused_beyond_the_limit_before_the_card_is_asked() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    // A context, and half of the least that is asked for.
    let tight = Budget { memory: "404MiB", ..SMALL };
    let run = Program::under_weir(&gpu, None, tight, SWEEP).run().well();
    let seen = figures(&run);
    let ways = seen["took_bytes"].as_object().expect("bytes by function").keys();
    let ways: Vec<&String> = ways.filter(|way| *way != "cuMemRelease").collect();
    assert!(ways.len() >= 11, "{ways:?}");
    assert_eq!(seen["refused"], serde_json::json!(ways));
    assert!(run.summary()["refused"].as_u64() >= Some(ways.len() as u64), "{}", run.stderr);
    let peak = gpu.books().gpus[0].clients.iter().map(|client| client.memory_peak_bytes).max();
    assert!(peak <= Some(404 << 20), "{peak:?}");
}

#[test]
fn tiny_allocations_are_charged_what_the_card_has_for_them() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = small::client(&gpu, &node);
    let held = || {
        let tenant = node.tenant("small").expect("the tenant lives");
        (tenant.gpus[0].memory_held_bytes, gpu.client(tenant.pids[0]).expect("a client").memory_bytes)
    };
    for line in ["allocate 1", "allocate 700", "managed 1", "rows 1 3", "array_flat 5 1"] {
        let before = held();
        for _ in 0..100 {
            small.does(line);
        }
        let after = held();
        assert_eq!(after.0 - before.0, after.1 - before.1, "{line}: by the ledger and by the card");
        assert!(after.0 - before.0 >= 100 * 512, "{line}: {after:?} after {before:?}");
    }
    small.finish().well();
}

#[test]
fn freed_memory_can_be_had_again() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = looping(&gpu, &node, SMALL);
    for _ in 0..3 {
        assert_eq!(small.allocate("1GiB"), "CUDA_SUCCESS");
        assert_eq!(small.allocate("1100MiB"), "CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(small.free(), 1 << 30);
    }
}

#[test]
fn memory_of_a_dead_process_is_given_back_to_its_tenant() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut doomed, mut heir) = (looping(&gpu, &node, SMALL), looping(&gpu, &node, SMALL));
    assert_eq!(doomed.allocate("1GiB"), "CUDA_SUCCESS");
    assert_eq!(heir.allocate("1100MiB"), "CUDA_ERROR_OUT_OF_MEMORY", "the tenant has 2 GiB in all");
    program::kill(doomed.pid);
    wait::until("the dead process's memory", || (heir.allocate("1100MiB") == "CUDA_SUCCESS").then_some(()));
}

#[test]
fn a_limit_set_below_use_refuses_new_memory_and_takes_none_away() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = looping(&gpu, &node, SMALL);
    assert_eq!(small.allocate("1GiB"), "CUDA_SUCCESS");
    let done = node.set("small", &["--memory", "512MiB"]);
    assert!(done.over_limit_bytes >= 512 << 20, "{done:?}");
    assert_eq!(small.allocate("1MiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    small.goes_on(1000);
    node.set("small", &["--memory", "2GiB"]);
    assert_eq!(small.allocate("1MiB"), "CUDA_SUCCESS");
}
