//! Fillers beside a primary on a card whose power limit takes a good deal of its clocks back off, and have all of it again
//! once the primary rests; whose work takes how much energy is told; and cards that tell nothing of it change nothing
//! (gpu-truths, rule 17).

use weir_nodemgr::calibration::Draw;
use weir_nodemgr::control::{PowerStats, TenantGpuStats};
use weir_nodemgr::web::metrics;
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::LOOP;

const TRAIN: Budget<'_> = Budget { name: "train", request: "50%", limit: "100%", memory: "2GiB" };
const BATCH: Budget<'_> = Budget { name: "batch", request: "0%", limit: "100%", memory: "2GiB" };

const WEIR: &str = "policy = \"weir\"\n[[price]]\nname = \"*\"\ntime_us = 20\n";

/// A card that one program which works for half of the time does not bring to its limit: 55 W at rest, 400 W at work.
const CAPPED: &str = "power_limit_w = 270\n";

/// A card whose clocks fall below half of what they are once it is full: 55 W at rest, 400 W at work.
const SLOWED: &str = "power_limit_w = 200\n";

/// What a card draws at work more than at rest, by the defaults.
const BEYOND_REST_W: u64 = 400 - 55;

/// All of a GPU, in millionths.
const ALL: u32 = 1_000_000;

fn gpu(more: &str) -> SimGpu {
    SimGpu::new(&format!("{more}{EVERY_KERNEL_20_US}"))
}

/// Works for so many ms, then rests for so many, at least.
fn train(gpu: &SimGpu, node: &Node<'_>, works: u32, rests: u32) -> Looping {
    let (step, rest) = ((works * 50).to_string(), rests.to_string());
    let iterates = ["--ahead", "0", "--step", &step, "--rest-ms", &rest];
    Looping::start(Program::under_weir(gpu, Some(node), TRAIN, LOOP).args(iterates))
}

fn batch(gpu: &SimGpu, node: &Node<'_>) -> Looping {
    let flags = ["--class", "filler"];
    Looping::start(Program::under_weir_with(gpu, Some(node), BATCH, &flags, LOOP))
}

fn power(node: &Node<'_>) -> PowerStats {
    node.stats().gpus.remove(0).power
}

fn on_gpu(node: &Node<'_>, tenant: Budget<'_>) -> TenantGpuStats {
    node.tenant(tenant.name).expect("it runs").gpus.remove(0)
}

fn page(node: &Node<'_>) -> String {
    metrics::page(&node.stats()).expect("it is written into memory")
}

fn wait_for_event(node: &Node<'_>, event: &str) {
    wait::until(event, || node.says(&["events"]).contains(event).then_some(()));
}

/// Waits for a moment in which the filler is open, and what the policy makes of it then is accepted.
fn filler(node: &Node<'_>, what: &str, accept: impl Fn(&str, u32) -> bool) {
    let mut last = String::new();
    wait::until(what, || {
        let seen = on_gpu(node, BATCH);
        let now = format!("{} {} ppm, gate closed: {}", seen.policy_state, seen.rate_ppm, seen.gate_closed);
        if now != last {
            eprintln!("{what}: {now}");
            last = now;
        }
        (!seen.gate_closed && accept(&seen.policy_state, seen.rate_ppm)).then_some(())
    });
}

#[test]
fn a_filler_beside_a_primary_backs_off_while_power_takes_half_of_the_clocks() {
    let gpu = gpu(SLOWED);
    let node = Node::start(&gpu, WEIR);
    wait::until("what it draws at rest", || (power(&node).idle_mw? < 60_000).then_some(()));
    let mut train = train(&gpu, &node, 10, 10);
    let batch = batch(&gpu, &node);
    wait_for_event(&node, "GPU 0: clocks held back: sw_power_cap");
    filler(&node, "less", |state, ppm| state == "CAPPED" && ppm < ALL);
    let capped = "tenant=\"batch\",policy=\"weir\",state=\"CAPPED\"} 1.0";
    wait::until("its state as a metric", || page(&node).contains(capped).then_some(()));
    wait::until("its state in weir ps", || node.says(&["ps"]).contains("weir CAPPED").then_some(()));
    program::signal(train.pid, libc::SIGSTOP); // it rests
    filler(&node, "all of it", |state, ppm| state == "OPEN" && ppm == ALL);
    program::signal(train.pid, libc::SIGCONT);
    train.goes_on(100);
    for program in [train, batch] {
        program.finish().well();
    }
}

#[test]
fn a_filler_that_brings_the_card_to_its_power_limit_and_takes_few_of_its_clocks_keeps_all() {
    let gpu = gpu("power_limit_w = 300\n");
    let node = Node::start(&gpu, WEIR);
    let (train, batch) = (train(&gpu, &node, 10, 10), batch(&gpu, &node));
    wait_for_event(&node, "GPU 0: clocks held back: sw_power_cap");
    let later = node.stats().node.epoch + 3_000;
    wait::until("three more readings", || (node.stats().node.epoch > later).then_some(()));
    wait::until("held back still", || (power(&node).held_back_by() == ["sw_power_cap"]).then_some(()));
    filler(&node, "all of it", |state, ppm| state == "FILL" && ppm == ALL);
    for program in [train, batch] {
        program.finish().well();
    }
}

