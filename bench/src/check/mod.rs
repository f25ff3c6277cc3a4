//! `weir-bench gpu-check`: what only a GPU can answer, in stories that each print a figure and a verdict and survive the
//! failure of others. Without a GPU the same stories run on the simulated one and say so: then they check the kit.

mod limit;
mod lookup;
mod overhead;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use crate::demo::has_real_gpu;
use crate::rig::{Cost, Rig};

/// Options of the check.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Where the results go: one JSON and one text.
    #[arg(long, value_name = "DIR", default_value = "gpu-check-results")]
    out: PathBuf,
    /// Use the simulated GPU even where there is a real one.
    #[arg(long)]
    simulated: bool,
    /// Stories to run; all if none is named.
    #[arg(value_enum)]
    stories: Vec<Story>,
}

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Story {
    /// Which look-up routes are covered, and whether every launch is counted
    Lookup,
    /// What Weir costs a program that is alone
    Overhead,
    /// Memory to the limit and over
    Limit,
}

const ALL: [Story; 3] = [Story::Lookup, Story::Overhead, Story::Limit];

/// What a story found.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// Whether the promise held; absent if it could not be put to the test.
    pub holds: Option<bool>,
    /// One line for people.
    pub line: String,
    /// Everything measured.
    pub figures: Value,
}

#[derive(Serialize)]
struct Told {
    story: Story,
    #[serde(flatten)]
    finding: Finding,
}

#[derive(Serialize)]
struct Document {
    simulated: bool,
    stories: Vec<Told>,
}

/// What every story gets.
pub struct Setup {
    /// Whether the GPU is simulated.
    pub simulated: bool,
    /// Fewer rounds.
    pub quick: bool,
}

impl Setup {
    /// A node over the GPU under test.
    pub fn rig(&self) -> io::Result<Rig> {
        // On the simulated GPU kernels are so short that its queue never fills.
        if self.simulated { Rig::simulated(&[Cost { name: "*", time_us: 0.001 }]) } else { Rig::real() }
    }
}

/// Runs the stories, writes the results, says 0 if nothing failed.
#[allow(clippy::print_stdout, reason = "each story's verdict, as it ends")]
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let setup = Setup { simulated: options.simulated || !has_real_gpu(), quick: options.quick };
    let wanted = if options.stories.is_empty() { ALL.to_vec() } else { options.stories.clone() };
    let mut document = Document { simulated: setup.simulated, stories: Vec::new() };
    let mut text = String::new();
    for story in wanted {
        let finding = tell(story, &setup);
        let line = verdict(story, &finding, setup.simulated);
        println!("{line}");
        text += &format!("{line}\n");
        document.stories.push(Told { story, finding });
        fs::create_dir_all(&options.out)?; // after each story: a run that is cut off leaves what it has
        fs::write(options.out.join("gpu-check.txt"), &text)?;
        fs::write(options.out.join("gpu-check.json"), serde_json::to_string_pretty(&document)?)?;
    }
    let failed = document.stories.iter().any(|told| told.finding.holds == Some(false));
    Ok(ExitCode::from(u8::from(failed)))
}

fn tell(story: Story, setup: &Setup) -> Finding {
    let found = match story {
        Story::Lookup => lookup::tell(setup),
        Story::Overhead => overhead::tell(setup),
        Story::Limit => limit::tell(setup),
    };
    found.unwrap_or_else(|error| Finding {
        holds: Some(false),
        line: format!("could not be told: {error}"),
        figures: Value::Null,
    })
}

fn verdict(story: Story, finding: &Finding, simulated: bool) -> String {
    let verdict = match finding.holds {
        Some(true) => "holds ",
        Some(false) => "FAILS ",
        None => "no bar",
    };
    let name = format!("{story:?}").to_lowercase();
    let on = if simulated { "simulated" } else { "real" };
    format!("{name:<10} {verdict} [{on}] {}", finding.line)
}
