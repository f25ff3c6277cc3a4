//! `policy` on the control socket: which policy decides on which GPU, and another one from now on.

use serde::{Deserialize, Serialize};

use super::schema::Response;
use super::server::Outcome;
use crate::authority::Peer;
use crate::fault::Fault;
use crate::registry::{Registry, find_policy};
use crate::shared::{Shared, now};

/// Shows policies; with a name it switches them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskPolicy {
    /// GPUs by index or UUID; empty: all.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// The policy that is to decide there from now on.
    #[serde(default)]
    pub name: Option<String>,
}

/// Which policy decides where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// The GPUs that were asked for.
    pub gpus: Vec<GpuPolicy>,
    /// Every policy that there is.
    pub known: Vec<KnownPolicy>,
}

/// One GPU's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPolicy {
    /// Index of the GPU.
    pub index: usize,
    /// Its UUID.
    pub uuid: String,
    /// The policy before; the same as `policy` if it was not switched.
    pub old: String,
    /// The policy now.
    pub policy: String,
}

/// A policy as people choose it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPolicy {
    /// Its name.
    pub name: String,
    /// What it does, in one line.
    pub about: String,
}

/// Answers the request.
pub(super) fn answer(shared: &Shared, peer: &Peer, asked: &AskPolicy) -> Result<Outcome, Fault> {
    let mut registry = shared.registry();
    let gpus = match asked.gpus.as_slice() {
        [] => (0..registry.gpus.devices.len()).collect(),
        named => registry.resolve_gpus(named)?,
    };
    let wanted = asked.name.as_deref().map(find_policy).transpose()?;
    if wanted.is_some() {
        shared.authority.may_rule(peer, "switch policies")?;
    }
    let shown = gpus.into_iter().filter_map(|gpu| one(&mut registry, gpu, wanted)).collect();
    if wanted.is_some() {
        registry.tick(now()); // what follows from it holds when the answer comes
        shared.hasten(&mut registry);
    }
    let known = weir_policy::POLICIES.iter();
    let known = known.map(|row| KnownPolicy { name: row.name.into(), about: row.about.into() }).collect();
    Ok(Outcome::Reply(Response::Policies(Policies { gpus: shown, known })))
}

fn one(registry: &mut Registry, gpu: usize, wanted: Option<&'static weir_policy::Row>) -> Option<GpuPolicy> {
    let old = match wanted {
        Some(row) => registry.switch_policy(gpu, row)?,
        None => registry.policy_of(gpu)?,
    };
    let uuid = registry.gpus.devices.get(gpu)?.uuid_text();
    let policy = registry.policy_of(gpu)?.name.into();
    Some(GpuPolicy { index: gpu, uuid, old: old.name.into(), policy })
}
