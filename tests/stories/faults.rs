//! Faults of the driver: Weir passes them on unchanged, and keeps no account of what was not given.

use std::cmp::Ordering::{self, Equal, Greater, Less};
use std::os::unix::fs::symlink;
use std::path::Path;

use weir_protocol::pages::{COUNTED_LAUNCHES, COUNTED_MEMORY_CALLS};
use weir_tests::life::Workshop;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::{GRAPHS, LOOP, MEMORY};

const BUDGET: Budget<'_> = Budget { name: "unlucky", request: "100%", limit: "100%", memory: "8GiB" };

/// A simulated GPU on which one call goes wrong.
fn gpu_with_fault(row: &str) -> SimGpu {
    SimGpu::new(&format!("{EVERY_KERNEL_20_US}[[fault]]\n{row}\n"))
}

/// Codes that a driver may answer to any call, by number and name (F41 in docs/FAULTS.md).
const CODES: [(u32, &str); 7] = [
    (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
];

/// A simulated GPU on which one call of each of these, in one program, is answered with this code.
fn gpu_that_fails(costs: &str, program: &str, calls: &[(&str, u64)], code: u32) -> SimGpu {
    let row = |(call, nth): &(&str, u64)| {
        format!(
            "[[fault]]\ncall = \"{call}\"\nprocess = \"{program}\"\nnth = {nth}\naction = \"error:{code}\"\n"
        )
    };
    SimGpu::new(&(costs.to_owned() + &calls.iter().map(row).collect::<String>()))
}

/// A way to get memory, to give it back, or to share it: the driver's function, what the process is told before, and what it is
/// told then. `{N}` is the first number that came of the Nth line before. What becomes of the charge when the driver does it,
/// and what of the memory that the process has open of others.
struct Kind {
    call: &'static str,
    before: &'static [&'static str],
    line: &'static str,
    charged: Ordering,
    shared: Ordering,
}

/// One that changes what is charged.
const fn charges(
    call: &'static str,
    before: &'static [&'static str],
    line: &'static str,
    charged: Ordering,
) -> Kind {
    Kind { call, before, line, charged, shared: Equal }
}

/// One that changes what of others' memory is open here.
const fn shares(
    call: &'static str,
    before: &'static [&'static str],
    line: &'static str,
    shared: Ordering,
) -> Kind {
    Kind { call, before, line, charged: Equal, shared }
}

