//! What a policy sees.

use weir_protocol::units::{Bytes, Nanos, SmShare};

/// What a tenant is to its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Online, with a latency to keep.
    Latency,
    /// The work that fillers must not slow.
    #[default]
    Primary,
    /// Best effort.
    Filler,
}

/// One tenant on one GPU.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Which GPU, as an index. Samples of one GPU stand together.
    pub gpu: usize,
    /// The tenant's class.
    pub class: Class,
    /// Share guaranteed.
    pub request: SmShare,
    /// Share never exceeded.
    pub limit: SmShare,
    /// Memory that the tenant may hold.
    pub memory_limit: Bytes,
    /// Predicted work handed to the driver and not known to be done.
    pub outstanding: Nanos,
    /// How long nothing of the tenant has moved; zero while it works or waits.
    pub idle_for: Nanos,
}

/// All tenants on all GPUs at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The manager's monotonic clock.
    pub now: Nanos,
    /// One row per tenant and GPU, grouped by GPU.
    pub samples: &'a [Sample],
}
