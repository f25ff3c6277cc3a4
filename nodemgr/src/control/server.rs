//! The manager's side of the control socket: one request in, one answer out.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::schema::{self, CreateTenant, Created, Request, Response, SetBudget, SetDone};
use super::stats::{AskStats, Stats, TenantStats};
use super::{history, park, policy, stats, switch};
use crate::ack;
use crate::authority::Peer;
use crate::codes;
use crate::fault::Fault;
use crate::launch;
use crate::registry::{Holder, Registry, Tenant};
use crate::shared::{Shared, now};

/// Changes of budget carried out at the same time; each has a thread for as long as it waits.
const MAX_SETTING: usize = 32;

/// From so many processes on it is worth a thread to look at them.
const MANY: usize = 256;

/// How long a change waits for the first launch under it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What became of a request.
pub(crate) enum Outcome {
    /// The answer.
    Reply(Response),
    /// A tenant stands in the registry and now needs its door.
    Door(u64, Created),
    /// The answer will be posted.
    Later,
}

/// Answers one line of the control connection `from`.
pub(crate) fn answer(shared: &Arc<Shared>, peer: &Peer, from: u64, line: &[u8]) -> Outcome {
    let result = match schema::parse(line) {
        Err(fault) => Err(fault),
        Ok(Request::Stats(asked)) => {
            Ok(Outcome::Reply(Response::Stats(Box::new(everything(shared, peer, asked)))))
        }
        Ok(Request::Policy(asked)) => policy::answer(shared, peer, &asked),
        Ok(Request::Switch { off }) => switch::answer(shared, peer, off),
        Ok(Request::Park { tenant }) => park::answer(shared, peer, from, &tenant, true),
        Ok(Request::Unpark { tenant }) => park::answer(shared, peer, from, &tenant, false),
        Ok(Request::Events(asked)) => history::events(shared, peer, from, &asked),
        Ok(Request::Why { tenant }) => history::why(shared, peer, &tenant),
        Ok(Request::Create(wanted)) => create(shared, peer, from, &wanted),
        Ok(Request::Set(change)) => set(shared, peer, from, change),
    };
    result.unwrap_or_else(|fault| Outcome::Reply(Response::Error(fault)))
}

fn everything(shared: &Shared, peer: &Peer, asked: AskStats) -> Stats {
    // A thousand processes' states are not asked for while ticks wait for the registry.
    let mut stats = stats::collect(&shared.registry(), shared.mode, shared.tick_us, asked.overview);
    look_at_processes(&mut stats.tenants);
    let hidden = |tenant: &&mut TenantStats| !peer.admin && peer.uid != tenant.owner_uid;
    stats.tenants.iter_mut().filter(hidden).for_each(TenantStats::hide_processes);
    stats.unmanaged = stats.unmanaged.into_iter().map(|process| process.for_eyes_of(peer)).collect();
    stats.draining = stats.draining.into_iter().map(|dead| dead.for_eyes_of(peer)).collect();
    stats.node.resize_latency = shared.resizes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    stats
}

/// Looks whether any process is stopped. That is three system calls for each: of many, a second thread takes half.
fn look_at_processes(tenants: &mut [TenantStats]) {
    let look = |tenants: &mut [TenantStats]| tenants.iter_mut().for_each(TenantStats::look_at_processes);
    let processes: usize = tenants.iter().map(|tenant| tenant.pids.len()).sum();
    if processes < MANY {
        return look(tenants);
    }
    let (ours, theirs) = tenants.split_at_mut(tenants.len() / 2);
    let is_shared = std::thread::scope(|scope| {
        let helper = std::thread::Builder::new().name("weir-look".into());
        let is_shared = helper.spawn_scoped(scope, || look(theirs)).is_ok();
        look(ours);
        is_shared
    });
    if !is_shared {
        look(theirs); // no thread was to be had
    }
}

fn create(shared: &Shared, peer: &Peer, from: u64, wanted: &CreateTenant) -> Result<Outcome, Fault> {
    let mut registry = shared.registry();
    let own = |tenant: &Tenant| tenant.name == wanted.name && tenant.owner == peer.uid && !wanted.unique;
    if !registry.tenants().iter().any(own) {
        shared.authority.may_create(peer)?;
    }
    let holder = Holder { id: from, pid: peer.pid, birth: peer.birth };
    let (id, joined) = registry.create(wanted, peer.uid, holder, now())?;
    let created = created(shared, &registry, id, joined).ok_or_else(|| not_there(&wanted.name))?;
    Ok(Outcome::Door(id, created))
}

