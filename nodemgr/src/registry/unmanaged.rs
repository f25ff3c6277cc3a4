//! What the registry keeps of NVML's account (`guard`): processes without a budget and what follows for them, and by how
//! much the ledgers differ.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use weir_protocol::units::Bytes;

use super::{Registry, Stand, Tenant};
use crate::events::{About, What};
use crate::gpus::{GpuReading, Health};
use crate::guard::{Census, Found, Rule, Seat, Stop, Stranger};

/// Times that a process is seen before it is stopped: it is told of first.
const SIGHTINGS: u32 = 2;

/// What NVML's account has led to.
#[derive(Default)]
pub struct Guarded {
    /// What follows for a process without a budget.
    pub rule: Rule,
    strangers: Vec<Sighted>,
    drift: BTreeMap<(u64, usize), i64>,
    told: Health,
    log: Vec<String>,
}

/// A process without a budget.
pub struct Sighted {
    /// Who.
    pub stranger: Stranger,
    /// In how many readings.
    sightings: u32,
    /// What became of it; nothing while that is open.
    outcome: Option<String>,
}

impl Guarded {
    /// Those who are on a GPU without a budget.
    pub fn strangers(&self) -> impl Iterator<Item = &Stranger> {
        self.strangers.iter().map(|sighted| &sighted.stranger)
    }

    /// The same, with what became of each.
    pub fn sighted(&self) -> impl Iterator<Item = (&Stranger, Option<&String>)> {
        self.strangers.iter().map(|sighted| (&sighted.stranger, sighted.outcome.as_ref()))
    }

    /// What they hold on a GPU and nobody else can be promised.
    pub fn withheld(&self, gpu: usize) -> Bytes {
        if self.rule == Rule::Report {
            return Bytes(0);
        }
        let held = self.strangers().filter(|stranger| stranger.gpu == gpu);
        Bytes(held.fold(0, |sum, stranger| sum.saturating_add(stranger.listed.bytes.unwrap_or(0))))
    }

    /// The log is to be told this.
    pub(super) fn note(&mut self, line: String) {
        self.log.push(line);
    }

    /// What NVML says that a tenant holds on a GPU beyond what its ledger says, in bytes.
    pub fn drift(&self, tenant: u64, gpu: usize) -> Option<i64> {
        self.drift.get(&(tenant, gpu)).copied()
    }

    /// Whether a process of the tenant runs there without its budget.
    pub fn has_escaped(&self, tenant: u64) -> bool {
        self.strangers().any(|stranger| stranger.tenant == Some(tenant) && !stranger.who.keeps_limits)
    }
}

impl Registry {
    /// What NVML's account has led to.
    pub fn guarded(&self) -> &Guarded {
        &self.guarded
    }

    /// What is to follow for processes without a budget.
    pub fn guard_by(&mut self, rule: Rule) {
        self.guarded.rule = rule;
    }

    /// Everybody who is known.
    pub fn census(&self) -> Census {
        let seats = self.tenants.iter().flat_map(|tenant| {
            let reached = tenant.processes.iter().map(|process| Seat {
                pid: process.pid,
                tenant: tenant.id,
                held: held(tenant, process.slot),
            });
            let unreached = tenant.unreached.iter();
            let held = BTreeMap::new;
            reached.chain(unreached.map(move |process| Seat {
                pid: process.pid,
                tenant: tenant.id,
                held: held(),
            }))
        });
        let own = std::process::id().cast_signed();
        let keepers = self.tenants.iter().flat_map(|tenant| {
            let holders = tenant.holders.iter().filter(move |holder| holder.pid > 0 && holder.pid != own);
            holders.map(|holder| (holder.pid, tenant.id))
        });
        Census { seats: seats.collect(), keepers: keepers.collect() }
    }

    /// NVML has not answered.
    pub fn note_nvml_silence(&mut self, why: String) {
        self.gpus.note_silence(why);
        self.tell_nvml();
    }

    /// NVML has answered, and these are on the GPUs without a budget. Says who of them is to be stopped, and how.
    pub fn note_reading(
        &mut self,
        reading: &[Result<GpuReading, String>],
        found: &Found,
        strangers: Vec<Stranger>,
    ) -> Vec<(Stranger, Stop)> {
        self.gpus.note(reading, found.complete);
        self.tell_nvml();
        self.guarded.drift.clone_from(&found.drift);
        let mut before = std::mem::take(&mut self.guarded.strangers);
        for stranger in strangers {
            let same = |known: &Sighted| is_same(&known.stranger, &stranger);
            let known = before.iter().position(same).map(|at| before.swap_remove(at));
            let (sightings, outcome) = known.map_or((0, None), |known| (known.sightings, known.outcome));
            if sightings == 0 {
                self.tell_of(&stranger, unmanaged(&stranger));
            }
            self.guarded.strangers.push(Sighted { stranger, sightings: sightings + 1, outcome });
        }
        for gone in before {
            let lists = |gpu: &GpuReading| gpu.processes.is_some();
            if !reading.get(gone.stranger.gpu).is_some_and(|gpu| gpu.as_ref().is_ok_and(lists)) {
                self.guarded.strangers.push(gone); // nobody says that it has gone
                continue;
            }
            let pid = gone.stranger.listed.pid;
            self.tell_of(&gone.stranger, What::UnmanagedGone { pid });
        }
        self.choose_victims()
    }

