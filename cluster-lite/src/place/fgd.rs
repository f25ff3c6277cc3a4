//! `fgd`: fragmentation gradient descent (USENIX ATC 2023): where the fragmentation rises least.
//!
//! Rating = 100 x sigmoid((before - after) / 1000), fragmentation in permille of one GPU. The published code cuts it to whole
//! numbers and breaks ties by the smallest name; so does `fgd`. Uncut it tells places apart that the cut makes equal.

use super::fragments::{Fragments, Free};
use super::score::{Score, Seen};
use super::workload::Workload;
use crate::cluster::Slice;

/// Fragmentation gradient descent.
#[derive(Clone, Debug)]
pub struct Fgd {
    fragments: Fragments,
    cut: bool,
}

impl Fgd {
    /// As published: ratings are whole numbers.
    pub fn published(workload: &Workload) -> Self {
        Self { fragments: Fragments::new(workload), cut: true }
    }

    /// Ratings as exact as they are.
    pub fn exact(workload: &Workload) -> Self {
        Self { fragments: Fragments::new(workload), cut: false }
    }
}

impl Score for Fgd {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        let before = Free::of(seen.node);
        let after = before.less(seen.demand.cpu.0, slices);
        let less = self.fragments.of(&before) - self.fragments.of(&after);
        let rating = 100.0 / (1.0 + (-less / 1000.0).exp());
        if self.cut { rating.floor() } else { rating }
    }
}
