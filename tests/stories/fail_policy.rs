//! The rows of the fail policy that have no story elsewhere: what a program does that finds no manager, one of another
//! version, or one that falls silent (faults A.3; the table of FAULTS, section 1, names the story of each row).

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

use weir_nodemgr::gpus::Health;
use weir_protocol::mapping::Mapped;
use weir_protocol::message::{Class, FailMode, GpuGrant, Hello, Reply, SWITCH, Welcome};
use weir_protocol::pages::{ActivityPage, BucketPage, Grant, GrantPage, ProcessState, UsagePage};
use weir_protocol::units::Bytes;
use weir_protocol::{PROTOCOL_VERSION, transport};
use weir_tests::looping::Looping;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Finished, Program};
use weir_tests::shown;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::{GRAPHS, LOOP};

const BUDGET: Budget<'_> = Budget { name: "train", request: "40%", limit: "100%", memory: "2GiB" };

/// A program that is to be a tenant's, by the directory that `weir run` or a container names.
fn in_place(gpu: &SimGpu, place: &Path) -> Program {
    Program::bare(gpu, LOOP).env("LD_PRELOAD", gpu.dist().preload()).env("WEIR_DIR", place)
}

fn short(gpu: &SimGpu, place: &Path) -> Finished {
    in_place(gpu, place).args(["--launches", "160"]).run()
}

/// It has run, and has said once that nothing limits it.
fn ran_and_said(finished: &Finished, why: &str) {
    let said = &finished.stderr;
    assert!(finished.status.success(), "{said}");
    assert_eq!(said.matches("runs WITHOUT limits").count(), 1, "{said}");
    assert!(said.contains(why) && said.contains("help: "), "{said}");
}

/// It has got no GPU, and has said once why.
fn got_no_gpu(finished: &Finished, why: &str) {
    let said = &finished.stderr;
    assert_eq!(finished.status.code(), Some(1), "{said}");
    assert!(said.contains("cuInit: CUDA_ERROR_NOT_PERMITTED"), "{said}");
    assert_eq!(said.matches("gets no GPU (strict mode)").count(), 1, "{said}");
    assert!(said.contains(why) && said.contains("help: "), "{said}");
}

#[test]
fn managed_a_program_that_finds_nobody_runs_says_so_and_a_manager_that_comes_sees_it() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let place = tempfile::tempdir().expect("a temporary directory");
    ran_and_said(&short(&gpu, place.path()), "no node manager at");
    let unlimited = Looping::start(in_place(&gpu, place.path()));
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let seen = wait::until("the sight of it", || node.stats().unmanaged.into_iter().next());
    assert_eq!((seen.pid, seen.keeps_limits), (Some(unlimited.pid), false));
}

#[test]
fn strict_a_program_that_finds_nobody_gets_no_gpu() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, "policy = \"static\"\nmode = \"strict\"\n");
    let mut running = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    node.kill();
    got_no_gpu(&short(&gpu, &node.tenant_dir("train")), "no node manager at");
    running.goes_on(1000); // whoever was there goes on, as in every mode
}

