//! The test programs of other interposers, under ours: they fare as on the bare driver, every call of theirs is counted,
//! what they get is charged, and beyond the limit refused. How to build them stands in `docs/adding-a-hook.md`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use weir_simgpu_link::books::Client;
use weir_simgpu_link::config::CONTEXT_OVERHEAD;
use weir_tests::dist::Dist;
use weir_tests::peers::Peers;
use weir_tests::program::{Budget, Finished, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::{compile, exports};

use crate::clients::{Counts, counted, seen_by_weir};

/// An allocation is rounded up to this (`GRANULE` of the simulated driver); how those of pools share it the ledger does not know.
const GRANULE: u64 = 512;

/// More than any of them wants, less than a process may map.
const PLENTY: u64 = 11 << 30;

/// Less than any allocation of theirs that counts.
const NEXT_TO_NOTHING: u64 = 64 << 10;

/// The driver's functions to which these programs are linked, all of both suites together ...
const DRIVER: [&str; 44] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRetain",
    "cuCtxCreate_v2",
    "cuCtxCreate_v4",
    "cuCtxDestroy_v2",
    "cuCtxSetCurrent",
    "cuGetErrorName",
    "cuGetProcAddress_v2",
    "cuPointerGetAttribute",
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemAllocHost_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuArrayCreate_v2",
    "cuArray3DCreate_v2",
    "cuArrayDestroy",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemGetAllocationGranularity",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemAdvise_v2",
    "cuMemPrefetchAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphGetEdges_v2",
    "cuLaunchHostFunc",
];

/// ... and NVML's, which they spell without a version.
const NVML: [&str; 4] = ["nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"];

/// Where the programs themselves are not at hand.
#[test]
fn whatever_the_programs_are_linked_to_the_simulated_driver_exports() {
    let simulated = Dist::find().simgpu();
    for (library, needed) in [("libcuda.so.1", &DRIVER[..]), ("libnvidia-ml.so.1", &NVML[..])] {
        let exported = exports::of(&simulated.join(library)).expect("a library");
        let missing: Vec<_> = needed.iter().filter(|name| !exported.contains(**name)).collect();
        assert!(missing.is_empty(), "{library} lacks {missing:?}");
    }
}

/// The libraries under the name that the programs look for: one without content, and ours.
struct Libraries {
    empty: PathBuf,
    ours: PathBuf,
    _dir: TempDir,
}

impl Libraries {
    fn named(name: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let [empty, ours] = ["empty", "ours"].map(|kind| dir.path().join(kind));
        for kind in [&empty, &ours] {
            std::fs::create_dir(kind).expect("a directory in it");
        }
        let (empty, ours) = (empty.join(name), ours.join(name));
        let source = dir.path().join("empty.c");
        std::fs::write(&source, "").expect("a file in it");
        compile::c(&["-shared", "-fPIC"], &source, &empty);
        let built = weir_tests::dist::Dist::find().preload();
        std::fs::copy(built, &ours).expect("a copy of the library");
        Self { empty, ours, _dir: dir }
    }
}

/// How one of them fared, and what the driver saw of it.
struct Fared {
    run: Finished,
    calls: Counts,
    peak: u64,
}

impl Fared {
    fn of(gpu: &SimGpu, run: Finished) -> Self {
        // The driver has clients without a context too, such as who asks for the GPUs.
        let clients: Vec<Client> = gpu.books().gpus.swap_remove(0).clients;
        let peak = clients.iter().map(|client| client.memory_peak_bytes).max().unwrap_or(0);
        assert!(clients.iter().all(|client| client.memory_bytes == 0), "all of it is free again");
        Self { run, calls: counted(gpu.calls()), peak }
    }

    fn bare(program: &Path, libraries: &Libraries) -> Self {
        let gpu = SimGpu::new(EVERY_KERNEL_20_US);
        let run = Program::bare(&gpu, program).env("LD_PRELOAD", &libraries.empty).run();
        Self::of(&gpu, run)
    }

    fn within(memory: u64, program: &Path, libraries: &Libraries) -> Self {
        let gpu = SimGpu::new(EVERY_KERNEL_20_US);
        let (memory, ours) =
            (format!("{}KiB", memory >> 10), libraries.ours.to_str().expect("a path of ours"));
        let budget = Budget { memory: &memory, ..Budget::default() };
        let run = Program::under_weir_with(&gpu, None, budget, &["--preload", ours], program).run();
        Self::of(&gpu, run)
    }

