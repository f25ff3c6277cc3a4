//! F10: a fault of ours in every hook. The program lives, each call reaches the driver and its answer the program, and
//! the process is shown as degraded.

use std::collections::BTreeSet;

use weir_tests::life::Workshop;
use weir_tests::node::Node;
use weir_tests::program::{Finished, Program};
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

use super::{gpu, managed, node, null_driver};

/// The document that lists every hook; a test of the interposer holds it against the code.
const HOOKS: &str = include_str!("../../../docs/hooks.md");

/// What the null driver answers: a number that nobody else answers, so that it was the driver.
const FIRST_CODE: usize = 1000;

/// Every hooked function, without the driver's own start.
pub(super) fn hooked() -> Vec<&'static str> {
    let section =
        HOOKS.split("## ").find(|section| section.starts_with("Hooks of the driver")).expect("a list");
    let quoted = section.lines().flat_map(|line| {
        let cells = if line.starts_with('|') { 1 } else { usize::MAX }; // the first column; all of a sentence
        line.split('`').skip(1).step_by(2).take(cells)
    });
    quoted.filter(|name| *name != "cuInit").collect()
}

fn code_of(symbol: &str) -> usize {
    match symbol {
        "cuGetProcAddress" | "cuGetProcAddress_v2" => 0, // what it would hand out is only looked at after a success
        // NVML_ERROR_NOT_FOUND: no process has used the GPU
        "nvmlDeviceGetProcessUtilization"
        | "nvmlDeviceGetProcessesUtilizationInfo"
        | "nvmlDeviceGetAccountingStats" => 6,
        // NVML_ERROR_NOT_SUPPORTED: by the simulated card, and for a tenant by ours
        symbol if OF_THE_CARD.contains(&symbol) => 3,
        _ => weir_abi::index_of(symbol).map_or(0, |at| FIRST_CODE + at),
    }
}

/// Figures that are not told, since they exist for the whole card alone.
pub(super) const OF_THE_CARD: [&str; 12] = [
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetEncoderStats",
    "nvmlDeviceGetEncoderSessions",
    "nvmlDeviceGetFBCStats",
    "nvmlDeviceGetFBCSessions",
    "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetDynamicPstatesInfo",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
];

/// One more, which the simulated card has: the driver's answer is seen where a fault strikes, else ours.
pub(super) const HIDDEN: (&str, [usize; 2]) = ("nvmlDeviceGetBAR1MemoryInfo", [0, 3]);

/// Hooks that let these arguments pass before any code of ours could fail: a graph without memory nodes, no data.
const NOTHING_TO_DO: [&str; 6] = [
    "cuGraphAddNode",
    "cuGraphAddNode_v2",
    "cuGraphAddNode_v3",
    "cuGraphUpload",
    "cuGraphUpload_ptsz",
    "cuMemPoolImportPointer",
];

/// What it came to.
struct Touched {
    ended: Finished,
    state: String,
    struck: BTreeSet<String>,
}

/// Calls every hooked function, with faults of ours at the places named.
fn touch_everything(gpu: &SimGpu, node: &Node<'_>, places: &str) -> Touched {
    let workshop = Workshop::default();
    let search = null_driver(&workshop, gpu, node, code_of);
    let program = managed(gpu, node, &workshop.life("touch")).args(hooked());
    let program = Program::env(program, "LD_LIBRARY_PATH", search)
        .env("WEIR_PRELOAD", gpu.dist().failpoints())
        .env("WEIR_FAILPOINT", places);
    let mut running = program.start();
    let mut last = String::from("its start");
    loop {
        match running.next_line() {
            Some(line) if line == "done" => break,
            Some(line) => last = line,
            None => panic!("it died behind `{last}`"),
        }
    }
    let state = node.tenant("life").map_or_else(String::new, |tenant| tenant.state);
    if state == "degraded" {
        let told = || String::from_utf8_lossy(&node.weir(&["events"])).contains(r#""state":"degraded""#);
        wait::until("the event", || told().then_some(()));
    }
    let ended = running.finish().well();
    let at_each = ended.stderr.lines().filter_map(|line| line.strip_prefix("failpoint in "));
    let struck = at_each.map(str::to_owned).collect();
    Touched { ended, state, struck }
}

fn assert_every_call_reached_the_driver(ended: &Finished) {
    let (hooked, lines) = (hooked(), ended.stdout.len());
    assert_eq!(lines, hooked.len() + 1, "a line for each, and one at the end");
    for (line, symbol) in ended.stdout.iter().zip(hooked) {
        if symbol == HIDDEN.0 {
            let either = HIDDEN.1.map(|code| format!("{symbol} {code}"));
            assert!(either.contains(line), "{line}");
            continue;
        }
        let expected = format!("{symbol} {}", code_of(symbol));
        assert_eq!(*line, expected, "the driver's answer, as it was");
    }
}

#[test]
fn a_fault_of_ours_before_the_driver_is_called_lets_the_call_pass_in_every_hook() {
    let gpu = gpu();
    let node = node(&gpu);
    let touched = touch_everything(&gpu, &node, "1");
    assert_every_call_reached_the_driver(&touched.ended);
    let spared = hooked().into_iter().filter(|symbol| !touched.struck.contains(*symbol));
    let spared: Vec<_> = spared.filter(|symbol| !NOTHING_TO_DO.contains(symbol)).collect();
    assert!(spared.is_empty(), "no fault was tried in {spared:?}");
    assert_eq!(touched.state, "degraded");
    assert!(touched.ended.stderr.contains("passed unenforced, the process is shown as degraded"));
}

#[test]
fn a_fault_of_ours_after_the_driver_was_called_leaves_its_answer_alone() {
    let gpu = gpu();
    let node = node(&gpu);
    let touched = touch_everything(&gpu, &node, "2");
    assert_every_call_reached_the_driver(&touched.ended);
    assert!(touched.struck.len() > 30, "{:?}", touched.struck);
    assert_eq!(touched.state, "degraded");
}

#[test]
fn a_fault_of_ours_while_attaching_is_said_and_the_program_runs_as_if_nobody_had_answered() {
    let gpu = gpu();
    let node = node(&gpu);
    let touched = touch_everything(&gpu, &node, "cuInit:1");
    assert_every_call_reached_the_driver(&touched.ended);
    assert!(
        touched.ended.stderr.contains("runs WITHOUT limits: a fault in libweir.so"),
        "{}",
        touched.ended.stderr
    );
}
