//! A node manager that hangs is ended and started again by who supervises it (faults A.5, F21): programs do not notice.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::supervisor::Supervisor;
use weir_tests::wait;

use crate::LOOP;
use crate::restart::{STATIC, busy, ended_well, goes_on, identity};

/// A manager that hangs is replaced within this time (faults A.5, F21).
const REPLACED: Duration = Duration::from_secs(10);

/// A tenant that outlives its process: another program keeps it.
const STAYS: Budget<'_> = Budget { name: "stays", request: "20%", limit: "100%", memory: "512MiB" };

fn launches(node: &Node<'_>, name: &str) -> u64 {
    node.tenant(name).expect("it is there").gpus[0].total.launches
}

/// What must not change of the tenants whose program goes on.
fn living(node: &Node<'_>) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    node.stats().tenants.iter().filter(|tenant| tenant.name != STAYS.name).map(identity).collect()
}

#[test]
fn a_manager_that_is_stopped_is_replaced_with_all_that_was_kept_and_no_call_fails() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let mut supervisor = Supervisor::at(gpu.dir().join("notify"), Supervisor::patience_of_the_unit());
    supervisor.start(&mut node);
    let mut programs: Vec<_> = (0..4).map(|n| busy(&gpu, &node, &format!("busy-{n}"), "15%")).collect();
    let keeper = Program::under_weir(&gpu, Some(&node), STAYS, "cat").start();
    wait::until("the tenant", || node.tenant(STAYS.name).map(drop));
    let doomed = Program::bare(&gpu, LOOP)
        .env("LD_PRELOAD", gpu.dist().preload())
        .env("WEIR_DIR", node.tenant_dir(STAYS.name));
    let mut doomed = Looping::start(doomed);
    doomed.goes_on(20);
    wait::until("all pages to be kept", || {
        supervisor.listen();
        (supervisor.kept().collect::<BTreeSet<_>>().len() == node.stats().tenants.len()).then_some(())
    });
    let before = living(&node);
    let launched = launches(&node, STAYS.name);
    supervisor.listen();
    let stopped = Instant::now();
    program::signal(node.pid(), libc::SIGSTOP);
    // Nobody but the supervisor has what it did, once it is gone.
    program::kill(doomed.pid);
    doomed.finish();
    programs.iter_mut().for_each(|program| goes_on(program, 20));
    let hung = node.pid();
    supervisor.watch(&mut node);
    assert!(stopped.elapsed() <= REPLACED && node.pid() != hung, "{:?}", stopped.elapsed());
    let after = living(&node);
    assert_eq!(after, before, "{}", node.log());
    assert!(launches(&node, STAYS.name) >= launched, "what it did stays counted");
    programs.iter_mut().for_each(|program| goes_on(program, 20));
    programs.into_iter().for_each(|program| ended_well(&program.finish()));
    keeper.finish().well();
}