/// All of them, each function once. `IPC`, `FILE`, `PIECE` stand for what another process has given out.
const KINDS: &[Kind] = &[
    charges("cuMemAlloc_v2", &[], "allocate 67108864", Greater),
    charges("cuMemAllocPitch_v2", &[], "rows 1000 65536", Greater),
    charges("cuMemAllocManaged", &[], "managed 67108864", Greater),
    charges("cuMemAllocAsync", &[], "pool_allocate 67108864 0", Greater),
    charges("cuMemAllocAsync_ptsz", &[], "pool_allocate_of_thread 67108864 0", Greater),
    charges("cuMemPoolCreate", &[], "pool_create", Equal),
    charges("cuMemAllocFromPoolAsync", &["pool_create"], "pool_allocate 67108864 {0}", Greater),
    charges(
        "cuMemAllocFromPoolAsync_ptsz",
        &["pool_create"],
        "pool_allocate_of_thread 67108864 {0}",
        Greater,
    ),
    charges("cuMemCreate", &[], "create 67108864", Greater),
    charges("cuMemMap", &["create 67108864"], "map {0} 67108864", Equal),
    charges("cuMemRetainAllocationHandle", &["create 67108864", "map {0} 67108864"], "retain {1}", Equal),
    charges("cuMemExportToShareableHandle", &["create 67108864"], "export {0}", Equal),
    charges("cuIpcGetMemHandle", &["allocate 67108864"], "ipc_get {0}", Equal),
    charges(
        "cuMemPoolExportPointer",
        &["pool_create_shareable", "pool_allocate 67108864 {0}"],
        "pool_export {1}",
        Equal,
    ),
    charges(
        "cuMemMapArrayAsync",
        &["sparse 1024 1024 0", "create_for_tiles 67108864"],
        "tiles {0} 0 384 {1}",
        Equal,
    ),
    charges("cuArrayCreate_v2", &[], "array_flat 4096 4096", Greater),
    charges("cuArray3DCreate_v2", &[], "array 4096 4096", Greater),
    charges("cuMipmappedArrayCreate", &[], "levels 4096 4096 2", Greater),
    charges("cuGraphLaunch", &["graph 67108864 0"], "graph_launch {0}", Greater),
    charges("cuGraphUpload", &["graph 67108864 0"], "graph_upload {0}", Greater),
    charges("cuGraphExecDestroy", &["graph 67108864 1"], "graph_destroy {0}", Equal),
    charges("cuDeviceGraphMemTrim", &["graph 67108864 1", "graph_launch {0}", "wait"], "graph_trim", Less),
    charges("cuMulticastCreate", &[], "multicast 67108864", Equal),
    charges("cuMulticastAddDevice", &["multicast 67108864"], "multicast_join {0}", Greater),
    charges(
        "cuMulticastBindMem",
        &["multicast 67108864", "multicast_join {0}", "create 67108864"],
        "multicast_bind {0} {2} 67108864",
        Equal,
    ),
    charges("cuCtxCreate_v2", &[], "context", Greater),
    charges("cuCtxSetLimit", &[], "heap 268435456", Greater),
    charges("cuModuleLoadData", &[], "module 67108864", Greater),
    charges("cuMemGetInfo_v2", &[], "info", Equal),
    charges("cuDeviceTotalMem_v2", &[], "total", Equal),
    shares("cuIpcOpenMemHandle_v2", &[], "ipc_open IPC", Greater),
    shares("cuIpcCloseMemHandle", &["ipc_open IPC"], "ipc_close {0}", Less),
    shares("cuMemImportFromShareableHandle", &[], "import FILE", Equal),
    shares("cuMemPoolImportPointer", &["pool_import 0"], "pool_open {0} PIECE", Greater),
    shares("cuImportExternalMemory", &[], "external 67108864", Greater),
    shares("cuDestroyExternalMemory", &["external 67108864"], "external_destroy {0}", Less),
    charges("cuMemFree_v2", &["allocate 67108864"], "free {0}", Less),
    charges("cuMemFreeAsync", &["pool_allocate 67108864 0"], "pool_free {0}", Equal),
    charges("cuMemFreeAsync_ptsz", &["pool_allocate_of_thread 67108864 0"], "pool_free_of_thread {0}", Equal),
    charges(
        "cuMemPoolTrimTo",
        &["pool_create", "pool_keep {0} 1073741824", "pool_allocate 67108864 {0}", "pool_free {2}", "wait"],
        "pool_trim {0} 0",
        Less,
    ),
    charges(
        "cuMemPoolDestroy",
        &["pool_create", "pool_keep {0} 1073741824", "pool_allocate 67108864 {0}", "pool_free {2}", "wait"],
        "pool_destroy {0}",
        Less,
    ),
    charges("cuMemRelease", &["create 67108864"], "release {0}", Less),
    charges(
        "cuMemUnmap",
        &["create 67108864", "map {0} 67108864", "release {0}"],
        "unmap {1} 67108864",
        Less,
    ),
    charges("cuArrayDestroy", &["array 4096 4096"], "array_destroy {0}", Less),
    charges("cuMipmappedArrayDestroy", &["levels 4096 4096 2"], "levels_destroy {0}", Less),
    charges("cuModuleUnload", &["module 67108864"], "module_unload {0}", Less),
    charges("cuCtxDestroy_v2", &["context"], "context_destroy {0}", Less),
    charges("cuCtxDetach", &["context"], "context_detach {0}", Less),
    charges("cuDevicePrimaryCtxRetain", &[], "peer 0", Equal),
    charges("cuDevicePrimaryCtxRelease_v2", &["peer 0"], "primary_release", Equal),
    charges("cuDevicePrimaryCtxReset_v2", &[], "primary_reset", Less),
];

