//! What is said on the control socket. Shares are in thousandths of a GPU, memory in bytes, times in the unit that
//! the name carries.

use serde::{Deserialize, Serialize};
use weir_policy::Class;
use weir_protocol::units::{Bandwidth, Bytes, SmShare};

use super::history::{AskEvents, Events, Why};
use super::park::ParkDone;
use super::policy::{AskPolicy, Policies};
use super::stats::{AskStats, Stats};
use super::switch::Switched;
use crate::fault::Fault;
use crate::latency::{Promise, Source};
use crate::mps;

/// Version of everything in this module and in the statistics. Raised when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// Longest request, in bytes.
pub const MAX_LINE: usize = 64 << 10;

/// One line from a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Makes a tenant, or joins the one of this name and budget. It lives as long as this connection, or any
    /// process of it, does.
    Create(CreateTenant),
    /// Changes a tenant's budget.
    Set(SetBudget),
    /// Asks for everything.
    Stats(AskStats),
    /// Shows or switches the policy of GPUs.
    Policy(AskPolicy),
    /// Enforces nothing but memory, or everything again.
    Switch {
        /// Nothing but memory.
        off: bool,
    },
    /// Takes an idle tenant's memory to the host.
    Park {
        /// The tenant.
        tenant: String,
    },
    /// Brings it back.
    Unpark {
        /// The tenant.
        tenant: String,
    },
    /// Asks what has happened.
    Events(AskEvents),
    /// Asks what a tenant waited for.
    Why {
        /// The tenant.
        tenant: String,
    },
}

/// One line from the node manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Response {
    /// The tenant is there.
    Created(Created),
    /// The budget has changed.
    Set(SetDone),
    /// Everything.
    Stats(Box<Stats>),
    /// Policies as they are now.
    Policies(Policies),
    /// The switch stands as it was to.
    Switched(Switched),
    /// The tenant is parked, or runs.
    Parked(ParkDone),
    /// What has happened.
    Events(Events),
    /// What a tenant waited for.
    Why(Box<Why>),
    /// Refused; nothing has changed.
    Error(Fault),
}

/// A tenant to be made or joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTenant {
    /// The name; with `unique`, the first part of it.
    pub name: String,
    /// Make the name unique by a number instead of joining.
    #[serde(default)]
    pub unique: bool,
    /// GPUs by index or UUID; empty: the first one.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// Share guaranteed.
    #[serde(default)]
    pub request_permille: Option<u16>,
    /// Share never exceeded; the whole GPU if absent.
    #[serde(default)]
    pub limit_permille: Option<u16>,
    /// Memory on each GPU.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Bytes that may be copied between host and device in each second, on each GPU; 0: unlimited.
    #[serde(default)]
    pub copy_limit_bytes_per_s: u64,
    /// The class.
    #[serde(default)]
    pub class: ClassName,
    /// Beyond the memory limit, plain allocations become managed memory instead of being refused.
    #[serde(default)]
    pub oversubscribe: bool,
    /// What it promises its users, such as `p95 < 200ms`; with `latency_from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<String>,
    /// Where its latencies come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_from: Option<Source>,
}

/// A change of budget: what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBudget {
    /// The tenant.
    pub tenant: String,
    /// New request.
    #[serde(default)]
    pub request_permille: Option<u16>,
    /// New limit.
    #[serde(default)]
    pub limit_permille: Option<u16>,
    /// New memory limit.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// New limit of copies, in bytes per second; 0: unlimited.
    #[serde(default)]
    pub copy_limit_bytes_per_s: Option<u64>,
    /// New promise to its users, such as `p95 < 200ms`; for a tenant that has a source of latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<String>,
    /// Only say what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// A tenant's class by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassName {
    /// Online, with a latency to keep.
    Latency,
    /// The work that fillers must not slow.
    #[default]
    Primary,
    /// Best effort.
    Filler,
}

impl ClassName {
    /// As written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Primary => "primary",
            Self::Filler => "filler",
        }
    }
}

impl From<ClassName> for Class {
    fn from(name: ClassName) -> Self {
        match name {
            ClassName::Latency => Self::Latency,
            ClassName::Primary => Self::Primary,
            ClassName::Filler => Self::Filler,
        }
    }
}

impl From<ClassName> for weir_protocol::message::Class {
    fn from(name: ClassName) -> Self {
        match name {
            ClassName::Latency => Self::Latency,
            ClassName::Primary => Self::Primary,
            ClassName::Filler => Self::Filler,
        }
    }
}

/// What an operator sets, the same on each of a tenant's GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Share guaranteed.
    #[serde(rename = "request_permille")]
    pub request: SmShare,
    /// Share never exceeded.
    #[serde(rename = "limit_permille")]
    pub limit: SmShare,
    /// Memory.
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    /// Copies between host and device; 0: unlimited.
    #[serde(rename = "copy_limit_bytes_per_s", default)]
    pub copy_limit: Bandwidth,
    /// What it promises its users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Promise>,
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { request, limit, memory, copy_limit, slo } = self;
        write!(f, "request {request}, limit {limit}, memory {memory}, copies {copy_limit}")?;
        slo.map_or(Ok(()), |slo| write!(f, ", {slo}"))
    }
}

/// The tenant that was made or joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// Its name, made unique.
    pub tenant: String,
    /// What `WEIR_DIR` must be for its processes.
    pub dir: std::path::PathBuf,
    /// Its GPUs, by UUID.
    pub gpus: Vec<String>,
    /// The same by index.
    #[serde(default)]
    pub gpu_indices: Vec<usize>,
    /// Its budget.
    pub budget: Budget,
    /// Whether it was there before.
    pub joined: bool,
    /// Whether its GPUs are simulated.
    pub simulated: bool,
    /// What its processes must say to MPS, where its GPUs are shared by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mps: Option<mps::Client>,
}

/// What became of a change of budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetDone {
    /// The tenant.
    pub tenant: String,
    /// Budget before.
    pub old: Budget,
    /// Budget now.
    pub new: Budget,
    /// Whether this was only a question.
    pub dry_run: bool,
    /// From the manager's store of the new grant to the first launch under it, in microseconds; absent if no
    /// process launched anything within a second.
    pub first_launch_us: Option<f64>,
    /// Memory held beyond the new limit, in bytes: it stays held, and nothing new is allocated meanwhile.
    pub over_limit_bytes: u64,
}

/// The request in one line.
///
/// # Errors
/// [`codes::PROTOCOL`](crate::codes::PROTOCOL); any bytes are safe.
pub fn parse(line: &[u8]) -> Result<Request, Fault> {
    serde_json::from_slice(line).map_err(|error| {
        let message = format!("the request is not understood: {error}");
        Fault::new(&crate::codes::PROTOCOL, message, "use a `weir` of the node manager's version")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_request_survives_the_wire(tenant in ".{0,64}", request: Option<u16>, memory: Option<u64>, dry_run: bool) {
            let change = SetBudget { tenant, request_permille: request, memory_bytes: memory, dry_run, ..SetBudget::default() };
            let line = serde_json::to_vec(&Request::Set(change.clone())).unwrap();
            prop_assert!(!line.contains(&b'\n'), "one request, one line");
            prop_assert_eq!(parse(&line).unwrap(), Request::Set(change));
        }

        #[test]
        fn no_line_harms_the_reader_of_requests(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }

        #[test]
        fn no_text_like_json_harms_the_reader_of_requests(line in r#"[\[\]{}",:a-z0-9.eE+-]{0,200}"#) {
            let _ = parse(line.as_bytes());
        }
    }
}
