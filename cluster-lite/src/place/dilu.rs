//! `dilu`: two-dimensional best fit (arXiv 2503.05130, section 3.3, and its authors' code).
//!
//! Rating of a GPU = its tier - (0.6 x share left + 0.4 x memory left), in parts of the GPU, after its requests. Tiers, best
//! first: GPUs of a training job that has an instance of the same service on another of its GPUs, so that it is slowed evenly;
//! GPUs in use; pieces of a language model on GPUs in use; idle GPUs. A gang's rating is the mean. Omega 1.0 and gamma 1.5 are
//! the cluster's bounds.

use super::score::{Score, Seen};
use crate::cluster::{GpuState, Slice};

/// Gamma: limits on one GPU sum to at most 150 %.
pub const LIMITS: u32 = 1_500;

/// Weight of the share that is left, and of the memory.
const ALPHA: f64 = 0.6;
const BETA: f64 = 0.4;

/// Two-dimensional best fit.
#[derive(Clone, Copy, Debug)]
pub struct Dilu;

impl Score for Dilu {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        let cut = slices.len() > usize::from(seen.demand.gpus);
        let one = |slice: &Slice| tier(seen, slice, cut) - left(seen, slice);
        slices.iter().map(one).sum::<f64>() / slices.len().max(1) as f64
    }
}

fn tier(seen: &Seen<'_>, slice: &Slice, cut: bool) -> f64 {
    match gpu(seen, slice) {
        gpu if gpu.is_idle() => 0.0,
        _ if cut => 10.0,
        gpu if is_affine(seen, slice, gpu) => 30.0,
        _ => 20.0,
    }
}

/// Whether a training job here has an instance of the demand's service beside it on another GPU, and not yet on this one.
fn is_affine(seen: &Seen<'_>, slice: &Slice, here: &GpuState) -> bool {
    let Some(service) = &seen.demand.service else { return false };
    let serves =
        |gpu: &GpuState| gpu.residents.iter().any(|resident| resident.service.as_ref() == Some(service));
    let gangs = here.residents.iter().filter_map(|resident| resident.gang.as_ref());
    let others = || (0_u8..).zip(&seen.node.gpus).filter(|(gpu, _)| *gpu != slice.gpu).map(|(_, gpu)| gpu);
    let shared = |gang| {
        others().any(|gpu| gpu.residents.iter().any(|other| other.gang.as_ref() == Some(gang)) && serves(gpu))
    };
    !serves(here) && gangs.into_iter().any(shared)
}

/// What stays free of a GPU, weighted, 0 to 1.
pub(super) fn left(seen: &Seen<'_>, slice: &Slice) -> f64 {
    let here = gpu(seen, slice);
    let share = here.free().saturating_sub(u32::from(slice.request.as_permille()));
    ALPHA * f64::from(share) / 1000.0 + BETA * memory_left(seen, slice)
}

/// Part of a GPU's memory that its own leaves free. The backbone is left out: to load it once more fills a GPU, and is no better fit.
pub(super) fn memory_left(seen: &Seen<'_>, slice: &Slice) -> f64 {
    let all = seen.class().map_or(0, |class| class.memory.0);
    let free = all.saturating_sub(gpu(seen, slice).memory.0).saturating_sub(slice.memory.0);
    if all == 0 { 0.0 } else { free as f64 / all as f64 }
}

pub(super) fn gpu<'a>(seen: &Seen<'a>, slice: &Slice) -> &'a GpuState {
    &seen.node.gpus[usize::from(slice.gpu)]
}
