//! `together`: who sits well beside whom. Least of three costs, in GPUs:
//!
//! ```text
//! cost = idle GPUs that are woken + 0.8 x latency tenants expected to be short at a moment (shortage.rs) + what is left unused
//! ```
//!
//! The shortage knows what a cap on the sum of limits does not: training can wait and inference cannot, and bursts seldom come
//! at once. So the cap may lie higher than Dilu's. The weight and the cap that goes with it were chosen
//! on twelve mixes of each size, seeds 101 to 112; from 0.5 to 1.0 and from 155 % to 165 % all are near. The benchmark draws
//! other mixes. What is left unused is that of `dilu`; GPUs that hold the demand's backbone come first (ServerlessLoRA, arXiv
//! 2505.14468): they have more left for others.

use super::dilu::{gpu, left};
use super::score::{Part, Score, Seen};
use super::shortage::{Wants, short, wants};
use crate::cluster::{Kind, Slice};

/// Gamma: limits on one GPU sum to at most 160 %.
pub const LIMITS: u32 = 1_600;

/// GPUs that a tenant is worth which is short all the time.
const SHORT: f64 = 0.8;
/// GPUs that a GPU in use is worth which is left wholly free.
const UNUSED: f64 = 1.0;
/// GPUs that loading a backbone once more is worth.
const BACKBONE: f64 = 0.2;

/// Least cost in GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Together;

impl Score for Together {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        self.parts(seen, slices).iter().map(|part| part.weight * part.rating).sum()
    }

    fn parts(&self, seen: &Seen<'_>, slices: &[Slice]) -> Vec<Part> {
        let sum = |cost: &dyn Fn(&Slice) -> f64| -slices.iter().map(cost).sum::<f64>();
        let part = |name: &str, rating: f64, weight: f64| Part { name: name.into(), rating, weight };
        let woken = |slice: &Slice| f64::from(u8::from(gpu(seen, slice).is_idle()));
        vec![
            part("woken GPUs", sum(&woken), 1.0),
            part("tenants short", sum(&|slice| more_short(seen, slice)) - cut_short(seen, slices), SHORT),
            part("left unused", sum(&|slice| left(seen, slice)), UNUSED),
            part("backbones loaded", sum(&|slice| loads(seen, slice)), BACKBONE),
        ]
    }
}

/// How many more tenants of a GPU would be short at a moment.
fn more_short(seen: &Seen<'_>, slice: &Slice) -> f64 {
    let here = gpu(seen, slice);
    let own = matches!(seen.demand.kind, Kind::Inference | Kind::Llm)
        .then(|| Wants { more: u32::from(slice.limit.as_permille() - slice.request.as_permille()) });
    let before = short(here.free(), wants(here));
    let left = here.free().saturating_sub(u32::from(slice.request.as_permille()));
    short(left, wants(here).chain(own)) - before
}

/// A cut language model cannot burst.
fn cut_short(seen: &Seen<'_>, slices: &[Slice]) -> f64 {
    let cut = slices.len() > usize::from(seen.demand.gpus) && seen.demand.limit > seen.demand.request;
    if cut { super::shortage::BURST } else { 0.0 }
}

fn loads(seen: &Seen<'_>, slice: &Slice) -> f64 {
    let lacks = seen.demand.backbone.as_ref().is_some_and(|backbone| !gpu(seen, slice).holds(backbone));
    f64::from(u8::from(lacks))
}
