//! Programs that start where a manager has been and is not, or is of another version: they keep to the limits of their
//! tenant's launch file, each by itself, until a manager lets them in.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_protocol::PROTOCOL_VERSION;
use weir_protocol::launch::{LAUNCH_FILE, Launch};
use weir_protocol::message::{Hello, Reply};
use weir_protocol::transport;
use weir_protocol::units::Bytes;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::Program;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

/// A tenant that is there without a program of its own.
const TENANT: &str =
    "policy = \"static\"\n[[tenant]]\nname = \"train\"\nrequest = \"40%\"\nmemory = \"2GiB\"\n";

const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY";

/// A program that is the tenant's by the directory that it was given, as in a container.
fn in_place(gpu: &SimGpu, place: &Path) -> Program {
    Program::bare(gpu, LOOP).env("LD_PRELOAD", gpu.dist().preload()).env("WEIR_DIR", place)
}

/// A manager that had the tenant, and has died; what is left of it is the tenant's directory.
fn left_behind(gpu: &SimGpu) -> (Node<'_>, PathBuf) {
    let mut node = Node::start(gpu, TENANT);
    node.kill();
    let place = node.tenant_dir("train");
    (node, place)
}

/// What the tenant holds, by a manager that is there.
fn held(node: &Node<'_>) -> Bytes {
    Bytes(node.tenant("train").map_or(0, |tenant| tenant.gpus[0].memory_held_bytes))
}

/// It has said once that it keeps to limits of its own, which, and why.
fn said(stderr: &str, why: &str) {
    assert!(!stderr.contains("WITHOUT limits"), "{stderr}");
    let told =
        "keeps to limits of its own (degraded), 40 % of the time and 2 GiB, and so does each other process";
    assert_eq!(stderr.matches(told).count(), 1, "{stderr}");
    assert!(
        stderr.contains("tenant `train`") && stderr.contains(why) && stderr.contains("help: "),
        "{stderr}"
    );
}

#[test]
fn without_a_manager_a_program_keeps_the_limits_of_its_launch_file_and_is_let_in_with_what_it_holds() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, TENANT);
    let place = node.tenant_dir("train");
    for (size, bytes) in [("1GiB", Bytes::gib(1)), ("2GiB", Bytes::gib(2))] {
        node.set("train", &["--memory", size]);
        let text = std::fs::read_to_string(place.join(LAUNCH_FILE)).expect("the manager writes it");
        assert_eq!(Launch::parse(&text).expect("it is whole").grant.memory_limit, bytes);
    }
    node.kill();
    let mut program = Looping::start(in_place(&gpu, &place));
    assert_eq!(program.allocate("2GiB"), OUT_OF_MEMORY, "a context is part of it");
    assert_eq!(program.allocate("1GiB"), "CUDA_SUCCESS");
    let [share] = gpu.shares([program.pid], Duration::from_secs(2));
    assert!((share - 40.0).abs() < 5.0, "{share} % of the GPU, and nobody else is there");

    node.restart();
    program.goes_on(1000);
    wait::until("what it holds", || (held(&node) > Bytes::gib(1)).then_some(()));
    assert_eq!(program.allocate("1GiB"), OUT_OF_MEMORY);
    // It launches on, and counts on its tenant's page.
    let calls = || node.tenant("train").map_or(0, |tenant| tenant.gpus[0].total.charged_ns);
    let before = calls();
    program.goes_on(10_000);
    wait::until("its launches", || (calls() >= before + 5_000 * 20_000).then_some(()));
    wait::until("limits", || node.tenant("train").filter(|tenant| tenant.state == "enforced"));
    assert_eq!(program.free(), Bytes::gib(1).0);
    assert_eq!(program.allocate("1.5GiB"), "CUDA_SUCCESS");
    let ended = program.finish().well();
    said(&ended.stderr, "no node manager at");
    assert_eq!(ended.stderr.matches("has a node manager now").count(), 1, "{}", ended.stderr);
}

#[test]
fn two_programs_that_did_not_know_of_each_other_are_one_tenant_when_a_manager_has_let_them_in() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let (mut node, place) = left_behind(&gpu);
    let mut programs = [(); 2].map(|()| Looping::start(in_place(&gpu, &place)));
    for program in &mut programs {
        assert_eq!(program.allocate("1GiB"), "CUDA_SUCCESS", "each has all of the limit");
    }
    node.restart();
    for program in &mut programs {
        program.goes_on(1000);
    }
    wait::until("what both hold", || (held(&node) > Bytes::gib(2)).then_some(()));
    assert_eq!(programs[0].allocate("64MiB"), OUT_OF_MEMORY, "the other one's counts now");
    let said = programs.map(|program| program.finish().well().stderr).concat();
    assert!(said.contains("put the tenant over its limit"), "{said}");
}

/// A manager that answers whoever comes with this.
fn answers(place: &Path, reply: Reply) {
    let _ = std::fs::remove_file(place.join("tenant.sock"));
    let door = UnixListener::bind(place.join("tenant.sock")).expect("a socket in it");
    std::thread::spawn(move || {
        while let Ok((peer, _)) = door.accept() {
            let _ = transport::receive::<Hello>(&peer);
            let _ = transport::send(&peer, &reply, &[]);
        }
    });
}

#[test]
fn under_a_manager_of_another_version_the_limits_of_the_launch_file_hold_and_both_versions_are_named() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let (_node, place) = left_behind(&gpu);
    let ours = PROTOCOL_VERSION;
    let reason = format!("libweir.so speaks protocol {ours}, the node manager speaks {}", ours + 1);
    answers(&place, Reply::Refused { reason: reason.clone() });
    let mut program = Looping::start(in_place(&gpu, &place));
    assert_eq!(program.allocate("2GiB"), OUT_OF_MEMORY);
    program.goes_on(1000);
    said(&program.finish().well().stderr, &reason);
}

#[test]
fn a_launch_file_that_cannot_be_believed_limits_nobody_and_that_is_said() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let (_node, place) = left_behind(&gpu);
    let file = place.join(LAUNCH_FILE);
    let text = std::fs::read_to_string(&file).expect("the manager has left it");
    std::fs::write(&file, text.replace("rate_ppm 400000", "rate_ppm 0"))
        .expect("a file in a directory of ours");
    let ended = in_place(&gpu, &place).args(["--launches", "160"]).run().well();
    let told = "runs WITHOUT limits (line 7 of the launch file is not `rate_ppm` and a value that can be)";
    assert_eq!(ended.stderr.matches(told).count(), 1, "{}", ended.stderr);
}
