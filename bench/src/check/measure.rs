//! `weir-bench measure`, which `weir doctor --measure` runs, and the calibration file: a configuration of the simulated GPU.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde_json::{Value, json};
use weir_simgpu_link::config::Config;

use super::calibration::{self, Row};
use super::finding::Document;
use super::setup::{Setup, find_torch};
use super::story::Story;
use crate::demo::has_real_gpu;
use crate::kernels;
use crate::stage::THIS_PROGRAM;

/// The file's name among the results.
const FILE: &str = "calibration.toml";

/// Writes what the story found as the calibration file beside the results, if it was told.
pub fn keep(document: &Document, directory: &Path) -> io::Result<()> {
    let told = document.stories.iter().find(|told| told.story == Story::Calibration);
    let rows =
        told.and_then(|told| serde_json::from_value::<Vec<Row>>(told.finding.figures["rows"].clone()).ok());
    rows.map_or(Ok(()), |rows| fs::write(directory.join(FILE), file(&rows, &document.machine["gpu"])?))
}

/// The rows as a configuration of the simulated GPU; refused if that would refuse it.
fn file(rows: &[Row], card: &Value) -> io::Result<String> {
    let mut text = format!(
        "# A simulated GPU like this card: {card}\n# Written by `weir doctor --measure`; measured, or the driver's word.\n"
    );
    for row in rows {
        let Some(key) = &row.key else { continue };
        let value = match key.as_str() {
            "memory" | "context_overhead" => format!("\"{:.0}B\"", row.measured),
            "slice_us" | "switch_us" | "idle_w" | "busy_w" | "power_limit_w" | "sms" => {
                format!("{:.0}", row.measured.max(1.0))
            }
            _ if key.ends_with("gb_s") => format!("{:.0}", row.measured.max(1.0)),
            _ => format!("{:.0}", row.measured.max(0.0)),
        };
        text += &format!("{key} = {value} # {}\n", row.what);
    }
    toml::from_str::<Config>(&text)
        .map_err(|error| io::Error::other(format!("no calibration file: {error}\n{text}")))?;
    Ok(text)
}

/// Options of the calibration alone.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Print one JSON document instead of lines
    #[arg(long)]
    json: bool,
    /// The short form, less of everything: within a minute on any card
    #[arg(long)]
    quick: bool,
    /// Measure the simulated GPU even where there is a real one
    #[arg(long)]
    simulated: bool,
    /// Where the calibration file goes
    #[arg(long, value_name = "FILE", default_value = "weir-calibration.toml")]
    out: PathBuf,
}

/// Measures, prints, and writes the file.
#[allow(clippy::print_stdout, reason = "the measurements are the result")]
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let began = Instant::now();
    let simulated = options.simulated || !has_real_gpu();
    if !simulated && std::env::var_os(kernels::PACE).is_none() {
        return paced(options);
    }
    let notes = tempfile::NamedTempFile::new()?;
    let setup = Setup {
        simulated,
        quick: options.quick,
        torch: find_torch(true),
        others: Vec::new(),
        notes: notes.path().with_extension("json"),
    };
    let finding = calibration::tell(&setup)?;
    let rows: Vec<Row> = serde_json::from_value(finding.figures["rows"].clone())?;
    let card = calibration::card(simulated)?;
    fs::write(&options.out, file(&rows, &card)?)?;
    if options.json {
        let (file, took_s) = (&options.out, began.elapsed().as_secs_f64());
        let said =
            json!({"simulated": simulated, "card": card, "rows": rows, "file": file, "took_s": took_s});
        println!("{said:#}");
    } else {
        let on = if simulated { "SIMULATED GPU: these are a model's figures" } else { "real GPU" };
        println!("{on}: {card}");
        rows.iter().for_each(|row| println!("{}", row.told()));
        println!("written: {}, after {:.0} s", options.out.display(), began.elapsed().as_secs_f64());
    }
    Ok(ExitCode::SUCCESS)
}

/// The same once more, with kernels that know how fast this GPU is.
fn paced(options: &Options) -> io::Result<ExitCode> {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg("measure").args(options.json.then_some("--json")).args(options.quick.then_some("--quick"));
    command.arg("--out").arg(&options.out).env(kernels::PACE, super::pace()?.to_string());
    let code = command.status()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use weir_protocol::units::Bytes;

    use super::*;

    #[test]
    fn the_file_is_a_configuration_of_the_simulated_gpu() {
        let row = |key: &str, measured| Row {
            key: Some(key.into()),
            what: "what".into(),
            unit: "us".into(),
            predicted: None,
            source: None,
            measured,
        };
        let rows = [row("slice_us", 1_912.4), row("memory", f64::from(1 << 30)), row("switch_us", -3.0)];
        let text = file(&rows, &Value::Null).unwrap();
        let config: Config = toml::from_str(&text).unwrap();
        assert_eq!((config.slice_us, config.switch_us, config.memory), (1_912, 1, Bytes::gib(1)));
        assert!(file(&[row("slice_us", 1e12)], &Value::Null).is_err(), "no card is like that");
    }
}
