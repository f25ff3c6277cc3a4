//! Whether any other policy keeps what `weir` has to keep, and has more filler work for it.

use std::io;
use std::path::Path;

use serde::Serialize;

use super::{OURS, Row, picture};
use crate::report::{Bar, Report};
use crate::sample::most;

/// What a case comes to.
#[derive(Debug, Serialize)]
pub struct Best {
    /// Which it is.
    pub case: String,
    /// Fillers' work under `weir`.
    pub filler_work_percent: f64,
    /// The other policy that keeps what is to be kept and has most work for them, if any keeps it ...
    pub best_other: Option<&'static str>,
    /// ... and how much that is.
    pub best_other_filler_work_percent: f64,
    /// The whole frontier: every rule, `weir` too.
    pub all: Vec<Point>,
}

/// A rule in a case.
#[derive(Debug, Serialize)]
pub struct Point {
    /// Which it is: plain slicing and MPS, which are no policies, are among them.
    pub policy: &'static str,
    /// Fillers' work under it.
    pub filler_work_percent: f64,
    /// Whether it keeps what is to be kept.
    pub keeps: bool,
}

/// One row for each case.
#[derive(Default)]
pub struct Frontier(Vec<Best>);

impl Frontier {
    /// A case with its rules, and for each whether it kept the promise, the latency, or the primary's speed. Plain slicing
    /// and MPS are no policies, and do not count.
    pub fn note<'a>(&mut self, case: String, rows: impl Iterator<Item = (&'a Row, bool)>) {
        let (mut ours, mut best, mut all) = (0.0, (None, 0.0), Vec::new());
        for (row, keeps) in rows {
            let work = row.filler_work_percent;
            all.push(Point { policy: row.policy, filler_work_percent: work, keeps });
            if row.policy == OURS {
                ours = work;
            } else if keeps && work > best.1 && weir_nodemgr::sim::policies().any(|name| name == row.policy) {
                best = (Some(row.policy), work);
            }
        }
        let (best_other, best_other_filler_work_percent) = best;
        self.0.push(Best {
            case,
            filler_work_percent: ours,
            best_other,
            best_other_filler_work_percent,
            all,
        });
    }

    /// Draws all cases into `dir`.
    pub fn draw(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        picture::draw(&dir.join("policy.svg"), &self.0).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Adds the bar: by how much the best of the others is ahead at worst, in percent of the GPU.
    pub fn judge(self, report: &mut Report) {
        let ahead = |best: &Best| best.best_other_filler_work_percent - best.filler_work_percent;
        let worst = most(self.0.iter().map(ahead));
        report.bar(Bar::at_most("policy.frontier_points", worst, "percent of the GPU", 1.0));
        report.figure("frontier", self.0);
    }
}
