//! The node manager is replaced under load: by another build of its protocol, and back; by one of another protocol, and back
//! (faults A.5, F22 and F34).

use std::os::unix::fs::FileExt;

use weir_nodemgr::control::TenantStats;
use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::message::PAGES;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::shown;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const STATIC: &str = "policy = \"static\"\n";

/// Programs that always have work, allocate and free, and end at the first call that fails.
fn busy(gpu: &SimGpu, node: &Node<'_>, count: usize) -> Vec<Looping> {
    let start = |name: String| {
        let budget = Budget { name: &name, request: "15%", limit: "100%", memory: "512MiB" };
        let program = Program::under_weir(gpu, Some(node), budget, LOOP);
        Looping::start(program.args(["--allocate", "64MiB", "--churn", "4MiB", "--step", "4"]))
    };
    (0..count).map(|n| start(format!("busy-{n}"))).collect()
}

/// What must not change.
fn identity(tenant: &TenantStats) -> impl PartialEq + std::fmt::Debug + use<> {
    let gpu = &tenant.gpus[0];
    (tenant.name.clone(), tenant.pids.clone(), tenant.budget, gpu.memory_limit_bytes, gpu.processes[0].slot)
}

fn all_go_on(programs: &mut [Looping], launches: u64) {
    for program in programs {
        program.goes_on(launches);
    }
}

fn ended_well(program: Looping) {
    let finished = program.finish().well();
    assert!(!finished.stderr.contains("WITHOUT limits"), "{}", finished.stderr);
}

#[test]
fn another_build_takes_over_under_load_and_the_first_one_again_and_no_call_fails() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let mut programs = busy(&gpu, &node, 6);
    let before: Vec<_> = node.stats().tenants.iter().map(identity).collect();
    for round in 0..4 {
        node.end(); // as a supervisor does that upgrades it
        all_go_on(&mut programs, 20);
        if round % 2 == 0 {
            node.restart_as_another_build()
        } else {
            node.restart()
        }
        let after: Vec<_> = node.stats().tenants.iter().map(identity).collect();
        assert_eq!(after, before, "round {round}: {}", node.log());
        all_go_on(&mut programs, 20);
        assert_eq!(programs[0].allocate("1GiB"), "CUDA_ERROR_OUT_OF_MEMORY", "the limit holds");
    }
    programs.into_iter().for_each(ended_well);
    wait::until("the end of the tenants", || node.stats().tenants.is_empty().then_some(()));
}

/// Makes all pages of a program say that they are of this version, as a manager of that one would have.
fn date(pid: i32, version: u32) {
    let files =
        std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten().map(|entry| entry.path());
    let ours = files.filter(|path| {
        std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().starts_with("/memfd:weir-"))
    });
    let mut dated = 0;
    for path in ours {
        let page = std::fs::File::options().write(true).open(path).expect("its own user may");
        page.write_all_at(&version.to_ne_bytes(), 0).expect("its first word");
        dated += 1;
    }
    assert_eq!(dated, PAGES);
}

#[test]
fn a_manager_of_another_protocol_misreads_nothing_says_both_versions_and_the_one_before_has_all_back() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let mut programs = busy(&gpu, &node, 2);
    let before: Vec<_> = node.stats().tenants.iter().map(identity).collect();
    let other = PROTOCOL_VERSION + 1;
    node.end();
    programs.iter().for_each(|program| date(program.pid, other));
    node.restart();
    let tenants = node.stats().tenants;
    assert!(tenants.iter().all(|tenant| tenant.state == "unreached"), "{tenants:?}");
    tenants.iter().for_each(|tenant| shown::everywhere(&node, &tenant.name, "unreached"));
    let unreached: Vec<_> = tenants.iter().flat_map(|tenant| tenant.unreached_pids.clone()).collect();
    assert_eq!(unreached, programs.iter().map(|program| program.pid).collect::<Vec<_>>());
    let said = format!("the page speaks protocol {other}, this build speaks {PROTOCOL_VERSION}");
    assert!(node.log().contains(&said), "{}", node.log());
    all_go_on(&mut programs, 200);
    assert_eq!(programs[0].allocate("1GiB"), "CUDA_ERROR_OUT_OF_MEMORY", "the limit holds");
    node.end();
    programs.iter().for_each(|program| date(program.pid, PROTOCOL_VERSION));
    node.restart();
    assert_eq!(node.stats().tenants.iter().map(identity).collect::<Vec<_>>(), before, "{}", node.log());
    all_go_on(&mut programs, 20);
    programs.into_iter().for_each(ended_well);
}