    /// What rounding may add to what they asked for.
    fn rounding(&self) -> u64 {
        GRANULE * self.calls.values().sum::<u64>()
    }

    /// Each call that Weir saw and the driver did not is one that was refused; a context can be refused, too.
    fn each_call_reached_the_driver_or_was_refused(&self, name: &str) {
        let seen = seen_by_weir(&self.run);
        let told = || format!("{name}: {seen:?}, by the driver {:?}", self.calls);
        assert!(self.calls.keys().all(|call| seen.contains_key(call)), "got past Weir: {}", told());
        let missing: Vec<_> = seen
            .iter()
            .map(|(call, count)| count.checked_sub(self.calls.get(call).copied().unwrap_or(0)))
            .collect();
        assert!(!missing.contains(&None), "got past Weir: {}", told());
        assert!(missing.into_iter().flatten().sum::<u64>() <= self.refused(), "lost: {}", told());
    }

    fn refused(&self) -> u64 {
        self.run.summary()["refused"].as_u64().expect("a number")
    }

    /// What `weir run` ends with: the program's code, or 128 and its signal.
    fn code(&self) -> i32 {
        self.run.status.code().unwrap_or_else(|| 128 + self.run.status.signal().unwrap_or(0))
    }
}

/// With enough memory: every call that it makes on the bare driver, and charged what it took.
fn is_counted_and_charged(name: &str, bare: &Fared, under_weir: &Fared) {
    let said = format!("{name}\n{}\n{}", under_weir.run.stdout.join("\n"), under_weir.run.stderr);
    under_weir.each_call_reached_the_driver_or_was_refused(name);
    // One that fails wherever it runs looks for something that its own interposer does, and may size itself by it.
    if [bare.code(), under_weir.code()] == [0, 0] {
        assert_eq!(bare.calls, seen_by_weir(&under_weir.run), "{said}");
    }
    let charged = under_weir.run.summary()["memory_peak_bytes"].as_u64().expect("a number");
    // It may be more for a moment: what one thread gives back is booked after the call, what another gets before it.
    assert!(charged + under_weir.rounding() >= under_weir.peak, "{charged} of {}: {said}", under_weir.peak);
}

/// With next to nothing beside its context: refused, and never given more. Its threads may be there one after the other,
/// so half of what it needs could do.
fn is_refused_beyond_its_limit(name: &str, needs: u64, program: &Path, libraries: &Libraries) {
    let limit = CONTEXT_OVERHEAD.0 + NEXT_TO_NOTHING.min(needs / 2);
    let tight = Fared::within(limit, program, libraries);
    assert!(tight.refused() > 0, "{name}, which needs {needs} bytes: {}", tight.run.stderr);
    tight.each_call_reached_the_driver_or_was_refused(name);
    assert!(tight.peak <= limit + tight.rounding(), "{name}: {} of {limit}", tight.peak);
    assert!(
        ![139, 135, 137].contains(&tight.code()),
        "{name}: its own verdict, no crash: {}",
        tight.run.stderr
    );
}

#[test]
fn peers_test_programs_fare_as_without_weir_are_charged_and_refused_beyond_their_limit() {
    let peers = match Peers::find() {
        Ok(peers) => peers,
        Err(why) => return eprintln!("{why}"),
    };
    let libraries = Libraries::named(&peers.library);
    for program in &peers.programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let (bare, under_weir) =
            (Fared::bare(program, &libraries), Fared::within(PLENTY, program, &libraries));
        let codes = [bare.code(), under_weir.code()];
        let said = format!("{}\n{}", under_weir.run.stdout.join("\n"), under_weir.run.stderr);
        assert!(
            [0, codes[0]].contains(&codes[1]),
            "{name}, exit codes without and with Weir {codes:?}: {said}"
        );
        let mut needs = 0;
        if bare.peak > 0 {
            is_counted_and_charged(&name, &bare, &under_weir);
            needs = under_weir.peak.saturating_sub(CONTEXT_OVERHEAD.0);
        }
        if needs > under_weir.rounding() {
            is_refused_beyond_its_limit(&name, needs, program, &libraries);
        }
        let calls = under_weir.calls.values().sum::<u64>();
        eprintln!("{name}: exit codes without and with Weir {codes:?}, {calls} calls counted, {needs} bytes");
    }
}