/// What another process has given out, by the words that stand for it.
struct GivenOut([(&'static str, String); 3]);

impl GivenOut {
    fn by(owner: &mut Memory) -> Self {
        const BYTES: u64 = 64 << 20;
        let words = |values: Vec<u64>| values.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let pointer = owner.does(&format!("allocate {BYTES}"));
        let ticket = owner.tell(&format!("ipc_get {pointer}")).values;
        let memory = owner.does(&format!("create {BYTES}"));
        let file = owner.does(&format!("export {memory}"));
        let pool = owner.does("pool_create_shareable");
        let piece = owner.does(&format!("pool_allocate {BYTES} {pool}"));
        let data = owner.tell(&format!("pool_export {piece}")).values;
        Self([("IPC", words(ticket)), ("FILE", format!("{} {file}", owner.pid)), ("PIECE", words(data))])
    }

    /// A line with what it stands for, and with the numbers that came of the lines before.
    fn line(&self, line: &str, values: &[u64]) -> String {
        let line = self.0.iter().fold(line.to_owned(), |line, (word, is)| line.replace(word, is));
        let numbers = values.iter().enumerate();
        numbers.fold(line, |line, (at, value)| line.replace(&format!("{{{at}}}"), &value.to_string()))
    }
}

/// Tells a process what comes before, and returns what it is told then.
fn lead_up_to(kind: &Kind, client: &mut Memory, given: &GivenOut) -> String {
    let mut values = Vec::new();
    for line in kind.before {
        values.push(client.does(&given.line(line, &values)));
    }
    given.line(kind.line, &values)
}

/// The process whose calls fail, and whoever has given something out.
fn client_and_owner(gpu: &SimGpu, node: &Node<'_>, workshop: &Workshop) -> (Memory, Memory) {
    let owner = workshop.dir().join("owner"); // faults are told apart by the program's name
    if !owner.exists() {
        symlink(MEMORY, &owner).expect("another name");
    }
    let start = |program: &Path, name| {
        Memory::start(Program::under_weir(
            gpu,
            Some(node),
            Budget { name, request: "50%", ..BUDGET },
            program,
        ))
    };
    (start(Path::new(MEMORY), BUDGET.name), start(&owner, "owner"))
}

/// At which call of its function each of them comes, in a process that does one after the other.
fn rehearse(workshop: &Workshop) -> Vec<(&'static str, u64)> {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let (mut client, mut owner) = client_and_owner(&gpu, &node, workshop);
    let given = GivenOut::by(&mut owner);
    let mut calls = Vec::new();
    for kind in KINDS {
        let line = lead_up_to(kind, &mut client, &given);
        let so_far = gpu.client(client.pid).expect("the GPU knows it").calls;
        calls.push((kind.call, so_far.get(kind.call).copied().unwrap_or(0) + 1));
        client.does(&line);
    }
    client.finish().well();
    calls
}

#[test]
fn whatever_the_driver_answers_to_a_memory_call_reaches_the_program_and_changes_no_charge() {
    let not_tried = |call: &&&str| !KINDS.iter().any(|kind| kind.call == **call);
    assert_eq!(COUNTED_MEMORY_CALLS.iter().find(not_tried), None, "each of the calls that are counted");
    let workshop = Workshop::default();
    let calls = rehearse(&workshop);
    for (code, name) in CODES {
        let gpu = gpu_that_fails(EVERY_KERNEL_20_US, "weir-memory", &calls, code);
        let node = Node::start(&gpu, "policy = \"static\"\n");
        let (mut client, mut owner) = client_and_owner(&gpu, &node, &workshop);
        let given = GivenOut::by(&mut owner);
        for kind in KINDS {
            let (call, line) = (kind.call, lead_up_to(kind, &mut client, &given));
            let before = charged_and_shared(&node, client.pid);
            assert_eq!(client.tell(&line).result, name, "{call}: the driver's own code");
            assert_eq!(charged_and_shared(&node, client.pid), before, "{call}, {name}: nothing has changed");
            client.does(&line);
            let after = charged_and_shared(&node, client.pid);
            let change = (after.0.cmp(&before.0), after.1.cmp(&before.1));
            assert_eq!(change, (kind.charged, kind.shared), "{call}, {name}: {before:?} {after:?}");
        }
        client.finish().well();
    }
}

/// What a process is charged, and what it has open of others, in bytes.
fn charged_and_shared(node: &Node<'_>, pid: i32) -> (u64, u64) {
    let tenant = node.tenant(BUDGET.name).expect("it runs");
    let process =
        tenant.gpus[0].processes.iter().find(|process| process.pid == pid).expect("it is registered");
    (process.memory_held_bytes, process.memory_shared_bytes)
}

#[test]
fn no_kind_of_launch_that_the_driver_fails_is_charged_whatever_its_code() {
    const MS: u64 = 1_000_000;
    const US_5000: &str = "3"; // its place among the kernels
    let ways: Vec<_> = COUNTED_LAUNCHES.into_iter().filter(|name| !name.is_empty()).collect();
    // The graph is captured, with such a launch of its own.
    let nth = |call: &str| if call == "cuLaunchKernel" { 2 } else { 1 };
    let calls: Vec<_> = ways.iter().map(|call| (*call, nth(call))).collect();
    for (code, name) in CODES {
        let gpu = gpu_that_fails(weir_tests::graphs::COSTS, "weir-graphs", &calls, code);
        let node = Node::start(&gpu, "policy = \"static\"\n[[price]]\nname = \"us_5000\"\ntime_us = 5000\n");
        let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), BUDGET, GRAPHS));
        let stream = client.does("stream");
        let graph = client.does(&format!("capture {stream} {US_5000} 1"));
        let charged = || node.tenant(BUDGET.name).expect("it runs").gpus[0].total.charged_ns;
        for (way, call) in ways.iter().enumerate() {
            let (line, before) = (format!("launch_by {way} {US_5000} {graph}"), charged());
            assert_eq!(client.tell(&line).result, name, "{call}: the driver's own code");
            let after = charged();
            assert!(after.abs_diff(before) < MS, "{call}, {name}: {before} {after}, for 5 ms that never ran");
            client.does(&line);
            client.does("wait");
            let runs = charged();
            assert!(runs > before + 4 * MS, "{call}, {name}: {before} {runs}: what runs is charged");
        }
        client.finish().well();
    }
}

