//! Gangs: tenants of two GPUs whose ranks wait for each other on the GPU. What a rank spins away is the time for which the
//! simulated GPU was busy with it, less its kernels' own.

use std::fs::File;
use std::time::Duration;

use weir_tests::looping::Looping;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Finished, Program};
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

use crate::LOOP;

/// A kernel of 250 us, and two that spin: one that is known as a collective by its name, and one that is not.
const TWO_GPUS: &str = "gpus = 2\nlinger_ms = 3_600_000\n\
    [[kernel]]\nname = \"work\"\ntime_us = 250\n\
    [[kernel]]\nname = \"ncclDevKernel*\"\nspins = true\n\
    [[kernel]]\nname = \"merge_ranks\"\nspins = true\n";

/// How well prices are learnt is not the question.
const PRICED: &str = "policy = \"static\"\n[[price]]\nname = \"work\"\ntime_us = 250\n";

/// Steps of a program, four kernels of 250 us each: a second at 20 % of the GPU.
const STEPS: u64 = 200;

/// Steps of one whose collectives nobody knows as such: they take long.
const FEW: u64 = 36;

/// What the kernels of both ranks' steps take, in nanoseconds.
const fn work_ns(steps: u64) -> u64 {
    2 * steps * 4 * 250_000
}

/// As a story asks for it.
struct Gang<'a> {
    gpu: &'a SimGpu,
    node: &'a Node<'a>,
    name: &'a str,
    meet: tempfile::NamedTempFile,
}

impl<'a> Gang<'a> {
    fn new(gpu: &'a SimGpu, node: &'a Node<'a>, name: &'a str) -> Self {
        let meet = tempfile::NamedTempFile::new().expect("a temporary file");
        File::set_len(meet.as_file(), 8 * (STEPS + 1)).expect("room in it");
        Self { gpu, node, name, meet }
    }

    /// Ranks in a process of their own under the tenant's budget: 20 % of each GPU.
    fn ranks(&self, ranks: &[&str], steps: u64) -> Program {
        let budget = Budget { name: self.name, request: "20%", limit: "20%", memory: "4GiB" };
        let program = env!("CARGO_BIN_EXE_weir-gang");
        let flags = ["--gpu", "0,1"];
        let mut program = Program::under_weir_with(self.gpu, Some(self.node), budget, &flags, program)
            .args(["--steps", &steps.to_string(), "--meet"])
            .arg(self.meet.path());
        for rank in ranks {
            program = program.args(["--rank", rank]);
        }
        program
    }
}

/// The longest that a process of the gang took, in ns.
fn elapsed_ns(ended: &[Finished]) -> u64 {
    let of = |ended: &Finished| {
        let line: serde_json::Value = serde_json::from_str(&ended.stdout[0]).expect("a JSON line");
        line["elapsed_ns"].as_u64().expect("a time")
    };
    ended.iter().map(of).max().unwrap_or(0)
}

/// Processes of programs that have ended, by number.
fn pids(ended: &[Finished]) -> Vec<i64> {
    let of = |ended: &Finished| {
        let line: serde_json::Value = serde_json::from_str(&ended.stdout[0]).expect("a JSON line");
        line["pid"].as_i64().expect("a process")
    };
    ended.iter().map(of).collect()
}

/// What the ranks of these processes spun away on both GPUs, in percent of their kernels' own time.
fn spun_percent(gpu: &SimGpu, ended: &[Finished], steps: u64) -> f64 {
    let pids = pids(ended);
    let books = gpu.books();
    let clients = books.gpus.iter().flat_map(|gpu| &gpu.clients);
    let clients = clients.filter(|client| pids.contains(&i64::from(client.pid)));
    let used: u64 = clients.flat_map(|client| &client.contexts).map(|context| context.true_use_ns).sum();
    used.saturating_sub(work_ns(steps)) as f64 * 100.0 / work_ns(steps) as f64
}

/// One of the counters of the tenant that these processes were, over both GPUs, as the last one to end saw it.
fn counted(ended: &[Finished], counter: &str) -> u64 {
    let of = |ended: &Finished| -> u64 {
        let lines = ended.stderr.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.filter_map(|summary: serde_json::Value| summary[counter].as_u64()).sum()
    };
    ended.iter().map(of).max().unwrap_or(0)
}

