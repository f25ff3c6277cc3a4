//! `bestfit`: where the least is left over.
//!
//! Rating = 100 x (1 - left), cut to a whole number; left is half the processors and half the GPU share of the node that stay
//! free, in parts of the largest node. Within a node the GPU with the least free share that is enough; nodes with equal ratings:
//! the first.

use super::dotprod::LARGEST;
use super::score::{Pick, Score, Seen};
use crate::cluster::Slice;

/// Least left over.
#[derive(Clone, Copy, Debug)]
pub struct BestFit;

impl Score for BestFit {
    fn rate(&self, seen: &Seen<'_>, _slices: &[Slice]) -> f64 {
        let cpu = seen.node.cpu_free.0 - seen.demand.cpu.0;
        let gpu = seen.node.gpu_free().saturating_sub(seen.demand.total_request());
        let left = f64::from(cpu) / LARGEST.0 * 0.5 + f64::from(gpu) / LARGEST.1 * 0.5;
        (100.0 * (1.0 - left)).floor()
    }

    fn pick(&self) -> Pick {
        Pick::LeastFree
    }
}
