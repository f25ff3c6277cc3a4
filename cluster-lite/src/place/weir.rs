//! `weir`, the default: the least rise of fragmentation, seen in a way that holds with random ties, and of power.
//!
//! Rating = (before - after), in permille of one GPU, uncut, + 2 x the rating of `pwr`: a demand that adds as many watts as it
//! could anywhere pays as much as for a fifth of a GPU made useless. Where no watts are known that part is the same everywhere.
//!
//! Its fragmentation differs from FGD's in three points:
//!
//! * What a kind can use of a node is the mean of two views: FGD's, and what the kind would take if it came alone, in whole shares
//!   and no further than the processors last ([`Fragments`]). FGD sees processors only when they are too few for one more.
//! * A kind counts by how often it comes over the part of all GPUs that it may use: what can run on few GPUs only is the more
//!   likely to need one of these.
//! * All kinds count, not the most frequent 95 %, and ratings are not cut to whole numbers: places that differ do not become
//!   equal, and then it matters little which of the equals is taken. Ties are drawn.

use super::fragments::{Fragments, Free};
use super::pwr::Pwr;
use super::score::{Part, Score, Seen};
use super::workload::Workload;
use crate::cluster::Slice;

/// What the rating of `pwr`, 0 to 100, is multiplied by.
const POWER: f64 = 2.0;

/// The default.
#[derive(Clone, Debug)]
pub struct Weir {
    fragments: Fragments,
}

impl Weir {
    /// Against `workload`, all kinds of it.
    pub fn new(workload: &Workload) -> Self {
        Self { fragments: Fragments::by_density(workload) }
    }

    /// Permille of one GPU that stay useful.
    fn kept(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        let before = Free::of(seen.node);
        let after = before.less(seen.demand.cpu.0, slices);
        self.fragments.by_both_views(&before) - self.fragments.by_both_views(&after)
    }
}

impl Score for Weir {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        self.kept(seen, slices) + POWER * Pwr.rate(seen, slices)
    }

    fn parts(&self, seen: &Seen<'_>, slices: &[Slice]) -> Vec<Part> {
        let part = |name: &str, rating, weight| Part { name: name.to_owned(), rating, weight };
        vec![part("fragments", self.kept(seen, slices), 1.0), part("pwr", Pwr.rate(seen, slices), POWER)]
    }
}
