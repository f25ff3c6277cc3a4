//! `fgd`: fragmentation gradient descent (USENIX ATC 2023): where the fragmentation rises least.
//!
//! Rating = 100 x sigmoid((before - after) / 1000), fragmentation in permille of one GPU, cut to a whole number. Against the most
//! frequent kinds, as many as make up 95 % of what is expected. Nodes with equal ratings: the first. All of it as in the
//! published runs; the rule for ties matters much: the cut makes many nodes equal.

use super::fragments::{Fragments, Free};
use super::score::{Score, Seen};
use super::workload::Workload;
use crate::cluster::Slice;

/// Part of what is expected that counts.
const COUNTED: f64 = 0.95;

/// Fragmentation gradient descent.
#[derive(Clone, Debug)]
pub struct Fgd {
    fragments: Fragments,
}

impl Fgd {
    /// Against the most frequent kinds of `workload`.
    pub fn new(workload: &Workload) -> Self {
        Self { fragments: Fragments::new(&workload.covering(COUNTED)) }
    }
}

impl Score for Fgd {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        let before = Free::of(seen.node);
        let after = before.less(seen.demand.cpu.0, slices);
        let less = self.fragments.of(&before) - self.fragments.of(&after);
        (100.0 / (1.0 + (-less / 1000.0).exp())).floor()
    }
}
