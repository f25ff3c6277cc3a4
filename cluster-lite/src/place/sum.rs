//! Weighted sums of scores: `pwr*0.1+fgd*0.9`.

use super::score::{Part, Pick, Score, Seen};
use crate::cluster::Slice;

/// One of the added scores.
pub struct Weighted {
    /// Its name.
    pub name: String,
    /// What it rates.
    pub score: Box<dyn Score>,
    /// What its rating is multiplied by.
    pub weight: f64,
}

/// Scores, each by a weight, added. They take a node's GPUs by one rule; where that is the rating, by the sum.
pub struct Sum(pub Vec<Weighted>);

impl Score for Sum {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        self.0.iter().map(|part| part.weight * part.score.rate(seen, slices)).sum()
    }

    fn admits(&self, seen: &Seen<'_>, slice: &Slice) -> bool {
        self.0.iter().all(|part| part.score.admits(seen, slice))
    }

    fn condition(&self) -> Option<String> {
        let all: Vec<_> = self.0.iter().filter_map(|part| part.score.condition()).collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }

    fn pick(&self) -> Pick {
        self.0.first().map_or(Pick::Rated, |part| part.score.pick())
    }

    fn parts(&self, seen: &Seen<'_>, slices: &[Slice]) -> Vec<Part> {
        let part = |part: &Weighted| Part {
            name: part.name.clone(),
            rating: part.score.rate(seen, slices),
            weight: part.weight,
        };
        self.0.iter().map(part).collect()
    }
}
