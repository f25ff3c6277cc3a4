//! Memory nodes of graphs: the driver takes their memory when the graph is uploaded or launched, and keeps it until it is
//! told to trim.
//!
//! Graphs without memory nodes pay one load. For the others the growth is foreseen from what their nodes take at the most
//! and from the driver's own figures, charged before the call, and replaced by the driver's word after it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::lock::Lock;
use weir_protocol::pages::MemoryKind;
use weir_protocol::units::Bytes;

use super::memory;
use crate::driver::{self, Stream};
use crate::guard::{caught, guard};
use crate::link::{Client, Gpu};
use crate::thread::Inside;

/// Memory behind graphs comes in multiples of this, in bytes: the granularity of physical memory.
const GRANULARITY: u64 = 2 << 20;

/// One bit for each executable graph that may have memory nodes, by a hash of its handle. Never cleared: a graph that
/// meets a stranger's bit looks further and finds nothing.
static MAY_NEED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// What the nodes of a graph take, by GPU. The nodes are looked at in the order in which the driver lists them.
#[derive(Default)]
pub struct Needs {
    now: HashMap<usize, u64>,
    most: HashMap<usize, u64>,
    nodes: HashMap<CUdeviceptr, (usize, u64)>,
}

/// The executable graphs of this process that have memory nodes: bytes by GPU.
#[derive(Default)]
pub struct GraphMemory(Lock<HashMap<u64, Arc<HashMap<usize, u64>>>>);

impl Needs {
    /// An allocation node.
    pub fn takes(&mut self, client: &Client, node: CUgraphNode) {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
        if driver::alloc_node(node, &raw mut params) != CUDA_SUCCESS {
            return;
        }
        let location = params.pool_props.location;
        if location.kind != CU_MEM_LOCATION_TYPE_DEVICE {
            return;
        }
        let Some(gpu) = client.gpu_of_device(location.id) else { return };
        let bytes = params.bytesize as u64;
        self.nodes.insert(params.dptr, (gpu.index, bytes));
        let now = self.now.entry(gpu.index).or_default();
        *now = now.saturating_add(bytes);
        let most = self.most.entry(gpu.index).or_default();
        *most = (*most).max(*now);
    }

    /// A free node.
    pub fn gives(&mut self, node: CUgraphNode) {
        let mut address = 0;
        if driver::free_node(node, &raw mut address) != CUDA_SUCCESS {
            return;
        }
        // Of a graph launched before: what it gives back is not this one's.
        let Some((gpu, bytes)) = self.nodes.remove(&address) else { return };
        if let Some(now) = self.now.get_mut(&gpu) {
            *now = now.saturating_sub(bytes);
        }
    }
}

impl GraphMemory {
    /// Remembers what an executable graph needs, if anything.
    pub fn enter(&self, exec: CUgraphExec, needs: &mut Needs) {
        if needs.most.is_empty() {
            return;
        }
        let (word, bit) = place(exec);
        if let Some(word) = MAY_NEED.get(word) {
            // Relaxed: whoever launches the graph got its handle from this thread, which orders for itself.
            word.fetch_or(bit, Ordering::Relaxed);
        }
        self.0.lock().insert(exec.addr() as u64, Arc::new(std::mem::take(&mut needs.most)));
    }

    /// Forgets an executable graph, and says what it needed.
    pub fn forget(&self, exec: CUgraphExec) -> Option<Arc<HashMap<usize, u64>>> {
        if may_need(exec) { self.0.lock().remove(&(exec.addr() as u64)) } else { None }
    }

    fn of(&self, exec: CUgraphExec) -> Option<Arc<HashMap<usize, u64>>> {
        self.0.lock().get(&(exec.addr() as u64)).cloned()
    }
}

