//! Who is on a GPU without a budget is seen, named, told of everywhere, and dealt with as the operator wants (faults A.3; A.5,
//! F51, F53); and what NVML does not say, or says wrongly, is shown and stops nobody (F35).

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::{Duration, Instant};

use weir_nodemgr::control::{Stats, UnmanagedStats};
use weir_nodemgr::gpus::Health;
use weir_nodemgr::web::metrics;
use weir_tests::cgroup::Group;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program, Running};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const STATIC: &str = "policy = \"static\"\n";

const BUDGET: Budget<'_> = Budget { name: "train", request: "40%", limit: "100%", memory: "8GiB" };

/// Within which a process without a budget is told of (faults, R13).
const SEEN_WITHIN: Duration = Duration::from_secs(2);

/// A GPU, and the process that holds memory there with nobody's leave.
fn gpu() -> SimGpu {
    SimGpu::new(EVERY_KERNEL_20_US)
}

/// A GPU on which a call of NVML goes wrong for the node manager.
fn gpu_with_fault(row: &str) -> SimGpu {
    SimGpu::new(&format!("{EVERY_KERNEL_20_US}[[fault]]\nprocess = \"weir\"\n{row}\n"))
}

fn events(node: &Node<'_>) -> String {
    node.says(&["events"])
}

/// The row of a metric.
fn metric(stats: &Stats, name: &str) -> String {
    let page = metrics::page(stats).expect("it is written into memory");
    let row = page.lines().find(|line| line.starts_with(name));
    row.unwrap_or_else(|| panic!("no {name} in\n{page}")).to_owned()
}

/// Waits until the only process without a budget is this one.
fn seen(node: &Node<'_>, pid: i32) -> UnmanagedStats {
    wait::until("the sight of a process without a budget", || {
        let [only] = node.stats().unmanaged.try_into().ok()?;
        let only: UnmanagedStats = only;
        (only.pid == Some(pid)).then_some(only)
    })
}

fn wait_until_nobody(node: &Node<'_>) {
    wait::until("the end of all without a budget", || node.stats().unmanaged.is_empty().then_some(()));
}

#[test]
fn a_process_without_a_budget_is_told_of_within_two_seconds_everywhere_and_until_it_goes() {
    let gpu = gpu();
    let node = Node::start(&gpu, STATIC);
    wait::until("NVML's first answer", || (node.stats().node.nvml == Health::Ok).then_some(()));
    let mut looping = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    assert!(node.stats().unmanaged.is_empty());
    let stranger = Looping::start(Program::bare(&gpu, LOOP).args(["--allocate", "1GiB"]));
    let start = Instant::now();
    let shown = seen(&node, stranger.pid);
    assert!(start.elapsed() < SEEN_WITHIN, "{:?}", start.elapsed());
    assert_eq!((shown.gpu, shown.tenant.as_deref(), shown.keeps_limits), (0, None, false));
    assert!(shown.memory_bytes > Some(1 << 30), "with its context: {shown:?}");
    assert_eq!(shown.program.as_deref(), Some("weir-loop"));
    let line = format!("NOT MANAGED on GPU 0: process {} (weir-loop", stranger.pid);
    for place in ["ps", "doctor"] {
        let said = node.says(&[place]);
        assert!(said.contains(&line), "{place}: {said}");
    }
    assert!(events(&node).contains(&format!("NOT MANAGED: process {}", stranger.pid)));
    assert!(node.log().contains("NOT MANAGED"), "{}", node.log());
    assert!(metric(&node.stats(), "weir_unmanaged_processes{").ends_with(" 1.0"));
    looping.goes_on(1000);
    assert_eq!(node.tenant("train").expect("it runs").state, "enforced");
    let pid = stranger.pid;
    drop(stranger);
    wait_until_nobody(&node);
    assert!(events(&node).contains(&format!("process {pid} is not there without a budget any more")));
    assert!(metric(&node.stats(), "weir_unmanaged_processes{").ends_with(" 0.0"));
}

/// A program that a tenant starts, and that does not load what would hold it to the budget.
fn escaped(gpu: &SimGpu, node: &Node<'_>, before: &[&str]) -> Looping {
    let environment = gpu.environment().map(|(name, value)| format!("{name}={}", value.display()));
    let program = Program::under_weir(gpu, Some(node), BUDGET, "env");
    Looping::start(program.args(before).args(environment).arg(LOOP))
}

