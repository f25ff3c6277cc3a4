//! `switch` on the control socket: the kill switch. Off, every grant is unlimited in time, nobody takes turns and copies go
//! as they come; memory limits stay. It is a mark in the place, so that a manager that starts again is still off.

use serde::{Deserialize, Serialize};

use super::schema::Response;
use super::server::Outcome;
use crate::authority::Peer;
use crate::codes;
use crate::fault::Fault;
use crate::launch;
use crate::shared::{Shared, now};

/// What became of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// Whether nothing is enforced in time now.
    pub off: bool,
    /// Whether that was so before.
    pub was_off: bool,
    /// Tenants that this concerns.
    pub tenants: usize,
}

/// Answers the request. The mark goes first: whatever happens next, the operator's will stands in the place.
pub(super) fn answer(shared: &Shared, peer: &Peer, off: bool) -> Result<Outcome, Fault> {
    shared.authority.may_rule(peer, if off { "switch Weir off" } else { "switch Weir on" })?;
    let mut registry = shared.registry();
    shared.place.mark_off(off).map_err(|error| {
        let what = format!("write `{}`", shared.place.off_mark().display());
        Fault::system(&codes::PLACE, what, error, "look at the directory and its file system")
    })?;
    let was_off = registry.is_off();
    registry.switch(off, peer.uid);
    registry.tick(now()); // what follows from it holds when the answer comes
    shared.hasten(&mut registry);
    if was_off != off {
        let uid = peer.uid;
        match off {
            true => {
                tracing::warn!(uid, "switched OFF: shares and turns are not enforced, memory limits hold")
            }
            false => tracing::info!(uid, "switched on: budgets are enforced again"),
        }
    }
    let ids: Vec<_> = registry.tenants().iter().map(|tenant| tenant.id).collect();
    drop(registry);
    ids.iter().for_each(|id| launch::renew(shared, *id));
    let tenants = ids.len();
    Ok(Outcome::Reply(Response::Switched(Switched { off, was_off, tenants })))
}
