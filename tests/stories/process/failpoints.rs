//! F10: a fault of ours in every hook. The program lives, each call reaches the driver and its answer the program, and
//! the process is shown as degraded.

use std::collections::BTreeSet;
use std::path::Path;

use weir_tests::life::Workshop;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Finished, Program};
use weir_tests::shown;
use weir_tests::simgpu::SimGpu;

use super::{BUDGET, gpu, managed, node, null_driver};
use crate::{GRAPHS, MEMORY};

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

/// The same of a driver that succeeds in all that has a hook. What we call besides fails: it has neither events nor words.
fn success_of(symbol: &str) -> usize {
    if weir_abi::index_of(symbol).is_some() && hooked().contains(&symbol) { 0 } else { code_of(symbol) }
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

/// Hooks that run nothing of ours once the driver has answered: what they do lies before, or is an assignment.
const NOTHING_AFTER: [&str; 10] = [
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent_v2",
    "cuCtxPopCurrent",
    "cuMulticastBindAddr", // of nothing that is mapped
    "cuMulticastBindAddr_v2",
    "nvmlDeviceGetAccountingStats",
    "nvmlDeviceGetProcessUtilization", // of a card that nobody has used: there is no list
    "nvmlDeviceGetProcessesUtilizationInfo",
];

/// What it came to.
struct Touched {
    ended: Finished,
    state: String,
    struck: BTreeSet<String>,
}

/// Calls every hooked function of a driver that answers by `code_of`, with faults of ours at the places named.
fn touch_everything(gpu: &SimGpu, node: &Node<'_>, code_of: fn(&str) -> usize, places: &str) -> Touched {
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
        shown::everywhere(node, "life", &state);
    }
    let ended = running.finish().well();
    let at_each = ended.stderr.lines().filter_map(|line| line.strip_prefix("failpoint in "));
    let struck = at_each.map(str::to_owned).collect();
    Touched { ended, state, struck }
}

fn assert_every_call_reached_the_driver(ended: &Finished, code_of: fn(&str) -> usize) {
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
    let touched = touch_everything(&gpu, &node, code_of, "1");
    assert_every_call_reached_the_driver(&touched.ended, code_of);
    let spared = hooked().into_iter().filter(|symbol| !touched.struck.contains(*symbol));
    let spared: Vec<_> = spared.filter(|symbol| !NOTHING_TO_DO.contains(symbol)).collect();
    assert!(spared.is_empty(), "no fault was tried in {spared:?}");
    assert_eq!(touched.state, "degraded");
    assert!(touched.ended.stderr.contains("passed unenforced, the process is shown as degraded"));
}

#[test]
fn a_fault_of_ours_after_the_driver_has_refused_or_succeeded_leaves_its_answer_alone_in_every_hook() {
    for code_of in [code_of, success_of] {
        let gpu = gpu();
        let node = node(&gpu);
        let touched = touch_everything(&gpu, &node, code_of, "after");
        assert_every_call_reached_the_driver(&touched.ended, code_of);
        let spared: BTreeSet<_> =
            hooked().into_iter().filter(|symbol| !touched.struck.contains(*symbol)).collect();
        let without: BTreeSet<_> =
            [&NOTHING_TO_DO[..], &NOTHING_AFTER, &OF_THE_CARD, &[HIDDEN.0]].concat().into_iter().collect();
        assert_eq!(spared, without, "no fault was tried there, and in all others");
        assert_eq!(touched.state, "degraded");
    }
}

/// A client on the simulated driver, with a fault of ours where this hook has had its answer.
fn struck_after(gpu: &SimGpu, node: &Node<'_>, client: &str, hook: &str) -> Memory {
    let program = managed(gpu, node, Path::new(client));
    Memory::start(
        program.env("WEIR_PRELOAD", gpu.dist().failpoints()).env("WEIR_FAILPOINT", format!("{hook}:after")),
    )
}

/// It was struck there, is shown as degraded, and ends well.
fn assert_struck(node: &Node<'_>, client: Memory, hook: &str) {
    assert_eq!(node.tenant(BUDGET.name).expect("it runs").state, "degraded", "{hook}");
    let stderr = client.finish().well().stderr;
    assert!(stderr.contains(&format!("failpoint in {hook}\n")), "{hook}: {stderr}");
}

#[test]
fn a_fault_of_ours_after_a_call_that_needs_true_arguments_leaves_what_the_driver_did() {
    const MIB: u64 = 1 << 20;
    let gpu = gpu();
    let node = node(&gpu);

    let mut client = struck_after(&gpu, &node, MEMORY, "cuGraphUpload");
    let graph = client.does(&format!("graph {} 1", 64 * MIB));
    client.does(&format!("graph_upload {graph}"));
    assert_eq!(client.does("graph_reserved"), 64 * MIB, "the driver has it");
    assert_struck(&node, client, "cuGraphUpload");

    let mut client = struck_after(&gpu, &node, GRAPHS, "cuGraphAddNode_v2");
    let graph = client.does("graph");
    let bodies = client.tell(&format!("add_conditional {graph} 0 0 1 1")).values;
    client.does(&format!("add {} 0 0", bodies[2]));
    assert_struck(&node, client, "cuGraphAddNode_v2");

    let mut client = struck_after(&gpu, &node, MEMORY, "cuMulticastBindAddr");
    let object = client.does(&format!("multicast {}", 64 * MIB));
    client.does(&format!("multicast_join {object}"));
    let memory = client.does(&format!("create {}", 64 * MIB));
    let mapped = client.does(&format!("map {memory} {}", 64 * MIB));
    client.does(&format!("multicast_bind_at {object} {mapped} {}", 64 * MIB));
    client.does(&format!("multicast_unbind {object} {}", 64 * MIB));
    assert_struck(&node, client, "cuMulticastBindAddr");

    let mut owner = Memory::start(managed(&gpu, &node, Path::new(MEMORY)));
    let pool = owner.does("pool_create_shareable");
    let piece = owner.does(&format!("pool_allocate {} {pool}", 64 * MIB));
    let data = owner.tell(&format!("pool_export {piece}")).values;
    let words: Vec<_> = data.iter().map(u64::to_string).collect();
    let mut client = struck_after(&gpu, &node, MEMORY, "cuMemPoolImportPointer");
    let imported = client.does("pool_import 0");
    let opened = client.does(&format!("pool_open {imported} {}", words.join(" ")));
    client.does(&format!("pool_free {opened}"));
    assert_struck(&node, client, "cuMemPoolImportPointer");
    owner.finish().well();
}

#[test]
fn a_fault_of_ours_while_attaching_is_said_and_the_program_runs_as_if_nobody_had_answered() {
    let gpu = gpu();
    let node = node(&gpu);
    let touched = touch_everything(&gpu, &node, code_of, "cuInit:1");
    assert_every_call_reached_the_driver(&touched.ended, code_of);
    assert!(
        touched.ended.stderr.contains("runs WITHOUT limits: a fault in libweir.so"),
        "{}",
        touched.ended.stderr
    );
}
