//! `clustering`: beside demands of the same size (Gandiva, OSDI 2018, as FGD's authors compare with it).
//!
//! Four grades of nodes, 25 apart: with tenants of this size only; with this size among others; empty of GPU tenants; with other
//! sizes only. Within a grade up to 25 for how full the GPUs are, cut to a whole number. Sizes are a share of a GPU, one GPU,
//! two, and so on. Demands without GPU go anywhere. Within a node the GPU with the least free share that is enough; nodes with
//! equal ratings: the first.

use super::dotprod::LARGEST;
use super::score::{Pick, Score, Seen};
use crate::cluster::{Slice, gang_bit};

/// Beside the same size.
#[derive(Clone, Copy, Debug)]
pub struct Clustering;

impl Score for Clustering {
    fn rate(&self, seen: &Seen<'_>, _slices: &[Slice]) -> f64 {
        let (here, own) = (seen.node.gangs, gang_bit(seen.demand));
        let grade = match () {
            () if own == 0 => return 0.0,
            () if here == own => 75.0,
            () if here & own != 0 => 50.0,
            () if here == 0 => 25.0,
            () => 0.0,
        };
        let used = LARGEST.1 - f64::from(seen.node.gpu_free());
        grade + (25.0 * used / LARGEST.1).trunc()
    }

    fn pick(&self) -> Pick {
        Pick::LeastFree
    }
}
