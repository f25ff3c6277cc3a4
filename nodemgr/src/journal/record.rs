//! What stands in the journal, and what follows from all of it.

use serde::{Deserialize, Serialize};
use weir_protocol::message::PAGES;
use weir_protocol::pages::PROCESS_SLOTS;
use weir_protocol::units::Bytes;

use super::VERSION;
use crate::control::schema::{Budget, ClassName};
use crate::gpus::{Device, parse_uuid};
use crate::latency::Source;
use crate::place::check_name;
use crate::registry::{Counters, Holder, Park, Process};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Record {
    /// The first line.
    Begin {
        /// [`VERSION`].
        version: u32,
        /// Which boot of the machine.
        boot: String,
        /// The node's GPUs: NVML may take seconds to list them, and tenants' pages do not wait for it.
        devices: Vec<DeviceRow>,
    },
    /// A tenant is made.
    Tenant(Box<TenantRow>),
    /// A tenant's budget changes.
    Budget {
        /// Whose.
        tenant: u64,
        /// The new one.
        budget: Budget,
    },
    /// A tenant is being parked, is parked, or goes on.
    Park {
        /// Which.
        tenant: u64,
        /// How it stands.
        park: Park,
    },
    /// A process keeps a tenant, by a control connection.
    Hold(Hold),
    /// A control connection is gone.
    Release {
        /// Its number.
        holder: u64,
    },
    /// A process registers.
    Process(ProcessRow),
    /// A process is dead.
    Buried {
        /// The registration's number.
        process: u64,
        /// What all dead processes of its tenant did, on each of its GPUs.
        dead: Vec<Counters>,
    },
    /// A tenant is over.
    Ended {
        /// Which.
        tenant: u64,
    },
    /// A GPU has another policy.
    Policy(PolicyRow),
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// As `nvidia-smi` spells it.
    pub uuid: String,
    /// The product's name.
    pub name: String,
    /// The card's memory.
    pub memory_total: Bytes,
}

/// A GPU whose policy was switched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRow {
    /// The GPU's UUID.
    pub gpu: String,
    /// Its policy.
    pub policy: String,
    /// With which it had started: an operator who configures another one has decided anew.
    pub started_with: String,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantRow {
    /// The manager's number for it.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The user who made it.
    pub owner: u32,
    /// Its class.
    pub class: ClassName,
    /// Whether it may go beyond its memory.
    pub oversubscribe: bool,
    /// Its budget.
    pub budget: Budget,
    /// The budget with which it was made.
    pub budget_at_start: Budget,
    /// The budget that the configuration gave it: one that gives it another has decided anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured: Option<Budget>,
    /// Where its latencies come from.
    #[serde(default)]
    pub latency_from: Option<Source>,
    /// Whether it is parked.
    #[serde(default)]
    pub park: Park,
    /// When it was made, on the monotonic clock.
    pub made_at_ns: u64,
    /// Processes that ever registered, but for those of lines that follow.
    pub registered: u64,
    /// Its GPUs.
    pub cells: Vec<CellRow>,
}

/// A tenant on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRow {
    /// The GPU's UUID.
    pub gpu: String,
    /// The pages' inodes, in the order of a welcome.
    pub pages: [u64; PAGES],
    /// What its dead processes did.
    pub dead: Counters,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Whose.
    pub tenant: u64,
    /// The process.
    #[serde(flatten)]
    pub process: Process,
}

/// A connection that keeps a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which tenant.
    pub tenant: u64,
    /// Who is at its other end.
    #[serde(flatten)]
    pub holder: Holder,
}

/// What an earlier manager knew when it died.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remembered {
    /// The GPUs.
    pub devices: Vec<Device>,
    /// The tenants.
    pub tenants: Vec<TenantRow>,
    /// Their processes.
    pub processes: Vec<ProcessRow>,
    /// Who kept them.
    pub holds: Vec<Hold>,
    /// GPUs with another policy.
    pub policies: Vec<PolicyRow>,
    /// The greatest number that was given out.
    pub last_id: u64,
}

impl Record {
    /// The first line of a journal that is written now.
    pub fn begin(devices: &[Device]) -> Self {
        let row = |device: &Device| DeviceRow {
            uuid: device.uuid_text(),
            name: device.name.clone(),
            memory_total: device.memory_total,
        };
        Self::Begin { version: VERSION, boot: super::boot(), devices: devices.iter().map(row).collect() }
    }
}

