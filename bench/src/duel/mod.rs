//! `weir-bench duel`: programs shaped like PyTorch's (`weir-player`) on one simulated GPU, under the driver's own slices and
//! under Weir. All their times, and those of the GPU, are longer by one factor, so that two processors hold them.
//!
//! A row is two programs or more ([`pairs`]); each runs alone, and all of them run in each setting ([`setting`]), settings
//! taking turns. Figures are medians, in units of the card. All rows take two hours.

mod bars;
mod client;
mod measure;
mod pairs;
mod setting;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use measure::{Effort, Measured};
use pairs::{PAIRS, Pair};
use weir_nodemgr::config::GatePlace;

use crate::QuickOptions;
use crate::report::Report;

/// Each setting so often.
const ROUNDS: usize = 2;

/// Times on the wall clock, in seconds, whole and in the short form: until prices are known, a window, and one of a thousand
/// requests that come one in 8 ms four times slower.
const WARM_UP_S: [f64; 2] = [3.0, 0.5];
const WINDOW_S: [f64; 2] = [8.0, 1.0];
const SERVING_S: [f64; 2] = [40.0, 2.0];

/// What the benchmark takes.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    quick: QuickOptions,
    /// Only this row, such as `decode+train`; may be given more than once
    #[arg(long, value_name = "NAME")]
    pair: Vec<String>,
    /// Another libweir.so than the one that was built
    #[arg(long, value_name = "PATH")]
    interposer: Option<PathBuf>,
    /// Another factor, 1 to 100 [default: 4 for programs that the GPU bounds, else 10]
    #[arg(long, value_name = "FACTOR")]
    slow: Option<f64>,
    /// Where launches wait that may not go yet: `host`, `stream` or `auto`
    #[arg(long, value_name = "PLACE", default_value = "auto")]
    gate: GatePlace,
    /// Another length of each window, in seconds; of eager servers three times that
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
}

/// Measures and prints.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let effort = options.effort()?;
    let measured = options.rows()?.into_iter().map(|row| measure::measure(row, &effort));
    let measured = measured.collect::<io::Result<Vec<Measured>>>()?;
    let mut report = Report::new("duel", true);
    bars::judge(&measured).into_iter().for_each(|bar| report.bar(bar));
    let by_row = measured.iter().map(|row| (row.name.clone(), bars::of_row(row)));
    report.figure("bars_by_row", by_row.collect::<std::collections::BTreeMap<_, _>>());
    let unseen = measured.iter().filter_map(|row| Some((row.name.clone(), bars::unseen(row, &measured)?)));
    report.figure("unseen_percent", unseen.collect::<std::collections::BTreeMap<_, _>>());
    report.figure("effort", &effort);
    report.figure("rows", measured);
    Ok(report.finish(options.quick.common.json))
}

impl Options {
    /// The rows that are wanted.
    fn rows(&self) -> io::Result<Vec<&'static Pair>> {
        if self.pair.is_empty() {
            return Ok(PAIRS.iter().filter(|row| row.quick || !self.quick.quick).collect());
        }
        let row = |name: &String| {
            PAIRS.iter().find(|row| row.name() == *name).ok_or_else(|| {
                let names: Vec<_> = PAIRS.iter().map(Pair::name).collect();
                io::Error::other(format!(
                    "there is no row `{name}`\nhelp: choose one of {}",
                    names.join(", ")
                ))
            })
        };
        self.pair.iter().map(row).collect()
    }

    /// How much is done for each.
    fn effort(&self) -> io::Result<Effort> {
        if self.slow.is_some_and(|slow| !(1.0..=100.0).contains(&slow)) {
            return Err(io::Error::other("--slow is from 1 to 100"));
        }
        let seconds = |of: [f64; 2]| of[usize::from(self.quick.quick)];
        let window =
            |of| Duration::try_from_secs_f64(self.seconds.unwrap_or(seconds(of))).map_err(io::Error::other);
        Ok(Effort {
            rounds: self.quick.of(ROUNDS, 1),
            warm_up: Duration::from_secs_f64(seconds(WARM_UP_S)),
            window: window(WINDOW_S)?,
            serving: window(SERVING_S)?,
            slow: self.slow,
            gate: self.gate,
            interposer: self.interposer.clone(),
        })
    }
}
