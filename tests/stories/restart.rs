//! A node manager that is killed and starts again: whoever runs goes on, and what was is as it was (faults A.4, T9; A.5,
//! F20). `WEIR_RESTART_ROUNDS` sets how often it is killed at each place; three times if nobody says.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use weir_nodemgr::control::TenantStats;
use weir_nodemgr::failpoint::PLACES;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Finished, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

pub const STATIC: &str = "policy = \"static\"\n";

/// What each of them holds, in bytes, besides what its context costs.
const HELD: u64 = 64 << 20;

/// A program that always has work, allocates and frees, and ends at the first call that fails.
pub fn busy(gpu: &SimGpu, node: &Node<'_>, name: &str, request: &str) -> Looping {
    let budget = Budget { name, request, limit: "100%", memory: "512MiB" };
    let program = Program::under_weir(gpu, Some(node), budget, LOOP);
    Looping::start(program.args(["--allocate", "64MiB", "--churn", "4MiB", "--step", "4"]))
}

pub fn goes_on(program: &mut Looping, launches: u64) {
    program.goes_on(launches);
}

/// What must not change: whose it is, what it may, what it has been.
pub fn identity(tenant: &TenantStats) -> impl PartialEq + std::fmt::Debug + use<> {
    let gpu = &tenant.gpus[0];
    (
        (tenant.name.clone(), tenant.pids.clone(), tenant.processes_ever),
        (tenant.budget, tenant.budget_at_start, tenant.class, tenant.owner_uid),
        (gpu.memory_limit_bytes, gpu.fallback_ppm, gpu.processes[0].slot),
    )
}

/// Waits until a tenant of one process holds what it allocated once and nothing of what it only had for a step.
fn wait_until_exact(node: &Node<'_>, name: &str) {
    wait::until("an exact ledger", || {
        let tenant = node.tenant(name)?;
        let process = tenant.gpus[0].processes.first()?;
        (process.memory_by_kind_bytes.get("plain") == Some(&HELD)).then_some(())
    });
}

/// It ended as it would have, and was within its budget to the end.
pub fn ended_well(finished: &Finished) {
    assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
    assert!(!finished.stderr.contains("WITHOUT limits"), "{}", finished.stderr);
    assert_eq!(finished.summary()["processes"], 1, "the run's summary comes from the manager that took over");
}

#[test]
fn sixteen_busy_programs_go_on_when_their_manager_is_killed_and_starts_again() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let names: Vec<String> = (0..16).map(|n| format!("busy-{n}")).collect();
    let mut programs: Vec<_> = names.iter().map(|name| busy(&gpu, &node, name, "6%")).collect();
    let before: Vec<_> = node.stats().tenants.iter().map(identity).collect();
    node.kill();
    programs.iter_mut().for_each(|program| goes_on(program, 20));
    node.restart();
    let stats = node.stats();
    assert_eq!(stats.tenants.iter().map(identity).collect::<Vec<_>>(), before, "{}", node.log());
    assert_eq!(stats.gpus[0].requested_permille, 960, "nothing can be promised twice");
    let launches = |stats: &weir_nodemgr::control::Stats| -> Vec<u64> {
        stats.tenants.iter().map(|tenant| tenant.gpus[0].total.launches).collect()
    };
    programs.iter_mut().for_each(|program| goes_on(program, 20));
    let later = node.stats();
    assert!(
        launches(&stats).iter().zip(launches(&later)).all(|(then, now)| *then < now),
        "all are seen to go on"
    );
    names.iter().for_each(|name| wait_until_exact(&node, name));
    for program in programs {
        ended_well(&program.finish());
    }
    wait::until("the end of the tenants", || node.stats().tenants.is_empty().then_some(()));
}

#[test]
fn a_program_that_comes_back_is_no_second_process_and_its_exec_is_seen() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let mut one = busy(&gpu, &node, "one", "40%");
    let mut two = busy(&gpu, &node, "two", "40%");
    node.restart();
    // Its launches find the board's number raised, and then the connection broken.
    wait::until("the way back of both", || {
        one.goes_on(20);
        two.goes_on(20);
        let sockets = std::fs::read_to_string("/proc/net/unix").expect("it can be read");
        let connected = |name: &str| {
            let place = node.tenant_dir(name).join("tenant.sock");
            sockets.lines().filter(|line| line.ends_with(&*place.to_string_lossy())).count() > 1
        };
        (connected("one") && connected("two")).then_some(())
    });
    let tenants = node.stats().tenants;
    assert_eq!((tenants[0].pids.as_slice(), tenants[0].processes_ever), ([one.pid].as_slice(), 1));
    ended_well(&one.finish());
    ended_well(&two.finish());
}