#[test]
fn a_program_that_a_tenant_starts_without_the_preload_is_named_with_its_tenant() {
    for before in [&["-u", "LD_PRELOAD"][..], &["-i"]] {
        let gpu = gpu();
        let node = Node::start(&gpu, STATIC);
        let escaped = escaped(&gpu, &node, before);
        let shown = seen(&node, escaped.pid);
        assert_eq!(shown.tenant.as_deref(), Some("train"), "{before:?}");
        assert_eq!(node.tenant("train").expect("its run goes on").state, "unmanaged");
        assert!(
            metric(&node.stats(), "weir_tenant_state{tenant=\"train\",state=\"unmanaged\"}")
                .ends_with(" 1.0")
        );
        assert!(node.says(&["ps"]).contains("of tenant train has no budget"));
        assert!(events(&node).contains("train on GPU 0: NOT MANAGED"), "{}", events(&node));
    }
}

#[test]
fn what_processes_without_a_budget_hold_is_withheld_if_the_operator_wants_it_and_only_then() {
    let gpu = gpu();
    for (rule, fits) in [("report", true), ("withhold", false)] {
        let node = Node::start(&gpu, &format!("{STATIC}unmanaged = \"{rule}\"\n"));
        let stranger = Looping::start(Program::bare(&gpu, LOOP).args(["--allocate", "4GiB"]));
        seen(&node, stranger.pid);
        // Nearly all of the card: it fits only where the stranger is not counted.
        let most = Budget { memory: "39GiB", ..BUDGET };
        let ended = Program::under_weir(&gpu, Some(&node), most, "true").run();
        assert_eq!(ended.status.success(), fits, "{rule}: {}", ended.stderr);
        assert_eq!(ended.stderr.contains("processes without a budget hold"), !fits, "{}", ended.stderr);
        drop(stranger);
        wait_until_nobody(&node);
    }
}

/// A process that is not root's: another user's if we are root. Nothing where that user cannot reach what it needs.
fn of_somebody(gpu: &SimGpu) -> Option<Running> {
    const NOBODY: u32 = 65_534;
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some(Program::bare(gpu, LOOP).start());
    }
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its owner may");
    };
    open(gpu.dir(), 0o755);
    let sockets = std::fs::read_dir(gpu.dir()).expect("it can be read").flatten();
    sockets.filter(|entry| entry.file_name() != "broker.log").for_each(|entry| open(&entry.path(), 0o666));
    let reachable = Command::new(LOOP).arg("--version").uid(NOBODY).gid(NOBODY).output().is_ok();
    let ids = NOBODY.to_string();
    let arguments = ["--reuid", &ids, "--regid", &ids, "--clear-groups", "--", LOOP];
    reachable.then(|| Program::bare(gpu, "setpriv").args(arguments).start())
}

#[test]
fn a_process_without_a_budget_is_killed_only_if_the_operator_says_so_and_is_told_of_before() {
    let gpu = gpu();
    for (rule, killed) in [("withhold", false), ("kill", true)] {
        let node = Node::start(&gpu, &format!("{STATIC}unmanaged = \"{rule}\"\n"));
        let mut managed = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
        let Some(stranger) = of_somebody(&gpu) else {
            return eprintln!("skipped: another user cannot reach the programs of this build");
        };
        let pid = stranger.pid();
        if killed {
            let told = || events(&node).contains(&format!("process {pid} had no budget and was killed"));
            wait::until("the event", || told().then_some(()));
            assert_eq!(stranger.finish().status.signal(), Some(libc::SIGKILL));
        } else {
            seen(&node, pid);
            // As long as a kill would have taken: two more looks.
            let later = node.stats().node.epoch + 2_500;
            wait::until("two more looks", || (node.stats().node.epoch > later).then_some(()));
            assert_eq!(seen(&node, pid).pid, Some(pid));
        }
        let told = events(&node);
        assert!(told.contains(&format!("NOT MANAGED: process {pid}")), "{told}");
        managed.goes_on(1000);
    }
}

