//! A process on a GPU of which everything is known: streams in order, each with a clock of its own.

mod charge;
mod copies;
mod pieces;
mod progress;
mod time;
mod turns;

use std::collections::HashMap;

use weir_protocol::pages::Stalls as Page;

use super::streams::PROBES;
use super::*;
use crate::gate::in_flight;
use crate::overlap::Weight;
use crate::price::{Estimate, Known, Parts};
use crate::stall::{Span, Stalls};

const STREAM: u64 = 0x7f00_0000_1230;
const OTHER: u64 = STREAM + 0x40;

const THREAD: u64 = 7;

/// Always: any work, at any time.
const NOW: Due = Due { work: Nanos(1), time: Nanos(0), spare: 0 };

struct Process {
    flight: Flight,
    slot: Box<ProcessSlot>,
    gpu: Gpu,
    charged: i64,
    copied: i64,
}

/// Times in nanoseconds, the same on processor and GPU.
#[derive(Default)]
struct Gpu {
    now: u64,
    ends: HashMap<u64, u64>, // by stream
    here: u64,
    events: HashMap<u64, u64>,
    records: usize,
    refuses: bool,
    tells_late: u64, // that an event was reached
    neighbour: Option<u64>,
    ended: Option<u64>,
    siblings: Option<u64>,
    pass: bool,
    launched: Vec<(u64, &'static Estimate, u64)>, // stream, signature, charged
    part: Option<f64>,                            // beside others under MPS
    weight: f64,                                  // that was asked for last
    words: Vec<(u64, u64, u64)>,                  // when the GPU writes, where, and what
    spent: Vec<Span>,
    waits: Vec<u64>, // for pieces
    opens: u64,      // when they are let go
}

impl Driver for Gpu {
    fn record(&mut self, event: u64, place: Place) -> bool {
        assert_ne!(place, Place::NOWHERE, "a mark where none may be");
        let stream = if place == Place::HERE { self.here } else { place.0 };
        let at = self.now.max(self.ends.get(&stream).copied().unwrap_or(0));
        if !self.refuses {
            self.events.insert(event, at);
            self.records += 1;
        }
        !self.refuses
    }

    fn write(&mut self, address: u64, value: u64) -> bool {
        let at = self.now.max(self.ends.get(&self.here).copied().unwrap_or(0));
        self.words.push((at, address, value));
        !self.refuses
    }

    fn wait(&mut self, _address: u64, number: u64) -> bool {
        self.waits.push(number);
        let ends = self.ends.entry(self.here).or_default();
        *ends = (*ends).max(self.opens);
        true
    }

    fn reached(&mut self, event: u64) -> bool {
        self.events[&event] + self.tells_late <= self.now
    }

    fn elapsed(&mut self, from: u64, to: u64) -> Option<f64> {
        Some(self.events[&to] as f64 - self.events[&from] as f64)
    }

    fn now(&mut self) -> Nanos {
        Nanos(self.now)
    }

    fn overlaps(&mut self) -> bool {
        self.part.is_some()
    }

    fn beside(&mut self, _: (Nanos, Nanos)) -> Weight {
        Weight::steady(1.0)
    }

    fn part(&mut self, weight: Weight, _: (Nanos, Nanos)) -> f64 {
        self.weight = weight.mean;
        self.part.unwrap_or(1.0)
    }

    fn neighbours(&mut self) -> Neighbours {
        Neighbours { quiet: self.neighbour, ended: self.ended, siblings: self.siblings, pass: self.pass }
    }

    fn launches(&mut self, stream: u64, charged: u64, parts: &mut Parts) {
        parts.clear();
        let mine: Vec<_> = self.launched.extract_if(.., |launch| launch.0 == stream).collect();
        assert!(mine.is_empty() || mine.iter().map(|launch| launch.2).sum::<u64>() == charged);
        let mut counts: Vec<(&'static Estimate, u32)> = Vec::new();
        for (_, estimate, _) in mine {
            match counts.iter_mut().find(|(known, _)| std::ptr::eq(*known, estimate)) {
                Some((_, count)) => *count += 1,
                None => counts.push((estimate, 1)),
            }
        }
        assert!(counts.into_iter().all(|(estimate, count)| parts.add(estimate, count)));
    }

    fn spent(&mut self, span: Span) {
        self.spent.push(span);
    }
}

fn process() -> Process {
    let slot = Box::new(zerocopy::FromZeros::new_zeroed());
    let gpu = Gpu { now: 1, neighbour: Some(0), siblings: Some(0), ..Gpu::default() };
    let process = Process { flight: Flight::default(), slot, gpu, charged: 0, copied: 0 };
    process.flight.add_events(1..=8);
    process.flight.opens(STREAM, Place(STREAM), THREAD);
    process.flight.opens(OTHER, Place(OTHER), THREAD);
    process
}

fn guess(price_ns: u64) -> &'static Estimate {
    Box::leak(Box::new(Estimate::guess(price_ns)))
}

impl Process {
    fn in_flight(&self) -> u64 {
        in_flight(&self.slot).0
    }

    fn submit(&mut self, stream: u64, ns: u64) {
        self.gpu.here = stream;
        self.flight.submitted(stream, 1, ns, &self.slot);
    }

    /// Launches a kernel that truly takes `took`, charged by its estimate.
    fn launch(&mut self, stream: u64, estimate: &'static Estimate, took: u64) {
        let price = estimate.price().unsigned_abs();
        let end = self.gpu.ends.entry(stream).or_default();
        *end = (*end).max(self.gpu.now) + took;
        self.gpu.launched.push((stream, estimate, price));
        self.charged += price.cast_signed();
        self.submit(stream, price);
    }

    /// Copies to the device what truly takes `took`.
    fn copy(&mut self, stream: u64, bytes: u64, took: u64) {
        let end = self.gpu.ends.entry(stream).or_default();
        *end = (*end).max(self.gpu.now) + took;
        self.gpu.here = stream;
        self.copied += self.flight.copied(stream, CopyWay::HostToDevice, 1, bytes).cast_signed();
    }

    fn mark(&mut self, stream: u64) -> bool {
        self.gpu.here = stream;
        self.flight.mark(stream, Due { work: Nanos(0), time: Nanos(0), spare: 0 }, &mut self.gpu)
    }

    fn harvest(&mut self) -> Settled {
        let settled = self.flight.harvest(&self.slot, &mut self.gpu);
        self.charged += settled.correction_ns;
        self.copied += settled.copies_ns[0];
        settled
    }

    fn wait(&mut self, until: u64) {
        self.gpu.now = self.gpu.now.max(until);
        self.harvest();
    }

    fn drain(&mut self) {
        self.wait(self.gpu.ends.values().copied().max().unwrap_or(0));
    }
}
