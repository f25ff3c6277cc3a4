//! What `weir-copies` says of itself, and what Weir and the simulated GPU say of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::program::Finished;
use crate::simgpu::SimGpu;

/// Its last line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Done {
    /// It (under `weir run` not the one that was started).
    pub pid: i32,
    /// Rounds of its steps.
    pub rounds: u64,
    /// What they took, in nanoseconds.
    pub took_ns: u64,
    /// Time since its context was made, in nanoseconds.
    pub wall_ns: u64,
}

/// A run that has ended: its own word, Weir's figures and the simulated GPU's books.
pub struct Run {
    /// Its own word.
    pub done: Done,
    /// Weir's summary.
    pub summary: Value,
    /// SM time by the books, in nanoseconds.
    pub true_use_ns: f64,
    /// Time of the copy engines by the books, in nanoseconds: to the device, to the host.
    pub engines_ns: [f64; 2],
    /// Bytes by the books: to the device, to the host.
    pub engines_bytes: [u64; 2],
}

impl Run {
    /// Of a program that has ended well.
    ///
    /// # Panics
    /// If it has not.
    pub fn of(gpu: &SimGpu, finished: Finished) -> Self {
        let finished = finished.well();
        let line = finished.stdout.last().expect("a line");
        let done: Done = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let books = gpu.books();
        let clients = books.gpus[0].clients.iter().filter(|client| client.pid == done.pid);
        let contexts: Vec<_> = clients.flat_map(|client| &client.contexts).collect();
        let sum = |pick: &dyn Fn(usize) -> u64| (0..contexts.len()).map(pick).sum::<u64>();
        Self {
            done,
            summary: finished.summary(),
            true_use_ns: sum(&|n| contexts[n].true_use_ns) as f64,
            engines_ns: [0, 1].map(|way| sum(&|n| contexts[n].copied[way].time_ns) as f64),
            engines_bytes: [0, 1].map(|way| sum(&|n| contexts[n].copied[way].bytes)),
        }
    }

    /// One of Weir's counters.
    pub fn counter(&self, name: &str) -> f64 {
        self.summary[name].as_f64().unwrap_or_else(|| panic!("no {name}: {}", self.summary))
    }

    /// One of the figures of one way that copies go; 0 if none went.
    pub fn copied(&self, way: &str, figure: &str) -> f64 {
        self.summary["copies"][way][figure].as_f64().unwrap_or(0.0)
    }

    /// A part of its wall time, in nanoseconds.
    pub fn stall(&self, part: &str) -> f64 {
        self.summary["stalls_ns"][part].as_f64().unwrap_or(0.0)
    }

    /// All of it.
    pub fn stalls(&self) -> f64 {
        let parts = self.summary["stalls_ns"].as_object().expect("parts of the time");
        parts.values().filter_map(Value::as_f64).sum()
    }
}
