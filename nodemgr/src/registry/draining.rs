//! Memory of processes that have died and are on a GPU still, by NVML's account: a kernel of theirs runs on, or the driver has
//! not come to the end of them. What they were charged is free at once, the card's memory is not: it is promised to nobody
//! before NVML lists the process no longer (gpu-truths; faults A.5, F02). We never reset a GPU.
//!
//! A tenant that goes on has so much less until then; of one that has gone, so much less is free on the card.

use std::sync::atomic::Ordering;

use weir_protocol::units::{Bytes, Nanos};

use super::{Process, Registry, Tenant};
use crate::birth;
use crate::events::{About, What};
use crate::gpus::GpuReading;

/// After so long the GPU is told of as wedged. A kernel that runs for longer is hardly meant to; a driver that tears down a
/// large context takes seconds.
const WEDGED: Nanos = Nanos::from_secs(30);

/// Who has not been found on a GPU for so long after its death, since NVML says nothing, is looked for no more.
const FORGOTTEN: Nanos = Nanos::from_secs(60);

/// What a process that has died held on one GPU.
#[derive(Clone, Debug)]
pub struct Departed {
    /// The GPU, by index.
    pub gpu: usize,
    /// Its number.
    pub pid: i32,
    /// Its tenant's name.
    pub tenant: String,
    /// What is not free yet.
    pub bytes: Bytes,
    /// Its tenant's owner.
    pub owner: u32,
    tenant_id: u64,
    since: Nanos,
    drains: bool, // NVML has listed it since
    /// Whether it has not become free for so long that the GPU is taken for stuck.
    pub wedged: bool,
}

/// Those who have died and may be on a GPU still.
#[derive(Debug, Default)]
pub struct Draining(Vec<Departed>);

impl Draining {
    /// Those who are, by NVML's account.
    pub fn all(&self) -> impl Iterator<Item = &Departed> {
        self.0.iter().filter(|departed| departed.drains)
    }

    /// What of a GPU is not free although its tenant is not `there` any more.
    pub fn nobodys(&self, gpu: usize, there: impl Fn(u64) -> bool) -> Bytes {
        sum(self.all().filter(|departed| departed.gpu == gpu && !there(departed.tenant_id)))
    }

    /// What a tenant's dead processes have of its memory on a GPU.
    pub fn of_tenant(&self, tenant: u64, gpu: usize) -> Bytes {
        sum(self.all().filter(|departed| (departed.tenant_id, departed.gpu) == (tenant, gpu)))
    }

    /// A process of the tenant has died; its slot is not cleared yet.
    pub fn add(&mut self, tenant: &Tenant, process: &Process, now: Nanos) {
        self.0.retain(|departed| departed.drains || now.since(departed.since) < FORGOTTEN);
        for cell in &tenant.cells {
            let held =
                cell.pages.usage.slots.get(process.slot).map(|slot| slot.held_bytes.load(Ordering::SeqCst));
            // The tenant wrote it: no more than it may hold is believed.
            let bytes = held.map_or(Bytes(0), Bytes).min(tenant.budget.memory);
            if bytes == Bytes(0) {
                continue;
            }
            self.0.push(Departed {
                gpu: cell.gpu,
                pid: process.pid,
                tenant: tenant.name.clone(),
                bytes,
                owner: tenant.owner,
                tenant_id: tenant.id,
                since: now,
                drains: false,
                wedged: false,
            });
        }
    }

    /// NVML was `asked` and has answered. `lives`: a living process has this number by now. Says what is new.
    fn judge(
        &mut self,
        reading: &[Result<GpuReading, String>],
        (asked, now): (Nanos, Nanos),
        lives: impl Fn(i32) -> bool,
    ) -> Vec<(Departed, What)> {
        let mut news = Vec::new();
        self.0.retain_mut(|departed| {
            let gpu = reading.get(departed.gpu).and_then(|gpu| gpu.as_ref().ok());
            let Some(listed) = gpu.and_then(|gpu| gpu.processes.as_ref()) else { return true };
            if departed.since >= asked {
                return true; // it may have lived then
            }
            let pid = departed.pid;
            let found = listed.iter().find(|listed| listed.pid == pid).filter(|_| !lives(pid));
            let Some(found) = found else {
                if departed.drains {
                    news.push((departed.clone(), What::MemoryDrained { pid }));
                }
                return false;
            };
            departed.bytes = found.bytes.map_or(departed.bytes, Bytes);
            let memory_bytes = departed.bytes.0;
            if !std::mem::replace(&mut departed.drains, true) {
                news.push((departed.clone(), What::MemoryDrains { pid, memory_bytes }));
            }
            let after_s = now.since(departed.since).0 / 1_000_000_000;
            if now.since(departed.since) >= WEDGED && !std::mem::replace(&mut departed.wedged, true) {
                news.push((departed.clone(), What::GpuWedged { pid, memory_bytes, after_s }));
            }
            true
        });
        news
    }
}

