//! A tenant that always has work: a client of the driver that launches a mix of kernels, graphs or both as fast as it is
//! let, until its stdin ends.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use weir_abi::types::{CUDA_SUCCESS, CUfunction, CUgraphExec};

use crate::client::{ClientError, Driver};
use crate::graphs::Graphs;
use crate::kernels::Kernel;
use crate::rig::{Cost, Rig};
use crate::stage::THIS_PROGRAM;

/// Kernels of the mix, and how many of each in a row: of 10 ms of GPU time half goes to one long kernel, three tenths
/// to medium ones, a fifth to short ones.
pub const MIX: [(Cost, usize); 3] = [
    (Cost { name: "mix_short", time_us: 5.0 }, 400),
    (Cost { name: "mix_medium", time_us: 100.0 }, 30),
    (Cost { name: "mix_long", time_us: 5_000.0 }, 1),
];

/// One kernel alone.
pub const MEDIUM: [(Cost, usize); 1] = [(Cost { name: "mix_medium", time_us: 100.0 }, 1)];

/// Graphs: how many kernels of each row of [`MIX`], and how often a graph is launched in a row. One is of 5 ms, the other
/// of half a millisecond.
const GRAPHS: [([usize; MIX.len()], usize); 2] = [([400, 30, 0], 1), ([20, 4, 0], 4)];

/// What a load launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// [`MIX`]
    Mix,
    /// [`MEDIUM`]
    Medium,
    /// [`GRAPHS`]
    Graphs,
    /// [`MIX`] and [`GRAPHS`] in turn.
    MixAndGraphs,
}

impl Load {
    fn rows(self) -> &'static [(Cost, usize)] {
        match self {
            Self::Medium => &MEDIUM,
            Self::Mix | Self::Graphs | Self::MixAndGraphs => &MIX,
        }
    }

    /// Whether it launches any.
    pub fn has_graphs(self) -> bool {
        matches!(self, Self::Graphs | Self::MixAndGraphs)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Medium => "medium",
            Self::Graphs => "graphs",
            Self::MixAndGraphs => "mix-and-graphs",
        }
    }
}

/// What kernels of all loads cost.
pub fn costs() -> Vec<Cost> {
    MIX.iter().map(|(cost, _)| cost.clone()).collect()
}

/// Starts a load as a process of the tenant whose directory is `place`.
pub fn start(rig: &Rig, place: &std::path::Path, load: Load) -> std::io::Result<Child> {
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["load", load.name()]);
    rig.environment(&mut command);
    command.env("LD_PRELOAD", rig.preload()).env("WEIR_DIR", place);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}

/// Runs as a load: what [`start`] starts.
pub fn run(load: Load) -> ExitCode {
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Ordering::Relaxed);
    });
    match launch_until(stop, load) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn launch_until(stop: &AtomicBool, load: Load) -> Result<(), ClientError> {
    let kernels: Vec<_> = load.rows().iter().map(|(cost, _)| Kernel::work(cost.name, cost.time_us)).collect();
    let driver = Driver::open_with(&kernels)?;
    let rows = load.rows().iter().enumerate();
    let rows: Result<Vec<_>, ClientError> =
        rows.map(|(n, (cost, count))| Ok((driver.function(cost.name, n)?, *count))).collect();
    let rows = rows?;
    let graphs = if load.has_graphs() { Captured::all(&driver, &rows)? } else { Vec::new() };
    let kernels: &[_] = if load == Load::Graphs { &[] } else { &rows };
    while !stop.load(Ordering::Relaxed) {
        graphs.iter().try_for_each(|graph| graph.launch(&driver))?;
        launch_all(&driver, kernels)?;
    }
    driver.synchronize()
}

/// Launches so many of each function.
fn launch_all(driver: &Driver, rows: &[(CUfunction, usize)]) -> Result<(), ClientError> {
    for &(function, count) in rows {
        for _ in 0..count {
            let result = driver.launch(function, 1);
            if result != CUDA_SUCCESS {
                return Err(ClientError::Call { call: "cuLaunchKernel", result });
            }
        }
    }
    Ok(())
}

/// A graph, and how often it is launched in a row.
struct Captured {
    exec: CUgraphExec,
    times: usize,
}

impl Captured {
    /// [`GRAPHS`] of these functions.
    fn all(driver: &Driver, rows: &[(CUfunction, usize)]) -> Result<Vec<Self>, ClientError> {
        let (graphs, stream) = (Graphs::open()?, driver.stream()?);
        let capture = |(kernels, times): ([usize; MIX.len()], usize)| {
            let graph = graphs.capture(stream, || {
                let mut each = rows.iter().zip(kernels);
                each.try_for_each(|((function, _), count)| {
                    (0..count).try_for_each(|_| driver.launch_into(stream, *function, 1))
                })
            })?;
            Ok(Self { exec: graphs.instantiate(graph)?, times })
        };
        GRAPHS.into_iter().map(capture).collect()
    }

    /// Into the stream that the kernels go into, too.
    fn launch(&self, driver: &Driver) -> Result<(), ClientError> {
        (0..self.times).try_for_each(|_| driver.launch_graph(null_mut(), self.exec))
    }
}
