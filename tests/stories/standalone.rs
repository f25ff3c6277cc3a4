//! `weir run` without a node manager: limits hold all the same, and the program's end is the command's end.

use std::os::unix::fs::PermissionsExt;

use weir_tests::program::{self, Budget, Finished, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::LOOP;

fn run(program: &str, arguments: &[&str]) -> Finished {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    Program::under_weir(&gpu, None, Budget::default(), program).args(arguments).run()
}

#[test]
fn the_programs_exit_code_is_the_commands() {
    assert_eq!(run("sh", &["-c", "exit 0"]).status.code(), Some(0));
    assert_eq!(run("sh", &["-c", "exit 3"]).status.code(), Some(3));
}

#[test]
fn a_program_that_a_signal_ended_gives_128_and_the_signal() {
    assert_eq!(run("sh", &["-c", "kill -KILL $$"]).status.code(), Some(137));
    assert_eq!(run("sh", &["-c", "kill -TERM $$"]).status.code(), Some(143));
}

#[test]
fn a_signal_to_the_command_reaches_the_program() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let program = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); \
                   print('ready', flush=True); signal.pause()";
    let python = Program::under_weir(&gpu, None, Budget::default(), "python3");
    let mut running = python.args(["-c", program]).start();
    assert_eq!(running.next_line().as_deref(), Some("ready"));
    program::signal(running.pid(), libc::SIGTERM);
    assert_eq!(running.finish().status.code(), Some(9));
}

#[test]
fn a_program_that_is_not_there_gives_127() {
    let ended = run("/no/such/program", &[]);
    assert_eq!(ended.status.code(), Some(127));
    assert!(ended.stderr.contains("/no/such/program") && ended.stderr.contains("help:"), "{}", ended.stderr);
}

#[test]
fn a_program_that_cannot_be_executed_gives_126() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).expect("its owner may");
    let ended = run(&file.path().display().to_string(), &[]);
    assert_eq!(ended.status.code(), Some(126), "{}", ended.stderr);
}

#[test]
fn without_the_library_the_program_does_not_run() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let ended = Program::under_weir(&gpu, None, Budget::default(), "echo")
        .arg("it ran")
        .env("WEIR_PRELOAD", "/no/such/libweir.so")
        .run();
    assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
    assert!(ended.stdout.is_empty(), "{:?}", ended.stdout);
}

#[test]
fn it_says_that_it_stands_alone_and_what_the_program_used() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let ended =
        Program::under_weir(&gpu, None, Budget::default(), LOOP).args(["--launches", "160"]).run().well();
    assert!(ended.stderr.contains("no node manager runs"), "{}", ended.stderr);
    let summary = ended.summary();
    assert_eq!((summary["simulated"].as_bool(), summary["launches"].as_u64()), (Some(true), Some(160)));
}

#[test]
fn the_share_is_enforced_without_a_node_manager() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let budget = Budget { request: "20%", limit: "20%", ..Budget::default() };
    let ended = Program::under_weir(&gpu, None, budget, LOOP).args(["--launches", "20000"]).run().well();
    let took_ns = ended.summary()["elapsed_ns"].as_f64().expect("a number");
    // 20,000 launches of 20 us are 0.4 s of GPU time: 2 s at 20 %, less what a full bucket lets through at once.
    assert!(took_ns > 1.6e9, "{took_ns}");
}