/// A program without a budget, not root's, and a control group of its own; nothing where either cannot be.
fn grouped(gpu: &SimGpu) -> Option<(Running, Group)> {
    let group = Group::new().or_else(|| {
        eprintln!("skipped: this user may make no control groups of version 2");
        None
    })?;
    let Some(stranger) = of_somebody(gpu) else {
        eprintln!("skipped: another user cannot reach the programs of this build");
        return None;
    };
    group.take(stranger.pid());
    Some((stranger, group))
}

#[test]
fn a_process_without_a_budget_stands_still_with_its_control_group_if_the_operator_says_so() {
    let gpu = gpu();
    let node = Node::start(&gpu, &format!("{STATIC}unmanaged = \"freeze\"\n"));
    let mut managed = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    let Some((stranger, group)) = grouped(&gpu) else { return };
    wait::until("the freeze", || group.is_frozen().then_some(()));
    let frozen = format!("frozen with its control group /{}", group.name());
    let told = format!("process {} has no budget and is {frozen}", stranger.pid());
    wait::until("the event", || events(&node).contains(&told).then_some(()));
    assert!(node.says(&["ps"]).contains(&frozen), "{}", node.says(&["ps"]));
    assert!(node.log().contains(&told), "{}", node.log());
    managed.goes_on(1000);
    // Once told of, it is the operator's: whom he lets go on is left alone.
    group.thaw();
    let later = node.stats().node.epoch + 2_500;
    wait::until("two more looks", || (node.stats().node.epoch > later).then_some(()));
    assert!(!group.is_frozen());
    drop((stranger, group));
}

#[test]
fn a_process_that_cannot_be_frozen_without_others_goes_on_and_that_is_said_everywhere() {
    let gpu = gpu();
    let node = Node::start(&gpu, &format!("{STATIC}unmanaged = \"freeze\"\n"));
    let mut managed = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    let Some((stranger, group)) = grouped(&gpu) else { return };
    group.take(managed.pid);
    let why = format!(
        "NOT frozen: its control group /{} cannot be frozen: process {}, which has a budget, is in it",
        group.name(),
        managed.pid
    );
    let told = format!("process {} has no budget and goes on, it is {why}", stranger.pid());
    wait::until("the event", || events(&node).contains(&told).then_some(()));
    assert!(node.says(&["ps"]).contains(&why), "{}", node.says(&["ps"]));
    assert!(node.log().contains(&told), "{}", node.log());
    assert!(!group.is_frozen());
    managed.goes_on(1000);
    // Nor does it go unseen in a group that nobody can freeze: that of this test, or the root of them all.
    let other = of_somebody(&gpu).expect("as before");
    let spared = format!("process {} has no budget and goes on, it is NOT frozen: ", other.pid());
    wait::until("the event", || events(&node).contains(&spared).then_some(()));
    drop((stranger, other, managed, group));
}

#[test]
fn roots_process_and_one_that_keeps_its_limits_are_never_killed() {
    let gpu = gpu();
    let mut node = Node::start(&gpu, &format!("{STATIC}unmanaged = \"kill\"\n"));
    let mut left_over = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    node.kill();
    // A manager that knows nothing of the one before.
    std::fs::remove_file(node.dir().join("node.journal")).expect("it was kept");
    node.restart();
    // SAFETY: takes nothing, cannot fail.
    let why = match unsafe { libc::geteuid() } {
        0 => "it is root's",
        _ => "it keeps to the limits of an earlier node manager",
    };
    let told = format!("process {} has no budget and was not killed: {why}", left_over.pid);
    wait::until("the word that it is spared", || events(&node).contains(&told).then_some(()));
    assert!(seen(&node, left_over.pid).keeps_limits);
    left_over.goes_on(1000);
}

