//! The order in which a graph's nodes are given to streams: branches go to lanes of their own, so that they
//! overlap; a node waits for those before it that are in other lanes.

use std::collections::HashSet;

use weir_abi::types::*;

use super::Node;
use crate::edge::Answer;

/// Branches beyond this share lanes: a device runs few kernels at once, and each lane is a stream.
const LANES: usize = 8;

/// One node's turn.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Which node.
    pub place: usize,
    /// In which lane; 0 is the stream that the graph is launched into.
    pub lane: usize,
    /// Nodes of other lanes to wait for.
    pub waits: Vec<usize>,
    /// Whether a node of another lane waits for this one.
    pub signals: bool,
}

/// Orders the nodes. The steps come so that each follows everything it waits for.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` when the nodes go round in a circle.
pub fn steps(nodes: &[Option<Node>]) -> Answer<Vec<Step>> {
    let order = sorted(nodes)?;
    let lane_of = lanes(nodes, &order);
    let waits_of = |place: usize| {
        let elsewhere = |before: &usize| lane_of[*before] != lane_of[place];
        after(nodes, place).into_iter().filter(elsewhere).collect::<Vec<_>>()
    };
    let awaited: HashSet<usize> = order.iter().flat_map(|place| waits_of(*place)).collect();
    let step = |place: usize| {
        let (lane, waits, signals) = (lane_of[place], waits_of(place), awaited.contains(&place));
        Step { place, lane, waits, signals }
    };
    Ok(order.iter().copied().map(step).collect())
}

/// The lane of each node: that of a node before it if it is the first to follow that one there, else a new
/// lane, and when there are enough of them the next in turn.
fn lanes(nodes: &[Option<Node>], order: &[usize]) -> Vec<usize> {
    let mut lane_of = vec![0; nodes.len()];
    let mut last_in_lane: Vec<usize> = Vec::new();
    let mut opened = 0;
    for place in order.iter().copied() {
        let after = after(nodes, place);
        let followed = after.iter().find(|before| last_in_lane[lane_of[**before]] == **before);
        let lane = followed.map_or(opened % LANES, |before| lane_of[*before]);
        opened += usize::from(followed.is_none());
        if lane == last_in_lane.len() {
            last_in_lane.push(place);
        }
        (lane_of[place], last_in_lane[lane]) = (lane, place);
    }
    lane_of
}

/// The nodes that come before this one and still exist.
fn after(nodes: &[Option<Node>], place: usize) -> Vec<usize> {
    let before = nodes[place].as_ref().map_or(&[][..], |node| &node.after);
    before.iter().copied().filter(|before| nodes.get(*before).is_some_and(Option::is_some)).collect()
}

/// The places in an order that respects what comes before what (Kahn's algorithm).
fn sorted(nodes: &[Option<Node>]) -> Answer<Vec<usize>> {
    let alive: Vec<usize> = (0..nodes.len()).filter(|place| nodes[*place].is_some()).collect();
    let mut missing: Vec<usize> = (0..nodes.len()).map(|place| after(nodes, place).len()).collect();
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for place in &alive {
        after(nodes, *place).into_iter().for_each(|before| followers[before].push(*place));
    }
    let mut order: Vec<usize> = alive.iter().copied().filter(|place| missing[*place] == 0).collect();
    let mut next = 0;
    while let Some(place) = order.get(next).copied() {
        next += 1;
        for follower in &followers[place] {
            missing[*follower] -= 1;
            if missing[*follower] == 0 {
                order.push(*follower);
            }
        }
    }
    if order.len() == alive.len() { Ok(order) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Work;

    fn graph(edges: &[&[usize]]) -> Vec<Option<Node>> {
        let node = |after: &&[usize]| {
            Some(Node { handle: None, work: Work::Empty, after: after.to_vec(), kept: Default::default() })
        };
        edges.iter().map(node).collect()
    }

    #[test]
    fn a_chain_stays_in_the_stream_it_is_launched_into() {
        let steps = steps(&graph(&[&[], &[0], &[1]])).expect("no circle");
        assert!(steps.iter().all(|step| step.lane == 0 && step.waits.is_empty() && !step.signals));
    }

    #[test]
    fn two_branches_run_side_by_side_and_their_join_waits_for_both() {
        let steps = steps(&graph(&[&[], &[0], &[0], &[1, 2]])).expect("no circle");
        let lanes: Vec<usize> = steps.iter().map(|step| step.lane).collect();
        assert_eq!(lanes, [0, 0, 1, 0]);
        assert_eq!((&steps[2].waits, &steps[3].waits), (&vec![0], &vec![2]));
        assert!(steps[0].signals && steps[2].signals && !steps[3].signals);
    }

    #[test]
    fn more_branches_than_lanes_share_them() {
        let edges: Vec<&[usize]> = (0..20).map(|_| &[][..]).collect();
        assert!(steps(&graph(&edges)).expect("no circle").iter().all(|step| step.lane < LANES));
    }

    #[test]
    fn a_circle_is_refused() {
        assert_eq!(steps(&graph(&[&[1], &[0]])), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
