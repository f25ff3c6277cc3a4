//! F42: SIGKILL between the driver's success and our ledger. Nobody but the driver knows of what was given or taken: after
//! the death the ledger of the tenant and the card agree to the byte, by the sibling that lives on.

use std::fmt::Write;
use std::os::unix::fs::symlink;

use weir_tests::life::Workshop;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use super::CONTEXT;
use crate::MEMORY;

const TENANT: Budget<'_> = Budget { name: "lost", request: "50%", limit: "100%", memory: "4GiB" };

const MIB: u64 = 1 << 20;

/// A call of which its process dies, the first time that it succeeds, and what the process is told: `{}` is the first number of the
/// answer before. It dies of the last line.
type Death = (&'static str, &'static [&'static str]);

/// Ways to get memory, and ways to give it back.
const DEATHS: [Death; 28] = [
    ("cuMemAlloc_v2", &["allocate 67108864"]),
    ("cuMemAllocPitch_v2", &["rows 1000 65536"]),
    ("cuMemAllocManaged", &["managed 67108864"]),
    ("cuMemAllocAsync", &["pool_allocate 67108864 0"]),
    ("cuMemAllocFromPoolAsync", &["pool_create", "pool_allocate 67108864 {}"]),
    ("cuMemPoolCreate", &["pool_create"]),
    ("cuMemCreate", &["create 67108864"]),
    ("cuMemMap", &["create 67108864", "map {} 67108864"]),
    ("cuMemExportToShareableHandle", &["create 67108864", "export {}"]),
    ("cuIpcGetMemHandle", &["allocate 67108864", "ipc_get {}"]),
    ("cuArrayCreate_v2", &["array_flat 4096 4096"]),
    ("cuArray3DCreate_v2", &["array 4096 4096"]),
    ("cuMipmappedArrayCreate", &["levels 4096 4096 2"]),
    ("cuGraphLaunch", &["graph 67108864 0", "graph_launch {}"]),
    ("cuGraphUpload", &["graph 67108864 0", "graph_upload {}"]),
    ("cuCtxCreate_v2", &["context"]),
    ("cuCtxSetLimit", &["heap 268435456"]),
    ("cuModuleLoadData", &["module 67108864"]),
    ("cuMemFree_v2", &["allocate 67108864", "free {}"]),
    ("cuMemFreeAsync", &["pool_allocate 67108864 0", "pool_free {}"]),
    ("cuMemPoolDestroy", &["pool_create", "pool_destroy {}"]),
    ("cuMemRelease", &["create 67108864", "release {}"]),
    ("cuMemUnmap", &["create 67108864", "map {} 67108864", "unmap {} 67108864"]),
    ("cuArrayDestroy", &["array 4096 4096", "array_destroy {}"]),
    ("cuMipmappedArrayDestroy", &["levels 4096 4096 2", "levels_destroy {}"]),
    ("cuModuleUnload", &["module 67108864", "module_unload {}"]),
    ("cuCtxDestroy_v2", &["context", "context_destroy {}"]),
    ("cuDevicePrimaryCtxRelease_v2", &["allocate 67108864", "primary_release"]),
];

/// The program that dies in this way: faults are told apart by it.
fn named(way: usize) -> String {
    format!("lost-{way}")
}

/// A simulated GPU on which each of them dies so.
fn deadly(deaths: &[Death]) -> SimGpu {
    let mut config = EVERY_KERNEL_20_US.to_owned();
    for (way, (call, _)) in deaths.iter().enumerate() {
        let process = named(way);
        let row =
            format!("call = \"{call}\"\nprocess = \"{process}\"\nnth = 1\naction = \"sigkill-after\"\n");
        write!(config, "[[fault]]\n{row}").expect("into a string");
    }
    SimGpu::new(&config)
}

/// What the tenant is charged, and what the card has given out, which is all the tenant's.
fn ledger_and_card(gpu: &SimGpu, node: &Node<'_>) -> [u64; 2] {
    let tenant = node.tenant(TENANT.name).expect("a process of it lives");
    [tenant.gpus[0].memory_held_bytes, gpu.books().gpus[0].memory_used]
}

fn client(gpu: &SimGpu, node: &Node<'_>, program: impl AsRef<std::ffi::OsStr>) -> Memory {
    Memory::start(Program::under_weir(gpu, Some(node), TENANT, program))
}

/// A client that dies in this way.
fn doomed(gpu: &SimGpu, node: &Node<'_>, workshop: &Workshop, way: usize) -> Memory {
    let program = workshop.dir().join(named(way));
    symlink(MEMORY, &program).expect("another name");
    client(gpu, node, program)
}

/// Tells it its last line: it dies when the driver has done what it says.
fn dies_of(gpu: &SimGpu, mut doomed: Memory, (call, _): Death, line: &str) {
    let pid = doomed.pid;
    doomed.begin(line);
    let ended = doomed.finish();
    assert_eq!(ended.status.code(), Some(137), "{call}: {ended:?}");
    let books = gpu.client(pid).expect("the GPU knew it");
    assert_eq!((books.calls.get(call), books.refused_calls.get(call)), (Some(&1), None), "{call} succeeded");
}

#[test]
fn whoever_dies_when_the_driver_has_succeeded_leaves_ledger_and_card_in_agreement() {
    let (gpu, workshop) = (deadly(&DEATHS), Workshop::default());
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut sibling = client(&gpu, &node, MEMORY);
    sibling.does(&format!("allocate {}", 64 * MIB));
    let before = ledger_and_card(&gpu, &node);
    assert_eq!(before, [CONTEXT + 64 * MIB; 2]);
    for (way, death) in DEATHS.into_iter().enumerate() {
        let mut doomed = doomed(&gpu, &node, &workshop, way);
        let (last, first) = death.1.split_last().expect("a line at least");
        let value = first.iter().fold(0, |value, line| doomed.does(&line.replace("{}", &value.to_string())));
        dies_of(&gpu, doomed, death, &last.replace("{}", &value.to_string()));
        wait::until(&format!("agreement after {}", death.0), || {
            (ledger_and_card(&gpu, &node) == before).then_some(())
        });
    }
    sibling.finish().well();
}

/// What a sibling has to do with the memory of who dies.
const SHARED_DEATHS: [Death; 4] = [
    ("cuMemRelease", &[]),
    ("cuMemImportFromShareableHandle", &[]),
    ("cuMemMap", &[]),
    ("cuIpcOpenMemHandle_v2", &[]),
];

#[test]
fn memory_that_a_sibling_has_open_is_charged_once_whoever_dies_when_the_driver_has_succeeded() {
    let (gpu, workshop) = (deadly(&SHARED_DEATHS), Workshop::default());
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut sibling = client(&gpu, &node, MEMORY);
    let doomed = |way| doomed(&gpu, &node, &workshop, way);
    let dies_of = |doomed, way: usize, line: &str| dies_of(&gpu, doomed, SHARED_DEATHS[way], line);
    let agree_on = |bytes| {
        let has = || (ledger_and_card(&gpu, &node) == [bytes; 2]).then_some(());
        wait::until("agreement", has);
    };

    let mut owner = doomed(0);
    let memory = owner.does(&format!("create {}", 64 * MIB));
    let file = owner.does(&format!("export {memory}"));
    let imported = sibling.does(&format!("import {} {file}", owner.pid));
    let mapped = sibling.does(&format!("map {imported} {}", 64 * MIB));
    dies_of(owner, 0, &format!("release {memory}"));
    // It lives on in the sibling. (The simulated card counts it as long as its owner has it.)
    let charged = || (ledger_and_card(&gpu, &node)[0] == CONTEXT + 64 * MIB).then_some(());
    wait::until("the charge to move on", charged);
    sibling.does(&format!("unmap {mapped} {}", 64 * MIB));
    sibling.does(&format!("release {imported}"));
    agree_on(CONTEXT);

    let memory = sibling.does(&format!("create {}", 64 * MIB));
    let file = sibling.does(&format!("export {memory}"));
    let import = format!("import {} {file}", sibling.pid);
    dies_of(doomed(1), 1, &import);
    agree_on(CONTEXT + 64 * MIB);
    let mut opener = doomed(2);
    let imported = opener.does(&import);
    dies_of(opener, 2, &format!("map {imported} {}", 64 * MIB));
    agree_on(CONTEXT + 64 * MIB);
    sibling.does(&format!("release {memory}"));
    agree_on(CONTEXT);

    let pointer = sibling.does(&format!("allocate {}", 64 * MIB));
    let ticket = sibling.tell(&format!("ipc_get {pointer}")).values;
    let words: Vec<_> = ticket.iter().map(u64::to_string).collect();
    dies_of(doomed(3), 3, &format!("ipc_open {}", words.join(" ")));
    agree_on(CONTEXT + 64 * MIB);
    sibling.does(&format!("free {pointer}"));
    agree_on(CONTEXT);
    sibling.finish().well();
}
