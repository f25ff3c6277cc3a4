//! What copies take of the copy engines: a price for each call and one for each 4 KiB, for each way.
//!
//! Straight lines and not size classes: an engine moves bytes at a steady rate behind a start-up time, a program's copies
//! have any size, and with two numbers each way the first large copy says what all others will take. They are learnt as
//! the prices of launches are, from the same stretches, so that a stretch of both tells them apart (`price::learn`).
//!
//! Calls that return when their copy is done are timed by the program's own clock, and have lines of their own: their
//! memory is often pageable, which the driver copies in pieces through memory of its own.

use weir_protocol::pages::CopyWay;

use crate::price::{Estimate, Known, Parts, Took, whole};

/// Bytes of a unit: small enough that its price stays above a nanosecond on the fastest link.
const UNIT: u64 = 4 << 10;

/// Guesses, which the first large copy replaces: a 4-byte copy takes 1-2 us on PCIe devices ...
const CALL_NS: u64 = 2_000;

/// ... and PCIe 4.0 x16 moves 25 GB/s.
const UNIT_NS: u64 = 160;

/// A copy that says something of the bandwidth, in bytes.
pub const LARGE: u64 = 1 << 20;

/// The ways of the copy engines.
pub const ENGINES: usize = CopyWay::ENGINES;

/// Ever-growing sums of a stream's copies, by way; or what lies between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Calls.
    pub calls: [u64; ENGINES],
    /// Units of 4 KiB.
    pub units: [u64; ENGINES],
    /// Time predicted, in nanoseconds.
    pub predicted_ns: [u64; ENGINES],
}

/// One way's line.
#[derive(Debug)]
struct Line {
    call: Estimate,
    unit: Estimate,
}

/// All lines of a context.
#[derive(Debug)]
pub struct CopyPrices {
    engines: [Line; ENGINES],
    waited: [Line; ENGINES],
}

/// Units of so many bytes, to the nearest.
pub fn units(bytes: u64) -> u64 {
    bytes.saturating_add(UNIT / 2) / UNIT
}

impl Line {
    const fn guess() -> Self {
        Self { call: Estimate::rough(CALL_NS), unit: Estimate::rough(UNIT_NS) }
    }

    fn time(&self, calls: u64, units: u64) -> f64 {
        calls as f64 * self.call.mean() + units as f64 * self.unit.mean()
    }

    fn add_to(&'static self, calls: u64, units: u64, parts: &mut Parts) -> bool {
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        calls == 0 || (parts.add(&self.call, count(calls)) && parts.add(&self.unit, count(units)))
    }
}

impl CopyPrices {
    /// Guesses. Leaked on purpose, as all prices are: a program makes a handful of contexts in its life.
    pub fn leak() -> &'static Self {
        let lines = || std::array::from_fn(|_| Line::guess());
        Box::leak(Box::new(Self { engines: lines(), waited: lines() }))
    }

    /// What so many copies in a stream, of so many bytes in all, are expected to take, in nanoseconds.
    pub fn predict(&self, way: CopyWay, calls: u64, bytes: u64) -> u64 {
        self.engines.get(way as usize).map_or(0, |line| whole(line.time(calls, units(bytes))))
    }

    /// Whether a copy this way is worth a mark before it and one behind it: little is known of the bandwidth, and this says
    /// something of it.
    pub fn wants_bracket(&self, way: CopyWay, bytes: u64) -> bool {
        let known = self.engines.get(way as usize).is_none_or(|line| line.unit.known() == Known::Mean);
        !known && bytes >= LARGE
    }

    /// What a call takes that returns when its copy is done, in nanoseconds; the engine's time as long as none was timed.
    pub fn predict_waited(&self, way: CopyWay, bytes: u64) -> u64 {
        let known =
            |lines: &[Line; ENGINES]| lines.get(way as usize).is_some_and(|line| line.unit.is_measured());
        let lines = if known(&self.waited) { &self.waited } else { &self.engines };
        lines.get(way as usize).map_or(0, |line| whole(line.time(1, units(bytes))))
    }

    /// Such a call took so long, and had nothing else to wait for.
    pub fn waited(&'static self, way: CopyWay, bytes: u64, ns: u64) {
        let mut parts = Parts::with_room();
        if bytes >= LARGE
            && let Some(line) = self.waited.get(way as usize)
            && line.add_to(1, units(bytes), &mut parts)
        {
            parts.learn(Took::exactly(ns as f64));
        }
    }

    /// What these copies are expected to take by way, in nanoseconds.
    pub fn times(&self, copies: &Tally) -> [f64; ENGINES] {
        std::array::from_fn(|way| self.engines[way].time(copies.calls[way], copies.units[way]))
    }

    /// Adds the copies to the launches of a stretch; says whether there was room.
    pub fn add_to(&'static self, copies: &Tally, parts: &mut Parts) -> bool {
        let mut lines = self.engines.iter().enumerate();
        lines.all(|(way, line)| line.add_to(copies.calls[way], copies.units[way], parts))
    }
}

