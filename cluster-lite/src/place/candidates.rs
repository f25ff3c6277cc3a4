//! The ways in which a demand can sit on one node.

use crate::cluster::{Demand, GpuState, Slice, piece};

use super::score::{Pick, Score, Seen};

/// A way to sit on a node, with its rating.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// How good it is: higher is better.
    pub rating: f64,
    /// The parts of GPUs.
    pub slices: Vec<Slice>,
}

/// The best way of `seen.demand` on `seen.node` under `score`; nothing when there is none. Where GPUs are drawn, the first with
/// room stands for all.
pub fn best(score: &dyn Score, seen: &Seen<'_>) -> Option<Offer> {
    if !seen.node.suits(seen.demand) {
        return None;
    }
    let rated = |slices: Vec<Slice>| Offer { rating: score.rate(seen, &slices), slices };
    match seen.demand.gpus {
        0 => Some(rated(Vec::new())),
        1 => better(best_single(score, seen), fragments(score, seen).map(rated)),
        gang => take(score, seen, piece(seen.demand, 1), usize::from(gang)).map(rated),
    }
}

/// One piece or several: one, unless several are rated higher.
fn better(one: Option<Offer>, several: Option<Offer>) -> Option<Offer> {
    match (one, several) {
        (Some(one), Some(several)) if several.rating > one.rating => Some(several),
        (one, several) => one.or(several),
    }
}

/// The GPUs of the node that have room for `part`, and that the score admits.
pub fn with_room<'a>(
    score: &'a dyn Score,
    seen: &'a Seen<'_>,
    part: Slice,
) -> impl Iterator<Item = Slice> + 'a {
    let slices = (0u8..).zip(&seen.node.gpus).map(move |(gpu, _)| Slice { gpu, ..part });
    let roomy = slices.filter(|slice| seen.node.has_room(slice, seen.demand, seen.classes, seen.bounds));
    roomy.filter(|slice| score.admits(seen, slice))
}

fn best_single(score: &dyn Score, seen: &Seen<'_>) -> Option<Offer> {
    let part = piece(seen.demand, 1);
    let rated = |slice: Slice| Offer { rating: score.rate(seen, &[slice]), slices: vec![slice] };
    if score.pick() != Pick::Rated {
        return take(score, seen, part, 1).and_then(|slices| slices.first().copied()).map(rated);
    }
    let mut tried: Vec<&GpuState> = Vec::with_capacity(seen.node.gpus.len());
    let mut best: Option<(f64, Slice)> = None;
    for slice in with_room(score, seen, part) {
        let gpu = &seen.node.gpus[usize::from(slice.gpu)];
        if tried.contains(&gpu) {
            continue; // one like it was tried, under a smaller number
        }
        tried.push(gpu);
        let rating = score.rate(seen, &[slice]);
        if best.is_none_or(|(most, _)| rating > most) {
            best = Some((rating, slice));
        }
    }
    best.map(|(rating, slice)| Offer { rating, slices: vec![slice] })
}

/// `count` GPUs with room for `part` each, by the score's own rule.
fn take(score: &dyn Score, seen: &Seen<'_>, part: Slice, count: usize) -> Option<Vec<Slice>> {
    let mut slices: Vec<Slice> = with_room(score, seen, part).collect();
    if slices.len() < count {
        return None;
    }
    let gpu = |slice: &Slice| &seen.node.gpus[usize::from(slice.gpu)];
    let all_alike = slices.iter().all(|slice| gpu(slice) == gpu(&slices[0]));
    match score.pick() {
        _ if all_alike => {}
        Pick::Drawn => {}
        Pick::LeastFree => slices.sort_by_key(|slice| gpu(slice).free()),
        Pick::Rated => {
            let mut rated: Vec<(f64, Slice)> =
                slices.iter().map(|slice| (score.rate(seen, std::slice::from_ref(slice)), *slice)).collect();
            rated.sort_by(|(one, _), (other, _)| other.total_cmp(one));
            slices = rated.into_iter().map(|(_, slice)| slice).collect();
        }
    }
    slices.truncate(count);
    slices.sort_by_key(|slice| slice.gpu);
    Some(slices)
}

/// The fewest equal pieces that have room on GPUs of this node.
fn fragments(score: &dyn Score, seen: &Seen<'_>) -> Option<Vec<Slice>> {
    let Demand { fragments, .. } = seen.demand;
    (2..=*fragments).find_map(|pieces| take(score, seen, piece(seen.demand, pieces), usize::from(pieces)))
}