/// What whoever starts a tenant's processes must know.
pub(crate) fn created(shared: &Shared, registry: &Registry, id: u64, joined: bool) -> Option<Created> {
    let tenant = registry.tenant(id)?;
    let devices = tenant.cells.iter().filter_map(|cell| registry.gpus.devices.get(cell.gpu));
    Some(Created {
        tenant: tenant.name.clone(),
        dir: shared.place.tenant_dir(&tenant.name),
        gpus: devices.clone().map(crate::gpus::Device::uuid_text).collect(),
        gpu_indices: tenant.cells.iter().map(|cell| cell.gpu).collect(),
        budget: tenant.budget,
        joined,
        simulated: devices.clone().any(crate::gpus::Device::is_simulated),
        mps: registry.mps_client(tenant),
    })
}

fn not_there(name: &str) -> Fault {
    Fault::new(&codes::TENANT_UNKNOWN, format!("tenant `{name}` has ended"), "start it again with `weir run`")
}

/// Checks a change here and carries it out on a thread of its own, since that waits for the tenant.
fn set(shared: &Arc<Shared>, peer: &Peer, from: u64, change: SetBudget) -> Result<Outcome, Fault> {
    {
        let mut registry = shared.registry();
        let considered = registry.consider(&change);
        if considered.is_err() && !change.dry_run && peer.admin {
            registry.press_for(&change, now());
        }
        let (_, old, new) = considered?;
        let tenant = registry.named(&change.tenant)?;
        shared.authority.may_set(peer, tenant, &new)?;
        if change.dry_run {
            let over_limit_bytes = tenant.excess(new.memory).0;
            let done = SetDone {
                tenant: change.tenant,
                old,
                new,
                dry_run: true,
                first_launch_us: None,
                over_limit_bytes,
            };
            return Ok(Outcome::Reply(Response::Set(done)));
        }
    }
    if shared.setting.fetch_add(1, Ordering::Relaxed) >= MAX_SETTING {
        shared.setting.fetch_sub(1, Ordering::Relaxed);
        let message = format!("{MAX_SETTING} changes of budget are under way");
        return Err(Fault::new(&codes::BUSY, message, "try again in a second"));
    }
    let (kept, peer) = (shared.clone(), *peer);
    let carry_out = move || {
        let done = carry_out(&kept, &peer, change).map_or_else(Response::Error, Response::Set);
        kept.setting.fetch_sub(1, Ordering::Relaxed);
        kept.post(from, done);
    };
    match std::thread::Builder::new().name("weir-set".into()).spawn(carry_out) {
        Ok(_) => Ok(Outcome::Later),
        Err(error) => {
            shared.setting.fetch_sub(1, Ordering::Relaxed);
            Err(Fault::system(&codes::SYSTEM, "start a thread", error, "look at the limits of processes"))
        }
    }
}

/// Publishes on the thread that then waits, so that the time told holds no hand-over.
fn carry_out(shared: &Shared, peer: &Peer, change: SetBudget) -> Result<SetDone, Fault> {
    let (id, published, old, new, since, over_limit_bytes) = {
        let mut registry = shared.registry();
        // Once more, under the lock that holds until it is done: another change may have come in between.
        let (id, old, new) = registry.consider(&change)?;
        shared.authority.may_set(peer, registry.named(&change.tenant)?, &new)?;
        let since = Instant::now();
        let published = registry.apply(id, new, now());
        shared.hasten(&mut registry);
        let excess = registry.tenant(id).map_or(0, |tenant| tenant.excess(new.memory).0);
        (id, published, old, new, since, excess)
    };
    let first = ack::first_launch(&published, since, PATIENCE);
    launch::renew(shared, id);
    if let Some(time) = first {
        shared.resizes.lock().unwrap_or_else(PoisonError::into_inner).add(time.as_secs_f64());
    }
    let first_launch_us = first.map(|time| time.as_nanos() as f64 / 1e3);
    Ok(SetDone { tenant: change.tenant, old, new, dry_run: false, first_launch_us, over_limit_bytes })
}
