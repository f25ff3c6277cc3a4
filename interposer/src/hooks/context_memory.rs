//! What contexts cost: hundreds of MiB that no call asks for and that the neighbours cannot have.
//!
//! Only the driver knows how much. Before and after a context is made we ask, in this order: NVML for what the process has
//! of the card; NVML for what everybody has, where the difference may hold a neighbour's allocation and so is bounded; the
//! operator, who may have configured it. Which one answered stands on the usage page. The first context of a process is
//! admitted whatever it costs, unless the operator has said what that is; of every further one the cost is known before.
//!
//! Contexts grow: modules bring code and variables, limits bring stacks and heaps. What NVML says of the process beyond all
//! that the ledger knows is growth, and is read anew where it can come about.
//! So a module's variables are charged once it is loaded, and cannot be refused: how large they are stands in an image that
//! only the driver reads. They may put the tenant over its limit, which is shown, and nothing new is allocated then.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_core::ledger::{Entry, Owner, Reservation};
use weir_core::lock::Lock;
use weir_core::pool::Change;
use weir_protocol::pages::{ContextSource, MemoryKind};
use weir_protocol::units::Bytes;

use super::memory;
use crate::guard::after_success;
use crate::link::{Client, Gpu};
use crate::nvml::{self, Own};
use crate::thread;

/// More than a context was ever seen to cost: a larger difference is a neighbour's doing.
const MOST: Bytes = Bytes::gib(2);

/// What is known of the contexts of this process on one GPU.
#[derive(Default)]
pub struct ContextMemory {
    learnt: AtomicU64, // bytes of one context; 0: none was measured
    grown: Lock<u64>,  // bytes charged beyond what contexts cost when they were made
}

/// A context that is about to be made.
pub struct Expected {
    gpu: &'static Gpu,
    reservation: Option<Reservation<'static>>,
    own: Option<Own>,
    card: Option<Bytes>,
    held: Bytes,
}

/// Charges what a context will cost, if that is known, or answers as the driver does when it does not fit.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub fn expect(client: &'static Client, gpu: &'static Gpu) -> Result<Expected, CUresult> {
    let learnt = Bytes(gpu.context_memory.learnt.load(Ordering::Relaxed));
    let known = if learnt == Bytes(0) { client.context_memory } else { learnt };
    let reserve = || memory::reserve(client, gpu, MemoryKind::Context, known);
    let reservation = if known == Bytes(0) { None } else { Some(reserve()?) };
    let (own, card) = (nvml::own_used(gpu), nvml::card_used(gpu));
    Ok(Expected { gpu, reservation, own, card, held: held(gpu) })
}

impl Expected {
    /// The context is there: what it costs is measured, and charged whatever the limit.
    pub fn charge(self, client: &Client, context: CUcontext) {
        let gpu = self.gpu;
        let (bytes, source) = self.measure(client);
        gpu.slot().context_source.store(source as u32, Ordering::Relaxed);
        gpu.context_memory.learnt.store(bytes.0, Ordering::Relaxed);
        let reserved = self.reservation.map_or(Bytes(0), Reservation::commit);
        let (more, less) = (bytes.0.saturating_sub(reserved.0), reserved.0.saturating_sub(bytes.0));
        gpu.change(MemoryKind::Context, Change { more, less });
        let (handle, kind) = (context.addr() as u64, MemoryKind::Context);
        client.remember(handle, Entry { bytes, kind, gpu: gpu.index, owner: Owner::Context(handle) });
        gpu.show_state(); // its limits hold from here on, whether or not it ever launches
    }

    fn measure(&self, client: &Client) -> (Bytes, ContextSource) {
        let before = match self.own {
            Some(Own::Holds(bytes)) => Some(bytes),
            Some(Own::Absent) => Some(Bytes(0)), // a process without a context is on no list
            None => None,
        };
        if let (Some(before), Some(Own::Holds(after))) = (before, nvml::own_used(self.gpu)) {
            // Not what other threads have allocated meanwhile.
            let others = held(self.gpu).0.saturating_sub(self.held.0);
            return (Bytes(after.0.saturating_sub(before.0).saturating_sub(others)), ContextSource::Process);
        }
        match (self.card, nvml::card_used(self.gpu)) {
            (Some(before), Some(after)) => {
                (Bytes(after.0.saturating_sub(before.0)).min(MOST), ContextSource::Difference)
            }
            _ if client.context_memory > Bytes(0) => (client.context_memory, ContextSource::Configured),
            _ => (Bytes(0), ContextSource::Unknown),
        }
    }
}

/// What this process holds by the ledger.
fn held(gpu: &Gpu) -> Bytes {
    Bytes(gpu.slot().held_bytes.load(Ordering::SeqCst))
}

/// A call by which contexts grow or shrink.
pub fn grown(call: impl FnOnce() -> CUresult) -> CUresult {
    after_success(call, |client| {
        if let Some(current) = thread::with(|thread| thread.find_current(client)) {
            look(current.gpu);
        }
    })
}

/// Charges what the process has of the card beyond all that the ledger knows; where NVML does not tell, nothing.
pub fn look(gpu: &Gpu) {
    if gpu.slot().context_source.load(Ordering::Relaxed) != ContextSource::Process as u32 {
        return;
    }
    let mut grown = gpu.context_memory.grown.lock();
    // What other threads allocate or free meanwhile is in the ledger before or after: the larger figure is taken, so that
    // nothing of theirs counts as growth.
    let before = held(gpu);
    let used = match nvml::own_used(gpu) {
        None => return,
        Some(Own::Absent) => Bytes(0), // its last context is gone
        Some(Own::Holds(bytes)) => bytes,
    };
    let known = before.max(held(gpu)).0.saturating_sub(*grown);
    let now = used.0.saturating_sub(known);
    let change = Change { more: now.saturating_sub(*grown), less: grown.saturating_sub(now) };
    *grown = now;
    drop(grown);
    gpu.change(MemoryKind::Context, change);
}
