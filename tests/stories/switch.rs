//! The kill switch, and what a tenant waited for, with a real program on the simulated GPU.

use std::time::Duration;

use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::shown;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const PRICED: &str = "policy = \"static\"\n[[price]]\nname = \"*\"\ntime_us = 20\n";

/// How long a share is measured.
const WINDOW: Duration = Duration::from_millis(500);

fn start(gpu: &SimGpu, node: &Node<'_>) -> Looping {
    let budget = Budget { name: "train", request: "20%", limit: "20%", memory: "2GiB" };
    Looping::start(Program::under_weir(gpu, Some(node), budget, LOOP))
}

#[test]
fn off_lets_a_limited_program_run_free_and_says_so_and_on_holds_it_again() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, PRICED);
    let looping = start(&gpu, &node);
    let under = |most: f64| move |share: &f64| *share < most;
    let measured = || Some(gpu.shares([looping.pid], WINDOW)[0]);
    wait::until("the limit of 20 %", || measured().filter(under(30.0)));
    node.weir(&["off"]);
    // No bar: other programs run on the machine's processors. Three times its limit is no accident.
    wait::until("a program that nothing holds", || measured().filter(|share| *share > 60.0));
    assert!(shown::in_ps_and_metrics(&node, "train", "off") && shown::metric(&node, "weir_off 1"));
    assert!(node.says(&["events"]).contains("switched OFF by user"));
    node.weir(&["on"]);
    assert!(shown::metric(&node, "weir_off 0"));
    wait::until("the limit of 20 % again", || measured().filter(under(30.0)));
    let stderr = looping.finish().well().stderr;
    assert_eq!(stderr.matches("weir: the operator has switched Weir off").count(), 1, "{stderr}");
}

#[test]
fn why_says_that_a_program_at_its_limit_waits_at_the_gate() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, PRICED);
    let looping = start(&gpu, &node);
    let told = wait::until("two seconds of history", || {
        let why: serde_json::Value = serde_json::from_slice(&node.weir(&["why", "train"])).ok()?;
        (why["gpus"][0]["moments"].as_array()?.len() >= 2).then_some(why)
    });
    let last = told["gpus"][0]["moments"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    let waited = |at: usize| last["stalls_ns"][at].as_u64().unwrap_or(0);
    let (compute, gate) = (waited(0), waited(4));
    assert!(gate > compute, "four fifths of its time it waits: {last}");
    assert!(last["throttled"].as_u64() > Some(0) && last["rate_ppm"] == 200_000, "{last}");
    drop(looping);
}
