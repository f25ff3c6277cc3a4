//! `--beside`: what a neighbour costs a program, measured and not supposed.

use std::time::Duration;

use weir_cluster::profile::{ProbeRow, Profile};
use weir_protocol::units::SmShare;
use weir_tests::dist::{client, python};
use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

use super::{assert_fails, host_and_gpu, profiler};
use crate::LOOP;

/// Each kernel takes 8 ms of the whole GPU, a step of the program as long on its host: it needs half of the GPU.
const MACHINE: &str = "linger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 8000\n";

/// The program's time on its host.
const HOST_MS: &str = "8";

/// A neighbour that never pauses.
const BUSY: &str = "--seconds 3600";

/// The profile of the program, beside a loop with these flags.
fn profiled_beside(gpu: &SimGpu, node: &Node<'_>, neighbour: &str) -> Profile {
    let file = gpu.dir().join("beside.toml");
    let neighbour = format!("'{LOOP}' {neighbour}");
    let flags = ["--keep", "98%", "--confidence", "60%", "--settle", "300ms", "--window", "1s"];
    let profiler = profiler(gpu, node, &flags).args(["--beside", &neighbour]).arg("--out").arg(&file);
    let finished = host_and_gpu(profiler, HOST_MS).run().well();
    assert!(finished.stdout.iter().any(|row| row.starts_with("beside a neighbour ")), "{finished:?}");
    assert!(node.stats().tenants.is_empty(), "the program and its neighbour were ended");
    Profile::read(&file).expect("the profile")
}

/// What it loses by the profile: of the last six windows, all at its request, the first three without the neighbour.
fn loss(profile: &Profile, neighbour: &str) -> f64 {
    let interference = profile.interference.as_ref().expect("it was measured");
    assert!(interference.reference.ends_with(neighbour), "{interference:?}");
    let (_, last) = profile.measured.probes.split_at(profile.measured.probes.len() - 6);
    assert!(last.iter().all(|window| window.share == profile.request), "{last:?}");
    let sum = |windows: &[ProbeRow]| windows.iter().map(|window| window.throughput).sum::<f64>();
    let of_windows = (1.0 - sum(&last[3..]) / sum(&last[..3])).max(0.0);
    assert!((interference.sensitivity - of_windows).abs() < 1e-3, "{interference:?}, {of_windows}");
    interference.sensitivity
}

/// The same without a profiler: what the GPU's books say of the program under this share, alone and beside a busy filler.
fn loss_by_the_books(gpu: &SimGpu, node: &Node<'_>, share: SmShare) -> f64 {
    let share = format!("{}%", share.as_percent());
    let budget = Budget { name: "program", request: &share, limit: &share, memory: "2GiB" };
    let program = Program::under_weir_with(gpu, Some(node), budget, &["--class", "primary"], python());
    let _program = program.arg("-u").arg(client("host_and_gpu.py")).arg(HOST_MS).start();
    let pid = wait::until("a program that launches", || {
        let tenant = node.tenant("program")?;
        tenant.gpus.first().filter(|gpu| gpu.total.launches > 50).and(tenant.pids.first().copied())
    });
    let window = Duration::from_secs(1);
    let [alone] = gpu.shares([pid], window);
    let budget = Budget { name: "neighbour", request: "0%", limit: "100%", memory: "2GiB" };
    let neighbour = Program::under_weir_with(gpu, Some(node), budget, &["--class", "filler"], LOOP);
    let _neighbour = Looping::start(neighbour);
    let [beside] = gpu.shares([pid], window);
    1.0 - beside / alone
}

#[test]
fn what_a_busy_neighbour_costs_is_what_it_costs_without_the_profiler() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let profile = wait::in_time(|| profiled_beside(&gpu, &node, BUSY));
    assert_eq!((profile.request, profile.limit), (SmShare::percent(50), SmShare::percent(50)));
    let (profiled, booked) = (loss(&profile, BUSY), loss_by_the_books(&gpu, &node, profile.request));
    // A third where launches wait in their streams, two thirds where they wait on the host.
    assert!((0.3..0.9).contains(&booked), "each step waits for the neighbour's kernels: {booked}");
    assert!((profiled - booked).abs() < 0.1, "{profiled} by the profile, {booked} by the books");
}

/// Without it the same neighbour costs two thirds, as the story of the busy one says. That the neighbour launches all the while the
/// profiler sees to itself: else nothing is said of it.
#[test]
fn under_policy_weir_the_figure_is_what_weir_leaves_of_a_busy_neighbour() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let profile = wait::in_time(|| profiled_beside(&gpu, &node, BUSY));
    let loss = loss(&profile, BUSY);
    assert!(loss < 0.45, "it fills the program's pauses, and no more: {loss}");
}

/// What the search has found is kept; of the neighbour nothing is said.
#[test]
fn a_neighbour_that_cannot_be_started_launches_nothing_rests_or_ends_is_told_and_the_rest_is_written() {
    let gpu = SimGpu::new(MACHINE);
    let node = Node::start(&gpu, "policy = \"weir\"\n");
    let file = gpu.dir().join("never.toml");
    let told = |neighbour: &str, window: &str, how: &str, why: &str| {
        let flags = ["--confidence", "60%", "--patience", "3s", "--settle", "50ms", "--window", window];
        let profiler = profiler(&gpu, &node, &flags).args(["--beside", neighbour]).arg("--out").arg(&file);
        let finished = host_and_gpu(profiler, "5").run();
        let message = format!("the neighbour {how}: `{neighbour}`");
        assert_fails(&finished, 1, &message, "a command that launches kernels for ever, with --beside");
        let without = format!("the profile is written all the same: {}", file.display());
        assert!(finished.stderr.contains(why) && finished.stderr.contains(&without), "{finished:?}");
        assert!(node.stats().tenants.is_empty(), "both programs were ended");
        assert_eq!(Profile::read(&file).expect("the profile").interference, None);
        std::fs::remove_file(&file).expect("it was written by this one");
    };
    told("no-such-neighbour", "100ms", "launches nothing", "no-such-neighbour: not found");
    told("sleep 1000", "100ms", "launches nothing", "");
    let once = format!("'{LOOP}' --step 1 --launches 1");
    let meanwhile = "while the program was measured";
    told(&format!("{once}; sleep 1000"), "100ms", &format!("has launched nothing {meanwhile}"), "");
    told(&format!("{once}; sleep 0.3"), "400ms", &format!("has ended {meanwhile}"), "");
}
