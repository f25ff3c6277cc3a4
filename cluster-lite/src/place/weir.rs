//! `weir`, the default: what a place costs, in permille of one GPU, all of it in one sum.
//!
//! ```text
//! rating = share that stays useful, before less after, uncut
//!        + 2 x the rating of `pwr`
//!        - 1,000 x ( idle GPUs that are woken
//!                  + 0.8 x latency tenants expected to be short more              (shortage.rs)
//!                  + 6 x rise of what limits on a GPU sum to beyond 160 %
//!                  + rise of the sum of (slowdown - 1) of who has a profile       (undisturbed.rs)
//!                  + 0.2 x backbones loaded once more                             (ServerlessLoRA, arXiv 2505.14468)
//!                  + 0.6 x part of the memory that is left unused )
//! ```
//!
//! A demand that adds as many watts as it could anywhere pays as much as for a fifth of a GPU made useless. What is not known costs the
//! same everywhere: watts, profiles, backbones, limits beyond requests. A GPU on which somebody with a profile would be slowed beyond
//! the ceiling is out of question.
//!
//! Its fragmentation differs from FGD's in three points:
//!
//! * What a kind can use of a node is the mean of two views: FGD's, and what the kind would take if it came alone, in whole shares
//!   and no further than the processors last ([`Fragments`]). FGD sees processors only when they are too few for one more.
//! * A kind counts by how often it comes over the part of all GPUs that it may use: what can run on few GPUs only is the more
//!   likely to need one of these.
//! * All kinds count, not the most frequent 95 %, and ratings are not cut to whole numbers: places that differ do not become
//!   equal, and then it matters little which of the equals is taken. Ties are drawn.
//!
//! The shortage knows what a sum of limits does not: training can wait and inference cannot, and bursts seldom come at once. So
//! limits may sum to more than Dilu's 150 %, and beyond 160 % a GPU is woken rather, if there is one: nobody is refused for limits,
//! which are no promises. The weights of both and of memory were chosen on ten mixes of each size from 100 to 3,200 instances, seeds
//! 42 to 51; the benchmark draws others.

use super::dilu::{gpu, memory_left};
use super::fragments::{Fragments, Free};
use super::pwr::Pwr;
use super::score::{Part, Score, Seen};
use super::shortage::{BURST, Wants, short, wants};
use super::undisturbed::Undisturbed;
use super::workload::Workload;
use crate::cluster::{Kind, Slice};

/// What limits on one GPU should sum to at most, in permille.
const LIMITS: u32 = 1_600;

/// What the rating of `pwr`, 0 to 100, is multiplied by.
const POWER: f64 = 2.0;
/// One GPU, in what ratings count.
const GPU: f64 = 1_000.0;
/// What a tenant costs that is short all the time.
const SHORT: f64 = 0.8 * GPU;
/// What limits cost that sum to one GPU beyond [`LIMITS`].
const BEYOND: f64 = 6.0 * GPU;
/// What it costs to load a backbone once more.
const BACKBONE: f64 = 0.2 * GPU;
/// What a GPU costs that is in use, and of which all memory is left.
const MEMORY: f64 = 0.6 * GPU;

/// The default.
#[derive(Clone, Debug)]
pub struct Weir {
    fragments: Fragments,
    undisturbed: Undisturbed,
}

/// A part of the rating: its name, what it rates, and what that is multiplied by.
type Term = (&'static str, f64, f64);

impl Weir {
    /// Against `workload`, all kinds of it, with the profiles that it knows.
    pub fn new(workload: &Workload) -> Self {
        let fragments = Fragments::by_density(workload);
        Self { fragments, undisturbed: Undisturbed::of_profiled(workload) }
    }

    /// Permille of one GPU that stay useful.
    fn kept(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        let before = Free::of(seen.node);
        let after = before.less(seen.demand.cpu.0, slices);
        self.fragments.by_both_views(&before) - self.fragments.by_both_views(&after)
    }

    fn terms(&self, seen: &Seen<'_>, slices: &[Slice]) -> [Term; 8] {
        let sum = |cost: &dyn Fn(&Slice) -> f64| -slices.iter().map(cost).sum::<f64>();
        let count = |which: &dyn Fn(&Slice) -> bool| sum(&|slice| f64::from(u8::from(which(slice))));
        [
            ("fragments", self.kept(seen, slices), 1.0),
            ("pwr", Pwr.rate(seen, slices), POWER),
            ("woken GPUs", count(&|slice| gpu(seen, slice).is_idle()), GPU),
            ("tenants short", sum(&|slice| more_short(seen, slice)) - cut_short(seen, slices), SHORT),
            ("limits beyond", sum(&|slice| more_beyond(seen, slice)), BEYOND),
            ("slowdown", sum(&|slice| self.undisturbed.rise(seen, slice)), GPU),
            ("backbones loaded", count(&|slice| loads(seen, slice)), BACKBONE),
            ("memory unused", sum(&|slice| memory_left(seen, slice)), MEMORY),
        ]
    }
}

impl Score for Weir {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        self.terms(seen, slices).iter().map(|(_, rating, weight)| rating * weight).sum()
    }

    fn admits(&self, seen: &Seen<'_>, slice: &Slice) -> bool {
        self.undisturbed.admits(seen, slice)
    }

    fn condition(&self) -> Option<String> {
        self.undisturbed.condition()
    }

    fn parts(&self, seen: &Seen<'_>, slices: &[Slice]) -> Vec<Part> {
        let part = |(name, rating, weight): Term| Part { name: name.to_owned(), rating, weight };
        self.terms(seen, slices).map(part).into()
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

/// By how much more limits on a GPU pass [`LIMITS`], in GPUs.
fn more_beyond(seen: &Seen<'_>, slice: &Slice) -> f64 {
    let beyond = |limits: u32| f64::from(limits.saturating_sub(LIMITS)) / 1_000.0;
    let limits = gpu(seen, slice).limits;
    beyond(limits + u32::from(slice.limit.as_permille())) - beyond(limits)
}

/// A cut language model cannot burst.
fn cut_short(seen: &Seen<'_>, slices: &[Slice]) -> f64 {
    let cut = slices.len() > usize::from(seen.demand.gpus) && seen.demand.limit > seen.demand.request;
    if cut { BURST } else { 0.0 }
}

/// Whether it would load its backbone there.
fn loads(seen: &Seen<'_>, slice: &Slice) -> bool {
    seen.demand.backbone.as_ref().is_some_and(|backbone| !gpu(seen, slice).holds(backbone))
}
