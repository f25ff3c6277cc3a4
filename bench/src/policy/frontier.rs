//! Whether any other policy keeps what `weir` has to keep, and has more filler work for it.

use serde::Serialize;

use super::{OURS, Row};
use crate::report::{Bar, Report};
use crate::sample::most;

/// What a case comes to.
#[derive(Debug, Serialize)]
struct Best {
    case: String,
    filler_work_percent: f64,
    best_other: Option<&'static str>,
    best_other_filler_work_percent: f64,
}

/// One row for each case.
#[derive(Default)]
pub struct Frontier(Vec<Best>);

impl Frontier {
    /// A case with its rules, and for each whether it kept the promise, the latency, or the primary's speed. Plain slicing
    /// and MPS are no policies, and do not count.
    pub fn note<'a>(&mut self, case: String, rows: impl Iterator<Item = (&'a Row, bool)>) {
        let (mut ours, mut best) = (0.0, (None, 0.0));
        for (row, keeps) in rows {
            let work = row.filler_work_percent;
            if row.policy == OURS {
                ours = work;
            } else if keeps && work > best.1 && weir_nodemgr::sim::policies().any(|name| name == row.policy) {
                best = (Some(row.policy), work);
            }
        }
        let (best_other, best_other_filler_work_percent) = best;
        self.0.push(Best { case, filler_work_percent: ours, best_other, best_other_filler_work_percent });
    }

    /// Adds the bar: by how much the best of the others is ahead at worst, in percent of the GPU.
    pub fn judge(self, report: &mut Report) {
        let ahead = |best: &Best| best.best_other_filler_work_percent - best.filler_work_percent;
        let worst = most(self.0.iter().map(ahead));
        report.bar(Bar::at_most("policy.frontier_points", worst, "percent of the GPU", 1.0));
        report.figure("frontier", self.0);
    }
}