impl Tally {
    /// All predicted time, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.predicted_ns.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns))
    }

    /// What came after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let minus =
            |a: &[u64; ENGINES], b: &[u64; ENGINES]| std::array::from_fn(|n| a[n].saturating_sub(b[n]));
        Self {
            calls: minus(&self.calls, &earlier.calls),
            units: minus(&self.units, &earlier.units),
            predicted_ns: minus(&self.predicted_ns, &earlier.predicted_ns),
        }
    }

    /// The only way that these copies went.
    pub fn only_way(&self) -> Option<usize> {
        let mut ways = (0..ENGINES).filter(|way| self.calls[*way] > 0);
        ways.next().filter(|_| ways.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_copy_says_what_all_others_of_its_way_take() {
        let prices = CopyPrices::leak();
        let copies = Tally { calls: [1, 0, 0], units: [units(64 << 20), 0, 0], predicted_ns: [0; 3] };
        let mut parts = Parts::with_room();
        assert!(prices.add_to(&copies, &mut parts));
        parts.learn(Took::exactly((64 << 20) as f64 / 2.0)); // 2 GB/s
        let predicted = prices.predict(CopyWay::HostToDevice, 1, 8 << 20) as f64;
        assert!((predicted / ((8 << 20) as f64 / 2.0) - 1.0).abs() < 0.01, "{predicted}");
        let other = prices.predict(CopyWay::DeviceToHost, 1, 8 << 20);
        assert_eq!(other, CALL_NS + units(8 << 20) * UNIT_NS, "another way, another line");
    }

    #[test]
    fn start_up_and_bandwidth_are_told_apart() {
        let prices = CopyPrices::leak();
        for round in 0..60u64 {
            let (calls, bytes) = if round % 2 == 0 { (1, 16 << 20) } else { (100, 100 << 12) };
            let copies = Tally { calls: [0, calls, 0], units: [0, units(bytes), 0], predicted_ns: [0; 3] };
            let mut parts = Parts::with_room();
            assert!(prices.add_to(&copies, &mut parts));
            parts.learn(Took::exactly(calls as f64 * 9_000.0 + bytes as f64 / 12.0));
        }
        let small = prices.predict(CopyWay::DeviceToHost, 1, 4096) as f64;
        assert!((small / (9_000.0 + 4096.0 / 12.0) - 1.0).abs() < 0.05, "{small}");
        let large = prices.predict(CopyWay::DeviceToHost, 1, 32 << 20) as f64;
        assert!((large / (9_000.0 + (32 << 20) as f64 / 12.0) - 1.0).abs() < 0.02, "{large}");
    }

    #[test]
    fn the_first_large_copies_each_way_are_measured_by_themselves() {
        let prices = CopyPrices::leak();
        assert!(!prices.wants_bracket(CopyWay::HostToDevice, 4096), "that says nothing of a bandwidth");
        let copies = Tally { calls: [1, 0, 0], units: [256, 0, 0], predicted_ns: [0; 3] };
        for _ in 0..3 {
            assert!(prices.wants_bracket(CopyWay::HostToDevice, LARGE));
            let mut parts = Parts::with_room();
            assert!(prices.add_to(&copies, &mut parts));
            parts.learn(Took::exactly(45_000.0));
        }
        assert!(!prices.wants_bracket(CopyWay::HostToDevice, LARGE));
        assert!(prices.wants_bracket(CopyWay::Peer, LARGE) && !prices.wants_bracket(CopyWay::Fill, LARGE));
    }

    #[test]
    fn calls_that_wait_have_lines_of_their_own() {
        let prices = CopyPrices::leak();
        prices.waited(CopyWay::HostToDevice, 64 << 20, 30_000_000);
        prices.waited(CopyWay::HostToDevice, 4, 900_000_000); // says nothing of a bandwidth
        let waited = prices.predict_waited(CopyWay::HostToDevice, 64 << 20) as f64;
        assert!((waited / 30e6 - 1.0).abs() < 0.01, "{waited}");
        assert!(prices.predict(CopyWay::HostToDevice, 1, 64 << 20) < 4_000_000);
    }

    #[test]
    fn copies_that_go_two_ways_have_no_way() {
        let one = Tally { calls: [0, 2, 0], ..Tally::default() };
        assert_eq!((one.only_way(), Tally::default().only_way()), (Some(1), None));
        assert_eq!(Tally { calls: [1, 1, 0], ..Tally::default() }.only_way(), None);
    }
}
