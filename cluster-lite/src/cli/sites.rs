//! `weir-cluster sites FILE`: how a training is split over sites, and when and where best-effort work runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::cli::printer;
use crate::fault::Fault;
use crate::sites::shift::{Shift, fixed, following};
use crate::sites::split::{Split, even, matched};
use crate::sites::{Setting, file};

/// Flags of the command.
#[derive(Args)]
pub struct Options {
    /// The sites, the training and the best-effort work (docs/sites.md)
    file: PathBuf,
}

/// The document: each plan beside what it is compared with.
#[derive(Serialize)]
struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    training: Option<Training>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<Batch>,
}

#[derive(Serialize)]
struct Training {
    even: Split,
    matched: Split,
}

#[derive(Serialize)]
struct Batch {
    fixed: Shift,
    following: Shift,
}

/// Plans and prints.
///
/// # Errors
/// What is wrong with the file.
pub fn run(options: &Options, json: bool) -> Result<ExitCode, Fault> {
    let Setting { sites, training, batch } = file::read(&options.file)?;
    let training = training
        .map(|training| Training { even: even(&sites, &training), matched: matched(&sites, &training) });
    // The file was refused if the work did not fit.
    let batch = batch.and_then(|batch| {
        Some(Batch { fixed: fixed(&sites, &batch)?, following: following(&sites, &batch)? })
    });
    let document = Document { training, batch };
    if json {
        printer::json(&document);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(Training { even, matched }) = &document.training {
        printer::data(split_table(even, matched));
    }
    if let Some(Batch { fixed, following }) = &document.batch {
        printer::data(shift_table(following));
        printer::data(format!(
            "{:.1} g CO2 per GPU-hour, done in {} h; from now on at all sites alike: {:.1} g, done in {} h",
            following.grams_per_gpu_hour, following.done_h, fixed.grams_per_gpu_hour, fixed.done_h
        ));
    }
    printer::talk("planned from the figures in the file, not measured");
    Ok(ExitCode::SUCCESS)
}

fn split_table(even: &Split, matched: &Split) -> String {
    let heads = ["SPLIT", "SITE", "GPUS", "SAMPLES", "COMPUTE S", "SYNC S", "BUBBLE FROM S", "BUBBLE S"];
    let rows = |name: &str, split: &Split| -> Vec<Vec<String>> {
        let row = |part: &crate::sites::split::Part| {
            let bubble = part.bubble;
            let numbers = [part.samples, part.compute_s, part.sync_s, bubble.begins_s, bubble.lasts_s];
            let cells = numbers.map(|number| format!("{number:.1}"));
            [name.to_owned(), part.site.clone(), part.gpus.to_string()].into_iter().chain(cells).collect()
        };
        split.parts.iter().map(row).collect()
    };
    let all: Vec<_> = rows("even", even).into_iter().chain(rows("matched", matched)).collect();
    let sum = |name: &str, split: &Split| {
        format!(
            "{name}: a round takes {:.1} s and costs {:.4}; {:.0} GPU-s of it idle",
            split.round_s, split.cost, split.idle_gpu_s
        )
    };
    format!("{}\n{}\n{}", printer::table(&heads, &all), sum("even", even), sum("matched", matched))
}

fn shift_table(shift: &Shift) -> String {
    let row = |slot: &crate::sites::shift::Slot| {
        vec![
            slot.hour.to_string(),
            slot.site.clone(),
            format!("{:.1}", slot.gpus),
            format!("{:.0}", slot.grams),
        ]
    };
    printer::table(&["HOUR", "SITE", "GPUS", "G CO2"], &shift.slots.iter().map(row).collect::<Vec<_>>())
}
