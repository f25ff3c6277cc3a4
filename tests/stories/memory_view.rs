//! One view: whatever a program asks, it sees its tenant's budget, use and processes, and never a neighbour.

use std::time::Instant;

use serde_json::Value;
use weir_tests::graphs::Spent;
use weir_tests::looping::Looping;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program, Running};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::small::SMALL;
use crate::{LOOP, MEMORY, budgeted_python};

/// The neighbour.
const OTHER: Budget<'_> = Budget { name: "other", request: "50%", limit: "100%", memory: "4GiB" };

/// A tenant that gets 30 % and no more, and what it launches of half a millisecond in a second of that.
const THIRTY: Budget<'_> = Budget { name: "thirty", request: "30%", limit: "30%", memory: "2GiB" };
const A_SECONDS_LAUNCHES: u64 = 600;

fn looks(gpu: &SimGpu, node: &Node<'_>, budget: Budget<'_>) -> (Running, String) {
    let mut running = budgeted_python(gpu, Some(node), budget, "processes.py").arg("256").start();
    let pid = running.next_line().expect("its process id");
    (running, pid)
}

fn look(running: &mut Running) -> Value {
    running.say("");
    serde_json::from_str(&running.next_line().expect("a line")).expect("figures are JSON")
}

#[test]
fn nvml_lists_the_tenants_own_processes_with_the_ledgers_figures_and_no_neighbour() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut neighbour = Looping::start(Program::under_weir(&gpu, Some(&node), OTHER, LOOP));
    let (mut one, first) = looks(&gpu, &node, SMALL);
    let (_two, second) = looks(&gpu, &node, SMALL);
    neighbour.goes_on(1000);
    let seen = look(&mut one);
    let held = |pid: &str| {
        let tenant = node.tenant("small").expect("the tenant lives");
        let own = tenant.gpus[0].processes.iter().find(|process| process.pid.to_string() == pid);
        own.expect("the process is registered").memory_held_bytes
    };
    for list in ["compute", "compute_v2", "detailed"] {
        let listed = seen[list].as_object().expect("bytes by process");
        assert_eq!(listed.len(), 2, "{seen}");
        for pid in [&first, &second] {
            assert_eq!(listed[pid.as_str()].as_u64(), Some(held(pid)), "{seen}");
        }
    }
    for list in ["graphics", "mps"] {
        assert_eq!(seen[list], serde_json::json!({}), "nobody draws, and there is no MPS: {seen}");
    }
    assert_eq!(seen["used"].as_u64(), Some(held(&first) + held(&second)), "one truth: {seen}");
    for list in ["sampled", "sampled_info", "accounted"] {
        let percent = seen[list].as_object().expect("percent by process");
        assert!(percent.keys().all(|pid| [&first, &second].contains(&pid)), "{list}: {seen}");
    }
    assert_eq!(seen["accounted"].as_object().map(serde_json::Map::len), Some(2), "{seen}");
    assert_eq!(seen["samples"], serde_json::json!([0]), "{seen}");
    assert_eq!(seen["percent"], 0, "the neighbour is busy, and does not show: {seen}");
    assert_eq!(seen["of_the_card_alone"], serde_json::json!({}), "no figure of the whole card");
}

#[test]
fn nvml_shows_a_processs_utilisation_as_it_is_charged_beside_an_idle_one_of_its_tenant_and_a_busy_neighbour()
{
    let gpu = SimGpu::new("[[kernel]]\nname = \"*\"\ntime_us = 500\n");
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let _neighbour = Looping::start(Program::under_weir(&gpu, Some(&node), OTHER, LOOP));
    let mut busy = Looping::start(Program::under_weir(&gpu, Some(&node), THIRTY, LOOP));
    let (mut idle, idle_pid) = looks(&gpu, &node, THIRTY);
    let busy_pid = busy.pid.to_string();
    let mut window = || {
        let before = (Instant::now(), Spent::of(&gpu, &node, THIRTY.name, busy.pid));
        look(&mut idle); // from here on
        busy.goes_on(A_SECONDS_LAUNCHES);
        let seen = look(&mut idle);
        let spent = Spent::of(&gpu, &node, THIRTY.name, busy.pid).since(before.1);
        let charged = spent.charged_ns as f64 / before.0.elapsed().as_secs_f64() / 1e7;
        for list in ["sampled", "sampled_info"] {
            let percent = |pid: &str| seen[list][pid].as_u64().expect("its percent");
            assert!((percent(&busy_pid) as f64 - charged).abs() <= 2.0, "{list}, {charged} %: {seen}");
            assert_eq!(percent(&idle_pid), 0, "{list}: {seen}");
        }
        assert_eq!(seen["percent"], seen["sampled"][&busy_pid], "the tenant's is the sum: {seen}");
        seen
    };
    // A host that is held up gets less than its share for a while.
    let near =
        |seen: &Value| seen["sampled"][&busy_pid].as_u64().is_some_and(|percent| percent.abs_diff(30) <= 2);
    let seen = std::iter::repeat_with(&mut window).take(5).find(near).expect("30 % in one of five windows");
    let whole = |pid: &str| seen["accounted"][pid].as_u64().expect("its percent");
    assert!((15..=32).contains(&whole(&busy_pid)), "{seen}");
    assert_eq!(whole(&idle_pid), 0, "{seen}");
}

#[test]
fn two_tenants_that_size_themselves_at_the_same_moment_get_what_each_would_get_alone() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let sizes = |clients: &mut [Memory]| -> Vec<u64> {
        let free: Vec<u64> = clients.iter_mut().map(Memory::free_bytes).collect();
        for (client, free) in clients.iter_mut().zip(&free) {
            client.does(&format!("allocate {}", free / 10 * 9));
        }
        free
    };
    let start =
        |node: &Node<'_>, budget| Memory::start(Program::under_weir(&gpu, Some(node), budget, MEMORY));
    let alone = [SMALL, OTHER].map(|budget| {
        let node = Node::start(&gpu, "policy = \"static\"\n");
        sizes(&mut [start(&node, budget)])[0]
    });
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut both = [start(&node, SMALL), start(&node, OTHER)];
    assert_eq!(sizes(&mut both), alone);
}
