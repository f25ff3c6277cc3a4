//! `pwr`: where the power rises least (arXiv 2412.17484, section IV).
//!
//! Rating = 100 x (1 - watts added / the most watts that the demand could add anywhere). The published code stretches each
//! decision's own lowest and highest to 0 and 100; with a fixed scale a rating depends on the node alone, and the order is the
//! same. Ties are drawn, as published.

use super::score::{Score, Seen};
use crate::cluster::{DeviceClass, NodeState, Slice, Socket};

/// Least added power.
#[derive(Clone, Copy, Debug)]
pub struct Pwr;

impl Score for Pwr {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        let most = most_added(seen);
        if most <= 0.0 { 100.0 } else { 100.0 * (1.0 - added_watts(seen, slices) / most) }
    }
}

/// Watts that the demand adds on these slices.
pub fn added_watts(seen: &Seen<'_>, slices: &[Slice]) -> f64 {
    let gpu = |slice: &&Slice| &seen.node.gpus[usize::from(slice.gpu)];
    let woken = slices.iter().filter(|slice| gpu(slice).is_idle()).count() as f64;
    let gpus = woken * seen.class().map_or(0.0, DeviceClass::waking_watts);
    gpus + seen.socket.added_watts(seen.node, seen.demand.cpu)
}

fn most_added(seen: &Seen<'_>) -> f64 {
    let most_of_one = seen.classes.iter().map(DeviceClass::waking_watts).fold(0.0, f64::max);
    let slices = if seen.demand.gpus == 0 { 0 } else { seen.demand.gpus.max(seen.demand.fragments) };
    f64::from(slices) * most_of_one + seen.socket.most_added_watts(seen.demand.cpu)
}

/// Watts of a node's GPUs: idle ones and those with anybody on them.
pub fn gpu_watts(node: &NodeState, classes: &[DeviceClass]) -> f64 {
    let Some(class) = node.class.and_then(|class| classes.get(class.index())) else { return 0.0 };
    let idle = node.idle_gpus() as f64;
    idle * class.idle_watts + (node.gpus.len() as f64 - idle) * class.full_watts
}

/// Watts of a node's processors.
pub fn cpu_watts(node: &NodeState, socket: &Socket) -> f64 {
    socket.node_watts(node)
}
