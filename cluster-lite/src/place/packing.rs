//! `packing`: on used GPUs first, then on free GPUs of used nodes, last on free nodes (Alibaba's MLaaS, NSDI 2022, as FGD's
//! authors compare with it).
//!
//! | GPUs taken | rating, in whole numbers |
//! | --- | --- |
//! | all in use before | 100 - the sum of their free percents / 10, not below 50 |
//! | some free, on a used node | 50 - how many of them are free, not below 33 |
//! | on a node whose GPUs are all free | 33 - how many it has, not below their number |
//!
//! Demands without GPU go anywhere. Within a node the GPUs with the least free share that is enough; nodes with equal ratings:
//! the first.

use super::score::{Pick, Score, Seen};
use crate::cluster::Slice;

/// The fullest that will do.
#[derive(Clone, Copy, Debug)]
pub struct Packing;

impl Score for Packing {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        let free = |slice: &Slice| seen.node.gpus[usize::from(slice.gpu)].free();
        let whole = |free: u32| free == 1000;
        let all_free = seen.node.gpus.iter().filter(|gpu| whole(gpu.free())).count();
        if slices.is_empty() {
            return 0.0;
        }
        if all_free == seen.node.gpus.len() {
            let count = all_free as f64;
            return (33.0 - count).max(count);
        }
        let woken = slices.iter().filter(|slice| whole(free(slice))).count();
        if woken > 0 {
            return (50.0 - woken as f64).max(33.0);
        }
        let percents: u32 = slices.iter().map(|slice| free(slice) / 10).sum();
        (100.0 - f64::from(percents / 10)).max(50.0)
    }

    fn pick(&self) -> Pick {
        Pick::LeastFree
    }
}