#[test]
fn whoever_died_while_no_manager_was_there_holds_nothing_afterwards() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let budget = Budget { name: "pair", request: "40%", limit: "100%", memory: "2GiB" };
    let start =
        || Looping::start(Program::under_weir(&gpu, Some(&node), budget, LOOP).args(["--allocate", "64MiB"]));
    let (doomed, mut heir) = (start(), start());
    let launched = |node: &Node<'_>| node.tenant("pair").expect("it is there").gpus[0].total.launches;
    let before = launched(&node);
    node.kill();
    program::kill(doomed.pid);
    assert_eq!(doomed.finish().status.code(), Some(137));
    node.restart();
    let tenant = node.tenant("pair").expect("it is there");
    assert_eq!(tenant.pids, [heir.pid]);
    assert_eq!(tenant.gpus[0].memory_held_bytes, tenant.gpus[0].processes[0].memory_held_bytes);
    assert!(tenant.gpus[0].total.launches >= before, "what it did stays counted");
    heir.goes_on(20);
}

/// A program that queues more than it may have, whoever else runs: it uses all that it is granted.
fn backlogged(gpu: &SimGpu, node: &Node<'_>, name: &str, request: &str) -> Looping {
    let budget = Budget { name, request, limit: "100%", memory: "512MiB" };
    Looping::start(Program::under_weir(gpu, Some(node), budget, LOOP).args(["--step", "16"]))
}

/// By how many points of the GPU a share may differ from what was promised, over two seconds.
const POINTS: f64 = 3.0;

#[test]
fn time_that_was_lent_when_the_manager_died_is_given_back_and_nobody_starves() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, "policy = \"static\"\n[[price]]\nname = \"*\"\ntime_us = 20\n");
    let mut debtor = backlogged(&gpu, &node, "debtor", "30%");
    let mut lender = backlogged(&gpu, &node, "lender", "60%");
    program::signal(lender.pid, libc::SIGSTOP);
    wait::until("the loan", || {
        (node.tenant("debtor").expect("it is there").gpus[0].rate_ppm > 600_000).then_some(())
    });
    let [lent] = gpu.shares([debtor.pid], Duration::from_millis(500));
    assert!(lent > 60.0, "it uses what it was lent: {lent} %");
    node.kill();
    gpu.shares([debtor.pid], Duration::from_millis(2_500)); // a second of silence, and then some
    let [kept] = gpu.shares([debtor.pid], Duration::from_secs(2));
    assert!((kept - 30.0).abs() < POINTS, "also while nobody wants it back: {kept} %");
    program::signal(lender.pid, libc::SIGCONT);
    lender.goes_on(1_000);
    let had = gpu.shares([debtor.pid, lender.pid], Duration::from_secs(2));
    let promised = [30.0, 60.0];
    let holds = had.iter().zip(promised).all(|(had, promised)| (had - promised).abs() < POINTS);
    assert!(holds, "each has what it requested, and no more: {had:?}");
    node.restart();
    debtor.goes_on(20);
    lender.goes_on(20);
}