/// What the time of these processes on each GPU went to, in ns, as the last one to end saw it: words of `weir ps --stalls`.
fn stalls(ended: &[Finished]) -> [serde_json::Value; 2] {
    let of = |ended: &Finished| {
        let lines = ended.stderr.lines().filter_map(|line| serde_json::from_str(line).ok());
        let parts: Vec<_> = lines.map(|summary: serde_json::Value| summary["stalls_ns"].clone()).collect();
        <[serde_json::Value; 2]>::try_from(parts).expect("two GPUs")
    };
    let sum = |parts: &[serde_json::Value; 2]| parts.iter().map(all_of).sum::<u64>();
    ended.iter().map(of).max_by_key(sum).expect("a process")
}

/// All of the time on a GPU.
fn all_of(stalls: &serde_json::Value) -> u64 {
    let parts = stalls.as_object().into_iter().flat_map(|parts| parts.values());
    parts.filter_map(serde_json::Value::as_u64).sum()
}

/// Runs programs beside each other until all have ended well.
fn together(programs: Vec<Program>) -> Vec<Finished> {
    let running: Vec<_> = programs.into_iter().map(Program::start).collect();
    running.into_iter().map(|running| running.finish().well()).collect()
}

/// A gang of these processes, and the same with a collective that nobody knows as one, three times.
fn spins_less_than_unknown(processes: &[&[&str]]) {
    let gpu = SimGpu::new(TWO_GPUS);
    let node = Node::start(&gpu, PRICED);
    let run = |name: &str, steps: u64, collective: &[&str]| {
        let gang = Gang::new(&gpu, &node, name);
        let programs = processes.iter().map(|ranks| gang.ranks(ranks, steps).args(collective)).collect();
        let ended = together(programs);
        (spun_percent(&gpu, &ended, steps), ended)
    };
    let mut tries = 0;
    let (spun, ended) = wait::in_time(|| {
        tries += 1;
        run(&format!("known-{tries}"), STEPS, &[])
    });
    let unknown = ["unknown", "unknown-too", "unknown-again"]
        .map(|name| run(name, FEW, &["--collective", "merge_ranks"]));
    let told = format!("spun {spun:.0} % of the work, unknown {:.0?} %", [0, 1, 2].map(|at| unknown[at].0));
    let of_unknown = |counter: &str| unknown.iter().map(|(_, ended)| counted(ended, counter)).sum::<u64>();
    eprintln!("{told}");
    assert_eq!((counted(&ended, "collectives"), of_unknown("collectives")), (2 * STEPS, 0));
    // Ranks that know nothing of each other may be in step by chance, in one run; hardly in all of them.
    let mean = unknown.iter().map(|(spun, _)| spun).sum::<f64>() / 3.0;
    assert!(spun < 100.0 && 5.0 * spun < mean, "{told}");
    assert!(counted(&ended, "caught_up") > 0 && of_unknown("caught_up") == 0);
    let (forced, by_standstill) = (counted(&ended, "forced"), of_unknown("forced"));
    assert!(forced <= 2 && 5 * forced.max(1) < by_standstill, "{forced} forced, unknown {by_standstill}");
    let ms = elapsed_ns(&ended) / 1_000_000;
    assert!((900..4_000).contains(&ms), "a second's work at the limit took {ms} ms: {told}");
}

#[test]
fn ranks_in_threads_of_one_process_keep_pace() {
    spins_less_than_unknown(&[&["0", "1"]]);
}

#[test]
fn ranks_in_processes_keep_pace() {
    spins_less_than_unknown(&[&["0"], &["1"]]);
}

#[test]
fn two_gangs_on_the_same_gpus_both_end_about_when_they_should() {
    let gpu = SimGpu::new(TWO_GPUS);
    let node = Node::start(&gpu, PRICED);
    let (one, other) = (Gang::new(&gpu, &node, "one"), Gang::new(&gpu, &node, "other"));
    let ended = together(vec![
        one.ranks(&["0"], STEPS),
        other.ranks(&["0"], STEPS),
        one.ranks(&["1"], STEPS),
        other.ranks(&["1"], STEPS),
    ]);
    for (name, of) in [("one", [0, 2]), ("other", [1, 3])] {
        let ended = of.map(|at| ended[at].clone());
        let (spun, ms) = (spun_percent(&gpu, &ended, STEPS), elapsed_ns(&ended) / 1_000_000);
        let forced = counted(&ended, "forced");
        eprintln!("{name}: {ms} ms, spun {spun:.0} %, {forced} forced");
        assert!(
            forced <= 10 && ms < 3_000 && spun < 60.0,
            "{name}: {ms} ms, spun {spun:.0} %, {forced} forced"
        );
    }
}