#[test]
fn what_a_tenant_holds_is_the_same_by_both_accounts_and_what_our_ledger_missed_shows_in_bytes() {
    let gpu = gpu();
    let node = Node::start(&gpu, STATIC);
    let mut exact = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    assert_eq!(exact.allocate("256MiB"), "CUDA_SUCCESS");
    let drift = |name: &str| node.tenant(name)?.gpus[0].memory_drift_bytes;
    wait::until("a comparison", || (drift("train") == Some(0)).then_some(()));
    assert!(metric(&node.stats(), "weir_ledger_drift_bytes{").ends_with(" 0.0"));
    // A fault of ours before the driver is called: the allocation goes through, and is not in the ledger.
    let lost = Budget { name: "lost", ..BUDGET };
    let program = Program::under_weir(&gpu, Some(&node), lost, LOOP)
        .env("WEIR_PRELOAD", gpu.dist().failpoints())
        .env("WEIR_FAILPOINT", "cuMemAlloc_v2:1");
    let mut lossy = Looping::start(program);
    assert_eq!(lossy.allocate("64MiB"), "CUDA_SUCCESS");
    wait::until("the drift", || (drift("lost") == Some(64 << 20)).then_some(()));
    assert_eq!(drift("train"), Some(0), "it is nobody else's");
    exact.goes_on(100);
}

/// While NVML does not answer: ticks go on, programs too, budgets change, and it is shown.
fn goes_on_without_nvml(node: &Node<'_>, looping: &mut Looping) {
    let before = node.stats().node.epoch;
    wait::until("a thousand ticks", || (node.stats().node.epoch > before + 1_000).then_some(()));
    looping.goes_on(1000);
    assert!(node.set("train", &["--request", "30%"]).first_launch_us.is_some());
    assert!(metric(&node.stats(), "weir_resize_latency_seconds_count").ends_with(" 1"));
    assert!(metric(&node.stats(), "weir_nvml_state{state=\"stale\"}").ends_with(" 1.0"));
    assert!(node.says(&["ps"]).contains("nvml: stale"));
    assert!(events(node).contains("nvml: stale"));
}

fn wait_until_nvml_is(node: &Node<'_>, health: Health) {
    wait::until(health.as_str(), || (node.stats().node.nvml == health).then_some(()));
}

#[test]
fn an_nvml_that_hangs_for_ever_stops_nobody_and_is_shown() {
    let list = "call = \"nvmlDeviceGetComputeRunningProcesses*\"";
    let gpu = gpu_with_fault(&format!("{list}\nnth = 3\naction = \"hang\""));
    let node = Node::start(&gpu, STATIC);
    let mut looping = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    wait_until_nvml_is(&node, Health::Stale);
    goes_on_without_nvml(&node, &mut looping);
}

#[test]
fn an_nvml_that_takes_ten_seconds_is_stale_meanwhile_and_answers_again() {
    let gpu =
        gpu_with_fault("call = \"nvmlDeviceGetComputeRunningProcesses*\"\nnth = 3\naction = \"delay:10000\"");
    let node = Node::start(&gpu, STATIC);
    let mut looping = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    wait_until_nvml_is(&node, Health::Stale);
    looping.goes_on(1000);
    wait_until_nvml_is(&node, Health::Ok);
    let told = events(&node);
    assert!(told.contains("nvml: stale") && told.contains("NVML answers again"), "{told}");
}

#[test]
fn figures_of_nvml_that_cannot_be_are_not_believed() {
    let gpu = gpu_with_fault("call = \"nvmlDeviceGetMemoryInfo*\"\nevery = 1\naction = \"nonsense\"");
    let node = Node::start(&gpu, STATIC);
    let mut looping = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    wait_until_nvml_is(&node, Health::Stale);
    let stats = node.stats();
    assert_eq!(stats.gpus[0].memory_used_bytes, None);
    assert!(stats.node.nvml_why.is_some_and(|why| why.contains("NVML says that")), "and why is said");
    goes_on_without_nvml(&node, &mut looping);
}

#[test]
fn a_list_of_nvml_that_lacks_a_process_is_shown_as_partial_and_no_drift_is_made_up() {
    let gpu =
        gpu_with_fault("call = \"nvmlDeviceGetComputeRunningProcesses*\"\nevery = 1\naction = \"truncate\"");
    let node = Node::start(&gpu, STATIC);
    wait_until_nvml_is(&node, Health::Ok);
    let looping = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    wait_until_nvml_is(&node, Health::Partial);
    assert_eq!(node.tenant("train").expect("it runs").gpus[0].memory_drift_bytes, None);
    assert!(node.says(&["ps"]).contains("nvml: partial"));
    drop(looping);
}

