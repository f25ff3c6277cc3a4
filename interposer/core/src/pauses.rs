//! Graphs that pause: while a host function runs that is a node, or a node waits for somebody else, the graph is under way and
//! perhaps none of its kernels is. Which moments of a launch have to be known to tell how long one was.
//!
//! The work between pauses is told apart by which pauses it comes behind, its *past*. All work of one past may begin when the
//! last pause in it has ended. From then on until it is done some of it runs, or what that waits for does, which has a smaller
//! past: so the times of all pasts together, each from the end of its last pause to the end of its work, are the time in which
//! something of the graph ran. It holds for any graph, with branches or without.

use std::collections::BTreeMap;

/// Pauses, one bit each.
pub type Pauses = u64;

/// Pauses that are told apart.
pub const MOST: u32 = Pauses::BITS;

/// Which pauses each node of a graph comes behind. `inside` says for each node which it is, or has inside; `past` are those
/// that the whole graph comes behind. `None`: the edges go round in a circle.
pub fn pasts(inside: &[Pauses], edges: &[(usize, usize)], past: Pauses) -> Option<Vec<Pauses>> {
    let edges = || edges.iter().filter(|(from, to)| *from < inside.len() && *to < inside.len());
    let (mut pasts, mut missing) = (vec![past; inside.len()], vec![0usize; inside.len()]);
    let mut behind = vec![Vec::new(); inside.len()];
    for (from, to) in edges() {
        behind[*from].push(*to);
        missing[*to] += 1;
    }
    let mut order: Vec<usize> = (0..inside.len()).filter(|node| missing[*node] == 0).collect();
    let mut next = 0;
    while let Some(node) = order.get(next).copied() {
        next += 1;
        for to in &behind[node] {
            pasts[*to] |= pasts[node] | inside[node];
            missing[*to] -= 1;
            if missing[*to] == 0 {
                order.push(*to);
            }
        }
    }
    (order.len() == inside.len()).then_some(pasts)
}

/// The work of a graph by its past: of each the nodes behind which no other of the same past comes, so that it is done when
/// they are. What has pauses inside is no work.
pub fn ends(inside: &[Pauses], edges: &[(usize, usize)], pasts: &[Pauses]) -> BTreeMap<Pauses, Vec<usize>> {
    let works = |node: usize| inside.get(node) == Some(&0);
    let mut followed = vec![false; inside.len()];
    for (from, to) in edges {
        if works(*from) && works(*to) && pasts.get(*from) == pasts.get(*to) {
            followed[*from] = true;
        }
    }
    let mut ends: BTreeMap<Pauses, Vec<usize>> = BTreeMap::new();
    for (node, past) in pasts.iter().enumerate().filter(|(node, _)| works(*node) && !followed[*node]) {
        ends.entry(*past).or_default().push(node);
    }
    ends
}

/// For how long something ran, by the times of all pasts, from and to: what lies in several counts once. `None` if one ended before
/// it began: then these are no times of one launch.
pub fn ran(mut times: Vec<(f64, f64)>) -> Option<f64> {
    times.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut sum, mut until) = (0.0, f64::NEG_INFINITY);
    for (from, to) in times {
        if to < from {
            return None;
        }
        sum += (to - until.max(from)).max(0.0);
        until = until.max(to);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: [Pauses; 2] = [1, 2];

    fn told(inside: &[Pauses], edges: &[(usize, usize)]) -> Vec<(Pauses, Vec<usize>)> {
        let pasts = pasts(inside, edges, 0).expect("no circle");
        ends(inside, edges, &pasts).into_iter().collect()
    }

    #[test]
    fn a_chain_is_told_by_what_lies_between_its_pauses() {
        let inside = [0, 0, HOST[0], 0, HOST[1], 0];
        let edges: Vec<_> = (0..5).map(|node| (node, node + 1)).collect();
        assert_eq!(told(&inside, &edges), [(0, vec![1]), (1, vec![3]), (3, vec![5])]);
    }

    #[test]
    fn a_branch_that_does_not_pause_goes_on_beside_one_that_does() {
        // 0 -> host 1 -> 2 -> 5, and 0 -> 3 -> 4 -> 5.
        let (inside, edges) = ([0, HOST[0], 0, 0, 0, 0], [(0, 1), (1, 2), (2, 5), (0, 3), (3, 4), (4, 5)]);
        assert_eq!(told(&inside, &edges), [(0, vec![4]), (1, vec![5])]);
    }

    #[test]
    fn what_is_inside_of_a_node_comes_behind_all_that_the_node_does() {
        let (inside, edges) = ([HOST[0], 0, HOST[1] | 4, 0], [(0, 1), (1, 2), (2, 3)]);
        let pasts = pasts(&inside, &edges, 8).expect("no circle");
        assert_eq!(pasts, [8, 9, 9, 15]);
        assert_eq!(
            ends(&inside, &edges, &pasts).into_iter().collect::<Vec<_>>(),
            [(9, vec![1]), (15, vec![3])]
        );
    }

    #[test]
    fn a_circle_has_no_past() {
        assert_eq!(pasts(&[0, 0], &[(0, 1), (1, 0)], 0), None);
    }

    #[test]
    fn what_ran_at_once_counts_once_and_what_lies_between_not_at_all() {
        assert_eq!(ran(vec![(30.0, 40.0), (0.0, 10.0), (5.0, 12.0), (6.0, 7.0)]), Some(22.0));
        assert_eq!(ran(vec![(0.0, 10.0), (30.0, 20.0)]), None);
        assert_eq!(ran(Vec::new()), Some(0.0));
    }
}