#[test]
fn a_gang_of_which_one_gpu_is_contended_keeps_pace_and_its_waits_have_their_names() {
    let gpu = SimGpu::new(TWO_GPUS);
    let node = Node::start(&gpu, PRICED);
    let budget = Budget { name: "other", request: "50%", limit: "100%", memory: "2GiB" };
    let flags = ["--gpu", "0"];
    let other = Program::under_weir_with(&gpu, Some(&node), budget, &flags, LOOP).args(["--kernel", "work"]);
    let other = Looping::start(other);
    let mut tries = 0;
    let ended = wait::in_time(|| {
        tries += 1;
        let name = format!("gang-{tries}");
        let gang = Gang::new(&gpu, &node, &name);
        let programs = ["0", "1"].map(|rank| gang.ranks(&[rank], STEPS));
        together(programs.into())
    });
    other.finish().well();
    let (spun, ms) = (spun_percent(&gpu, &ended, STEPS), elapsed_ns(&ended) / 1_000_000);
    let [contended, free] = stalls(&ended);
    let forced = counted(&ended, "forced");
    let told = format!("{ms} ms, spun {spun:.0} %, {forced} forced; contended {contended}, free {free}");
    eprintln!("{told}");
    let part = |stalls: &serde_json::Value, word: &str| {
        stalls[word].as_u64().unwrap_or(0) as f64 * 100.0 / all_of(stalls) as f64
    };
    assert_eq!(counted(&ended, "collectives"), 2 * STEPS, "{told}");
    assert!(ms < 8_000 && forced <= 20 && spun < 200.0, "{told}");
    // Nobody else is on the other GPU: there a rank waits at its gate, and spins for the first one.
    assert!(part(&free, "neighbour") < 2.0, "{told}");
    assert!(part(&free, "gate") > 2.0 * part(&free, "communication"), "{told}");
    assert!(part(&contended, "gate") + part(&contended, "neighbour") > 50.0, "{told}");
}

#[test]
fn a_graph_with_a_collective_counts_as_one() {
    let gpu = SimGpu::new(TWO_GPUS);
    let node = Node::start(&gpu, PRICED);
    let gang = Gang::new(&gpu, &node, "graphs");
    let ended = together(vec![gang.ranks(&["0", "1"], FEW).args(["--graph"])]);
    assert_eq!(counted(&ended, "collectives"), 2 * 2 * FEW, "a graph and a collective in each step");
}

#[test]
fn a_launch_on_several_gpus_keeps_fillers_away_on_each_of_them() {
    let gpu = SimGpu::new("gpus = 2\nlinger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 1_000\n");
    let node = Node::start(&gpu, "policy = \"weir\"\n[[price]]\nname = \"*\"\ntime_us = 1_000\n");
    let start = |name, request, flags: &[&str], program| {
        let budget = Budget { name, request, limit: "100%", memory: "2GiB" };
        Program::under_weir_with(&gpu, Some(&node), budget, flags, program)
    };
    let filler = Looping::start(start("filler", "0%", &["--gpu", "0", "--class", "filler"], LOOP));
    // Its thread is at home on the second GPU.
    let both = start("both", "60%", &["--gpu", "0,1"], env!("CARGO_BIN_EXE_weir-together"));
    let both = both.args(["--milliseconds", "3000"]).start();
    let launched =
        || gpu.calls().get("cuLaunchCooperativeKernelMultiDevice").is_some_and(|calls| *calls > 20);
    wait::until("launches on both GPUs", || launched().then_some(()));
    let [share] = gpu.shares([filler.pid], Duration::from_millis(500));
    both.finish().well();
    filler.finish().well();
    assert!(share < 15.0, "the filler had {share:.0} % of a GPU on which its better works");
}
