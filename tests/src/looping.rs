//! `weir-loop` as a story drives it.

use std::time::Duration;

use crate::program::{Finished, Program, Running};
use crate::said::{Progress, Said};
use crate::wait;

/// A loop that runs.
pub struct Looping {
    running: Running,
    /// The process that launches (under `weir run` not the one that was started).
    pub pid: i32,
}

impl Looping {
    /// Starts it and waits until it launches.
    ///
    /// # Panics
    /// If it never does.
    pub fn start(program: Program) -> Self {
        let mut looping = Self::just_started(program);
        looping.becomes_ready();
        looping
    }

    /// Waits until it launches.
    ///
    /// # Panics
    /// If it never does.
    pub fn becomes_ready(&mut self) {
        match self.hear() {
            Said::Ready => {}
            other => panic!("it was to be ready: {other:?}"),
        }
    }

    /// Starts it and waits only until it is there: it has not called the driver yet.
    ///
    /// # Panics
    /// If it is never there.
    pub fn just_started(program: Program) -> Self {
        let mut looping = Self { running: program.start(), pid: 0 };
        match looping.hear() {
            Said::Started { pid } => looping.pid = i32::try_from(pid).expect("process ids fit"),
            other => panic!("the first line is {other:?}"),
        }
        looping
    }

    fn hear(&mut self) -> Said {
        let Some(line) = self.running.next_line() else { panic!("the loop ended before its time") };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// What it did since the last time.
    pub fn report(&mut self) -> Progress {
        self.running.say("report");
        match self.hear() {
            Said::Report(progress) => progress,
            other => panic!("no report: {other:?}"),
        }
    }

    /// Waits for this many further launches: whatever else happens, it goes on. Returns the longest time between two of them.
    ///
    /// # Panics
    /// If it does not.
    pub fn goes_on(&mut self, launches: u64) -> Duration {
        self.report();
        let (mut since, mut longest_gap_ns) = (0, 0);
        wait::until("further launches", || {
            let progress = self.report();
            since += progress.launches;
            longest_gap_ns = progress.longest_gap_ns.max(longest_gap_ns);
            (since >= launches).then_some(Duration::from_nanos(longest_gap_ns))
        })
    }

    /// Asks it to allocate; returns what the driver answered, by name.
    pub fn allocate(&mut self, size: &str) -> String {
        self.running.say(&format!("allocate {size}"));
        match self.hear() {
            Said::Allocated { result, .. } => result,
            other => panic!("no answer: {other:?}"),
        }
    }

    /// Asks it to give back all it has allocated; returns the bytes.
    pub fn free(&mut self) -> u64 {
        self.running.say("free");
        match self.hear() {
            Said::Freed { bytes } => bytes,
            other => panic!("no answer: {other:?}"),
        }
    }

    /// Lets it end.
    pub fn finish(self) -> Finished {
        self.running.finish()
    }
}
