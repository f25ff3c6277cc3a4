//! Which instance answers which requests: what the controller tells the gateway, and what the gateway says back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::model::{InstanceId, ReadyWhen};
use super::work::Sizes;

/// All routes at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Grows with each change.
    pub version: u64,
    /// The services that are asked over HTTP.
    pub services: Vec<Route>,
}

/// The instances of one service, and how patient its users are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The service: first part of the path.
    pub service: String,
    /// Requests that an instance is given at the same time.
    pub concurrency: u32,
    /// Requests that may wait.
    pub queue: u32,
    /// How long one may wait.
    pub queue_deadline_ms: u64,
    /// How long an instance may take to answer.
    pub answer_deadline_ms: u64,
    /// How it is seen that an instance is ready.
    pub ready: ReadyWhen,
    /// How requests are sized; nothing: they are counted alone.
    #[serde(default)]
    pub sizes: Option<Sizes>,
    /// The instances.
    pub backends: Vec<Backend>,
}

/// One instance as the gateway knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Its number.
    pub id: InstanceId,
    /// Host and port.
    pub address: String,
    /// Whether it gets new requests; else it is asked whether it is ready, or finishes what it has.
    pub accepts: bool,
}

/// What the gateway says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The table that it routes by.
    pub version: u64,
    /// Each service.
    pub services: BTreeMap<String, ServiceTraffic>,
}

/// Requests of one service, counted since the gateway started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTraffic {
    /// All that came.
    pub arrived: u64,
    /// Predicted work of all that came, in nanoseconds of a GPU; 0 where requests are not sized.
    #[serde(default)]
    pub arrived_work_ns: u64,
    /// Those that an instance has answered.
    pub answered: u64,
    /// Those that were refused or failed, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Those whose clients went away.
    pub abandoned: u64,
    /// Those that were sent to another instance, having failed at one.
    pub retried: u64,
    /// Those that wait.
    pub queued: u64,
    /// Their predicted work, in nanoseconds of a GPU.
    #[serde(default)]
    pub queued_work_ns: u64,
    /// Each instance.
    pub backends: BTreeMap<InstanceId, BackendTraffic>,
}

/// Requests of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendTraffic {
    /// Those that it has now.
    pub outstanding: u64,
    /// Whether it answers.
    pub ready: bool,
}
