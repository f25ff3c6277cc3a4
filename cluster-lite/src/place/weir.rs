//! `weir`, the default: fragmentation gradient descent against all that is expected, uncut.

use super::fgd::Fgd;
use super::score::{Score, Seen};
use super::workload::Workload;
use crate::cluster::Slice;

/// The default.
#[derive(Clone, Debug)]
pub struct Weir {
    fgd: Fgd,
}

impl Weir {
    /// Against `workload`, all kinds of it.
    pub fn new(workload: &Workload) -> Self {
        Self { fgd: Fgd::exact(workload) }
    }
}

impl Score for Weir {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        self.fgd.rate(seen, slices)
    }
}
