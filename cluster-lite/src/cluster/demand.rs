//! What a tenant asks of a node.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Bytes, SmShare};

use super::{ClassSet, ClusterError};

/// A name that many tenants share: a service, a profile, a backbone.
pub type Name = Arc<str>;

/// Thousandths of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MilliCpu(pub u32);

/// What a tenant does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Trains a model.
    Training,
    /// Answers requests with a small model.
    #[default]
    Inference,
    /// Answers requests with a language model, whose memory may be cut into layers.
    Llm,
    /// Takes what the others leave.
    Filler,
}

/// Weights that several tenants of one GPU hold together (ServerlessLoRA, arXiv 2506.14468).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backbone {
    /// Which weights.
    pub name: Name,
    /// Their memory, counted once on each GPU.
    pub memory: Bytes,
}

/// What one tenant needs. Equal demands are placed alike, whoever makes them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Demand {
    /// Processors of the node.
    pub cpu: MilliCpu,
    /// Memory of the node.
    pub memory: Bytes,
    /// GPUs, all of one node. Zero: it needs none.
    pub gpus: u8,
    /// Guaranteed share of each GPU.
    pub request: SmShare,
    /// Largest share of each GPU; never below the request.
    pub limit: SmShare,
    /// Its own memory on each GPU, beside the backbone.
    pub gpu_memory: Bytes,
    /// Device classes that will do.
    pub classes: ClassSet,
    /// What it does.
    pub kind: Kind,
    /// The service it is an instance of.
    pub service: Option<Name>,
    /// Weights it shares with others.
    pub backbone: Option<Backbone>,
    /// Its profile, by which placement predicts how it gets on with others.
    pub profile: Option<Name>,
    /// On how many GPUs of a node it may be cut when no single one has room (language models, layer by layer). One: never.
    pub fragments: u8,
}

impl Default for Demand {
    /// Nothing at all.
    fn default() -> Self {
        Self {
            cpu: MilliCpu(0),
            memory: Bytes(0),
            gpus: 0,
            request: SmShare::ZERO,
            limit: SmShare::ZERO,
            gpu_memory: Bytes(0),
            classes: ClassSet::ANY,
            kind: Kind::default(),
            service: None,
            backbone: None,
            profile: None,
            fragments: 1,
        }
    }
}

impl Demand {
    /// `share` of one GPU, both guaranteed and at most.
    pub fn share(share: SmShare) -> Self {
        Self { gpus: 1, request: share, limit: share, ..Self::default() }
    }

    /// `count` whole GPUs of one node.
    pub fn whole(count: u8) -> Self {
        Self { gpus: count, ..Self::share(SmShare::FULL) }
    }

    /// Guaranteed share of all its GPUs together, in permille of one.
    pub fn total_request(&self) -> u32 {
        u32::from(self.gpus) * u32::from(self.request.as_permille())
    }

    /// Whether its placement can ever matter to who comes later: by name, not by sums alone.
    pub(super) fn is_named(&self) -> bool {
        self.service.is_some() || self.profile.is_some() || self.backbone.is_some()
    }

    /// # Errors
    /// When it contradicts itself: a limit below the request, no share of GPUs that it asks for, shares of none, a cut gang.
    pub fn check(&self) -> Result<(), ClusterError> {
        let wrong = |why| Err(ClusterError::Demand { why });
        let asks_gpu = self.limit > SmShare::ZERO || self.gpu_memory > Bytes(0) || self.backbone.is_some();
        match () {
            () if self.limit < self.request => wrong("its limit lies below its request"),
            () if self.gpus == 0 && asks_gpu => wrong("it asks for a share or memory of no GPU"),
            () if self.gpus > 0 && self.limit == SmShare::ZERO => {
                wrong("its limit is 0 %: it could never run")
            }
            () if self.gpus > 1 && self.fragments > 1 => {
                wrong("it has several GPUs and may be cut: one of the two")
            }
            () if self.fragments == 0 => wrong("it may be cut into 0 fragments: write 1 for never"),
            () => Ok(()),
        }
    }
}
