//! Contexts: what one program has on a device.

use std::collections::VecDeque;

use crate::Nanos;
use crate::books::{Backlog, Copied};
use crate::concurrency::Resident;
use crate::device::StreamId;

/// A context.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Kernels that come next, first come first served.
    pub ready: VecDeque<StreamId>,
    /// Kernels that were preempted at the end of the slice.
    pub parked: Vec<Resident>,
    /// Kernels among the device's residents.
    pub resident: usize,
    /// It holds the turn, or waits for one.
    pub listed: bool,
    pub backlog: Backlog,
    pub true_use: Nanos,
    pub alone: Nanos,
    pub copied: [Copied; 3],
    pub switches: u64,
    pub launches: u64,
    pub streams: Vec<StreamId>,
    pub legacy: Option<StreamId>,
    /// The stream in which it is set up.
    pub birth: Option<StreamId>,
    /// Streams that were opened, ever.
    pub opened: u32,
    /// Streams whose first command waits for the legacy stream.
    pub held: Vec<StreamId>,
    /// Commands submitted and done: of the legacy stream, of all blocking streams.
    pub legacy_commands: Progress,
    pub blocking_commands: Progress,
}

/// How many were submitted, how many are done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub submitted: u64,
    pub done: u64,
}
