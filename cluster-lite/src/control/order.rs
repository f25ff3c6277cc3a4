//! What is to be done on a node, what came of it, and what a node says. Each order may arrive late, twice or never.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_nodemgr::calibration::Draw;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::model::{Budget, DecisionId, InstanceId, Place};

/// What is to be done with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Start it, unless it runs or was ended before.
    Start {
        /// The port that it is to answer at.
        port: u16,
        /// What it has.
        budget: Budget,
    },
    /// Give it this budget.
    Resize(Budget),
    /// Take its memory to the host.
    Park,
    /// Bring it back.
    Unpark,
    /// End it, and never let it start again.
    Stop,
}

/// An order to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The decision that it carries out.
    pub decision: DecisionId,
    /// Whose.
    pub instance: InstanceId,
    /// The tenant's name on the node.
    pub tenant: String,
    /// The service.
    pub service: String,
    /// Where.
    pub place: Place,
    /// What.
    pub what: What,
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is as ordered.
    Done,
    /// The node has refused, and nothing has changed.
    Refused(String),
    /// Nobody knows: the order or its answer may be lost, or on its way still.
    Unknown(String),
}

/// An order's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The order.
    pub order: Order,
    /// What came of it.
    pub outcome: Outcome,
}

/// Where a tenant's time has gone since it began, of all its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Work of it ran: kernels, collectives, copies.
    pub at_work: Nanos,
    /// Nothing of it ran or waited: its host's time.
    pub by_itself: Nanos,
    /// It waited at our gate, or for a neighbour on the GPU.
    pub waited: Nanos,
}

/// One of our tenants, as its node manager sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its budget there.
    pub budget: Budget,
    /// Its GPU.
    pub gpu: usize,
    /// Whether a process of it has that budget.
    pub runs: bool,
    /// Whether its memory is on the host.
    pub parked: bool,
    /// Where its time has gone.
    pub spent: Spent,
}

/// One GPU, as its node manager sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSeen {
    /// The product's name.
    pub name: String,
    /// Memory that tenants can have together.
    pub memory: Bytes,
    /// Guaranteed to tenants that are not ours.
    pub foreign_request: SmShare,
    /// Memory of tenants that are not ours.
    pub foreign_memory: Bytes,
    /// What it draws, by the node's calibration file.
    pub draw: Option<Draw>,
}

/// All that a node says at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The node.
    pub node: String,
    /// When it was asked: all that was done before shows in it.
    pub asked_at: Nanos,
    /// Its GPUs.
    pub gpus: Vec<GpuSeen>,
    /// Our tenants there, by name.
    pub tenants: BTreeMap<String, Seen>,
}
