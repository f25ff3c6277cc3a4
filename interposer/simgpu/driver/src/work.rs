//! Work: what a stream runs and a graph node holds. Submitting it sends the time that it takes to the broker
//! and does what it does to memory here.
//!
//! Copies and memsets change memory at once, at submission: a client may only look after it has waited, so it
//! sees what it would see on a GPU. What another side can watch, host functions and memory operations, is
//! done when the stream gets there (`effects.rs`).

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use weir_abi::types::*;

use crate::copy::Copy;
use crate::edge::Answer;
use crate::effects;
use crate::event::Event;
use crate::fill::Fill;
use crate::graph::{Conditional, Graph, Setting};
use crate::graph_memory;
use crate::ipc_event::Shared;
use crate::launch::Launch;
use crate::session;
use crate::stream::Stream;
use crate::stream_memory::check_supported;

/// One piece of work.
#[derive(Clone)]
pub enum Work {
    /// Nothing: a graph's empty node.
    Empty,
    /// A kernel.
    Kernel(Launch),
    /// A kernel that runs until a word is as asked for.
    Spin(Launch, MemoryOperation),
    /// A kernel that sets a conditional node's switch.
    Switch(Launch, Setting),
    /// A copy.
    Copy(Copy),
    /// A memset.
    Fill(Fill),
    /// A host function.
    Host { function: unsafe extern "C" fn(*mut c_void), data: *mut c_void },
    /// A callback of the older kind, which hears the stream's status.
    Callback {
        /// What to call.
        callback: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
        /// The handle it is told.
        stream: CUstream,
        /// What else it is told.
        data: *mut c_void,
    },
    /// Waits and writes of memory words.
    Memory(Vec<MemoryOperation>),
    /// Record an event.
    Record(&'static Event),
    /// Wait for an event.
    Wait(&'static Event),
    /// This record of an event that processes share.
    Reach(Arc<Shared>, u64),
    /// Wait for this record of such an event.
    Await(Arc<Shared>, u64),
    /// A graph within a graph; what runs is its executable form.
    Child(&'static Graph),
    /// Graphs of which a switch says whether they run; as above.
    Conditional(Conditional),
    /// Memory that a graph takes at this address.
    Alloc { address: CUdeviceptr },
    /// Memory that a graph gives back.
    Free { address: CUdeviceptr },
}

// SAFETY: the pointers in host functions and callbacks are the client's, handed back to it unread.
unsafe impl Send for Work {}
// SAFETY: as above; nothing here is written through a shared reference.
unsafe impl Sync for Work {}

/// One operation on a word of memory.
#[derive(Clone, Copy, Debug)]
pub enum MemoryOperation {
    /// Store `value`.
    Write { address: CUdeviceptr, value: u64, wide: bool },
    /// Wait until the word compares with `value` as `flags` says.
    Wait { address: CUdeviceptr, value: u64, flags: c_uint, wide: bool },
}

impl MemoryOperation {
    /// From one entry of a batch; flushes and barriers need nothing here.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` for an operation of a newer driver, or where the device has none of them.
    pub fn from_batch(entry: &CUstreamBatchMemOpParams) -> Answer<Option<Self>> {
        check_supported()?;
        let CUstreamBatchMemOpParams { operation, address, value, flags, .. } = *entry;
        // The union's 32-bit member leaves the upper half unset.
        let narrow = value & u64::from(u32::MAX);
        Ok(Some(match operation {
            CU_STREAM_MEM_OP_WRITE_VALUE_32 => Self::Write { address, value: narrow, wide: false },
            CU_STREAM_MEM_OP_WRITE_VALUE_64 => Self::Write { address, value, wide: true },
            CU_STREAM_MEM_OP_WAIT_VALUE_32 => Self::Wait { address, value: narrow, flags, wide: false },
            CU_STREAM_MEM_OP_WAIT_VALUE_64 => Self::Wait { address, value, flags, wide: true },
            CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | CU_STREAM_MEM_OP_BARRIER => return Ok(None),
            _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
        }))
    }
}

impl Work {
    /// Gives this to a stream; returns as soon as the stream has taken it.
    pub fn submit(&self, stream: &'static Stream) -> Answer {
        let session = session::current()?;
        match self {
            Work::Empty => Ok(()),
            Work::Kernel(launch) => launch.submit(stream),
            Work::Switch(launch, setting) => {
                setting.apply();
                launch.submit(stream)
            }
            Work::Copy(copy) => {
                // The bytes move while the GPU's time for them runs; whatever comes behind this is submitted behind it.
                session.copy(stream, copy.direction(), copy.bytes())?;
                copy.perform();
                Ok(())
            }
            Work::Fill(fill) => {
                session.fill(stream, fill.bytes())?;
                fill.perform();
                Ok(())
            }
            Work::Host { .. }
            | Work::Callback { .. }
            | Work::Memory(_)
            | Work::Spin(..)
            | Work::Reach(..)
            | Work::Await(..) => effects::submit(stream, self),
            Work::Record(event) => event.record(stream),
            Work::Wait(event) => event.wait(stream),
            Work::Child(_) | Work::Conditional(_) => Err(CUDA_ERROR_INVALID_VALUE), // `Exec` runs them
            Work::Alloc { address } => graph_memory::take(*address),
            Work::Free { address } => graph_memory::give_back(*address),
        }
    }

    /// The kind of graph node that this is.
    pub fn node_type(&self) -> CUgraphNodeType {
        match self {
            Work::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
            Work::Kernel(_) | Work::Spin(..) | Work::Switch(..) => CU_GRAPH_NODE_TYPE_KERNEL,
            Work::Copy(_) => CU_GRAPH_NODE_TYPE_MEMCPY,
            Work::Fill(_) => CU_GRAPH_NODE_TYPE_MEMSET,
            Work::Host { .. } | Work::Callback { .. } => CU_GRAPH_NODE_TYPE_HOST,
            Work::Memory(_) => CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Work::Record(_) | Work::Reach(..) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Work::Wait(_) | Work::Await(..) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Work::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
            Work::Conditional(_) => CU_GRAPH_NODE_TYPE_CONDITIONAL,
            Work::Alloc { .. } => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Work::Free { .. } => CU_GRAPH_NODE_TYPE_MEM_FREE,
        }
    }
}