fn sum<'a>(departed: impl Iterator<Item = &'a Departed>) -> Bytes {
    Bytes(departed.fold(0, |sum, departed| sum.saturating_add(departed.bytes.0)))
}

impl Registry {
    /// Those who have died and hold memory of a GPU still.
    pub fn draining(&self) -> impl Iterator<Item = &Departed> {
        self.draining.all()
    }

    /// NVML, `asked` then, has answered by `now`.
    pub fn note_draining(&mut self, reading: &[Result<GpuReading, String>], asked: Nanos, now: Nanos) {
        // Whoever lives under that number holds what he holds: a stranger, or the process itself after an `exec`.
        let news = self.draining.judge(reading, (asked, now), birth::lives);
        for (departed, what) in &news {
            self.guarded.note(format!("GPU {}: {what}", departed.gpu));
            self.events.push(About::tenant(&departed.tenant, departed.owner).on(departed.gpu), what.clone());
        }
        for tenant in &mut self.tenants {
            let id = tenant.id;
            for cell in &mut tenant.cells {
                cell.drains = self.draining.of_tenant(id, cell.gpu);
            }
        }
        self.anew |= !news.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Listed;

    const S: u64 = 1_000_000_000;

    fn draining() -> Draining {
        Draining(vec![Departed {
            gpu: 0,
            pid: 7,
            tenant: "train".into(),
            bytes: Bytes::gib(2),
            owner: 0,
            tenant_id: 1,
            since: Nanos(10 * S),
            drains: false,
            wedged: false,
        }])
    }

    /// What is new when NVML, asked at `at` seconds, lists these.
    fn look(draining: &mut Draining, at: u64, listed: Option<&[i32]>) -> Vec<What> {
        let of = |pid: &i32| Listed { pid: *pid, bytes: Some(Bytes::gib(1).0) };
        let processes = listed.map(|pids| pids.iter().map(of).collect());
        let reading = [Ok(GpuReading { processes, ..GpuReading::default() })];
        let news = draining.judge(&reading, (Nanos(at * S), Nanos(at * S)), |pid| pid != 7);
        news.into_iter().map(|(_, what)| what).collect()
    }

    #[test]
    fn what_the_dead_hold_by_nvmls_account_is_nobodys_until_it_lists_them_no_longer() {
        let mut draining = draining();
        let nobodys = |draining: &Draining| draining.nobodys(0, |_| false);
        assert_eq!(look(&mut draining, 10, Some(&[])), [], "it was asked before the death");
        assert_eq!(nobodys(&draining), Bytes(0), "nobody has seen it there");
        let memory_bytes = Bytes::gib(1).0;
        assert_eq!(look(&mut draining, 11, Some(&[7])), [What::MemoryDrains { pid: 7, memory_bytes }]);
        assert_eq!((nobodys(&draining), draining.nobodys(1, |_| false)), (Bytes::gib(1), Bytes(0)));
        assert_eq!((draining.nobodys(0, |_| true), draining.of_tenant(1, 0)), (Bytes(0), Bytes::gib(1)));
        assert_eq!(look(&mut draining, 12, None), [], "NVML says nothing");
        assert_eq!(nobodys(&draining), Bytes::gib(1));
        assert_eq!(look(&mut draining, 13, Some(&[8])), [What::MemoryDrained { pid: 7 }]);
        assert_eq!(nobodys(&draining), Bytes(0));
    }

    #[test]
    fn a_gpu_on_which_the_dead_stay_is_told_of_as_wedged_once() {
        let mut draining = draining();
        look(&mut draining, 11, Some(&[7]));
        assert_eq!(look(&mut draining, 39, Some(&[7])), []);
        let memory_bytes = Bytes::gib(1).0;
        let wedged = What::GpuWedged { pid: 7, memory_bytes, after_s: 31 };
        assert_eq!(look(&mut draining, 41, Some(&[7])), [wedged]);
        assert_eq!(look(&mut draining, 50, Some(&[7])), []);
    }

    #[test]
    fn a_stranger_with_the_number_of_the_dead_is_not_taken_for_it() {
        let mut draining = draining();
        draining.0[0].pid = 9;
        assert_eq!(look(&mut draining, 11, Some(&[9])), []);
        assert!(draining.0.is_empty());
    }
}
