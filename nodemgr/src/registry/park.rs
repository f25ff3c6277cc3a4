//! Who is parked, who may be, and who wants to go on (docs/park.md). What the driver has to do for it is a [`ParkJob`], carried
//! out elsewhere.
//!
//! ```text
//!            begin_park               settled                first call, or `weir unpark`
//!   Running ------------> Parking ------------> Parked <----------------------+
//!      ^                     |                    |  room again?              | failed: again in a second
//!      +------ undone -------+                    +---------> Unparking ------+
//!      +----------------------- settled ---------------------------+
//! ```
//!
//! While it is parked a tenant's memory limit is free for others: it comes back when there is room for it.

mod sight;
mod wishes;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Bytes, Nanos};

use super::{Registry, Tenant};
use crate::codes;
use crate::control::park::ParkDone;
use crate::control::schema::Response;
use crate::events::{About, What};
use crate::fault::Fault;
use crate::journal::Record;
use crate::park::{Failed, Member};
pub(super) use wishes::Pressure;

/// A tenant that could not be had back is tried again after this; one that could not be parked, by the policy after a minute.
const AGAIN: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(60));

/// How a tenant stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stand {
    /// Not parked.
    #[default]
    Running,
    /// About to be.
    Parking,
    /// Its memory is on the host, its calls wait.
    Parked,
    /// About to go on.
    Unparking,
}

impl Stand {
    /// As people see it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Parking => "parking",
            Self::Parked => "parked",
            Self::Unparking => "unparking",
        }
    }
}

/// What is known of a tenant's park. The journal keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Park {
    /// How it stands.
    pub stand: Stand,
    /// Its processes' calls when it was parked: more of them mean that it wants to go on.
    pub calls: Vec<Calls>,
    #[serde(skip)]
    wanted: bool,
    #[serde(skip)]
    not_before: Nanos,
    #[serde(skip)]
    told_lacking: bool,
    /// Somebody else has taken a checkpoint of it, or is about to.
    #[serde(skip)]
    pub held: bool,
}

/// What a process had called at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// The registration's number.
    pub process: u64,
    /// Calls that it wanted to make while it was parked.
    pub knocks: u32,
    /// These, and all that are counted before they are made.
    pub calls: u64,
}

/// Who wants a tenant parked, or to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Somebody, by `weir park` or `weir unpark`.
    Operator,
    /// Another tenant wants memory.
    Pressure,
    /// A call of its own.
    Call,
}

/// What the driver has to do.
#[derive(Clone, Debug)]
pub struct ParkJob {
    /// For whom.
    pub tenant: u64,
    /// Whether it is to be parked; else it is to go on.
    pub parks: bool,
    /// Its processes.
    pub members: Vec<Member>,
    /// Its memory on all its GPUs.
    pub bytes: Bytes,
    /// The control connection that waits for the answer.
    pub line: Option<u64>,
    by: By,
}

impl Registry {
    /// Parks a tenant; nothing to be done if it is parked.
    ///
    /// # Errors
    /// [`codes::PARK`]: it cannot be; [`codes::BUSY`].
    pub fn begin_park(&mut self, tenant: u64, by: By, line: Option<u64>) -> Result<Option<ParkJob>, Fault> {
        let Some(at) = self.tenants.iter().position(|known| known.id == tenant) else { return Ok(None) };
        let known = &mut self.tenants[at];
        match known.park.stand {
            Stand::Parked => return Ok(None),
            Stand::Running => {}
            stand => return Err(busy(known, stand)),
        }
        if let Some((why, help)) = known.obstacle() {
            return Err(Fault::new(&codes::PARK, format!("tenant `{}` {why}", known.name), help));
        }
        let calls = known.calls(); // before the word on its page: whoever does not see that is counted
        known.park = Park { calls, ..Park::default() };
        known.cells.iter_mut().for_each(|cell| cell.park(true));
        let (members, bytes) = (known.members(), known.memory());
        self.stand(at, Stand::Parking);
        Ok(Some(ParkJob { tenant, parks: true, members, bytes, line, by }))
    }

    /// Lets a tenant go on; nothing to be done if it runs.
    ///
    /// # Errors
    /// [`codes::MEMORY_TAKEN`]: others have its memory by now; [`codes::BUSY`].
    pub fn begin_unpark(&mut self, tenant: u64, by: By, line: Option<u64>) -> Result<Option<ParkJob>, Fault> {
        let Some(at) = self.tenants.iter().position(|known| known.id == tenant) else { return Ok(None) };
        let known = &self.tenants[at];
        match known.park.stand {
            Stand::Running => return Ok(None),
            Stand::Parked => {}
            stand => return Err(busy(known, stand)),
        }
        let gpus: Vec<_> = known.cells.iter().map(|cell| cell.gpu).collect();
        self.check_memory(known.budget.memory, &gpus, Some(tenant))?;
        let (members, bytes) = (known.members(), known.memory());
        self.stand(at, Stand::Unparking);
        Ok(Some(ParkJob { tenant, parks: false, members, bytes, line, by }))
    }

    /// Whether a tenant that is being parked has called meanwhile.
    pub fn is_wanted(&self, tenant: u64) -> bool {
        self.tenant(tenant).is_none_or(|tenant| tenant.park.wanted || tenant.has_called())
    }