#[test]
fn energy_beyond_rest_is_counted_by_whose_work_takes_it() {
    let gpu = gpu("");
    let node = Node::start(&gpu, WEIR);
    wait::until("what it draws at rest", || (power(&node).idle_mw? < 60_000).then_some(()));
    let (train, batch) = (train(&gpu, &node, 5, 20), batch(&gpu, &node));
    let taken = || Some([on_gpu(&node, TRAIN).energy_mj?, on_gpu(&node, BATCH).energy_mj?]);
    wait::until("a hundred joules each", || taken()?.iter().all(|mj| *mj > 100_000).then_some(()));
    let pids = [train.pid, batch.pid];
    pids.iter().for_each(|pid| program::signal(*pid, libc::SIGSTOP)); // until a reading has caught up with them
    wait::until("what the books say, within a tenth", || {
        let (_, used_ns) = gpu.true_use(pids);
        let truth = used_ns.map(|ns| ns * BEYOND_REST_W / 1_000_000);
        let close = |(told, truth): (&u64, &u64)| told.abs_diff(*truth) * 10 < *truth;
        taken()?.iter().zip(&truth).all(close).then_some(())
    });
    assert!(power(&node).held_back_by().is_empty(), "its limit is what it draws at most");
    assert!(page(&node).contains("weir_tenant_energy_joules_total{gpu=\"0\""));
    pids.iter().for_each(|pid| program::signal(*pid, libc::SIGCONT));
    for program in [train, batch] {
        program.finish().well();
    }
}

/// A card of which these calls of NVML, made by the node manager, are answered with an error.
fn lacking(calls: &[(&str, u32)]) -> SimGpu {
    let fault = |(call, code): &(&str, u32)| {
        format!("[[fault]]\nprocess = \"weir\"\ncall = \"{call}\"\nevery = 1\naction = \"error:{code}\"\n")
    };
    let faults: String = calls.iter().map(fault).collect();
    SimGpu::new(&format!("{CAPPED}{EVERY_KERNEL_20_US}{faults}"))
}

#[test]
fn a_card_that_tells_nothing_of_its_power_shows_nothing_and_changes_nothing() {
    let not_supported = 3;
    let calls = ["nvmlDeviceGet*Clock*", "nvmlDeviceGet*Power*", "nvmlDeviceGetTotalEnergyConsumption"];
    let gpu = lacking(&calls.map(|call| (call, not_supported)));
    let node = Node::start(&gpu, WEIR);
    let (train, batch) = (train(&gpu, &node, 10, 10), batch(&gpu, &node));
    let busy = || gpu.books().gpus[0].recent_busy_percent;
    wait::until("a card beyond its limit", || (busy() > 70).then_some(()));
    let later = node.stats().node.epoch + 3_000;
    wait::until("three more readings", || (node.stats().node.epoch > later).then_some(()));
    filler(&node, "all of it", |state, ppm| state == "FILL" && ppm == ALL);
    assert_eq!((power(&node), on_gpu(&node, BATCH).energy_mj), (PowerStats::default(), None));
    assert!(!node.says(&["events"]).contains("clocks"));
    let told = page(&node);
    assert!(!told.lines().any(|row| row.starts_with("weir_gpu_power_watts{")), "{told}");
    for program in [train, batch] {
        program.finish().well();
    }
}

#[test]
fn a_driver_that_knows_only_the_older_name_of_the_reasons_is_asked_by_it() {
    let no_such_function = 13;
    let gpu = lacking(&[("nvmlDeviceGetCurrentClocksEventReasons", no_such_function)]);
    let node = Node::start(&gpu, WEIR);
    let reasons = wait::until("the reasons", || power(&node).clock_reasons);
    assert_eq!(reasons, Vec::<String>::new(), "nothing runs");
    let mut loops = Looping::start(Program::under_weir(&gpu, Some(&node), TRAIN, LOOP));
    wait::until("the cap", || (power(&node).held_back_by() == ["sw_power_cap"]).then_some(()));
    let ps = node.says(&["ps"]);
    let told = ps.lines().find(|line| line.starts_with("GPU 0: clocks held back: sw_power_cap, "));
    assert!(told.is_some_and(|line| line.ends_with(" of 270 W")), "{ps}");
    let row = "reason=\"sw_power_cap\"} 1.0";
    assert!(
        page(&node).lines().any(|line| line.starts_with("weir_gpu_clocks_held_back{") && line.ends_with(row))
    );
    loops.goes_on(100);
}

#[test]
fn a_node_tells_what_its_card_draws_by_the_calibration_file_even_where_the_card_tells_nothing() {
    let not_supported = 3;
    let gpu = lacking(&["nvmlDeviceGetPowerUsage"].map(|call| (call, not_supported)));
    let directory = tempfile::tempdir().expect("a place for the file");
    let file = directory.path().join("calibration.toml");
    std::fs::write(&file, "idle_w = 61\nbusy_w = 398\n").expect("it is written");
    let node = Node::start(&gpu, &format!("calibration = {file:?}\n{WEIR}"));
    assert_eq!(power(&node).calibrated, Some(Draw { idle_mw: 61_000, busy_mw: 398_000 }));
    let plain = Node::start(&gpu, WEIR);
    assert_eq!(power(&plain).calibrated, None, "nobody measured it");
}
