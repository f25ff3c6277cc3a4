//! Graphs that kernels launch: nobody on the host sees such a launch, so it is charged to nobody and held back by nothing.
//! What can be told is that there are such graphs.

use std::sync::atomic::{AtomicBool, Ordering};

use weir_abi::types::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
use weir_protocol::pages::GraphCount;

use crate::link::{Client, Gpu};
use crate::say::Once;
use crate::thread;

/// Some graph of this process can be launched by kernels.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether kernels of this process can launch graphs. What they launch *behind* the graph that they are in comes behind a
/// segment if that graph is split.
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Counts an instantiation, and says on stderr, once, what follows from it.
pub fn note(client: &'static Client, flags: u64) {
    static DEVICE: Once = Once::new();
    if flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH == 0 {
        return;
    }
    // Relaxed: a graph that kernels launch is known to them later than to this thread.
    ANY.store(true, Ordering::Relaxed);
    count(client, GraphCount::DeviceLaunchable, 1);
    DEVICE.say(|| {
        format!(
            "a graph of tenant `{}` can be launched by its own kernels: what it takes then is not charged and not held \
             back, only its launches from the host are. help: instantiate it without CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH",
            client.tenant
        )
    });
}

/// Counts something of executable graphs on the thread's GPU.
pub fn count(client: &'static Client, what: GraphCount, amount: u64) {
    let current = thread::with(|thread| thread.find_current(client));
    let gpu: Option<&Gpu> = current.map_or_else(|| client.gpus.first(), |current| Some(current.gpu));
    if let Some(gpu) = gpu {
        gpu.slot().graphs.add(what, amount);
    }
}
