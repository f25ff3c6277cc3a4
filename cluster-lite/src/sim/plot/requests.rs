//! Requests: what each policy costs and misses, and how many instances it had when.

use std::error::Error;
use std::path::Path;

use super::{Figure, Marks, Series};
use crate::sim::requests::{Outcome, Summary};

const FRONTIER: Figure<'_> = Figure {
    title: "violations against what is paid for (simulated)",
    along: "GPU-seconds",
    up: "requests that were late or not answered, %",
};

const COURSE: Figure<'_> =
    Figure { title: "instances of all services, first seed (simulated)", along: "seconds", up: "instances" };

/// Draws `frontier.svg` and `instances.svg` into `dir`, which is made if it is absent.
///
/// # Errors
/// What stands in the way of writing.
pub fn draw(dir: &Path, summaries: &[Summary], outcomes: &[Vec<Outcome>]) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let point = |summary: &Summary| vec![(summary.gpu_seconds, summary.violation_percent)];
    let points: Vec<Series<'_>> = summaries.iter().map(|summary| (summary.policy, point(summary))).collect();
    super::draw(&dir.join("frontier.svg"), FRONTIER, &points, Marks::Dots)?;
    let courses = outcomes.iter().filter_map(|of_policy| of_policy.first());
    let courses: Vec<Series<'_>> = courses.map(|outcome| (outcome.policy, course(outcome))).collect();
    super::draw(&dir.join("instances.svg"), COURSE, &courses, Marks::Line)
}

fn course(outcome: &Outcome) -> Vec<(f64, f64)> {
    let seconds = outcome.services.iter().map(|service| service.instances.len()).max().unwrap_or(0);
    let at = |second: usize| {
        let here = outcome.services.iter().filter_map(|service| service.instances.get(second));
        here.map(|instances| f64::from(*instances)).sum()
    };
    #[allow(clippy::cast_precision_loss, reason = "seconds of a trace")]
    (0..seconds).map(|second| (second as f64, at(second))).collect()
}
