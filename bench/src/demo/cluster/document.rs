//! What the demo of the cluster layer prints: tables for people, or one JSON document.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use weir_cluster::profile::Profile;

use super::cast::ROLES;
use super::replay::Sent;
use super::watch::{Life, Look, Watch};
use crate::sample::quantile;

/// Everything that happened.
#[derive(Debug, Serialize)]
pub struct Document {
    /// Always: nothing here is a real GPU's.
    pub simulated: bool,
    /// What was found of each program.
    pub profiles: Vec<Profile>,
    /// The requests.
    pub requests: Requests,
    /// What was seen of it.
    #[serde(flatten)]
    pub seen: Seen,
    /// The training's steps in a second meanwhile, and in percent of those that it makes alone.
    pub steps_per_s: f64,
    /// See [`Self::steps_per_s`].
    pub steps_kept_percent: f64,
    /// The picture of the run.
    pub picture: PathBuf,
}

/// What became of the requests.
#[derive(Debug, Serialize)]
pub struct Requests {
    /// Where they came from; a drawn one has a rush that asks for a second instance.
    trace: String,
    #[serde(skip)]
    is_drawn: bool,
    sent: usize,
    answered: usize,
    /// Answered beyond the bound of the promise.
    late: usize,
    bound_ms: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
}

impl Requests {
    /// Of all that were sent.
    pub fn new(trace: String, is_drawn: bool, sent: &[Sent], bound_ms: f64) -> Self {
        let mut took: Vec<f64> = sent.iter().filter(|one| one.answered).map(|one| one.took_ms).collect();
        took.sort_by(f64::total_cmp);
        let [p50_ms, p95_ms, p99_ms] = [0.5, 0.95, 0.99].map(|part| quantile(&took, part));
        let late = took.iter().filter(|ms| **ms > bound_ms).count();
        Self {
            trace,
            is_drawn,
            sent: sent.len(),
            answered: took.len(),
            late,
            bound_ms,
            p50_ms,
            p95_ms,
            p99_ms,
        }
    }
}

/// Course, instances and sums of what was watched.
#[derive(Debug, Serialize)]
pub struct Seen {
    /// Every instance.
    pub instances: Vec<Life>,
    /// How often a share was changed.
    pub resizes: usize,
    /// Most instances of the server that answered at once, and whether there was a time without any.
    pub most_ready: usize,
    /// See [`Self::most_ready`].
    pub was_at_zero: bool,
    /// What instances of the server were guaranteed, times the time: seconds of a GPU.
    pub gpu_seconds: f64,
    /// The course of it.
    pub course: Vec<Look>,
}

impl Seen {
    /// From the watch, which has ended.
    pub fn new(watch: Watch) -> Self {
        let course = watch.looks;
        let answers = course.iter().position(|look| look.ready > 0).unwrap_or(course.len());
        let held =
            course.windows(2).map(|pair| (pair[1].at_s - pair[0].at_s) * pair[0].request_percent / 100.0);
        Self {
            resizes: watch.decisions.values().filter(|decision| decision.what == "resize").count(),
            most_ready: course.iter().map(|look| look.ready).max().unwrap_or(0),
            was_at_zero: course[answers..].iter().any(|look| look.ready == 0),
            gpu_seconds: held.sum(),
            instances: watch.lives.into_values().collect(),
            course,
        }
    }
}

impl Document {
    /// Where the cluster layer did not keep its word.
    pub fn broken(&self) -> Vec<String> {
        let Requests { sent, answered, .. } = self.requests;
        let checks = [
            (answered < sent, format!("{} of {sent} requests were not answered", sent - answered)),
            (answered == 0, "there was no request".to_owned()),
            (
                self.requests.is_drawn && self.seen.most_ready < 2,
                format!("the server had {} instances at the most", self.seen.most_ready),
            ),
            (self.steps_per_s <= 0.0, "the training stood still".to_owned()),
        ];
        checks.into_iter().filter(|(is_broken, _)| *is_broken).map(|(_, what)| what).collect()
    }

    /// To stdout.
    #[allow(clippy::print_stdout, reason = "the demo's result")]
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string_pretty(self).unwrap_or_default());
        } else {
            print!("{}", self.text());
        }
    }

    fn text(&self) -> String {
        let mut text =
            "\nGPUs: two, simulated (no real GPU was used: these figures are a model's)\n\n".to_owned();
        self.say_profiles(&mut text);
        self.say_instances(&mut text);
        self.say_requests(&mut text);
        let _ = writeln!(
            text,
            "The training made {:.1} steps/s meanwhile, {:.0} % of those that it makes alone (its request keeps 50 %).\n\
             Picture of the run: {}",
            self.steps_per_s,
            self.steps_kept_percent,
            self.picture.display()
        );
        text
    }

    fn say_profiles(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "{:<8} {:<12} {:>8} {:>7} {:>6} {:>12} {:>18} {:>18}",
            "PROFILE", "PROGRAM", "REQUEST", "LIMIT", "BATCH", "MEMORY", "ALONE", "AT REQUEST"
        );
        for (role, profile) in ROLES.iter().zip(&self.profiles) {
            let batch = profile.inference.as_ref().map_or("-".to_owned(), |found| found.batch.to_string());
            let rate = |rate: f64| format!("{rate:.1} {}", profile.throughput.unit);
            let _ = writeln!(
                text,
                "{:<8} {:<12} {:>8} {:>7} {:>6} {:>12} {:>18} {:>18}",
                role.name,
                role.what,
                profile.request.to_string(),
                profile.limit.to_string(),
                batch,
                profile.memory.to_string(),
                rate(profile.throughput.alone),
                rate(profile.throughput.at_request)
            );
        }
    }

    fn say_instances(&self, text: &mut String) {
        let width = self.seen.instances.iter().map(|life| life.name.len()).max().unwrap_or(0).max(8);
        let _ =
            writeln!(text, "\n{:<width$}  GPU   DECIDED    READY     LAST  WHY, AND WHY NO MORE", "INSTANCE");
        let time = |at: Option<f64>| at.map_or("-".to_owned(), |at| format!("{at:.1} s"));
        for life in &self.seen.instances {
            let _ = writeln!(
                text,
                "{:<width$}  {:<4} {:>8} {:>8} {:>8}  {}{}",
                life.name,
                life.place,
                time(Some(life.decided_s)),
                time(life.ready_s),
                time(life.last_s),
                life.why,
                life.ended.as_ref().map_or(String::new(), |ended| format!("; {ended}"))
            );
        }
    }

    fn say_requests(&self, text: &mut String) {
        let Requests { trace, sent, answered, late, bound_ms, p50_ms, p95_ms, p99_ms, .. } = &self.requests;
        let _ = writeln!(
            text,
            "\n{sent} requests ({trace}): {answered} answered, {} not; {late} took longer than the promised {bound_ms:.0} ms, those that waited for a start included\n\
             latency: p50 {p50_ms:.0} ms, p95 {p95_ms:.0} ms, p99 {p99_ms:.0} ms\n\
             Instances of the server: {} at most, {}; shares changed {} times while they ran; {:.1} GPU-seconds guaranteed in all",
            sent - answered,
            self.seen.most_ready,
            if self.seen.was_at_zero { "none while nobody asked" } else { "always one" },
            self.seen.resizes,
            self.seen.gpu_seconds
        );
    }
}
