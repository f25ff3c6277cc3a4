//! What an instantiation refuses, beyond nodes that go round in a circle.

use std::sync::atomic::Ordering;

use weir_abi::types::*;

use super::{Graph, condition};
use crate::locked;
use crate::work::Work;

/// Why not, and the place of the node at fault.
pub type Refusal = (CUgraphInstantiateResult, Option<usize>);

/// Whether a graph may be instantiated with these flags.
///
/// # Errors
/// Why not.
pub fn check(graph: &Graph, flags: u64) -> Result<(), Refusal> {
    const KNOWN: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
        | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
        | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
        | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    let both = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    // Conditional nodes and memory allow one executable graph at a time.
    let second = graph.holds(is_exclusive) && graph.instantiated.load(Ordering::Relaxed);
    if flags & !KNOWN != 0 || flags & both == both || second {
        return Err((CUDA_GRAPH_INSTANTIATE_ERROR, None));
    }
    if condition::has_unused(graph) {
        return Err((CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, None));
    }
    if flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH != 0 {
        return check_for_device(graph);
    }
    Ok(())
}

/// Work of which a graph cannot be cloned, embedded, or instantiated twice.
pub fn is_exclusive(work: &Work) -> bool {
    matches!(work, Work::Conditional(_) | Work::Alloc { .. } | Work::Free { .. })
}

/// Launchable from the device: kernels, copies, memsets and graphs of these, and not none of them.
fn check_for_device(graph: &Graph) -> Result<(), Refusal> {
    let nodes = locked(&graph.nodes).clone();
    for (place, node) in nodes.iter().enumerate() {
        match node.as_ref().map(|node| &node.work) {
            Some(Work::Child(inner)) if check_for_device(inner).is_ok() => {}
            None | Some(Work::Kernel(_) | Work::Switch(..) | Work::Copy(_) | Work::Fill(_)) => {}
            Some(_) => return Err((CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, Some(place))),
        }
    }
    let works = nodes.iter().flatten().any(|node| !matches!(node.work, Work::Child(_)));
    let inner = |work: &Work| matches!(work, Work::Child(inner) if check_for_device(inner).is_ok());
    if works || nodes.iter().flatten().any(|node| inner(&node.work)) {
        Ok(())
    } else {
        Err((CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, None))
    }
}
