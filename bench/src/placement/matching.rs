//! Exact maximum-weight matching in a general graph, as a linear programme with cuts.
//!
//! That each place is in one pair at most leaves only odd cycles of half pairs; an odd set of places holds at most half of its
//! size, rounded down, in pairs (Edmonds). These cuts are added where a solution breaks them, until it is whole; what they do not
//! mend is branched on. Crates for such matchings are unmaintained, or bring licences that are not allowed here.

use std::io;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, Variable};

/// How far a value may be from whole and count as it.
const WHOLE: f64 = 1e-6;
/// Rounds of cuts before branching.
const ROUNDS: usize = 200;

/// A possible pair and its variable.
type Edge = ((usize, usize), Variable);

/// Pairs of the places below `count`, each in one at most, with the greatest sum of weights; none where a pair has no weight.
///
/// # Errors
/// If the solver gives up.
pub fn best(count: usize, weight: impl Fn(usize, usize) -> Option<f64>) -> io::Result<Vec<(usize, usize)>> {
    let all = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
    let weighed: Vec<_> = all.filter_map(|pair| Some((pair, weight(pair.0, pair.1)?))).collect();
    let mut cuts = (0..count).map(|place| Cut { places: vec![place], pairs: 1.0 }).collect::<Vec<_>>();
    for _ in 0..ROUNDS {
        let (edges, solution) = solve(&weighed, &cuts, false)?;
        let broken = broken(count, &edges, &solution);
        let whole = edges.iter().all(|(_, var)| is_whole(solution.var_value(*var)));
        if whole {
            return Ok(taken(&edges, &solution));
        }
        if broken.is_empty() {
            break;
        }
        cuts.extend(broken);
    }
    let (edges, solution) = solve(&weighed, &cuts, true)?;
    Ok(taken(&edges, &solution))
}

/// One place is in one pair at most; an odd set of them holds so many.
struct Cut {
    places: Vec<usize>,
    pairs: f64,
}

impl Cut {
    /// Whether a pair counts: with one place its every pair, with more those inside.
    fn counts(&self, pair: (usize, usize)) -> bool {
        let inside = |place| self.places.contains(&place);
        if self.places.len() == 1 {
            inside(pair.0) || inside(pair.1)
        } else {
            inside(pair.0) && inside(pair.1)
        }
    }
}

fn solve(weighed: &[((usize, usize), f64)], cuts: &[Cut], whole: bool) -> io::Result<(Vec<Edge>, Solution)> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut add =
        |weight| if whole { problem.add_binary_var(weight) } else { problem.add_var(weight, (0.0, 1.0)) };
    let edges: Vec<_> = weighed.iter().map(|&(pair, weight)| (pair, add(weight))).collect();
    for cut in cuts {
        let inside = edges.iter().filter(|(pair, _)| cut.counts(*pair)).map(|(_, var)| (*var, 1.0));
        problem.add_constraint(&inside.collect::<Vec<_>>()[..], ComparisonOp::Le, cut.pairs);
    }
    let outcome = problem.solve().map_err(io::Error::other)?;
    let solution = outcome
        .into_solution()
        .map_err(|_| io::Error::other("the solver stopped before the best matching"))?;
    Ok((edges, solution))
}

/// The odd sets, connected by pairs that are neither taken nor left, that hold more than they may.
fn broken(count: usize, edges: &[Edge], solution: &Solution) -> Vec<Cut> {
    let mut set: Vec<_> = (0..count).collect();
    for ((one, other), _) in edges.iter().filter(|(_, var)| !is_whole(solution.var_value(*var))) {
        let (from, to) = (set[*one], set[*other]);
        set.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
    }
    let members = |of: usize| (0..count).filter(|place| set[*place] == of).collect::<Vec<_>>();
    let odd = (0..count).map(members).filter(|places| places.len() > 1 && places.len() % 2 == 1);
    #[allow(clippy::cast_precision_loss, reason = "some dozens of places")]
    let cuts = odd.map(|places| Cut { pairs: (places.len() / 2) as f64, places });
    let held = |cut: &Cut| {
        let inside = edges.iter().filter(|(pair, _)| cut.counts(*pair));
        inside.map(|(_, var)| solution.var_value(*var)).sum::<f64>()
    };
    cuts.filter(|cut| held(cut) > cut.pairs + WHOLE).collect()
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() < WHOLE
}

fn taken(edges: &[Edge], solution: &Solution) -> Vec<(usize, usize)> {
    edges.iter().filter(|(_, var)| solution.var_value(*var) > 0.5).map(|(pair, _)| *pair).collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha12Rng;

    use super::*;

    /// The most weight by trying everything: the first free place stays alone or takes each partner.
    fn tried(free: &[usize], weight: &dyn Fn(usize, usize) -> Option<f64>) -> f64 {
        let Some((&first, rest)) = free.split_first() else { return 0.0 };
        let with = |at: usize| {
            let left: Vec<_> =
                rest.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, place)| *place).collect();
            Some(weight(first, rest[at])? + tried(&left, weight))
        };
        (0..rest.len()).filter_map(with).fold(tried(rest, weight), f64::max)
    }

    #[test]
    fn the_matching_is_the_best_of_all() {
        let mut random = ChaCha12Rng::seed_from_u64(1);
        for round in 0..30 {
            let count = 5 + round % 6;
            let cells = 0..count * count;
            // Few different weights, so that there are ties and odd cycles of equals.
            let mut draw = || random.random_bool(0.7).then(|| f64::from(random.random_range(1..5_u32)));
            let weights: Vec<_> = cells.map(|_| draw()).collect();
            let weight = |one: usize, other: usize| weights[one.min(other) * count + one.max(other)];
            let pairs = best(count, weight).unwrap();
            let sum: f64 = pairs.iter().map(|&(one, other)| weight(one, other).unwrap()).sum();
            let heaviest = tried(&(0..count).collect::<Vec<_>>(), &weight);
            assert!((sum - heaviest).abs() < 1e-9, "{sum} against {heaviest}");
            let mut places: Vec<_> = pairs.iter().flat_map(|&(one, other)| [one, other]).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 2 * pairs.len(), "each place is in one pair at most");
        }
    }
}