#[test]
fn a_launch_that_the_driver_refuses_reaches_the_program_as_it_is() {
    let gpu = gpu_with_fault("call = \"cuLaunchKernel\"\nnth = 100\naction = \"error:719\"");
    let ended = Program::under_weir(&gpu, None, BUDGET, LOOP).args(["--launches", "1000"]).run();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED"), "{}", ended.stderr);
}

#[test]
fn a_program_that_dies_inside_of_an_allocation_leaves_nothing_charged() {
    let gpu = gpu_with_fault("call = \"cuMemAlloc_v2\"\nnth = 3\naction = \"sigkill\"");
    let node = Node::start(&gpu, "policy = \"static\"\n");
    // Holds the tenant while its other process dies.
    let heir = Program::under_weir(&gpu, Some(&node), BUDGET, "cat").start();
    let doomed = Program::under_weir(&gpu, Some(&node), BUDGET, LOOP)
        .args(["--churn", "64MiB", "--launches", "1000000"])
        .run();
    assert_eq!(doomed.status.code(), Some(137), "{}", doomed.stderr);
    weir_tests::wait::until("an empty ledger", || {
        let tenant = node.tenant("unlucky").expect("its other process runs");
        (tenant.pids.is_empty() && tenant.gpus[0].memory_held_bytes == 0).then_some(())
    });
    heir.finish().well();
}
