//! NVML's account against the registry's: who of those on the GPUs is not known, who of those that are known is not
//! listed, and by how much the two differ. Pure: the looks are passed in.

use std::collections::BTreeMap;

use super::process::{self, Who};
use crate::gpus::{GpuReading, Listed};

/// A process that the registry knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its number.
    pub pid: i32,
    /// Its tenant.
    pub tenant: u64,
    /// What it holds on each of its tenant's GPUs, by index, in bytes; nothing of one whose pages are not to be had.
    pub held: BTreeMap<usize, u64>,
}

/// Everybody whom the registry knows, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Processes with a budget.
    pub seats: Vec<Seat>,
    /// Processes that keep a tenant: (number, tenant).
    pub keepers: Vec<(i32, u64)>,
}

/// What a comparison has led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Processes that are listed on a GPU and not known.
    pub strangers: Vec<(usize, Listed)>,
    /// What NVML says beyond what the ledger says, in bytes, by tenant and GPU; left out where it cannot be told.
    pub drift: BTreeMap<(u64, usize), i64>,
    /// Whether everybody who holds memory is listed.
    pub complete: bool,
}

/// Compares.
pub fn compare(reading: &[Result<GpuReading, String>], before: &Census, after: &Census) -> Found {
    let mut found = Found { complete: true, ..Found::default() };
    for (gpu, reading) in reading.iter().enumerate() {
        let Ok(reading) = reading else { continue };
        let Some(processes) = &reading.processes else {
            found.complete = false;
            continue;
        };
        let known = |pid: i32| before.knows(pid) || after.knows(pid);
        let strangers = processes.iter().filter(|process| !known(process.pid));
        found.strangers.extend(strangers.map(|process| (gpu, *process)));
        found.complete &= after.seats.iter().all(|seat| {
            let holds = |census: &Census| census.held(seat, gpu).is_some_and(|held| held > 0);
            !(holds(before) && holds(after)) || processes.iter().any(|process| process.pid == seat.pid)
        });
        let mut tenants: Vec<u64> = after.seats.iter().map(|seat| seat.tenant).collect();
        tenants.dedup();
        for tenant in tenants {
            if let Some(drift) = drift(processes, before, after, tenant, gpu) {
                found.drift.insert((tenant, gpu), drift);
            }
        }
    }
    found
}

/// A ledger that moves between the two looks is right if NVML's figure lies between them.
fn drift(listed: &[Listed], before: &Census, after: &Census, tenant: u64, gpu: usize) -> Option<i64> {
    let (mut by_nvml, mut then, mut now) = (0u64, 0u64, 0u64);
    let of_tenant = |census: &Census| census.seats.iter().filter(|seat| seat.tenant == tenant).count();
    if of_tenant(before) != of_tenant(after) {
        return None; // somebody has come or gone
    }
    for seat in after.seats.iter().filter(|seat| seat.tenant == tenant) {
        let held = [before.held(seat, gpu)?, after.held(seat, gpu)?];
        (then, now) = (then.saturating_add(held[0]), now.saturating_add(held[1]));
        match listed.iter().find(|process| process.pid == seat.pid) {
            Some(process) => by_nvml = by_nvml.saturating_add(process.bytes?),
            None if held == [0, 0] => {} // it has no context
            None => return None,
        }
    }
    let (low, high) = (then.min(now), then.max(now));
    let over = i64::try_from(by_nvml.saturating_sub(high)).unwrap_or(i64::MAX);
    let under = i64::try_from(low.saturating_sub(by_nvml)).unwrap_or(i64::MAX);
    Some(if over > 0 { over } else { -under })
}

impl Census {
    /// Whether the process has a budget.
    pub fn knows(&self, pid: i32) -> bool {
        self.seats.iter().any(|seat| seat.pid == pid)
    }

    /// What a process holds on a GPU; nothing if it is not here, or cannot be looked at.
    fn held(&self, seat: &Seat, gpu: usize) -> Option<u64> {
        let same = |other: &&Seat| other.pid == seat.pid && other.tenant == seat.tenant;
        self.seats.iter().find(same)?.held.get(&gpu).copied()
    }

    /// The tenant of which a stranger seems to be: one of its forefathers is the tenant's, or keeps it; or it is in a control
    /// group with the tenant's processes, and with nobody else's.
    pub fn tenant_of(&self, who: &Who) -> Option<u64> {
        let seats = self.seats.iter().map(|seat| (seat.pid, seat.tenant));
        let all: Vec<_> = seats.chain(self.keepers.iter().copied()).collect();
        let of = |pid: &i32| only(all.iter().filter(|(known, _)| known == pid).map(|(_, tenant)| *tenant));
        who.line.iter().find_map(of).or_else(|| {
            let own = is_of_one_purpose(&who.cgroup).then_some(&who.cgroup)?;
            let beside = all.iter().filter(|(pid, _)| process::cgroup(*pid) == *own);
            only(beside.map(|(_, tenant)| *tenant))
        })
    }
}

