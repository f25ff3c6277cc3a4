//! `park` and `unpark` on the control socket.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::schema::Response;
use super::server::Outcome;
use crate::authority::Peer;
use crate::fault::Fault;
use crate::park;
use crate::registry::{By, Stand};
use crate::shared::Shared;

/// What became of a tenant that was to be parked, or to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkDone {
    /// Its name.
    pub tenant: String,
    /// How it stands now: `parked` or `running`.
    pub stand: Stand,
    /// Its memory on all its GPUs, in bytes: on the host while it is parked.
    pub memory_bytes: u64,
    /// What that took, in milliseconds; 0: it stood so before.
    pub took_ms: u64,
}

/// Answers the request, at once if there is nothing to be done.
pub(super) fn answer(
    shared: &Arc<Shared>,
    peer: &Peer,
    from: u64,
    tenant: &str,
    parks: bool,
) -> Result<Outcome, Fault> {
    let mut registry = shared.registry();
    let known = registry.named(tenant)?;
    shared.authority.may_park(peer, known)?;
    let (id, stand) = (known.id, known.park.stand);
    let job = match parks {
        true => registry.begin_park(id, By::Operator, Some(from))?,
        false => registry.begin_unpark(id, By::Operator, Some(from))?,
    };
    drop(registry);
    let Some(job) = job else {
        let tenant = tenant.to_owned();
        return Ok(Outcome::Reply(Response::Parked(ParkDone { tenant, stand, memory_bytes: 0, took_ms: 0 })));
    };
    park::start(shared, job);
    Ok(Outcome::Later)
}
