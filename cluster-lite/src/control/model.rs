//! What there is: services that are wanted, nodes to run them on, and the instances that run.
//!
//! Shares are in thousandths of a GPU, times in nanoseconds of the controller's clock.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::work::Told;
use crate::cluster::Backbone;
use crate::profile::{Profile, Slo};

/// An instance's number; none is ever used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub u64);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A decision's number; they grow by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DecisionId(pub u64);

/// What an instance has of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Share guaranteed.
    #[serde(rename = "request_permille")]
    pub request: SmShare,
    /// Share never exceeded.
    #[serde(rename = "limit_permille")]
    pub limit: SmShare,
    /// Device memory.
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
}

impl Budget {
    /// The larger of each part: what may be in force while one becomes the other.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            request: self.request.max(other.request),
            limit: self.limit.max(other.limit),
            memory: self.memory.max(other.memory),
        }
    }
}

/// One GPU of one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The node's name.
    pub node: String,
    /// Index of the GPU there.
    pub gpu: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.gpu)
    }
}

/// What becomes of an instance when it has answered its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It ends.
    Stop,
    /// Its memory goes to the host.
    Park,
}

/// Where an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has a slice, and is to be started there.
    Placing,
    /// It runs, or wakes, and does not answer yet.
    Starting,
    /// It answers.
    Ready,
    /// It gets no new requests, and finishes those that it has.
    Draining(Then),
    /// Its memory is on the host, or on its way there.
    Parked,
    /// It is to end, and never to start again.
    Stopping,
    /// Its node is silent: it may run, so its slice stays reserved.
    Lost,
}

impl State {
    /// The word that people read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Placing => "placing",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining(_) => "draining",
            Self::Parked => "parked",
            Self::Stopping => "stopping",
            Self::Lost => "lost",
        }
    }

    /// Whether it answers, or is about to.
    pub const fn serves(self) -> bool {
        matches!(self, Self::Placing | Self::Starting | Self::Ready)
    }
}

/// One instance of a service, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its number.
    pub id: InstanceId,
    /// Its service.
    pub service: String,
    /// Where it is.
    pub place: Place,
    /// The port that it answers at; 0: none.
    pub port: u16,
    /// What it is to have.
    pub budget: Budget,
    /// The most that may be in force: what is reserved.
    pub held: Budget,
    /// Where it stands.
    pub state: State,
    /// Since when.
    pub since: Nanos,
    /// The decision that put it there.
    pub decision: DecisionId,
}

impl Instance {
    /// Whether its slice is promised at the moment to it alone; always, until it is forgotten.
    pub fn reserves(&self) -> Budget {
        self.budget.union(self.held)
    }
}

/// One decision, for people: the last few thousand are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Its number.
    pub id: DecisionId,
    /// When.
    pub at: Nanos,
    /// The service.
    pub service: String,
    /// The instance.
    pub instance: InstanceId,
    /// What was decided: a state, or `resize`, or `forgotten`.
    pub what: String,
    /// Why.
    pub why: String,
}

/// When an instance counts as ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyWhen {
    /// A GET of this path is answered with 2xx.
    Answers(String),
    /// Its port takes a connection.
    Listens,
    /// A process of it has its budget: it has no port and gets no requests.
    Runs,
}

/// What becomes of the last instance of a service that nobody asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenIdle {
    /// It ends.
    #[default]
    Stop,
    /// It is parked: its memory goes to the host and the next request wakes it.
    Park,
}

/// What is to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its name: the first part of the path that the gateway answers at.
    pub name: String,
    /// The program and its arguments; `{port}` and `{name}` stand for the instance's.
    pub command: Vec<String>,
    /// Further environment variables.
    pub env: BTreeMap<String, String>,
    /// What an instance starts with.
    pub budget: Budget,
    /// Least and most request that an instance may be given: the vertical range.
    pub shares: [SmShare; 2],
    /// What it is to its neighbours.
    pub class: ClassName,
    /// What it promises.
    pub slo: Option<Slo>,
    /// Fewest instances.
    pub floor: u32,
    /// Most instances.
    pub ceiling: u32,
    /// Requests that an instance is given at the same time.
    pub concurrency: u32,
    /// Requests that may wait.
    pub queue: u32,
    /// How long a request may wait.
    pub queue_deadline: Nanos,
    /// How long an instance may take to answer.
    pub answer_deadline: Nanos,
    /// How long an instance takes from its start to its first answer.
    pub cold_start: Nanos,
    /// When it is ready.
    pub ready: ReadyWhen,
    /// What becomes of the last one.
    pub when_idle: WhenIdle,
    /// Weights that its instances on one GPU share: the first to come there holds them beside its own memory.
    pub backbone: Option<Backbone>,
    /// What tells the work of a request; nothing: each counts as a mean one.
    pub work: Option<Told>,
    /// What was measured of it.
    pub profile: Option<Profile>,
    /// Work that waits for clean hours and goes to clean sites; nothing: as many as are asked for, at once.
    pub batch: Option<Batch>,
}

/// Best-effort work, and when all of it is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// So much time of a GPU.
    pub gpu_time: Nanos,
    /// Since 1970.
    pub done_by: Nanos,
}

/// Where it may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The host at which its instances answer.
    pub address: String,
    /// Ports that instances may have, both included.
    pub ports: [u16; 2],
    /// The site where it stands.
    pub site: Option<String>,
}

/// A place with power of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// What one of its GPUs draws when idle, and when busy.
    pub watts: [f64; 2],
}

/// All that the controller is told at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// First part of every tenant's name.
    pub cluster: String,
    /// The services.
    pub services: Vec<Service>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The sites where nodes stand.
    pub sites: Vec<Site>,
    /// A node that was not heard of for so long is stale.
    pub stale_after: Nanos,
}

impl Service {
    /// What an instance has that holds the backbone too.
    pub fn with_backbone(&self) -> Budget {
        let backbone = self.backbone.as_ref().map_or(0, |backbone| backbone.memory.0);
        Budget { memory: Bytes(self.budget.memory.0.saturating_add(backbone)), ..self.budget }
    }

    /// The backbone, if an instance with this budget holds it.
    pub fn held_with(&self, budget: &Budget) -> Option<&Backbone> {
        self.backbone.as_ref().filter(|_| budget.memory >= self.with_backbone().memory)
    }
}

impl Fleet {
    /// The tenant of an instance.
    pub fn tenant(&self, instance: &Instance) -> String {
        format!("{}.{}.{}", self.cluster, instance.service, instance.id)
    }

    /// The service and number that a tenant's name stands for; nothing if it is not ours.
    pub fn parse_tenant<'a>(&self, name: &'a str) -> Option<(&'a str, InstanceId)> {
        let rest = name.strip_prefix(&self.cluster)?.strip_prefix('.')?;
        let (service, id) = rest.rsplit_once('.')?;
        Some((service, InstanceId(id.parse().ok()?)))
    }

    /// The site where a node stands.
    pub fn site_of(&self, node: &str) -> Option<&str> {
        self.nodes.iter().find(|known| known.name == node)?.site.as_deref()
    }

    /// A service by name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }
}
