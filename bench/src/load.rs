//! A tenant that always has work: a client of the driver that launches a mix of kernels as fast as it is let, until
//! its stdin ends.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use weir_abi::types::CUDA_SUCCESS;

use crate::client::{ClientError, Driver};
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

/// What a load launches.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Load {
    /// [`MIX`]
    Mix,
    /// [`MEDIUM`]
    Medium,
}

impl Load {
    fn rows(self) -> &'static [(Cost, usize)] {
        match self {
            Self::Mix => &MIX,
            Self::Medium => &MEDIUM,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Medium => "medium",
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
    let names: Vec<&str> = load.rows().iter().map(|(cost, _)| cost.name).collect();
    let driver = Driver::open(&names)?;
    let rows = load.rows().iter().enumerate();
    let rows: Result<Vec<_>, ClientError> =
        rows.map(|(n, (cost, count))| Ok((driver.function(cost.name, n)?, *count))).collect();
    let rows = rows?;
    while !stop.load(Ordering::Relaxed) {
        for &(function, count) in &rows {
            for _ in 0..count {
                let result = driver.launch(function, 1);
                if result != CUDA_SUCCESS {
                    return Err(ClientError::Call { call: "cuLaunchKernel", result });
                }
            }
        }
    }
    driver.synchronize()
}
