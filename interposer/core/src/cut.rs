//! Cutting a graph into pieces that can be launched one after the other.
//!
//! The nodes are put in an order in which each follows all it depends on, level by level, and the order is cut where a
//! piece would grow too heavy. A cut where one node is between all that comes before and all that comes behind costs no
//! overlap of branches and is taken where there is one; else the cut goes through the branches.

/// Cuts nodes of these weights, with edges from place to place, into pieces of at most `most`. A node that is heavier makes
/// a piece of its own. `None`: the edges go round in a circle.
pub fn cut(weights: &[u64], edges: &[(usize, usize)], most: u64) -> Option<Vec<Vec<usize>>> {
    let graph = Graph::new(weights.len(), edges);
    let (order, clean) = graph.order()?;
    let (mut pieces, mut begin, mut weight, mut last_clean) = (Vec::new(), 0, 0u64, None);
    for (at, node) in order.iter().enumerate() {
        // Again if the piece that begins at the clean cut is too heavy as well.
        while at > begin && weight.saturating_add(weights[*node]) > most {
            let end = last_clean.take().unwrap_or(at);
            pieces.push(order[begin..end].to_vec());
            begin = end;
            weight = order[begin..at].iter().fold(0, |sum: u64, node| sum.saturating_add(weights[*node]));
        }
        weight = weight.saturating_add(weights[*node]);
        if clean[at] {
            last_clean = Some(at + 1);
        }
    }
    pieces.push(order[begin..].to_vec());
    pieces.retain(|piece| !piece.is_empty());
    Some(pieces)
}

struct Graph {
    before: Vec<Vec<usize>>,
    behind: Vec<Vec<usize>>,
}

impl Graph {
    fn new(nodes: usize, edges: &[(usize, usize)]) -> Self {
        let mut graph = Self { before: vec![Vec::new(); nodes], behind: vec![Vec::new(); nodes] };
        for (from, to) in edges.iter().filter(|(from, to)| *from < nodes && *to < nodes) {
            graph.before[*to].push(*from);
            graph.behind[*from].push(*to);
        }
        graph
    }

    /// The order (Kahn's algorithm), and for each place whether a cut behind it is clean.
    fn order(&self) -> Option<(Vec<usize>, Vec<bool>)> {
        let nodes = self.before.len();
        let mut missing: Vec<usize> = self.before.iter().map(Vec::len).collect();
        let mut order: Vec<usize> = (0..nodes).filter(|node| missing[*node] == 0).collect();
        let (mut clean, mut ends) = (Vec::with_capacity(nodes), Vec::new());
        let mut next = 0;
        while let Some(node) = order.get(next).copied() {
            next += 1;
            for behind in &self.behind[node] {
                missing[*behind] -= 1;
                if missing[*behind] == 0 {
                    order.push(*behind);
                }
            }
            ends.retain(|end| !self.before[node].contains(end));
            ends.push(node);
            clean.push(self.is_clean(&ends, &order[next..]));
        }
        (order.len() == nodes).then_some((order, clean))
    }

    /// Whether each of `ready`, the first ones behind a cut, follows each of `ends`, the last ones before it. Asked only where
    /// one node stands on one side.
    fn is_clean(&self, ends: &[usize], ready: &[usize]) -> bool {
        match (ends, ready) {
            ([end], ready) => ready.iter().all(|node| self.before[*node].contains(end)),
            (ends, [first]) => ends.iter().all(|end| self.before[*first].contains(end)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chain(nodes: usize) -> Vec<(usize, usize)> {
        (1..nodes).map(|node| (node - 1, node)).collect()
    }

    #[test]
    fn a_chain_is_cut_into_even_pieces() {
        let pieces = cut(&[100; 10], &chain(10), 400).unwrap();
        assert_eq!(pieces, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
    }

    #[test]
    fn a_node_that_is_too_heavy_is_a_piece_of_its_own() {
        assert_eq!(cut(&[10, 900, 10], &chain(3), 500).unwrap(), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn branches_stay_together_where_a_cut_between_them_is_near() {
        // 0 -> 1 -> {2, 3} -> 4 -> {5, 6} -> 7
        let edges = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (4, 6), (5, 7), (6, 7)];
        let pieces = cut(&[100; 8], &edges, 600).unwrap();
        assert_eq!(pieces, [vec![0, 1, 2, 3, 4], vec![5, 6, 7]], "not between 5 and 6");
    }

    #[test]
    fn branches_that_never_meet_are_cut_through_side_by_side() {
        let edges = [(0, 2), (2, 4), (1, 3), (3, 5)];
        let pieces = cut(&[100; 6], &edges, 200).unwrap();
        assert_eq!(pieces, [vec![0, 1], vec![2, 3], vec![4, 5]]);
    }

    #[test]
    fn a_circle_is_not_cut() {
        assert_eq!(cut(&[1, 1], &[(0, 1), (1, 0)], 10), None);
    }

    proptest! {
        #[test]
        fn every_node_is_in_one_piece_behind_all_it_depends_on(
            weights in prop::collection::vec(1u64..300, 1..40),
            pairs in prop::collection::vec((0usize..40, 0usize..40), 0..80),
        ) {
            let edges: Vec<_> = pairs.into_iter().filter(|(a, b)| a < b && *b < weights.len()).collect();
            let pieces = cut(&weights, &edges, 500).unwrap();
            let mut piece_of = vec![None; weights.len()];
            for (number, piece) in pieces.iter().enumerate() {
                for node in piece {
                    prop_assert_eq!(piece_of[*node].replace(number), None);
                }
                let weight: u64 = piece.iter().map(|node| weights[*node]).sum();
                prop_assert!(weight <= 500, "{} of {:?}", weight, piece);
            }
            prop_assert!(piece_of.iter().all(Option::is_some));
            for (from, to) in edges {
                prop_assert!(piece_of[from] <= piece_of[to]);
            }
        }
    }
}
