//! A process's counters as plain values, and their sums. Everything here was written by a tenant: sums saturate.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use weir_protocol::pages::{COUNTED_LAUNCHES, COUNTED_MEMORY_CALLS, CopyWay, GraphCount, ProcessSlot, Stall};

/// What a process, or a tenant with all its dead processes, did on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Launch calls by exported symbol.
    pub calls: BTreeMap<String, u64>,
    /// Memory calls by exported symbol.
    pub memory_calls: BTreeMap<String, u64>,
    /// What became of executable graphs.
    #[serde(default)]
    pub graphs: BTreeMap<String, u64>,
    /// Launches: the sum of `calls`.
    pub launches: u64,
    /// SM time charged, in nanoseconds of the whole GPU.
    pub charged_ns: u64,
    /// Part of the charge that was measured; the rest is estimated.
    pub measured_ns: u64,
    /// Launches that had to wait.
    pub throttled: u64,
    /// Time waited at the gate, in nanoseconds.
    pub waited_ns: u64,
    /// Launches into capturing streams.
    pub captured: u64,
    /// Launches let through by the liveness rule.
    pub forced: u64,
    /// Token slices drawn.
    pub slices: u64,
    /// Launches measured each by itself.
    pub bracketed: u64,
    /// Launches let through because other ranks of the tenant had gone ahead and may spin for them.
    #[serde(default)]
    pub caught_up: u64,
    /// Launches and copies that went at once and left a debt, since to wait there could stop what they wait for: in a
    /// capture, by a host function, while a stream waits for a word.
    #[serde(default)]
    pub excused: u64,
    /// Collectives launched, and graphs with collectives.
    #[serde(default)]
    pub collectives: u64,
    /// Allocations refused for the limit.
    pub refused: u64,
    /// Most memory held at once; of a sum: the largest of its parts.
    pub memory_peak_bytes: u64,
    /// Faults of ours that were caught.
    pub faults: u64,
    /// Copies by the way that they went: `host_to_device`, `device_to_host`, `peer`, `device_to_device`, `fill` (memsets).
    pub copies: BTreeMap<String, CopyCounters>,
    /// Where wall time went since the first context, in nanoseconds: `compute`, `communication`, `copies`, `neighbour`,
    /// `gate`, `host`. Each moment counts once, so the sum is the time up to the process's last call into the driver; of
    /// several processes it is the sum of theirs.
    pub stalls_ns: BTreeMap<String, u64>,
}

/// What was copied one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCounters {
    /// Copies; each one of a batch.
    pub calls: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time they took, in nanoseconds: by the learnt bandwidth, or as long as the program waited for them.
    pub time_ns: u64,
}

// Relaxed throughout: figures for people, each whole by itself.
fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

impl Counters {
    /// What stands in `slot` now.
    pub fn of(slot: &ProcessSlot) -> Self {
        let lanes = |pick: fn(&weir_protocol::pages::Lane) -> &AtomicU64| {
            slot.lanes.iter().fold(0u64, |sum, lane| sum.saturating_add(load(pick(lane))))
        };
        let mut calls = BTreeMap::new();
        for (index, name) in COUNTED_LAUNCHES.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let count =
                slot.lanes.iter().fold(0u64, |sum, lane| sum.saturating_add(load(&lane.calls[index])));
            note(&mut calls, name, count);
        }
        let mut memory_calls = BTreeMap::new();
        for (name, word) in COUNTED_MEMORY_CALLS.iter().zip(&slot.memory_calls) {
            note(&mut memory_calls, name, load(word));
        }
        let mut graphs = BTreeMap::new();
        for count in GraphCount::ALL {
            note(&mut graphs, count.as_str(), slot.graphs.get(count));
        }
        Self {
            graphs,
            launches: calls.values().fold(0, |sum: u64, n| sum.saturating_add(*n)),
            calls,
            memory_calls,
            charged_ns: charged_ns(slot),
            measured_ns: load(&slot.measured_ns),
            throttled: lanes(|lane| &lane.throttled),
            waited_ns: lanes(|lane| &lane.waited_ns),
            captured: lanes(|lane| &lane.captured),
            forced: lanes(|lane| &lane.forced),
            slices: lanes(|lane| &lane.slices),
            bracketed: lanes(|lane| &lane.bracketed),
            caught_up: lanes(|lane| &lane.caught_up),
            excused: lanes(|lane| &lane.excused),
            collectives: load(&slot.collectives),
            refused: load(&slot.refused),
            memory_peak_bytes: load(&slot.peak_bytes),
            faults: load(&slot.faults),
            copies: copies(slot),
            stalls_ns: stalls(slot),
        }
    }

    /// One of the counts of executable graphs.
    pub fn graphs(&self, what: GraphCount) -> u64 {
        self.graphs.get(what.as_str()).copied().unwrap_or(0)
    }

    /// Adds another process's counters.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.calls {
            note(&mut self.calls, name, *count);
        }
        for (name, count) in &other.memory_calls {
            note(&mut self.memory_calls, name, *count);
        }
        for (name, count) in &other.graphs {
            note(&mut self.graphs, name, *count);
        }
        for (way, part) in &other.copies {
            self.copies.entry(way.clone()).or_default().add(part);
        }
        for (stall, ns) in &other.stalls_ns {
            note(&mut self.stalls_ns, stall, *ns);
        }
        let sums = [
            (&mut self.launches, other.launches),
            (&mut self.charged_ns, other.charged_ns),
            (&mut self.measured_ns, other.measured_ns),
            (&mut self.throttled, other.throttled),
            (&mut self.waited_ns, other.waited_ns),
            (&mut self.captured, other.captured),
            (&mut self.forced, other.forced),
            (&mut self.slices, other.slices),
            (&mut self.bracketed, other.bracketed),
            (&mut self.caught_up, other.caught_up),
            (&mut self.excused, other.excused),
            (&mut self.collectives, other.collectives),
            (&mut self.refused, other.refused),
            (&mut self.faults, other.faults),
        ];
        for (sum, part) in sums {
            *sum = sum.saturating_add(part);
        }
        self.memory_peak_bytes = self.memory_peak_bytes.max(other.memory_peak_bytes);
    }
}

impl CopyCounters {
    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
    }
}

fn copies(slot: &ProcessSlot) -> BTreeMap<String, CopyCounters> {
    let of = |way: CopyWay| {
        let copied = slot.copies.of(way);
        let (calls, bytes, time_ns) = (load(&copied.calls), load(&copied.bytes), load(&copied.time_ns));
        (way.name().to_owned(), CopyCounters { calls, bytes, time_ns })
    };
    CopyWay::ALL.into_iter().map(of).filter(|(_, copied)| copied.calls > 0).collect()
}

fn stalls(slot: &ProcessSlot) -> BTreeMap<String, u64> {
    let mut parts = BTreeMap::new();
    for (stall, word) in Stall::ALL.into_iter().zip(&slot.stalls.parts_ns) {
        note(&mut parts, stall.name(), load(word));
    }
    parts
}

/// Names that never happened are left out: the tables are long.
fn note(counts: &mut BTreeMap<String, u64>, name: &str, count: u64) {
    if count > 0 {
        let entry = counts.entry(name.to_owned()).or_default();
        *entry = entry.saturating_add(count);
    }
}

/// SM time charged in `slot`, in nanoseconds: the one counter that is read often.
pub fn charged_ns(slot: &ProcessSlot) -> u64 {
    let charged = slot.lanes.iter().fold(0u64, |sum, lane| sum.saturating_add(load(&lane.charged_ns)));
    charged.saturating_add_signed(load(&slot.corrected_ns).cast_signed())
}