#[test]
fn strict_without_a_manager_for_long_a_program_gets_no_more_memory_until_there_is_one() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let mut node = Node::start(&gpu, "policy = \"static\"\nmode = \"strict\"\nstale_after_s = 2\n");
    let mut running = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    assert_eq!(running.allocate("512MiB"), "CUDA_SUCCESS");
    node.kill();
    // More than a second of 20 us each: it is stale, and not for long enough.
    running.goes_on(30_000);
    assert_eq!(running.allocate("256MiB"), "CUDA_SUCCESS", "within its limit of 2 GiB");
    let refused = |running: &mut Looping| running.allocate("4KiB") == "CUDA_ERROR_OUT_OF_MEMORY";
    wait::until("the end of its patience", || refused(&mut running).then_some(()));
    running.goes_on(1000);
    assert!(running.free() >= 768 << 20);
    assert_eq!(running.allocate("768MiB"), "CUDA_SUCCESS", "what it held it may have again");
    assert_eq!(running.allocate("256MiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    node.restart();
    wait::until("a manager's leave", || (running.allocate("256MiB") == "CUDA_SUCCESS").then_some(()));
    let said = running.finish().well().stderr;
    assert_eq!(said.matches("no node manager for 2.00 s (strict mode)").count(), 1, "{said}");
}

/// A manager that answers the first who comes with this, and in strict mode leaves its mark.
fn answers(place: &Path, strict: bool, reply: Reply, pages: Vec<OwnedFd>) {
    if strict {
        std::fs::write(place.join("strict"), "").expect("a file in it");
    }
    let door = UnixListener::bind(place.join("tenant.sock")).expect("a socket in it");
    std::thread::spawn(move || {
        let (peer, _) = door.accept().expect("somebody comes");
        transport::receive::<Hello>(&peer).expect("a hello");
        let pages: Vec<_> = pages.iter().map(AsFd::as_fd).collect();
        transport::send(&peer, &reply, &pages).expect("he listens");
    });
}

#[test]
fn a_manager_of_another_version_leaves_a_managed_program_unlimited_aloud_and_a_strict_one_without_a_gpu() {
    const REASON: &str = "this libweir.so speaks protocol 1, the node manager speaks 2";
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    for strict in [false, true] {
        let place = tempfile::tempdir().expect("a temporary directory");
        answers(place.path(), strict, Reply::Refused { reason: REASON.into() }, Vec::new());
        let ended = short(&gpu, place.path());
        if strict { got_no_gpu(&ended, REASON) } else { ran_and_said(&ended, REASON) }
    }
}

/// A tenant's pages on one GPU, as a manager of this version makes them.
fn pages_of(version: u32) -> Vec<OwnedFd> {
    let (grant_fd, grant) = Mapped::<GrantPage>::create("weir-grant").expect("a page");
    let (bucket_fd, bucket) = Mapped::<BucketPage>::create("weir-bucket").expect("a page");
    let (usage_fd, usage) = Mapped::<UsagePage>::create("weir-usage").expect("a page");
    let (activity_fd, activity) = Mapped::<ActivityPage>::create("weir-activity").expect("a page");
    grant.init(&Grant::default());
    bucket.init();
    usage.init();
    activity.init(1);
    let dated = |fd: OwnedFd| {
        let page = std::fs::File::from(fd);
        page.write_all_at(&version.to_ne_bytes(), 0).expect("its first word");
        OwnedFd::from(page)
    };
    [grant_fd, bucket_fd, usage_fd, activity_fd].into_iter().map(dated).collect()
}

fn welcome_of(protocol: u32) -> Reply {
    Reply::Welcome(Welcome {
        protocol,
        tenant: "train".into(),
        class: Class::Primary,
        mode: FailMode::Managed,
        slot: 0,
        gpus: vec![GpuGrant {
            uuid: [0; 16],
            memory_total: Bytes::gib(1),
            mps: false,
            in_stream: false,
            switch: SWITCH,
        }],
        prices: Vec::new(),
        context_memory: Bytes(0),
        oversubscribe: false,
        latency_metric: None,
    })
}

#[test]
fn a_welcome_or_pages_of_another_version_are_never_misread_and_both_versions_are_named() {
    let (gpu, ours) = (SimGpu::new(EVERY_KERNEL_20_US), PROTOCOL_VERSION);
    for theirs in [ours - 2, ours - 1, ours + 1, ours + 2] {
        let said = format!("speaks protocol {theirs}, this");
        for (protocol, pages, strict) in [(theirs, ours, false), (ours, theirs, false), (ours, theirs, true)]
        {
            let place = tempfile::tempdir().expect("a temporary directory");
            answers(place.path(), strict, welcome_of(protocol), pages_of(pages));
            let ended = short(&gpu, place.path());
            if strict {
                got_no_gpu(&ended, &said)
            } else {
                ran_and_said(&ended, &said)
            }
            assert!(ended.stderr.contains(&format!("speaks {ours}: update the older")), "{}", ended.stderr);
        }
    }
}

#[test]
fn a_manager_that_falls_silent_is_told_of_on_stderr_and_when_it_speaks_again_in_its_figures() {
    for mode in ["managed", "strict"] {
        let gpu = SimGpu::new(EVERY_KERNEL_20_US);
        let node = Node::start(&gpu, &format!("policy = \"static\"\nmode = \"{mode}\"\n"));
        let mut running = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
        program::signal(node.pid(), libc::SIGSTOP);
        // More than the second after which it counts as silent: 20 us each, alone on the GPU.
        running.goes_on(100_000);
        assert_eq!(running.allocate("3GiB"), "CUDA_ERROR_OUT_OF_MEMORY", "memory limits stay");
        // It stands still before the manager can tick: what it said last is what the manager finds.
        program::signal(running.pid, libc::SIGSTOP);
        program::signal(node.pid(), libc::SIGCONT);
        let tenant = wait::until("the sight of it", || node.tenant("train").filter(|t| t.state == "stopped"));
        assert_eq!(tenant.gpus[0].processes[0].state, ProcessState::Stale, "{mode}");
        let told = || String::from_utf8_lossy(&node.weir(&["events"])).contains(r#""state":"stale""#);
        wait::until("the event", || told().then_some(()));
        program::signal(running.pid, libc::SIGCONT);
        running.goes_on(1000);
        wait::until("limits again", || node.tenant("train").filter(|tenant| tenant.state == "enforced"));
        let ended = running.finish().well();
        assert_eq!(
            ended.stderr.matches("the node manager has been silent for 1 s").count(),
            1,
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn that_its_manager_was_silent_shows_everywhere_until_the_program_launches_again() {
    let gpu = SimGpu::new(weir_tests::graphs::COSTS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), BUDGET, GRAPHS));
    // More than the second after which a manager counts as silent, in kernels of 5 ms that are waited for. The program then
    // does nothing, so what it said last is what the manager finds, however late it ticks.
    program::signal(node.pid(), libc::SIGSTOP);
    (0..30).for_each(|_| {
        client.does("kernels 0 3 10");
        client.does("wait");
    });
    program::signal(node.pid(), libc::SIGCONT);
    shown::everywhere(&node, BUDGET.name, "stale");
    wait::until("limits again", || {
        client.does("kernels 0 3 1");
        client.does("wait");
        shown::in_ps_and_metrics(&node, BUDGET.name, "enforced").then_some(())
    });
    client.finish().well();
}

#[test]
fn a_stand_alone_run_minds_its_own_processes_and_nobody_elses() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let stranger = Looping::start(Program::bare(&gpu, LOOP));
    let ended = Program::under_weir(&gpu, None, BUDGET, LOOP).args(["--seconds", "2.5"]).run().well();
    assert!(!ended.stderr.contains("NOT MANAGED"), "{}", ended.stderr);
    drop(stranger);
}

#[test]
fn descriptors_run_out_newcomers_are_turned_away_and_the_manager_does_not_spin() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut running = Looping::start(Program::under_weir(&gpu, Some(&node), BUDGET, LOOP));
    wait::until("NVML's first answer", || (node.stats().node.nvml == Health::Ok).then_some(()));
    let before = percent(&node, &mut running);
    limit_descriptors(node.pid(), 64);
    let connect = || std::os::unix::net::UnixStream::connect(node.dir().join("control.sock"));
    let crowd: Vec<_> = (0..100).map(|_| connect().expect("the queue is long")).collect();
    let mut why = String::new();
    BufReader::new(&crowd[99]).read_line(&mut why).expect("an answer to who is one too many");
    assert!(why.contains("W0133") && why.contains("Too many open files"), "{why}");
    assert!(node.log().contains("no descriptor is left"), "{}", node.log());
    let full = percent(&node, &mut running);
    // A loop that is woken for ever by what it cannot accept takes all of a core.
    assert!(full < before + 5.0, "{full} % of a processor, {before} % before");
    drop(crowd);
    wait::until("its answers", || {
        String::from_utf8_lossy(&node.weir(&["stats"])).contains("train").then_some(())
    });
}

/// Part of a processor that the manager takes while a program goes on for a second.
fn percent(node: &Node<'_>, running: &mut Looping) -> f64 {
    let (before, start) = (processor_ticks(node.pid()), Instant::now());
    running.goes_on(50_000);
    // Ticks of 1/100 s: their number in a second is a percentage.
    (processor_ticks(node.pid()) - before) as f64 / start.elapsed().as_secs_f64()
}

fn limit_descriptors(pid: i32, count: u64) {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: reads the limit that is passed, and writes nothing.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Processor time of a process, in hundredths of a second (`utime` and `stime` of `/proc/PID/stat`).
fn processor_ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("its name").1.split_ascii_whitespace().collect();
    [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("a number")).sum()
}
