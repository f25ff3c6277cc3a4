//! Processes without a budget, and those that hold memory beyond their death, as the statistics show them.

use serde::{Deserialize, Serialize};

use crate::authority::Peer;
use crate::registry::{Departed, Registry};

/// A process that is on a GPU and has no budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmanagedStats {
    /// The GPU, by index.
    pub gpu: usize,
    /// Its number; only for root, group `weir`, and its own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its user.
    pub uid: u32,
    /// Its program's name; for whom the number is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// What it holds there by NVML's account, in bytes.
    pub memory_bytes: Option<u64>,
    /// The tenant of which it seems to be: the one that has started it, or whose container it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether it keeps to the last limits of an earlier node manager.
    pub keeps_limits: bool,
    /// What became of it where the configuration wants it stopped, for people: `frozen with its control group /job`,
    /// `NOT killed: it is root's`; for whom its number is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

impl UnmanagedStats {
    /// Hides who it is from those whom that does not concern.
    pub(super) fn for_eyes_of(mut self, peer: &Peer) -> Self {
        if !peer.admin && peer.uid != self.uid {
            (self.pid, self.program, self.outcome) = (None, None, None);
        }
        self
    }
}

/// A process that has died, and by NVML's account holds memory of a GPU still: nobody else is promised that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainingStats {
    /// The GPU, by index.
    pub gpu: usize,
    /// Its number; only for root, group `weir`, and its tenant's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its tenant's owner.
    pub uid: u32,
    /// Its tenant's name.
    pub tenant: String,
    /// What it holds, in bytes.
    pub memory_bytes: u64,
    /// Whether it has held it for so long after its death that the GPU or its driver is taken for stuck.
    #[serde(default)]
    pub wedged: bool,
}

impl DrainingStats {
    /// Hides which it was from those whom that does not concern.
    pub(super) fn for_eyes_of(mut self, peer: &Peer) -> Self {
        if !peer.admin && peer.uid != self.uid {
            self.pid = None;
        }
        self
    }
}

/// All of those.
pub(super) fn draining(registry: &Registry) -> Vec<DrainingStats> {
    let of = |departed: &Departed| DrainingStats {
        gpu: departed.gpu,
        pid: Some(departed.pid),
        uid: departed.owner,
        tenant: departed.tenant.clone(),
        memory_bytes: departed.bytes.0,
        wedged: departed.wedged,
    };
    registry.draining().map(of).collect()
}

/// All processes without a budget.
pub(super) fn collect(registry: &Registry) -> Vec<UnmanagedStats> {
    let strangers = registry.guarded().sighted().map(|(stranger, outcome)| UnmanagedStats {
        gpu: stranger.gpu,
        pid: Some(stranger.listed.pid),
        uid: stranger.who.uid,
        program: Some(stranger.who.program.clone()),
        memory_bytes: stranger.listed.bytes,
        tenant: stranger.tenant.and_then(|id| registry.tenant(id)).map(|tenant| tenant.name.clone()),
        keeps_limits: stranger.who.keeps_limits,
        outcome: outcome.cloned(),
    });
    strangers.collect()
}
