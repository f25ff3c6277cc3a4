//! A promise leaves time to spare, and a filler has it: a server decodes step after step without a gap, and each of its bursts is
//! put off as long as its bound allows (gpu-truths 2a; design 8, step-aware slack). Real processes, on the simulated GPU.

use std::time::Duration;

use weir_nodemgr::latency::Health;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const SERVE: Budget<'_> = Budget { name: "serve", request: "20%", limit: "100%", memory: "2GiB" };
const BATCH: Budget<'_> = Budget { name: "batch", request: "0%", limit: "100%", memory: "2GiB" };

const WEIR: &str = "policy = \"weir\"\n[[price]]\nname = \"*\"\ntime_us = 20\n";

/// Steps of 10 ms, each at the end of the one before it.
const DECODES: [&str; 6] = ["--ahead", "0", "--step", "500", "--tell", "token"];

/// How long the server promises that a step takes.
const BOUND: Duration = Duration::from_millis(40);
const PROMISES: [&str; 5] = ["--slo", "p95 < 40ms", "--latency-from", "hint", "token"];

/// How long shares and steps are measured: a hundred steps at least.
const WINDOW: Duration = Duration::from_secs(4);

/// What the server and the filler have of the GPU in percent, and the server's p95 in the same window.
struct Seen {
    serve: f64,
    batch: f64,
    p95: Duration,
}

fn look(gpu: &SimGpu, serve: &mut Looping, batch: &Looping) -> Seen {
    wait::in_time(|| {
        serve.report();
        let [of_serve, of_batch] = gpu.shares([serve.pid, batch.pid], WINDOW);
        let p95_ns = serve.report().p95_step_ns.expect("it tells");
        Seen { serve: of_serve, batch: of_batch, p95: Duration::from_nanos(p95_ns) }
    })
}

/// The server, with these flags besides.
fn serve(gpu: &SimGpu, node: &Node<'_>, promise: &[&str]) -> Looping {
    let flags = [&["--class", "latency"], promise].concat();
    Looping::start(Program::under_weir_with(gpu, Some(node), SERVE, &flags, LOOP).args(DECODES))
}

/// For how long each of the server's bursts is put off, by its grant page.
fn hold(node: &Node<'_>) -> Duration {
    Duration::from_nanos(node.tenant(SERVE.name).expect("it runs").gpus[0].hold_ns)
}

#[test]
fn a_filler_has_the_time_that_a_servers_promise_leaves_and_the_promise_is_kept() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, WEIR);
    let batch =
        Looping::start(Program::under_weir_with(&gpu, Some(&node), BATCH, &["--class", "filler"], LOOP));
    let mut without = serve(&gpu, &node, &[]);
    let before = look(&gpu, &mut without, &batch);
    assert_eq!(hold(&node), Duration::ZERO, "whoever promised nothing has nothing to spare");
    without.finish().well();
    wait::until("the end of the one without a promise", || node.tenant(SERVE.name).is_none().then_some(()));

    let mut within = serve(&gpu, &node, &PROMISES);
    wait::until("half of the GPU for the filler", || {
        (look(&gpu, &mut within, &batch).batch > 50.0).then_some(())
    });
    assert!(hold(&node) > Duration::ZERO, "by the grant page");
    let after = look(&gpu, &mut within, &batch);
    let latency = node.tenant(SERVE.name).and_then(|tenant| tenant.latency).expect("it promised something");
    assert_eq!(latency.health, Health::Told);
    // On a machine that wakes sleepers late the promise leaves less to spare.
    assert!(before.batch < 5.0 && after.batch > 20.0, "filler: {} %, then {} %", before.batch, after.batch);
    assert!(after.p95 < BOUND, "p95 {:?}, without the promise {:?}", after.p95, before.p95);
    assert!(after.serve >= 19.0, "request of 20 %: {} %", after.serve);
    for program in [within, batch] {
        program.finish().well();
    }
}