impl Remembered {
    /// What `records` lead to; nothing if they are of another boot.
    pub(super) fn of(records: Vec<Record>, boot: &str) -> Result<Option<Self>, String> {
        let mut records = records.into_iter();
        let mut all = Self::default();
        match records.next() {
            Some(Record::Begin { version: VERSION, boot: theirs, devices }) => {
                if theirs != boot {
                    return Ok(None);
                }
                all.devices = devices.into_iter().map(device).collect::<Result<_, _>>()?;
            }
            Some(Record::Begin { version, .. }) => {
                return Err(format!("it is of version {version}, this node manager reads {VERSION}"));
            }
            _ => return Err("it has no beginning".to_owned()),
        }
        for record in records {
            all.take(record)?;
        }
        Ok(Some(all))
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Begin { .. } => return Err("it begins twice".to_owned()),
            Record::Tenant(row) => self.add_tenant(*row)?,
            Record::Budget { tenant, budget } => self.tenant(tenant)?.budget = checked(budget)?,
            Record::Park { tenant, park } => self.tenant(tenant)?.park = park,
            Record::Hold(hold) => {
                self.tenant(hold.tenant)?;
                self.given_out(hold.holder.id);
                self.holds.push(hold);
            }
            Record::Release { holder } => self.holds.retain(|hold| hold.holder.id != holder),
            Record::Process(row) => self.add_process(row)?,
            Record::Buried { process, dead } => self.bury(process, dead)?,
            Record::Policy(row) => {
                self.policies.retain(|other| other.gpu != row.gpu);
                self.policies.push(row);
            }
            Record::Ended { tenant } => {
                self.tenants.retain(|row| row.id != tenant);
                self.processes.retain(|row| row.tenant != tenant);
                self.holds.retain(|hold| hold.tenant != tenant);
            }
        }
        Ok(())
    }

    fn add_tenant(&mut self, row: TenantRow) -> Result<(), String> {
        check_name(&row.name).map_err(|fault| fault.message)?;
        checked(row.budget).and(checked(row.budget_at_start))?;
        row.configured.map(checked).transpose()?;
        let known = |gpu: &CellRow| self.devices.iter().any(|device| device.uuid_text() == gpu.gpu);
        if row.cells.is_empty() || !row.cells.iter().all(known) {
            return Err(format!("tenant `{}` is on no GPU of the node", row.name));
        }
        if self.tenants.iter().any(|other| other.id == row.id || other.name == row.name) {
            return Err(format!("tenant `{}` is there twice", row.name));
        }
        self.given_out(row.id);
        self.tenants.push(row);
        Ok(())
    }

    fn add_process(&mut self, row: ProcessRow) -> Result<(), String> {
        self.tenant(row.tenant)?.registered += 1;
        let Process { id, pid, slot, .. } = row.process;
        let taken = self.processes.iter().any(|other| other.process.id == id);
        if slot >= PROCESS_SLOTS || pid <= 0 || taken {
            return Err(format!("process {pid} in slot {slot} cannot be"));
        }
        self.given_out(id);
        self.processes.push(row);
        Ok(())
    }

    fn bury(&mut self, process: u64, dead: Vec<Counters>) -> Result<(), String> {
        let Some(at) = self.processes.iter().position(|row| row.process.id == process) else {
            return Err(format!("process {process} dies and never lived"));
        };
        let tenant = self.processes.swap_remove(at).tenant;
        let row = self.tenant(tenant)?;
        if row.cells.len() != dead.len() {
            return Err(format!("tenant `{}` has another number of GPUs", row.name));
        }
        row.cells.iter_mut().zip(dead).for_each(|(cell, dead)| cell.dead = dead);
        Ok(())
    }

    fn tenant(&mut self, id: u64) -> Result<&mut TenantRow, String> {
        self.tenants.iter_mut().find(|row| row.id == id).ok_or_else(|| format!("there is no tenant {id}"))
    }

    fn given_out(&mut self, id: u64) {
        self.last_id = self.last_id.max(id);
    }
}

fn device(row: DeviceRow) -> Result<Device, String> {
    let uuid = parse_uuid(&row.uuid).ok_or_else(|| format!("`{}` is no GPU", row.uuid.escape_debug()))?;
    Ok(Device { uuid, name: row.name, memory_total: row.memory_total })
}

fn checked(budget: Budget) -> Result<Budget, String> {
    let whole = 1_000;
    if budget.request > budget.limit || budget.limit.as_permille() > whole || budget.memory == Bytes(0) {
        return Err("a budget makes no sense".to_owned());
    }
    Ok(budget)
}

#[cfg(test)]
mod tests;
