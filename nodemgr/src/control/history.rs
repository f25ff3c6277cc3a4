//! `events` and `why` on the control socket: what has happened, and what a tenant waited for.
//!
//! Whoever wants to hear of events as they come asks for those after the last one that he knows, and to be answered when
//! there are any. So the socket stays one line in, one line out, and nobody who does not read fills our memory.

use serde::{Deserialize, Serialize};
use weir_protocol::units::Nanos;

use super::schema::{Budget, ClassName, Response};
use super::server::Outcome;
use crate::authority::Peer;
use crate::codes;
use crate::events::Event;
use crate::fault::Fault;
use crate::registry::{Moment, Registry, Tenant};
use crate::shared::{Shared, now};

/// Whoever waits is answered after so long, with nothing if nothing happened: an answer is a sign of life.
const LONGEST: Nanos = Nanos::from_secs(5);

/// Connections that may wait at the same time.
const MAX_WAITING: usize = 1024;

/// Asks for events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskEvents {
    /// Those after this number; 0: all that are kept.
    #[serde(default)]
    pub after: u64,
    /// If there are none, answer when there are, or after five seconds.
    #[serde(default)]
    pub wait: bool,
}

/// What has happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Oldest first.
    pub events: Vec<Event>,
    /// The number to ask for next.
    pub last: u64,
    /// Events that were asked for and are no longer kept.
    pub missed: u64,
}

/// What a tenant waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// The tenant.
    pub tenant: String,
    /// Its class.
    pub class: ClassName,
    /// Its budget.
    pub budget: Budget,
    /// Processes that ever registered.
    pub processes_ever: u64,
    /// Each of its GPUs.
    pub gpus: Vec<WhyGpu>,
    /// What has happened to it, and to its GPUs.
    pub events: Vec<Event>,
}

/// One tenant on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyGpu {
    /// Index of the GPU.
    pub index: usize,
    /// What its time went to, second by second, oldest first; seconds in which nothing moved are left out.
    pub moments: Vec<Moment>,
}

/// A connection that waits for events.
pub(crate) struct Watcher {
    line: u64,
    peer: Peer,
    after: u64,
    until: Nanos,
}

/// Answers a request for events, now or later.
pub(super) fn events(shared: &Shared, peer: &Peer, from: u64, asked: &AskEvents) -> Result<Outcome, Fault> {
    let found = collect(&shared.registry(), peer, asked.after);
    if !asked.wait || !found.events.is_empty() || found.missed > 0 {
        return Ok(Outcome::Reply(Response::Events(found)));
    }
    let mut watchers = shared.watchers();
    if watchers.len() >= MAX_WAITING || watchers.iter().any(|watcher| watcher.line == from) {
        let message = "this connection waits for events already, or too many others do";
        return Err(Fault::new(&codes::BUSY, message, "read the answer before asking again"));
    }
    let until = Nanos(now().0.saturating_add(LONGEST.0));
    watchers.push(Watcher { line: from, peer: *peer, after: asked.after, until });
    Ok(Outcome::Later)
}

/// Answers those who wait and for whom there is something, or whose time is up. Called once in each tick.
pub(crate) fn serve_watchers(shared: &Shared) {
    let mut watchers = shared.watchers();
    if watchers.is_empty() {
        return;
    }
    let (mut answers, now) = (Vec::new(), now());
    {
        let registry = shared.registry();
        let last = registry.events.last();
        watchers.retain(|watcher| {
            if last <= watcher.after && now < watcher.until {
                return true;
            }
            let found = collect(&registry, &watcher.peer, watcher.after);
            let silent = found.events.is_empty() && found.missed == 0 && now < watcher.until;
            if !silent {
                answers.push((watcher.line, found));
            }
            silent
        });
    }
    for (line, found) in answers {
        shared.post(line, Response::Events(found));
    }
}

fn collect(registry: &Registry, peer: &Peer, after: u64) -> Events {
    let may_see = |event: &&Event| event.owner.is_none_or(|owner| peer.admin || peer.uid == owner);
    let events = registry.events.after(after).filter(may_see).cloned().collect();
    Events { events, last: registry.events.last(), missed: registry.events.missed(after) }
}

/// Answers the question what a tenant waited for.
pub(super) fn why(shared: &Shared, peer: &Peer, name: &str) -> Result<Outcome, Fault> {
    let registry = shared.registry();
    let tenant = registry.named(name)?;
    shared.authority.may_look_into(peer, tenant)?;
    let gpus = tenant.cells.iter();
    let gpus =
        gpus.map(|cell| WhyGpu { index: cell.gpu, moments: cell.history.moments().cloned().collect() });
    Ok(Outcome::Reply(Response::Why(Box::new(Why {
        tenant: tenant.name.clone(),
        class: tenant.class,
        budget: tenant.budget,
        processes_ever: tenant.registered,
        gpus: gpus.collect(),
        events: concerning(&registry, tenant),
    }))))
}

/// What has happened to the tenant itself and to the GPUs on which it is.
fn concerning(registry: &Registry, tenant: &Tenant) -> Vec<Event> {
    let on_its_gpu = |event: &Event| {
        event.tenant.is_none() && event.gpu.is_none_or(|gpu| tenant.cells.iter().any(|cell| cell.gpu == gpu))
    };
    let all = registry.events.after(0);
    all.filter(|event| event.tenant.as_deref() == Some(&tenant.name) || on_its_gpu(event)).cloned().collect()
}
