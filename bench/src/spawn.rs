//! `weir-bench spawn`: what the preload costs a program that never sees CUDA.

use std::process::{Command, ExitCode};
use std::time::Instant;

use serde_json::json;

use crate::report::{Bar, Report};
use crate::sample::Spread;
use crate::{PreloadOptions, instructions, stage};

/// Starts of each setting, in turns.
const STARTS: usize = 400;

/// Measures and prints.
pub fn run(options: &PreloadOptions) -> Result<ExitCode, std::io::Error> {
    let preload = stage::dist()?.join("lib/weir/libweir.so").canonicalize()?;
    let other = options.preload.as_ref().map(|other| other.canonicalize()).transpose()?;
    let mut report = Report::new("spawn", true);
    let (mut bare, mut with, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        bare.push(start_us(Command::new("/bin/true").env_remove("LD_PRELOAD"))?);
        with.push(start_us(Command::new("/bin/true").env("LD_PRELOAD", &preload))?);
        if let Some(other) = &other {
            others.push(start_us(Command::new("/bin/true").env("LD_PRELOAD", other))?);
        }
    }
    let (bare, with) = (Spread::of(&bare), Spread::of(&with));
    report.bar(Bar::at_most("spawn.added_us", with.median - bare.median, "us", 80.0));
    let ratio = with.median / bare.median;
    report.figure("start_of_true", json!({"bare_us": bare, "weir_us": with, "ratio": ratio}));
    if let Some(other) = &other {
        let (others, instructions) = (Spread::of(&others), instructions::of_a_start(other.as_os_str()));
        report.figure("other", json!({"us": others, "instructions": instructions}));
    }
    report.figure("spawn.instructions", instructions::of_a_start(preload.as_os_str()));
    Ok(report.finish(options.common.json))
}

/// From `posix_spawn` to the end of the program, in microseconds.
fn start_us(command: &mut Command) -> Result<f64, std::io::Error> {
    let start = Instant::now();
    command.status()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}
