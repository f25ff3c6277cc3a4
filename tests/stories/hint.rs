//! Programs that tell their latencies by themselves: `interposer/include/weir.h` from C, `interposer/python/weir.py`.

use std::path::Path;

use weir_nodemgr::control::TenantStats;
use weir_nodemgr::latency::Health;
use weir_tests::dist::{client, python};
use weir_tests::life::Workshop;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program, Running};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

/// A promise by what the program tells.
const PROMISE: [&str; 6] = ["--class", "latency", "--slo", "p95 < 200ms", "--latency-from", "hint"];

const SERVE: Budget<'_> = Budget { name: "serve", request: "60%", limit: "100%", memory: "2GiB" };

/// The program within that promise, once the manager has looked at it for the first time.
fn serve(gpu: &SimGpu, node: &Node<'_>, program: impl AsRef<std::ffi::OsStr>, with: &[&str]) -> Running {
    let flags = [&PROMISE[..], &["request"]].concat();
    let program = Program::under_weir_with(gpu, Some(node), SERVE, &flags, program).args(with);
    let running = program.env("PYTHONPATH", module()).start();
    until(node, "a first look", |latency| *latency == (None, Health::Idle));
    running
}

/// Where `weir.py` is.
fn module() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../interposer/python")
}

fn ask(program: &mut Running, line: &str) -> String {
    program.say(line);
    program.next_line().unwrap_or_default()
}

/// Waits until the promised quantile of late, and how it stands with its source, are as they should be.
fn until(node: &Node<'_>, what: &str, holds: impl Fn(&(Option<u64>, Health)) -> bool) {
    wait::until(what, || {
        let latency = node.tenant(SERVE.name).and_then(|tenant: TenantStats| tenant.latency);
        latency.map(|latency| (latency.recent_ns, latency.health)).filter(&holds)
    });
}

/// Whether a latency lies within an eighth, the width of a bucket, of so many milliseconds.
fn about(ms: u64) -> impl Fn(&(Option<u64>, Health)) -> bool {
    let exact = ms * 1_000_000;
    move |(recent, health)| {
        *health == Health::Told && recent.is_some_and(|ns| ns.abs_diff(exact) <= exact / 8)
    }
}

#[test]
fn a_c_program_tells_its_latencies_and_the_promise_is_judged_by_them() {
    let (gpu, workshop) = (SimGpu::new(EVERY_KERNEL_20_US), Workshop::default());
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let mut program = serve(&gpu, &node, workshop.life("latency"), &["cuda"]);
    assert_eq!(ask(&mut program, "request 50000000 100"), "0", "taken");
    until(&node, "fast requests", about(50));
    assert_eq!(ask(&mut program, "other 900000000 100"), "1", "nothing is promised by that name");
    assert_eq!(ask(&mut program, "request 400000000 20"), "0");
    until(&node, "one in six is slow", about(400));
    let missed = node.weir(&["events"]);
    assert!(String::from_utf8_lossy(&missed).contains("slo_missed"), "{}", String::from_utf8_lossy(&missed));
    program.finish().well();
}

#[test]
fn a_python_server_that_makes_no_call_into_the_driver_tells_the_latencies_of_its_tenant() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let script = client("tells_latencies.py");
    let mut program = serve(&gpu, &node, python(), &[script.to_str().unwrap()]);
    assert_eq!(ask(&mut program, "request 0.05 100"), "True");
    assert_eq!(ask(&mut program, "other 0.05 1"), "False");
    until(&node, "fast requests", about(50));
    program.finish().well();
}

#[test]
fn without_weir_the_same_programs_run_and_are_told_that_nobody_hears_them() {
    let (gpu, workshop) = (SimGpu::new(EVERY_KERNEL_20_US), Workshop::default());
    let mut c = Program::bare(&gpu, workshop.life("latency")).arg("cuda").start();
    assert_eq!(ask(&mut c, "request 50000000 2"), "2");
    c.finish().well();
    let script = client("tells_latencies.py");
    let mut python = Program::bare(&gpu, python()).arg(script).env("PYTHONPATH", module()).start();
    assert_eq!(ask(&mut python, "request 0.05 2"), "False");
    python.finish().well();
}