/// Word and bit of a handle.
#[inline]
fn place(exec: CUgraphExec) -> (usize, u64) {
    let hash = (exec.addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (hash as usize / 64 % MAY_NEED.len(), 1 << (hash % 64))
}

/// Whether an executable graph may have memory nodes: one load.
#[inline]
pub fn may_need(exec: CUgraphExec) -> bool {
    let (word, bit) = place(exec);
    MAY_NEED.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
}

/// Charges what a graph takes when it is uploaded or launched. The only answer of ours is that of a card that is full.
#[cold]
pub fn charge(stream: Stream, exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(client) = Client::get() else { return call() };
    client.knock();
    let needs = caught(client, || {
        let _inside = Inside::enter()?;
        client.graph_memory.of(exec).filter(|_| !memory::captures(stream))
    });
    let Some(needs) = needs.flatten() else { return call() };
    let admitted = caught(client, || {
        let _inside = Inside::enter();
        admit(client, &needs)
    });
    let growths = match admitted {
        Some(Err(refusal)) => return refusal,
        Some(Ok(growths)) => growths,
        None => return call(),
    };
    let result = call();
    caught(client, || {
        let _inside = Inside::enter();
        growths.into_iter().for_each(|(gpu, growth)| settle(gpu, growth));
    });
    result
}

fn admit(client: &'static Client, needs: &HashMap<usize, u64>) -> Result<Vec<(&'static Gpu, u64)>, CUresult> {
    let mut growths = Vec::new();
    for (gpu, need) in needs {
        let Some(gpu) = client.gpus.get(*gpu) else { continue };
        let used = attribute(gpu, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT).unwrap_or(0);
        let reserved = attribute(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT).unwrap_or(0);
        let growth = used.saturating_add(*need).saturating_sub(reserved);
        let growth = growth.checked_next_multiple_of(GRANULARITY).unwrap_or(u64::MAX);
        // What is there already is never asked for again, whatever the limit is now.
        if growth > 0
            && let Err(refusal) = reserve(client, gpu, growth)
        {
            growths.into_iter().for_each(|(gpu, growth)| settle(gpu, growth));
            return Err(refusal);
        }
        gpu.graph_memory.announce(growth);
        growths.push((gpu, growth));
    }
    Ok(growths)
}

fn reserve(client: &'static Client, gpu: &'static Gpu, growth: u64) -> Result<(), CUresult> {
    memory::reserve(client, gpu, MemoryKind::Graph, Bytes(growth))?.commit();
    Ok(())
}

/// Replaces a prediction, or none, by the driver's word.
pub fn settle(gpu: &Gpu, growth: u64) {
    let ask = || attribute(gpu, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    gpu.change(MemoryKind::Graph, gpu.graph_memory.settle(0, growth, ask));
}

fn attribute(gpu: &Gpu, which: CUgraphMem_attribute) -> Option<u64> {
    let mut bytes = u64::MAX; // a driver that answers without writing has said nothing
    let result = driver::graph_memory(gpu.device.load(Ordering::Relaxed), which, (&raw mut bytes).cast());
    (result == CUDA_SUCCESS && bytes != u64::MAX).then_some(bytes)
}

/// Reads anew what the driver keeps for graphs, where this executable one has memory nodes.
pub fn look_at(client: &Client, exec: CUgraphExec) {
    if may_need(exec)
        && let Some(needs) = client.graph_memory.of(exec)
    {
        look(client, &needs);
    }
}

/// Reads anew what the driver keeps for graphs on these GPUs.
pub fn look(client: &Client, needs: &HashMap<usize, u64>) {
    for gpu in needs.keys().filter_map(|gpu| client.gpus.get(*gpu)) {
        settle(gpu, 0);
    }
}

/// A graph's memory is taken before its first launch.
pub fn upload(stream: Stream, exec: CUgraphExec, call: impl FnOnce() -> CUresult) -> CUresult {
    if may_need(exec) { charge(stream, exec, call) } else { call() }
}

/// What graphs do not use is given back.
pub fn trim(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| Ok(client.gpu_of_device(device)),
        call,
        |_, gpu, _| {
            if let Some(gpu) = gpu {
                settle(gpu, 0);
            }
        },
    )
}
