//! Tenants that stay: made from the configuration when the manager starts, and kept by it whoever comes and goes.

use weir_protocol::units::Nanos;

use super::{Holder, Registry};
use crate::config::Persistent;
use crate::fault::Fault;

/// Who keeps them: a number that no connection has, and nobody whose end could be watched.
pub const PERSISTENT: Holder = Holder { id: 0, pid: 0, birth: 0 };

impl Registry {
    /// Makes the tenant, or keeps the one of its name with the budget that it has: an operator may have changed that since.
    /// Says its number.
    ///
    /// # Errors
    /// Whatever [`codes`](crate::codes) has for budgets, with file and line.
    pub fn persist(&mut self, tenant: &Persistent, now: Nanos) -> Result<u64, Fault> {
        let Persistent { wanted, owner, at } = tenant;
        if let Some(known) = self.tenants.iter_mut().find(|known| known.name == wanted.name) {
            if !known.holders.contains(&PERSISTENT) {
                known.holders.push(PERSISTENT);
            }
            return Ok(known.id);
        }
        let made = self.create(wanted, *owner, PERSISTENT, now);
        made.map(|(id, _)| id).map_err(|fault| fault.at(at.clone()))
    }
}