    fn choose_victims(&mut self) -> Vec<(Stranger, Stop)> {
        let stop = match self.guarded.rule {
            Rule::Report | Rule::Withhold => return Vec::new(),
            Rule::Freeze => Stop::Freeze,
            Rule::Kill => Stop::Kill,
        };
        let due = |sighted: &&Sighted| sighted.outcome.is_none() && sighted.sightings >= SIGHTINGS;
        let due = self.guarded.strangers.iter().filter(due).map(|sighted| sighted.stranger.clone());
        let mut doomed = Vec::new();
        for stranger in due.collect::<Vec<_>>() {
            match why_spared(&stranger) {
                Some(why) => self.note_stop(&stranger, stop, Err(why.to_owned())),
                None => doomed.push((stranger, stop)),
            }
        }
        doomed
    }

    /// A process without a budget was stopped, with its control group where that is how; or could not be.
    pub fn note_stop(&mut self, stranger: &Stranger, stop: Stop, done: Result<String, String>) {
        let pid = stranger.listed.pid;
        let (what, outcome) = match (stop, done) {
            (Stop::Freeze, Ok(cgroup)) => {
                let outcome = format!("frozen with its control group {cgroup}");
                (What::UnmanagedFrozen { pid, cgroup }, outcome)
            }
            (Stop::Freeze, Err(why)) => {
                let outcome = format!("NOT frozen: {why}");
                (What::UnmanagedRuns { pid, why }, outcome)
            }
            (Stop::Kill, Ok(_)) => (What::UnmanagedKilled { pid }, "killed".to_owned()),
            (Stop::Kill, Err(why)) => {
                let outcome = format!("NOT killed: {why}");
                (What::UnmanagedSpared { pid, why }, outcome)
            }
        };
        if let Some(sighted) =
            self.guarded.strangers.iter_mut().find(|known| is_same(&known.stranger, stranger))
        {
            sighted.outcome = Some(outcome);
        }
        self.tell_of(stranger, what);
    }

    fn tell_of(&mut self, stranger: &Stranger, what: What) {
        self.guarded.log.push(format!("GPU {}: {what}", stranger.gpu));
        let tenant = stranger.tenant.and_then(|id| self.tenants.iter().find(|tenant| tenant.id == id));
        let user = || About::user(stranger.who.uid);
        let about = tenant.map_or_else(user, |tenant| About::tenant(&tenant.name, tenant.owner));
        self.events.push(about.on(stranger.gpu), what);
    }

    fn tell_nvml(&mut self) {
        let (health, why) = self.gpus.health();
        let before = std::mem::replace(&mut self.guarded.told, health);
        if before == health {
            return;
        }
        let what = match health {
            Health::Ok if before == Health::None => return, // its first answer is no news
            Health::None => return,
            Health::Ok => What::NvmlAnswers,
            Health::Stale | Health::Partial => What::NvmlUnsure { state: health, why },
        };
        self.guarded.log.push(what.to_string());
        self.events.push(About::NODE, what);
    }

    /// What the log is to be told: not under the registry's lock, since whoever reads the log may be slow.
    pub fn take_guards_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.guarded.log)
    }
}

/// One process on one GPU.
fn is_same(one: &Stranger, other: &Stranger) -> bool {
    (one.gpu, one.listed.pid, one.who.birth) == (other.gpu, other.listed.pid, other.who.birth)
}

fn unmanaged(stranger: &Stranger) -> What {
    let (pid, memory_bytes) = (stranger.listed.pid, stranger.listed.bytes);
    let (uid, program) = (stranger.who.uid, stranger.who.program.clone());
    What::UnmanagedProcess { pid, uid, program, memory_bytes, keeps_limits: stranger.who.keeps_limits }
}

fn why_spared(stranger: &Stranger) -> Option<&'static str> {
    match () {
        () if stranger.who.uid == 0 => Some("it is root's"),
        () if stranger.who.keeps_limits => Some("it keeps to the limits of an earlier node manager"),
        () => None,
    }
}

/// What the process in this slot holds on each GPU of its tenant: nothing while that is parked. While a checkpoint is on its way,
/// or somebody else's, nobody can tell.
fn held(tenant: &Tenant, slot: usize) -> BTreeMap<usize, u64> {
    match tenant.park.stand {
        Stand::Parked => return tenant.cells.iter().map(|cell| (cell.gpu, 0)).collect(),
        Stand::Running if !tenant.park.held => {}
        _ => return BTreeMap::new(),
    }
    let on = |cell: &super::Cell| {
        let words = cell.pages.usage.slots.get(slot)?;
        // SeqCst, as the processes themselves read it: the ledger of one moment.
        Some((cell.gpu, words.held_bytes.load(Ordering::SeqCst)))
    };
    tenant.cells.iter().filter_map(on).collect()
}