/// How often the manager dies at each place.
fn rounds() -> usize {
    let set = std::env::var("WEIR_RESTART_ROUNDS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(3)
}

const NEWCOMER: Budget<'_> = Budget { name: "newcomer", request: "10%", limit: "100%", memory: "512MiB" };

/// Two processes of it, whose contexts cost something too.
const PAIR: Budget<'_> = Budget { memory: "2GiB", ..NEWCOMER };

fn newcomer(gpu: &SimGpu, node: &Node<'_>) -> Program {
    of_budget(NEWCOMER, gpu, node)
}

fn of_budget(budget: Budget<'_>, gpu: &SimGpu, node: &Node<'_>) -> Program {
    Program::under_weir(gpu, Some(node), budget, LOOP).args(["--allocate", "64MiB"])
}

/// Brings a manager to a place where it dies, and says what must hold when the next one is there.
fn die_at(place: &str, gpu: &SimGpu, node: &mut Node<'_>) {
    match place.split_once('.').map(|(part, _)| part) {
        Some("create") => die_while_a_tenant_is_made(place, gpu, node),
        Some("register") => die_while_a_process_registers(place, gpu, node),
        Some("resize") => die_while_a_budget_changes(place, gpu, node),
        Some("bury") => die_while_a_process_is_buried(place, gpu, node),
        Some("end") => die_while_a_tenant_ends(place, gpu, node),
        _ => panic!("nobody knows how to come to {place}"),
    }
    wait::until("the newcomer's end", || node.tenant(NEWCOMER.name).is_none().then_some(()));
}

fn die_while_a_tenant_is_made(place: &str, gpu: &SimGpu, node: &mut Node<'_>) {
    node.restart_to_die_at(place);
    let run = newcomer(gpu, node).start();
    node.wait_until_dead();
    assert_eq!(run.finish().status.code(), Some(69), "it cannot be reached");
    node.restart();
    ended_well(&Looping::start(newcomer(gpu, node)).finish());
}

fn die_while_a_process_registers(place: &str, gpu: &SimGpu, node: &mut Node<'_>) {
    node.restart_to_die_at(place);
    let mut program = Looping::just_started(newcomer(gpu, node));
    node.wait_until_dead();
    node.restart();
    program.becomes_ready();
    wait_until_exact(node, NEWCOMER.name);
    let tenant = node.tenant(NEWCOMER.name).expect("it is there");
    assert_eq!((tenant.pids.as_slice(), tenant.unreached_pids.len()), ([program.pid].as_slice(), 0));
    assert_eq!(program.allocate("1GiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    let finished = program.finish().well();
    assert!(!finished.stderr.contains("WITHOUT limits"), "{}", finished.stderr);
}

fn die_while_a_budget_changes(place: &str, gpu: &SimGpu, node: &mut Node<'_>) {
    let program = Looping::start(newcomer(gpu, node));
    let before = node.tenant(NEWCOMER.name).expect("it is there").budget;
    node.restart_to_die_at(place);
    node.try_set(NEWCOMER.name, &["--request", "5%", "--memory", "256MiB"]).expect_err("it died");
    node.wait_until_dead();
    node.restart();
    let tenant = node.tenant(NEWCOMER.name).expect("it is there");
    let (request, memory) = (tenant.budget.request.as_permille(), tenant.budget.memory.0);
    assert!(tenant.budget == before || (request, memory) == (50, 256 << 20), "whole: {:?}", tenant.budget);
    wait::until("the page to say the same", || {
        (node.tenant(NEWCOMER.name)?.gpus[0].memory_limit_bytes == memory).then_some(())
    });
    ended_well(&program.finish());
}

fn die_while_a_process_is_buried(place: &str, gpu: &SimGpu, node: &mut Node<'_>) {
    let holder = Program::under_weir(gpu, Some(node), PAIR, "cat").start();
    let start = |node: &Node<'_>| Looping::start(of_budget(PAIR, gpu, node));
    let (doomed, heir) = (start(node), start(node));
    node.restart_to_die_at(place);
    program::kill(doomed.pid);
    node.wait_until_dead();
    node.restart();
    let tenant = node.tenant(NEWCOMER.name).expect("it is there");
    assert_eq!(tenant.pids, [heir.pid]);
    assert_eq!(tenant.gpus[0].memory_held_bytes, tenant.gpus[0].processes[0].memory_held_bytes);
    wait_until_exact(node, NEWCOMER.name);
    assert_eq!(doomed.finish().status.code(), Some(137));
    heir.finish().well();
    holder.finish().well();
}

fn die_while_a_tenant_ends(place: &str, gpu: &SimGpu, node: &mut Node<'_>) {
    let program = Looping::start(newcomer(gpu, node));
    node.restart_to_die_at(place);
    assert_eq!(program.finish().status.code(), Some(0));
    node.wait_until_dead();
    node.restart();
}

#[test]
fn wherever_the_manager_dies_the_next_one_finds_everything_whole() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let mut programs: Vec<_> = (0..16).map(|n| busy(&gpu, &node, &format!("busy-{n}"), "5%")).collect();
    let before: Vec<_> = node.stats().tenants.iter().map(identity).collect();
    for round in 0..rounds() {
        for place in PLACES {
            eprintln!("round {round}: {place}");
            die_at(place, &gpu, &mut node);
            let after: Vec<_> = node.stats().tenants.iter().map(identity).collect();
            assert_eq!(after, before, "{place}: {}", node.log());
            programs.iter_mut().for_each(|program| goes_on(program, 4));
        }
    }
    (0..programs.len()).for_each(|n| wait_until_exact(&node, &format!("busy-{n}")));
    programs.into_iter().for_each(|program| ended_well(&program.finish()));
}

/// Between the death of one manager and the start of the next, as long as a supervisor takes to notice.
const ABSENCE: Duration = Duration::from_millis(200);

#[test]
fn a_program_that_starts_while_the_manager_restarts_waits_for_it_and_is_limited() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let budget = Budget { name: "late", request: "40%", limit: "100%", memory: "512MiB" };
    // Keeps the tenant although no process of it has begun.
    let run = Program::under_weir(&gpu, Some(&node), budget, "cat").start();
    wait::until("the tenant", || node.tenant("late").map(drop));
    node.kill();
    let late = Program::bare(&gpu, LOOP)
        .env("LD_PRELOAD", gpu.dist().preload())
        .env("WEIR_DIR", node.tenant_dir("late"));
    let mut late = Looping::just_started(late);
    wait::pass(ABSENCE);
    node.restart();
    late.becomes_ready();
    assert_eq!(node.tenant("late").expect("its run keeps it").pids, [late.pid]);
    assert_eq!(late.allocate("1GiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    late.finish().well();
    run.finish().well();
}

/// How long a supervisor waits for a sign of life.
const WATCHDOG: Duration = Duration::from_millis(400);

/// A stranger with this process id, which was somebody else's; nothing where nobody may choose ids.
fn stranger_with(pid: i32) -> Option<std::process::Child> {
    for _ in 0..100 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut child = std::process::Command::new("sleep").arg("infinity").spawn().expect("it starts");
        if child.id().cast_signed() == pid {
            return Some(child);
        }
        let _ = (child.kill(), child.wait()); // somebody else was faster
    }
    None
}

#[test]
fn a_stranger_that_has_a_dead_programs_process_id_is_not_taken_for_it() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let doomed = busy(&gpu, &node, "doomed", "40%");
    let mut neighbour = busy(&gpu, &node, "neighbour", "40%");
    node.kill();
    program::kill(doomed.pid);
    let pid = doomed.pid;
    doomed.finish();
    let Some(mut stranger) = stranger_with(pid) else {
        return eprintln!("skipped: choosing a process's number needs root");
    };
    node.restart();
    assert!(node.tenant("doomed").is_none_or(|tenant| tenant.pids.is_empty()), "it holds nothing");
    wait::until("the end of the tenant", || node.tenant("doomed").is_none().then_some(()));
    neighbour.goes_on(20);
    assert!(stranger.try_wait().expect("it is ours").is_none(), "nobody has harmed it");
    let _ = (stranger.kill(), stranger.wait());
}

#[test]
fn a_supervisor_hears_that_the_manager_serves_and_lives_and_nothing_while_it_hangs() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, STATIC);
    let place = gpu.dir().join("notify");
    let supervisor = UnixDatagram::bind(&place).expect("a socket");
    let heard = |patience: Duration| {
        supervisor.set_read_timeout(Some(patience)).expect("a patience");
        let mut text = [0; 64];
        supervisor.recv(&mut text).map(|length| String::from_utf8_lossy(&text[..length]).into_owned()).ok()
    };
    node.restart_under(&place, WATCHDOG);
    assert_eq!(heard(wait::PATIENCE).as_deref(), Some("READY=1"));
    assert_eq!(heard(wait::PATIENCE).as_deref(), Some("WATCHDOG=1"));
    program::signal(node.pid(), libc::SIGSTOP);
    wait::until("its standstill", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.pid())).ok()?;
        stat.rsplit_once(')')?.1.trim_start().starts_with('T').then_some(())
    });
    while heard(Duration::from_millis(1)).is_some() {} // what it said before
    assert_eq!(heard(WATCHDOG), None, "time for the supervisor to end it");
    program::signal(node.pid(), libc::SIGCONT);
    assert_eq!(heard(wait::PATIENCE).as_deref(), Some("WATCHDOG=1"));
}
