//! Who wants to go on, and who wants memory that is not free: looked at in each tick, and ten times a second.

use weir_policy::park::{Candidate, choose};
use weir_protocol::units::{Bytes, Nanos};

use super::{By, ParkJob, Stand};
use crate::control::schema::SetBudget;
use crate::events::{About, What};
use crate::fault::Fault;
use crate::registry::Registry;

/// Idle tenants are looked for so often while somebody wants memory.
const LOOK: Nanos = Nanos::from_millis(100);

/// A wish for memory that was refused counts for so long.
const PRESSED: Nanos = Nanos::from_secs(5);

/// Somebody wants memory that is not free.
#[derive(Clone, Copy, Debug)]
pub(in crate::registry) struct Pressure {
    gpu: usize,
    memory: Bytes,
    but: Option<u64>,
    until: Nanos,
}

impl Registry {
    /// Idle tenants may be parked after so long when another one wants memory; `None`: never.
    pub fn park_idle_after(&mut self, time: Option<Nanos>) {
        self.park_after = time;
    }

    /// Somebody wants so much memory on these GPUs, and it was not free.
    pub fn press(&mut self, gpus: &[usize], memory: Bytes, but: Option<u64>, now: Nanos) {
        if self.park_after.is_none() {
            return;
        }
        let until = Nanos(now.0.saturating_add(PRESSED.0));
        self.pressures.retain(|pressure| {
            pressure.until > now && (pressure.but != but || !gpus.contains(&pressure.gpu))
        });
        self.pressures.extend(gpus.iter().map(|gpu| Pressure { gpu: *gpu, memory, but, until }));
    }

    /// The same for a change of budget that was refused.
    pub fn press_for(&mut self, change: &SetBudget, now: Nanos) {
        let Ok(tenant) = self.named(&change.tenant) else { return };
        let gpus: Vec<_> = tenant.cells.iter().map(|cell| cell.gpu).collect();
        let (memory, id) = (change.memory_bytes.map_or(tenant.budget.memory, Bytes), tenant.id);
        self.press(&gpus, memory, Some(id), now);
    }

    /// What follows from what was seen since the last tick. Nobody parked and nothing wanted: two comparisons.
    pub fn park_jobs(&mut self, now: Nanos) -> Vec<ParkJob> {
        let mut jobs = Vec::new();
        if self.away == 0 && self.pressures.is_empty() {
            return jobs;
        }
        let due = now.since(self.park_looked_at) >= LOOK;
        if due {
            self.park_looked_at = now;
        }
        if self.away > 0 {
            self.look_for_calls(now, due, &mut jobs);
        }
        if due && !self.pressures.is_empty() {
            self.make_room(now, &mut jobs);
        }
        jobs
    }

    /// Lets those go on who have called, if there is room for them; else that is a wish as any other.
    fn look_for_calls(&mut self, now: Nanos, in_full: bool, jobs: &mut Vec<ParkJob>) {
        for at in 0..self.tenants.len() {
            let tenant = &mut self.tenants[at];
            if !tenant.is_parked() {
                continue;
            }
            tenant.park.wanted |= tenant.has_knocked() || in_full && tenant.has_called();
            if !tenant.park.wanted || now < tenant.park.not_before {
                continue;
            }
            match self.begin_unpark(self.tenants[at].id, By::Call, None) {
                Ok(job) => jobs.extend(job),
                Err(lacking) => self.wait_for_room(at, now, &lacking),
            }
        }
    }

    fn wait_for_room(&mut self, at: usize, now: Nanos, lacking: &Fault) {
        let tenant = &mut self.tenants[at];
        tenant.park.not_before = Nanos(now.0.saturating_add(LOOK.0));
        if !std::mem::replace(&mut tenant.park.told_lacking, true) {
            let what = What::UnparkWaits { why: lacking.message.clone() };
            self.events.push(About::tenant(&tenant.name, tenant.owner), what);
        }
        let gpus: Vec<_> = tenant.cells.iter().map(|cell| cell.gpu).collect();
        let (memory, id) = (tenant.budget.memory, tenant.id);
        self.press(&gpus, memory, Some(id), now);
    }

    /// Parks idle tenants where memory is wanted.
    fn make_room(&mut self, now: Nanos, jobs: &mut Vec<ParkJob>) {
        let Some(idle_after) = self.park_after else { return };
        self.pressures.retain(|pressure| pressure.until > now);
        for Pressure { gpu, memory, but, .. } in self.pressures.clone() {
            let lacking = Bytes(memory.0.saturating_sub(self.free_memory(gpu, but).0));
            let under_way = self.tenants.iter().any(|tenant| {
                tenant.park.stand == Stand::Parking && tenant.cells.iter().any(|cell| cell.gpu == gpu)
            });
            if under_way {
                continue; // what they give is not counted yet
            }
            for tenant in choose(&self.candidates(gpu, but, now), lacking, idle_after) {
                if let Ok(job) = self.begin_park(tenant, By::Pressure, None) {
                    jobs.extend(job);
                }
            }
        }
    }

    fn candidates(&self, gpu: usize, but: Option<u64>, now: Nanos) -> Vec<Candidate> {
        let here = self.on_gpu(gpu, but).filter(|tenant| tenant.park.stand == Stand::Running);
        let may = here.filter(|tenant| now >= tenant.park.not_before && tenant.obstacle().is_none());
        may.map(|tenant| Candidate {
            tenant: tenant.id,
            class: tenant.class.into(),
            idle_for: tenant.cells.iter().map(|cell| cell.idle_for(now)).min().unwrap_or_default(),
            gives: tenant.budget.memory,
        })
        .collect()
    }
}
