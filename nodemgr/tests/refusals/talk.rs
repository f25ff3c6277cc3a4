//! What `weir` says where nothing is refused and something is to be known.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

use crate::node::{LIBRARY, Node};

const BUDGET: [&str; 5] = ["run", "--request=10%", "--memory=1GiB", "--preload", LIBRARY];

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `weir` at a place of its own, on a machine without a GPU.
fn weir() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env_remove("CUDA_VISIBLE_DEVICES").env("WEIR_NVML", "/no/such/library");
    command
}

#[test]
fn a_run_that_outlives_its_node_manager_says_so_and_ends_as_its_program_does() {
    let mut node = Node::start();
    let mut command = node.command(&BUDGET);
    command.args(["--", "sh", "-c", "echo here; read line; exit 42"]);
    let mut run =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut here = [0; 5];
    std::io::Read::read_exact(run.stdout.as_mut().unwrap(), &mut here).unwrap();
    node.end();
    drop(run.stdin.take());
    let output = run.wait_with_output().unwrap();
    assert!(
        stderr(&output).ends_with("weir: no summary: the node manager ended while this ran\n"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(42));
}

#[test]
fn a_run_beside_a_dead_node_manager_s_socket_says_that_it_does_not_answer() {
    let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
    let run = || {
        stderr(&weir().env("WEIR_NODE_DIR", dir.path()).args(BUDGET).args(["--", "true"]).output().unwrap())
    };
    assert!(run().starts_with("weir: no node manager runs, so this run keeps its own budget"));
    drop(UnixListener::bind(dir.path().join("control.sock")).unwrap());
    let told = format!("weir: there was a node manager at `{}` and it does not answer", dir.path().display());
    assert!(run().starts_with(&told), "{}", run());
}

#[test]
fn a_node_manager_warns_of_the_tenants_that_an_earlier_one_left() {
    let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
    let start = || stderr(&weir().arg("--dir").arg(dir.path()).arg("node").output().unwrap());
    assert!(!start().contains("an earlier node manager"), "nothing was left");
    let tenants = dir.path().join("tenants");
    for name in ["train", "serve"] {
        std::fs::create_dir(tenants.join(name)).unwrap();
    }
    std::fs::write(tenants.join("serve").join("strict"), "").unwrap();
    let told = start();
    assert_eq!(told.matches("an earlier node manager left 2 tenants here").count(), 1, "{told}");
    assert!(!tenants.join("train").exists());
    assert!(tenants.join("serve/strict").exists(), "what a strict tenant starts later must get no GPU");
}

#[test]
fn a_node_manager_on_a_machine_without_a_gpu_says_so_and_does_not_start() {
    let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
    let output = weir().arg("--dir").arg(dir.path()).arg("node").output().unwrap();
    assert!(stderr(&output).contains("error[W0160]") && stderr(&output).contains("\nhelp: "), "{output:?}");
    assert_eq!(output.status.code(), Some(69));
}

#[test]
fn without_tenants_ps_has_no_data_and_says_how_to_start_one() {
    let mut node = Node::start();
    node.leave();
    let output = node.weir(&["ps"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(0)));
    assert!(stderr(&output).starts_with("no tenants; start one with: weir run "), "{output:?}");
    let document: serde_json::Value = serde_json::from_str(&stdout(&node.weir(&["--json", "ps"]))).unwrap();
    assert_eq!(document["tenants"], serde_json::json!([]));
}

#[test]
fn whoever_follows_events_is_told_of_each_as_it_comes() {
    let node = Node::start();
    let mut follow = node.command(&["--json", "events", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut is_told = |event: &str, tenant: &str| {
        let (event, tenant) = (format!("\"event\":\"{event}\""), format!("\"tenant\":\"{tenant}\""));
        lines.any(|line| line.contains(&event) && line.contains(&tenant))
    };
    assert!(is_told("tenant_made", "held"), "what was before");
    let run = node.command(&BUDGET).args(["--name", "brief", "--", "true"]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert!(is_told("tenant_made", "brief") && is_told("tenant_ended", "brief"));
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn explain_without_a_code_lists_them_all_in_order() {
    let output = weir().arg("explain").output().unwrap();
    let listed: Vec<_> = stdout(&output).lines().skip(1).map(|line| line[..5].to_owned()).collect();
    let known: Vec<_> = weir_nodemgr::codes::TABLE.iter().map(|row| row.code).collect();
    assert!(listed.is_sorted() && listed == known, "{listed:?}");
}

#[test]
fn the_example_of_a_configuration_file_passes_the_check() {
    let dir = tempfile::tempdir().unwrap(); // a copy: a checkout's owner may be somebody else
    let path = dir.path().join("weir.toml");
    std::fs::write(&path, include_str!("../../../docs/weir.toml.example")).unwrap();
    let output = weir().arg("check").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Lets a process of the tenant `held` do as `words` say, in a second run, and says what that run tells of it.
fn second_run(node: &Node, words: &str) -> String {
    let mut peer = std::env::current_exe().unwrap();
    peer.pop();
    peer.pop();
    let mut command =
        node.command(&["run", "--name=held", "--request=60%", "--memory=60GiB", "--preload", LIBRARY, "--"]);
    command
        .arg(peer.join("examples/peer"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut run = command.spawn().unwrap();
    std::io::Write::write_all(run.stdin.as_mut().unwrap(), words.as_bytes()).unwrap();
    stderr(&run.wait_with_output().unwrap())
}

#[test]
fn the_summary_of_a_run_that_joined_a_tenant_tells_of_the_whole_tenant_and_its_time() {
    let node = Node::start();
    let first = second_run(&node, "launch\nhold 4096\n");
    let second = second_run(&node, "launch\n");
    assert!(first.contains("  launches   1; waited: none\n"), "{first}");
    assert!(first.contains("  memory     peak 4 KiB of 60 GiB; refused: none\n"), "{first}");
    assert!(first.ends_with("  state      enforced; 1 process\n"), "{first}");
    assert!(second.contains("; what follows is the whole tenant's, over its "), "{second}");
    assert!(second.contains("peak 4 KiB in one process, of 60 GiB;"), "{second}");
    assert!(second.contains("  launches   2;") && second.ends_with("; 2 processes\n"), "{second}");
}
