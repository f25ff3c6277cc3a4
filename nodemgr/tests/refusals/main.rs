//! Every input that is refused: what is said, with which code, and that nothing has changed. The rows are those of
//! `docs/FAULTS.md`, by their ids; a test holds the two together.

#![allow(clippy::unwrap_used, reason = "a test ends where what it needs is absent")]

mod cases;
mod config;
mod node;
mod scenarios;
mod talk;

use std::collections::BTreeSet;

use cases::{COMMANDS, Case};
use node::Node;

const DOCUMENT: &str = include_str!("../../../docs/FAULTS.md");

/// Runs the case and tells what a person sees.
fn told(node: &Node, case: &Case) -> String {
    let before = node.tenants();
    let output = node.weir(case.args);
    assert_eq!(before, node.tenants(), "{}: nothing may have changed", case.id);
    assert!(output.stdout.is_empty(), "{}: refusals are no data", case.id);
    let stderr = node.censor(&String::from_utf8_lossy(&output.stderr));
    format!(
        "$ weir {}\n{stderr}exit code {}",
        case.args.join(" ").escape_debug(),
        output.status.code().unwrap()
    )
}

#[test]
fn every_bad_command_is_refused_with_a_code_and_a_way_out() {
    let node = Node::start();
    for case in COMMANDS {
        let told = told(&node, case);
        assert!(told.contains("help") || told.contains("tip:"), "{}: {told}", case.id);
        insta::assert_snapshot!(case.id, told);
    }
}

#[test]
fn every_bad_configuration_is_refused_with_its_line_and_a_way_out() {
    for (id, text) in config::TEXTS {
        insta::assert_snapshot!(*id, config::told(text));
    }
    for (id, make) in config::FILES {
        insta::assert_snapshot!(*id, config::told_of(make));
    }
}

#[test]
fn a_configuration_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: giving a file to another user needs root");
    }
    let (id, make) = config::STRANGERS;
    insta::assert_snapshot!(id, config::told_of(make));
}

#[test]
fn every_bad_scenario_is_refused_with_a_way_out() {
    for (id, from, to) in scenarios::CHANGES {
        insta::assert_snapshot!(*id, scenarios::told_of_change(from, to));
    }
    for (id, make) in scenarios::FILES {
        insta::assert_snapshot!(*id, scenarios::told(make, &[]));
    }
    for (id, flags) in scenarios::FLAGS {
        insta::assert_snapshot!(*id, scenarios::told_of_flags(flags));
    }
}

#[test]
fn a_gpu_that_cuda_visible_devices_does_not_show_or_the_node_does_not_have_is_refused_with_what_it_says() {
    let node = Node::start();
    let hidden: [&str; 2] = ["--gpu=1", "0"];
    for (id, [flag, visible]) in [("gpu.hidden", hidden), ("gpu.visible-unknown", ["--gpu=0", "9,0"])] {
        let args = ["run", "--request=10%", "--memory=1GiB", flag, "--preload", node::LIBRARY, "--", "true"];
        let output = node.command(&args).env("CUDA_VISIBLE_DEVICES", visible).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        insta::assert_snapshot!(id, format!("{stderr}exit code {}", output.status.code().unwrap()));
    }
}

#[test]
fn a_directory_in_which_others_could_replace_our_sockets_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let node = Node::start();
    let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
    let (open, file) = (dir.path().join("open"), dir.path().join("file"));
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(&file, "").unwrap();
    for (id, path) in [("path.world-writable", &open), ("path.not-a-directory", &file)] {
        let output = node.weir(&["--dir", path.to_str().unwrap(), "node"]);
        let stderr =
            String::from_utf8_lossy(&output.stderr).replace(&dir.path().display().to_string(), "[DIR]");
        insta::assert_snapshot!(id, format!("{stderr}exit code {}", output.status.code().unwrap()));
    }
}