#[test]
fn a_manager_that_takes_over_does_not_need_nvml_and_says_that_it_is_not_there() {
    let gpu = gpu();
    let mut node = Node::start(&gpu, STATIC);
    let mut looping = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    node.restart_with(&[("WEIR_NVML", "/no/such/nvml".as_ref())]);
    assert_eq!(node.tenant("train").expect("it was taken over").pids, [looping.pid]);
    wait_until_nvml_is(&node, Health::Stale);
    goes_on_without_nvml(&node, &mut looping);
}

#[test]
fn what_a_dead_process_holds_by_nvmls_account_is_promised_to_nobody_and_shown() {
    let gpu =
        gpu_with_fault("call = \"nvmlDeviceGetComputeRunningProcesses*\"\nevery = 1\naction = \"linger\"");
    let node = Node::start(&gpu, STATIC);
    let mut sibling = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    let start = |name| {
        let budget = Budget { name, request: "20%", ..BUDGET };
        let budget = if name == BUDGET.name { BUDGET } else { budget };
        let mut victim = Looping::start(Program::under_weir(&gpu, Some(&node), budget, LOOP));
        assert_eq!(victim.allocate("5GiB"), "CUDA_SUCCESS");
        victim
    };
    let victims = [start(BUDGET.name), start("other")].map(|victim| {
        let pid = victim.pid;
        program::kill(pid);
        victim.finish();
        pid
    });
    let draining = wait::until("both on NVML's list", || {
        Some(node.stats().draining).filter(|draining| draining.len() == victims.len())
    });
    assert!(
        draining
            .iter()
            .all(|dead| dead.pid.is_some_and(|pid| victims.contains(&pid)) && dead.memory_bytes > 5 << 30),
        "{draining:?}"
    );
    // Of the tenant that goes on it is a part; of the one that has gone it is nobody's.
    assert_eq!(sibling.allocate("3GiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(sibling.allocate("1GiB"), "CUDA_SUCCESS");
    for (memory, fits) in [("25GiB", true), ("27GiB", false)] {
        let budget = Budget { name: "next", request: "20%", memory, ..BUDGET };
        let ended = Program::under_weir(&gpu, Some(&node), budget, "true").run();
        assert_eq!(ended.status.success(), fits, "{memory}: {}", ended.stderr);
        assert_eq!(ended.stderr.contains("processes that have died hold 5"), !fits, "{}", ended.stderr);
    }
    let ps = node.says(&["ps"]);
    assert!(
        ps.contains(&format!("DRAINING on GPU 0: process {} of tenant other has died", victims[1])),
        "{ps}"
    );
    assert!(events(&node).contains("other on GPU 0: draining: process"), "{}", events(&node));
    assert!(!metric(&node.stats(), "weir_memory_draining_bytes{").ends_with(" 0.0"));
}

#[test]
fn a_dead_process_that_nvml_lists_for_half_a_minute_is_told_of_as_wedged_in_ps_a_metric_and_an_event() {
    // F02. It waits for as long as the manager does: half a minute, in which it takes no processor.
    let gpu =
        gpu_with_fault("call = \"nvmlDeviceGetComputeRunningProcesses*\"\nevery = 1\naction = \"linger\"");
    let node = Node::start(&gpu, STATIC);
    let victim = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    let pid = victim.pid;
    program::kill(pid);
    victim.finish();
    let line = format!("DRAINING on GPU 0: process {pid} of tenant train has died and holds ");
    wait::until("the sight of it", || node.says(&["ps"]).contains(&line).then_some(()));
    assert!(metric(&node.stats(), "weir_gpu_wedged{").ends_with(" 0.0"));
    let wedged = || node.says(&["ps"]).lines().any(|l| l.starts_with(&line) && l.contains("; WEDGED: "));
    wait::until("patience to end", || wedged().then_some(()));
    assert!(metric(&node.stats(), "weir_gpu_wedged{").ends_with(" 1.0"));
    let told = format!("train on GPU 0: WEDGED: process {pid} died ");
    let told = events(&node).lines().filter(|line| line.contains(&told)).count();
    assert_eq!(told, 1, "{}", events(&node));
    assert!(node.log().contains("WEDGED"), "{}", node.log());
}
