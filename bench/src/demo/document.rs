//! What the demo prints: a table for people, or one JSON document.

use std::path::PathBuf;

use serde::Serialize;
use weir_nodemgr::control::Stats;
use weir_protocol::units::{Bytes, Nanos};

use super::program::PROGRAMS;
use crate::sample::Spread;
use crate::stolen::Tries;

/// Points by which a share may be off on a machine that does other things too.
const TOLERANCE: f64 = 3.0;

/// Everything that happened.
#[derive(Debug, Serialize)]
pub struct Document {
    /// `simulated`, or the GPU's name.
    pub gpu: String,
    /// Both tenants, at their first budgets.
    pub tenants: Vec<Tenant>,
    /// The swaps.
    pub resize: Resize,
    /// How often shares were measured, at first and after the last swap, and how undisturbed.
    pub tries: [Tries; 2],
    /// What the framework said when it asked for too much.
    pub refusal: String,
    /// Whether the other program went on meanwhile.
    pub other_went_on: bool,
    /// The picture of the run.
    pub picture: PathBuf,
}

/// One tenant.
#[derive(Debug, Serialize)]
pub struct Tenant {
    name: String,
    program: &'static str,
    request_percent: f64,
    achieved_percent: f64,
    launches: u64,
    waited_ns: u64,
    memory_limit_bytes: u64,
    memory_peak_bytes: u64,
    allocations_refused: u64,
}

/// The swaps of the two shares.
#[derive(Debug, Serialize)]
pub struct Resize {
    from: [u16; 2],
    to: [u16; 2],
    swaps: usize,
    achieved_after_percent: Vec<f64>,
    first_launch_under_new_grant_us: Latency,
}

#[derive(Debug, Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
}

impl Resize {
    /// Of the shares after the last swap, and of how long each change took to bite.
    pub fn new(achieved_after_percent: Vec<f64>, latencies_us: &[f64]) -> Self {
        let spread = Spread::of(latencies_us);
        let [one, two] = [PROGRAMS[0].percent, PROGRAMS[1].percent];
        Self {
            from: [one, two],
            to: [two, one],
            swaps: latencies_us.len() / 2,
            achieved_after_percent,
            first_launch_under_new_grant_us: Latency { p50: spread.median, p99: spread.p99 },
        }
    }
}

/// Both tenants, by the node manager's counters and the driver's account of their shares.
pub fn tenants(stats: &Stats, achieved_percent: Vec<f64>) -> Vec<Tenant> {
    let rows = PROGRAMS.iter().zip(achieved_percent).filter_map(|(row, achieved_percent)| {
        let tenant = stats.tenants.iter().find(|tenant| tenant.name == row.name)?;
        let total = &tenant.gpus.first()?.total;
        Some(Tenant {
            name: tenant.name.clone(),
            program: row.what,
            request_percent: f64::from(row.percent),
            achieved_percent,
            launches: total.launches,
            waited_ns: total.waited_ns,
            memory_limit_bytes: tenant.budget.memory.0,
            memory_peak_bytes: total.memory_peak_bytes,
            allocations_refused: total.refused,
        })
    });
    rows.collect()
}

impl Document {
    /// Where Weir did not keep its word: a share more than [`TOLERANCE`] points off, or a program that did not go on.
    pub fn broken(&self) -> Vec<String> {
        let off = |name: &str, when: &str, achieved: f64, wanted: f64| {
            let far = (achieved - wanted).abs() > TOLERANCE;
            far.then(|| {
                format!("{name} got {achieved:.1} % of {wanted} % {when} (allowed: {TOLERANCE} points)")
            })
        };
        let before =
            self.tenants.iter().map(|t| off(&t.name, "at first", t.achieved_percent, t.request_percent));
        let after = self.tenants.iter().zip(self.resize.achieved_after_percent.iter().zip(self.resize.to));
        let after = after.map(|(t, (got, to))| off(&t.name, "after the last swap", *got, f64::from(to)));
        let stopped = (!self.other_went_on).then(|| format!("{} did not go on", PROGRAMS[0].what));
        before.chain(after).flatten().chain(stopped).collect()
    }

    /// What the host took of the machine's processors meanwhile.
    pub fn stolen_percent(&self) -> f64 {
        self.tries.iter().map(Tries::stolen_percent).fold(0.0, f64::max)
    }

    /// To stdout.
    #[allow(clippy::print_stdout, reason = "the demo's result")]
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string_pretty(self).unwrap_or_default());
        } else {
            print!("{}", self.table());
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "\nGPU: {}{}\n\n{:<8} {:<12} {:>8} {:>9} {:>10} {:>10} {:>12} {:>10} {:>8}\n",
            self.gpu,
            if self.gpu == "simulated" { " (no real GPU was used: these figures are a model's)" } else { "" },
            "TENANT",
            "PROGRAM",
            "REQUEST",
            "ACHIEVED",
            "LAUNCHES",
            "WAITED",
            "MEMORY PEAK",
            "LIMIT",
            "REFUSED"
        );
        for t in &self.tenants {
            text += &format!(
                "{:<8} {:<12} {:>6} % {:>7.1} % {:>10} {:>10} {:>12} {:>10} {:>8}\n",
                t.name,
                t.program,
                t.request_percent,
                t.achieved_percent,
                t.launches,
                Nanos(t.waited_ns).to_string(),
                Bytes(t.memory_peak_bytes).to_string(),
                Bytes(t.memory_limit_bytes).to_string(),
                t.allocations_refused
            );
        }
        let resize = &self.resize;
        let after: Vec<String> = resize.achieved_after_percent.iter().map(|p| format!("{p:.1} %")).collect();
        text += &format!(
            "\nShares swapped {} times while both ran; after the last swap ({} % and {} %): {}\n",
            resize.swaps,
            resize.to[0],
            resize.to[1],
            after.join(" and ")
        );
        let latency = &resize.first_launch_under_new_grant_us;
        text += &format!(
            "From `weir set` to the first launch under it: p50 {:.0} us, p99 {:.0} us\n",
            latency.p50, latency.p99
        );
        text += &format!("Over its memory limit, {} got its own error: {}\n", PROGRAMS[1].what, self.refusal);
        text += &format!(
            "Meanwhile {} {}\n",
            PROGRAMS[0].what,
            if self.other_went_on { "went on." } else { "DID NOT go on." }
        );
        text + &format!("Picture of the run: {}\n", self.picture.display())
    }
}