#[test]
fn the_document_has_a_row_for_every_case_and_a_case_for_every_row() {
    let places = ["gpu.hidden", "gpu.visible-unknown", "path.world-writable", "path.not-a-directory"];
    let tested: BTreeSet<_> = COMMANDS
        .iter()
        .map(|case| case.id)
        .chain(config::TEXTS.iter().map(|(id, _)| *id))
        .chain(config::FILES.iter().chain([&config::STRANGERS]).map(|(id, _)| *id))
        .chain(scenarios::CHANGES.iter().map(|(id, ..)| *id))
        .chain(scenarios::FILES.iter().map(|(id, _)| *id))
        .chain(scenarios::FLAGS.iter().map(|(id, _)| *id))
        .chain(places)
        .collect();
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let written: BTreeSet<_> = rows.map(|(id, _)| id).filter(|id| id.contains('.')).collect();
    assert_eq!(tested, written);
}

#[test]
fn the_document_has_every_code() {
    let missing = weir_nodemgr::codes::TABLE.iter().filter(|row| !DOCUMENT.contains(row.code));
    assert_eq!(missing.map(|row| row.code).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_second_daemon_says_who_the_first_one_is() {
    let node = Node::start();
    // Without NVML it must still find the lock first: whoever holds the place is the better answer.
    let output = node.weir(&["node"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains(&format!("process {} already is the node manager", std::process::id())),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_exit_code_of_the_program_is_passed_through_and_signals_as_shells_have_them() {
    let node = Node::start();
    let run = |script: &str| {
        let args = [
            "run",
            "--request",
            "10%",
            "--memory",
            "1GiB",
            "--preload",
            node::LIBRARY,
            "--",
            "sh",
            "-c",
            script,
        ];
        node.weir(&args).status.code()
    };
    assert_eq!((run("exit 0"), run("exit 42"), run("kill -TERM $$")), (Some(0), Some(42), Some(143)));
    assert_eq!(node.tenants().len(), 1, "the budgets are free again");
}

#[test]
fn the_program_sees_its_place_its_preload_and_its_gpus() {
    let node = Node::start();
    let script = "echo $WEIR_DIR $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES; case $LD_PRELOAD in *:/keep) echo kept;; esac";
    let args = [
        "run",
        "--request",
        "10%",
        "--memory",
        "1GiB",
        "--name",
        "a",
        "--preload",
        node::LIBRARY,
        "--",
        "sh",
        "-c",
        script,
    ];
    let output = node.command(&args).env("LD_PRELOAD", "/keep").output().unwrap();
    let stdout = node.censor(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(stdout, "[DIR]/tenants/a PCI_BUS_ID 0\nkept\n");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("a: no process came under this budget"), "{stderr}");
}

#[test]
fn what_is_visible_before_is_what_an_index_counts_and_where_nothing_is_there_is_no_budget() {
    let node = Node::start();
    let sees = |visible: &str, flags: &[&str]| {
        let budget = ["run", "--request=10%", "--memory=1GiB", "--preload", node::LIBRARY];
        let program = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES ${WEIR_DIR:+limited}"];
        let args = [&budget, flags, &program].concat();
        let output = node.command(&args).env("CUDA_VISIBLE_DEVICES", visible).output().unwrap();
        (
            String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let second = "GPU-01010101-0101-0101-0101-010101010101";
    assert_eq!(sees("1,0", &[]).0, "1 limited");
    assert_eq!(sees("1,0", &["--gpu=1"]).0, "0 limited");
    assert_eq!(sees("GPU-0101", &[]).0, "1 limited", "as a scheduler may have set it");
    assert_eq!(sees("1", &["--visible=uuid"]).0, format!("{second} limited"));
    let others = node.tenants();
    let (told, why) = sees("", &["--name=none"]);
    assert!(told.is_empty() && why.contains("CUDA_VISIBLE_DEVICES shows no GPU"), "{told} {why}");
    assert_eq!(node.tenants(), others);
}
