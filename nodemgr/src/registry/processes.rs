//! Processes come to a tenant, and go.

use weir_protocol::pages::PROCESS_SLOTS;

use super::{Process, Registry, restore};
use crate::codes;
use crate::events::{About, What};
use crate::failpoint;
use crate::fault::Fault;
use crate::journal::Record;
use crate::shared::now;

impl Registry {
    /// Gives the tenant a process.
    ///
    /// # Errors
    /// [`codes::TENANT_FULL`]; [`codes::TENANT_UNKNOWN`] if it has just ended.
    pub fn register(
        &mut self,
        tenant: u64,
        (pid, birth): (i32, u64),
        build: String,
        driver: String,
    ) -> Result<Process, Fault> {
        let id = self.next_id();
        let Some(at) = self.tenants.iter().position(|known| known.id == tenant) else {
            let help = "start the program with `weir run`";
            return Err(Fault::new(&codes::TENANT_UNKNOWN, "the tenant has ended", help));
        };
        self.want(at);
        let tenant = &mut self.tenants[at];
        if let Some(process) = tenant.unreached.first() {
            let message = format!(
                "tenant `{}` has a process ({}) whose pages could not be taken over, so that its memory cannot be counted",
                tenant.name, process.pid
            );
            return Err(Fault::new(
                &codes::TENANT_FULL,
                message,
                "end that process first, or use a second tenant",
            ));
        }
        let Some(slot) = tenant.free_slot() else {
            let message =
                format!("tenant `{}` already has {PROCESS_SLOTS} processes on its GPUs", tenant.name);
            return Err(Fault::new(
                &codes::TENANT_FULL,
                message,
                "wait until one ends, or use a second tenant",
            ));
        };
        let process = Process { id, pid, birth, slot, build, driver };
        self.journal.note(&restore::process_row(tenant.id, &process));
        failpoint::at("register.noted");
        tenant.add(process.clone());
        self.renewed.push(at);
        self.events.push(About::tenant(&tenant.name, tenant.owner), What::ProcessJoined { pid });
        failpoint::at("register.added");
        Ok(process)
    }

    /// The process has gone: its counters are kept, its slot is freed. In this order, so that whoever takes over in the
    /// middle finds the process in the journal, or in its slot what is left of it.
    pub fn bury(&mut self, process: u64) {
        let whose =
            self.tenants.iter().find_map(|t| Some((t, t.processes.iter().find(|p| p.id == process)?)));
        if let Some((tenant, dead)) = whose {
            let pid = dead.pid;
            self.events.push(About::tenant(&tenant.name, tenant.owner), What::ProcessEnded { pid });
            self.draining.add(tenant, dead, now());
        }
        let buried =
            self.tenants.iter_mut().enumerate().find_map(|(at, tenant)| Some((at, tenant.bury(process)?)));
        let Some((at, (slot, orphans))) = buried else { return self.forget_out_of_reach() };
        self.renewed.push(at);
        let dead = self.tenants[at].cells.iter().map(|cell| cell.dead.clone()).collect();
        self.journal.note(&Record::Buried { process, dead });
        failpoint::at("bury.noted");
        self.unclaimed.hand_on(&self.tenants, orphans);
        self.tenants[at].cells.iter().for_each(|cell| cell.clear(slot));
        self.forget_park(at);
        failpoint::at("bury.cleared");
    }
}