    /// A process has come to a tenant: if that one is parked, it is wanted.
    pub(super) fn want(&mut self, at: usize) {
        self.tenants[at].park.wanted = true;
    }

    /// A process has gone: with the last one nothing is parked any more.
    pub(super) fn forget_park(&mut self, at: usize) {
        if self.tenants[at].is_parked() && self.tenants[at].processes.is_empty() {
            self.unpark(at);
        }
    }

    /// What came of a job, and the answer for whoever waits for it.
    pub fn settle_park(
        &mut self,
        job: &ParkJob,
        done: Result<(), Failed>,
        took: Duration,
        now: Nanos,
    ) -> Response {
        let Some(at) = self.tenants.iter().position(|known| known.id == job.tenant) else {
            let message = "the tenant has ended meanwhile";
            return Response::Error(Fault::new(
                &codes::TENANT_UNKNOWN,
                message,
                "start it again with `weir run`",
            ));
        };
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1); // 0 is for what stood so before
        let (by, memory_bytes) = (job.by, job.bytes.0);
        let is_parked = match &done {
            Ok(()) => job.parks,
            Err(failed) => !failed.undone,
        };
        match is_parked {
            true => self.stand(at, Stand::Parked),
            false => self.unpark(at),
        }
        let tenant = &mut self.tenants[at];
        let what = match &done {
            Ok(()) if job.parks => What::Parked { by, memory_bytes, took_ms },
            Ok(()) => What::Unparked { by, took_ms },
            Err(failed) => {
                tenant.park.wanted = is_parked; // half a checkpoint is nothing to stay in
                let pause = if is_parked { AGAIN.0 } else { AGAIN.1 };
                tenant.park.not_before = Nanos(now.0.saturating_add(pause.0));
                What::ParkFailed { parked: is_parked, why: failed.why.message.clone() }
            }
        };
        self.events.push(About::tenant(&tenant.name, tenant.owner), what);
        let (tenant, stand) = (tenant.name.clone(), tenant.park.stand);
        self.forget_park(at);
        match done {
            Ok(()) => Response::Parked(ParkDone { tenant, stand, memory_bytes, took_ms }),
            Err(failed) => Response::Error(failed.why),
        }
    }

    /// Who stands still and was not parked by us; nobody holds whoever moves.
    pub fn asleep(&mut self) -> Vec<(u64, Vec<Member>)> {
        let mut asleep = Vec::new();
        for tenant in &mut self.tenants {
            if tenant.park.stand == Stand::Running && tenant.is_asleep() {
                asleep.push((tenant.id, tenant.members()));
            } else {
                tenant.park.held = false;
            }
        }
        asleep
    }

    /// Whether somebody else has taken a checkpoint of a tenant, or is about to.
    pub fn note_checkpoint(&mut self, tenant: u64, held: bool) {
        let Some(tenant) = self.tenants.iter_mut().find(|known| known.id == tenant) else { return };
        let held = held && tenant.park.stand == Stand::Running; // it may be ours by now
        let before = std::mem::replace(&mut tenant.park.held, held);
        if held && !before {
            self.events.push(About::tenant(&tenant.name, tenant.owner), What::Checkpointed);
        }
    }

    fn unpark(&mut self, at: usize) {
        self.tenants[at].park = Park::default();
        self.tenants[at].cells.iter_mut().for_each(|cell| cell.park(false));
        self.anew = true; // the gate is as the next decision has it
        self.stand(at, Stand::Running);
    }

    /// Notes how a tenant stands now.
    fn stand(&mut self, at: usize, stand: Stand) {
        let tenant = &mut self.tenants[at];
        tenant.park.stand = stand;
        let record = Record::Park { tenant: tenant.id, park: tenant.park.clone() };
        self.journal.note(&record);
        self.count_away();
    }

    /// Whether anybody is parked, or on his way: his first call shall be heard within a tick.
    pub fn is_anyone_away(&self) -> bool {
        self.away > 0
    }

    /// Counts those that are looked at in each tick.
    pub(super) fn count_away(&mut self) {
        self.away = self.tenants.iter().filter(|tenant| tenant.park.stand != Stand::Running).count();
    }

    /// Those who were parked when an earlier manager died stay so.
    pub(super) fn take_over_parks(&mut self) {
        for at in 0..self.tenants.len() {
            if self.tenants[at].is_parked() {
                self.tenants[at].cells.iter_mut().for_each(|cell| cell.park(true));
            }
            self.forget_park(at);
        }
        self.count_away();
    }

    /// How a tenant stands that stood so when an earlier manager died. What that one had begun is undone: the driver says, process
    /// by process, how far it had come.
    pub(super) fn stood(park: Park) -> Park {
        let wanted = matches!(park.stand, Stand::Parking | Stand::Unparking);
        match park.stand {
            Stand::Running => Park::default(),
            _ => Park { stand: Stand::Parked, wanted, ..park },
        }
    }
}

fn busy(tenant: &Tenant, stand: Stand) -> Fault {
    let message = format!("tenant `{}` is {} already", tenant.name, stand.as_str());
    Fault::new(&codes::BUSY, message, "look at it with `weir ps`, and try again")
}
