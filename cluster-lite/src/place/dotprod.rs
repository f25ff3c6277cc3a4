//! `dotprod`: where demand and free resources point least in the same direction (Tetris, SIGCOMM 2014, as FGD's authors
//! compare with it: all GPUs of a node as one dimension).
//!
//! Rating = 100 x (1 - d / 2), cut to a whole number; d is the product of (processors, GPU share) demanded and free, each in
//! parts of the largest node ([`LARGEST`]). Within a node the GPU with the least free share that is enough; nodes with equal
//! ratings: the first.

use super::score::{Pick, Score, Seen};
use crate::cluster::Slice;

/// Processors and GPU share of the largest node, both in thousandths: what the published runs divide by.
pub const LARGEST: (f64, f64) = (128_000.0, 8_000.0);

/// Least dot product.
#[derive(Clone, Copy, Debug)]
pub struct DotProduct;

impl Score for DotProduct {
    fn rate(&self, seen: &Seen<'_>, _slices: &[Slice]) -> f64 {
        let cpu = f64::from(seen.node.cpu_free.0) / LARGEST.0 * (f64::from(seen.demand.cpu.0) / LARGEST.0);
        let free = f64::from(seen.node.gpu_free()) / LARGEST.1;
        let gpu = free * (f64::from(seen.demand.total_request()) / LARGEST.1);
        (100.0 * (1.0 - (cpu + gpu) / 2.0)).floor()
    }

    fn pick(&self) -> Pick {
        Pick::LeastFree
    }
}