/// The one value that all have.
fn only(mut values: impl Iterator<Item = u64>) -> Option<u64> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// Whether a control group is somebody's container or service, and not where people log in.
fn is_of_one_purpose(cgroup: &str) -> bool {
    let last = cgroup.rsplit('/').next().unwrap_or_default();
    !last.is_empty() && !last.starts_with("session-") && !last.starts_with("user@") && last != "init.scope"
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: usize = 0;

    fn seat(pid: i32, tenant: u64, held: u64) -> Seat {
        Seat { pid, tenant, held: BTreeMap::from([(GPU, held)]) }
    }

    fn census(seats: &[Seat]) -> Census {
        Census { seats: seats.to_vec(), keepers: Vec::new() }
    }

    fn listed(processes: &[(i32, u64)]) -> Vec<Result<GpuReading, String>> {
        let of = |(pid, bytes): &(i32, u64)| Listed { pid: *pid, bytes: Some(*bytes) };
        let processes = Some(processes.iter().map(of).collect());
        vec![Ok(GpuReading { processes, ..GpuReading::default() })]
    }

    #[test]
    fn whoever_is_listed_and_known_at_neither_look_is_a_stranger() {
        let (before, after) = (census(&[seat(1, 7, 5)]), census(&[seat(2, 8, 5)]));
        let found = compare(&listed(&[(1, 5), (2, 5), (3, 9)]), &before, &after);
        assert_eq!(found.strangers, [(GPU, Listed { pid: 3, bytes: Some(9) })]);
    }

    #[test]
    fn the_drift_is_what_nvml_says_beyond_all_that_the_ledger_said_meanwhile() {
        let drift = |before: u64, after: u64, nvml: u64| {
            let looks = [before, after].map(|held| census(&[seat(1, 7, held)]));
            compare(&listed(&[(1, nvml)]), &looks[0], &looks[1]).drift.get(&(7, GPU)).copied()
        };
        assert_eq!(drift(10, 10, 10), Some(0));
        assert_eq!((drift(10, 10, 14), drift(10, 10, 4)), (Some(4), Some(-6)));
        assert_eq!((drift(10, 20, 15), drift(20, 10, 15), drift(10, 20, 23)), (Some(0), Some(0), Some(3)));
    }

    #[test]
    fn drift_is_not_told_of_somebody_who_is_hidden_or_has_just_come() {
        let tenant = census(&[seat(1, 7, 10), seat(2, 7, 10)]);
        assert_eq!(compare(&listed(&[(1, 10)]), &tenant, &tenant).drift, BTreeMap::new());
        let fewer = census(&[seat(1, 7, 10)]);
        assert_eq!(compare(&listed(&[(1, 10), (2, 10)]), &fewer, &tenant).drift, BTreeMap::new());
        let without_context = census(&[seat(1, 7, 10), seat(2, 7, 0)]);
        let found = compare(&listed(&[(1, 10)]), &without_context, &without_context);
        assert_eq!((found.drift.get(&(7, GPU)), found.complete), (Some(&0), true));
    }

    #[test]
    fn a_list_that_lacks_somebody_who_holds_memory_is_not_complete() {
        let two = census(&[seat(1, 7, 10), seat(2, 8, 10)]);
        assert!(compare(&listed(&[(1, 10), (2, 10)]), &two, &two).complete);
        assert!(!compare(&listed(&[(1, 10)]), &two, &two).complete);
        let silent = vec![Ok(GpuReading::default())];
        assert!(!compare(&silent, &census(&[]), &census(&[])).complete);
    }

    #[test]
    fn a_stranger_is_of_the_tenant_that_started_it_if_that_is_one_alone() {
        let known = Census { seats: vec![seat(10, 7, 0)], keepers: vec![(20, 7), (30, 8), (40, 7), (40, 8)] };
        let tenant = |line: &[i32]| {
            let (program, cgroup) = (String::new(), "/".to_owned());
            let line = line.to_vec();
            known.tenant_of(&Who { birth: 1, uid: 1, program, line, cgroup, keeps_limits: false })
        };
        assert_eq!(
            (tenant(&[99, 10]), tenant(&[99, 98, 20]), tenant(&[99, 30])),
            (Some(7), Some(7), Some(8))
        );
        assert_eq!((tenant(&[99, 40]), tenant(&[99])), (None, None), "whose, cannot be told");
    }

    #[test]
    fn a_login_is_no_container() {
        let one =
            ["/kubepods/pod1/abc", "/system.slice/vllm.service", "/user.slice/user-1.slice/libpod-1.scope"];
        assert!(one.into_iter().all(is_of_one_purpose));
        let many = ["/", "", "/init.scope", "/user.slice/user-0.slice/session-3.scope"];
        assert!(!many.into_iter().any(is_of_one_purpose));
    }
}
