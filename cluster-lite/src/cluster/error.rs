//! Why something about a cluster was refused.

use weir_protocol::units::Bytes;

use super::{ClassSet, Demand};
use crate::fault::Fault;

/// Why something about a cluster was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClusterError {
    /// A device class with an impossible value.
    #[error("device class `{name}` cannot have a {what} of {value}")]
    Class {
        /// The class.
        name: String,
        /// Which of its values.
        what: &'static str,
        /// The value.
        value: f64,
    },
    /// A device class that is already there, with other values.
    #[error("device class `{name}` is described twice")]
    ClassTwice {
        /// The class.
        name: String,
    },
    /// More device classes than a [`ClassSet`] can tell apart.
    #[error("more than {} device classes", ClassSet::MOST)]
    ManyClasses,
    /// A node that is already there.
    #[error("node `{name}` is described twice")]
    NodeTwice {
        /// The node.
        name: String,
    },
    /// A node that cannot be.
    #[error("node `{name}` {why}")]
    Node {
        /// The node.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A node, GPU or class that the cluster does not have.
    #[error("the cluster has no {what}")]
    Unknown {
        /// What was named.
        what: String,
    },
    /// A demand that contradicts itself.
    #[error("no such demand can be: {why}")]
    Demand {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A demand that no node could hold if it were empty.
    #[error(
        "no node could ever hold it, not even an empty one: it asks for {asked}, the most that a node has is {most}"
    )]
    Never {
        /// What stands in the way, as asked.
        asked: String,
        /// The most of it that a node which has all the rest can give.
        most: String,
    },
    /// A tenant that sits elsewhere, or with another demand.
    #[error("tenant `{tenant}` already sits on node `{node}`, placed with another demand or on other GPUs")]
    Elsewhere {
        /// The tenant.
        tenant: String,
        /// Where it sits.
        node: String,
    },
    /// A place that is taken, or on a node that is down.
    #[error("node `{node}` has no room there: {why}")]
    NoRoom {
        /// The node.
        node: String,
        /// What is missing.
        why: &'static str,
    },
}

impl ClusterError {
    /// A demand that no node could hold, by what it asks and what there is.
    pub(super) fn never(asked: impl Into<String>, most: impl Into<String>) -> Self {
        Self::Never { asked: asked.into(), most: most.into() }
    }

    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Class { .. } => {
                "speed is above 0; watts and prices are at least 0, and full watts at least the idle ones"
            }
            Self::ClassTwice { .. } | Self::NodeTwice { .. } => "describe each once",
            Self::ManyClasses => "join classes that differ in nothing that placement sees",
            Self::Node { .. } => "correct its line in the node list",
            Self::Unknown { .. } => "`weir-cluster simulate --help` says how nodes and classes are listed",
            Self::Demand { .. } => "correct the demand",
            Self::Never { .. } => "ask for less, allow more device classes, or add such a node",
            Self::Elsewhere { .. } => "remove the tenant first",
            Self::NoRoom { .. } => "place it anew: the node has changed since",
        }
    }
}

impl From<ClusterError> for Fault {
    fn from(error: ClusterError) -> Self {
        Self::new(error.to_string(), error.hint())
    }
}

/// In words, what `demand` wants of one GPU.
pub(super) fn asked_of_gpu(demand: &Demand) -> String {
    let shared = demand.backbone.as_ref().map_or(0, |backbone| backbone.memory.0);
    let memory = Bytes(demand.gpu_memory.0.saturating_add(shared));
    format!("a request of {}, a limit of {} and {memory} on one GPU", demand.request, demand.limit)
}
