//! Gavel's co-location tables: throughput of training jobs alone and in pairs on one GPU, by GPU model.
//!
//! ```text
//! {"v100": {"('A3C', 1)": {"null": 7.18,                          steps a second alone
//!                          "('LM (batch size 5)', 1)": [3.7, 57.5]}}}   own, partner's when both share the GPU
//! ```
//!
//! The number behind a job's name counts its workers. `[0, 0]` says that the pair did not fit or was not measured. Both
//! directions of a pair stand in the file and must agree.

mod read;

use std::fmt;
use std::path::Path;

use crate::fault::{CONFIG, Fault};
use crate::place::interference::{Service, folds::Measured};

/// A kind of training job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobType {
    /// Such as `ResNet-18`.
    pub model: String,
    /// Samples a step, where the table names them.
    pub batch: Option<u32>,
    /// GPUs of the job.
    pub workers: u32,
}

impl fmt::Display for JobType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            Some(batch) => write!(f, "('{} (batch size {batch})', {})", self.model, self.workers),
            None => write!(f, "('{}', {})", self.model, self.workers),
        }
    }
}

/// What was measured on one GPU model.
#[derive(Clone, Debug)]
pub struct Table {
    /// The GPU model, as the file names it.
    pub device: String,
    /// The jobs, in the order of the file.
    pub jobs: Vec<JobType>,
    /// Steps a second of each job alone; 0 where it did not fit.
    alone: Vec<f64>,
    /// Steps a second of the row's job beside the column's; 0 where that was not measured.
    beside: Vec<f64>,
}

impl Table {
    /// Steps a second of a job that has the GPU to itself; nothing where it did not fit.
    pub fn alone(&self, job: usize) -> Option<f64> {
        Some(self.alone[job]).filter(|rate| *rate > 0.0)
    }

    /// How many times slower `victim` runs beside `neighbour`; nothing where that was not measured.
    pub fn slowdown(&self, victim: usize, neighbour: usize) -> Option<f64> {
        let shared = self.beside[victim * self.jobs.len() + neighbour];
        self.alone(victim).filter(|_| shared > 0.0).map(|alone| alone / shared)
    }

    /// Every measured pair once, as indices of its jobs in rising order; a job may be its own partner.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        let count = self.jobs.len();
        let all = (0..count).flat_map(|one| (one..count).map(move |other| (one, other)));
        all.filter(|&(one, other)| self.slowdown(one, other).is_some() && self.slowdown(other, one).is_some())
            .collect()
    }

    /// Every measured slowdown, both directions of each pair.
    pub fn measured(&self) -> Vec<Measured> {
        let both =
            |(one, other)| [(one, other), (other, one)].into_iter().take(1 + usize::from(one != other));
        let rows = self.pairs().into_iter().flat_map(both);
        let row =
            |(victim, beside)| Some(Measured { victim, beside, slowdown: self.slowdown(victim, beside)? });
        rows.filter_map(row).collect()
    }

    /// The jobs as services to a predictor, in the same order.
    pub fn services(&self) -> Vec<Service> {
        let service = |job: &JobType| Service {
            name: job.to_string(),
            family: format!("{} on {}", job.model, job.workers),
            batch: job.batch,
            uses: None,
        };
        self.jobs.iter().map(service).collect()
    }
}

/// Reads the tables of all GPU models in a file.
///
/// # Errors
/// A file that cannot be read, is no such document, or holds what cannot be: with its line and column, or the place in the table.
pub fn load(path: &Path) -> Result<Vec<Table>, Fault> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Fault::new(
            format!("cannot read the table: {error}"),
            "name the file simulation_throughputs.json of Gavel",
        )
        .at(path.display().to_string())
        .exit(CONFIG)
    })?;
    parse(&text, &path.display().to_string())
}

/// The same from the text of `file`.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, file: &str) -> Result<Vec<Table>, Fault> {
    read::tables(text, file)
}

#[cfg(test)]
mod tests;
