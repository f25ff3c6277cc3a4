//! `weir doctor --measure`: what the GPU is like where no document says it. The measuring programs are clients of the driver, and lie
//! in `weir-bench` beside this program.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Context;
use crate::codes;
use crate::fault::Fault;

/// The program that measures.
const BENCH: &str = "weir-bench";

/// What it is told.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Measure the GPU, in about a minute, and write its calibration file; nothing else should run on it meanwhile
    ///
    /// Time slices and switches of two to four contexts, how long a newcomer waits, what calls take, copies, a context's memory,
    /// power. No setting of the card is changed. Beside each figure stands what was predicted, and by what; started with the
    /// file the simulated GPU is like this card (WEIR_SIMGPU_CONFIG), and `weir sim --calibration` goes by it, too.
    #[arg(long)]
    pub(super) measure: bool,
    /// The short form, less than a minute: two contexts, one filler, fewer lengths and shorter copies
    #[arg(long, requires = "measure")]
    short: bool,
    /// Where the calibration file goes
    #[arg(long, value_name = "FILE", default_value = "weir-calibration.toml", requires = "measure")]
    calibration: PathBuf,
}

/// Hands over to the program that measures; its exit code.
pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let here = std::env::current_exe().ok();
    let program = here.as_deref().and_then(Path::parent).map_or_else(|| BENCH.into(), |bin| bin.join(BENCH));
    let mut command = Command::new(&program);
    command
        .arg("measure")
        .args(context.json.then_some("--json"))
        .args(args.short.then_some("--quick"))
        .arg("--out")
        .arg(&args.calibration);
    let status = command.status().map_err(|error| {
        let message = format!("`{}` cannot be started: {error}", program.display());
        Fault::new(&codes::NOT_FOUND, message, "put weir-bench beside weir; scripts/build lays both out")
    })?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
