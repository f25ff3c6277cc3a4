//! Who may set what. These stories change users, which only root can; without root they say so and end.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::stage::{Stage, wish};

/// A user who is neither root nor a member of our group.
const NOBODY: u32 = 65_534;

fn as_nobody(stage: &Stage, args: &[&str]) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: changing the user needs root");
        return None;
    }
    use std::os::unix::fs::PermissionsExt;
    // The throw-away directory is closed to others; the node's own is not.
    std::fs::set_permissions(stage.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // A copy, since the build directory may be closed to others as well.
    let weir = stage.path().join("weir");
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), &weir).unwrap();
    let mut command = Command::new(&weir);
    command.uid(NOBODY).gid(NOBODY).arg("--dir").arg(stage.place.base()).args(args);
    Some(command.output().unwrap())
}

#[test]
fn a_stranger_may_read_the_summary_and_change_nothing() {
    let stage = Stage::new();
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    let Some(set) = as_nobody(&stage, &["set", "train", "--request", "10%"]) else { return };
    assert_eq!(set.status.code(), Some(77), "{}", String::from_utf8_lossy(&set.stderr));
    assert!(String::from_utf8_lossy(&set.stderr).contains("error[W0120]"));
    for command in ["park", "unpark"] {
        let refused = as_nobody(&stage, &[command, "train"]).unwrap();
        assert_eq!(refused.status.code(), Some(77), "{}", String::from_utf8_lossy(&refused.stderr));
    }
    let ps = as_nobody(&stage, &["ps"]).unwrap();
    assert!(String::from_utf8_lossy(&ps.stdout).contains("train"));
    assert_eq!(stage.tenant("train").unwrap().budget.request.as_permille(), 600);
}

#[test]
fn a_stranger_makes_no_tenants() {
    let stage = Stage::new();
    let args = [
        "run",
        "--preload",
        "/lib64/ld-linux-x86-64.so.2",
        "--request",
        "10%",
        "--memory",
        "1GiB",
        "--",
        "true",
    ];
    let Some(run) = as_nobody(&stage, &args) else { return };
    assert_eq!(run.status.code(), Some(77), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(stage.stats().tenants.is_empty());
}

#[test]
fn a_stranger_switches_no_policy_and_learns_nothing_of_what_others_do() {
    let stage = Stage::new();
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    let Some(policy) = as_nobody(&stage, &["policy", "static"]) else { return };
    assert_eq!(policy.status.code(), Some(77), "{}", String::from_utf8_lossy(&policy.stderr));
    assert_eq!(as_nobody(&stage, &["off"]).unwrap().status.code(), Some(77));
    assert!(!stage.stats().node.off);
    assert_eq!(as_nobody(&stage, &["policy"]).unwrap().status.code(), Some(0), "everybody may look");
    assert_eq!(as_nobody(&stage, &["why", "train"]).unwrap().status.code(), Some(77));
    let events = String::from_utf8(as_nobody(&stage, &["events"]).unwrap().stdout).unwrap();
    assert!(events.contains("node manager") && !events.contains("train"), "{events}");
}

#[test]
fn an_overview_has_everything_but_what_each_process_did() {
    let stage = Stage::new();
    let (_run, _created, _process) = crate::restart::one_process(&stage);
    let (full, brief) =
        (stage.stats().tenants.remove(0), stage.client().overview().unwrap().tenants.remove(0));
    assert_eq!((full.gpus[0].processes.len(), brief.gpus[0].processes.len()), (1, 0));
    assert_eq!((&brief.pids, &brief.state), (&full.pids, &full.state));
    assert_eq!((brief.gpus[0].total.launches, brief.gpus[0].memory_held_bytes), (1, 1_000_000));
}
