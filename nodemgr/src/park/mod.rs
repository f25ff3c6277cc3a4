//! Parking: an idle tenant's device memory goes to the host through the driver's checkpoints, its processes stay, their calls
//! wait, and the first of them brings the memory back (docs/park.md).
//!
//! ```text
//!   registry::park   who is parked, who may be, who wants to go on      (behind the registry's lock)
//!   park             one thread for each change: the driver may take seconds, or hang, and nobody waits for it
//!   park::order      lock all, checkpoint all, restore all, unlock all; undone if a step fails
//!   park::driver     the five calls
//!   park::host       whether the memory has room on the host
//!   park::watch      others' checkpoints
//! ```

mod driver;
mod host;
mod order;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use driver::Driver;
pub use order::{Checkpoints, Member};
pub use watch::start as watch;
use weir_protocol::units::Bytes;

use crate::codes;
use crate::fault::Fault;
use crate::registry::ParkJob;
use crate::shared::{Shared, now};

/// Between the word on the tenant's page and the lock: whoever looked at the page just before is in the driver by then, and
/// is waited for by the lock.
const SETTLE: Duration = Duration::from_millis(10);

/// What the lock waits for work that is under way. Meanwhile the tenant's calls wait, too, so it is short: whoever is idle
/// has none.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts what is to be done, on a thread of its own.
pub fn start(shared: &Arc<Shared>, job: ParkJob) {
    let (kept, given) = (shared.clone(), job.clone());
    let run = move || {
        let begun = Instant::now();
        let done = if job.parks { take(&kept, &job) } else { bring_back(&kept, &job) };
        settle(&kept, &job, done, begun.elapsed());
    };
    if let Err(error) = std::thread::Builder::new().name("weir-park".into()).spawn(run) {
        let why = Fault::system(&codes::SYSTEM, "start a thread", error, "look at the limits of processes");
        settle(shared, &given, Err(Failed { why, undone: given.parks }), Duration::ZERO);
    }
}

/// Loads the driver before anybody wants it, on a thread of its own.
pub fn prepare(shared: &Arc<Shared>) {
    let kept = shared.clone();
    let load = move || {
        if let Err(fault) = kept.checkpoints() {
            tracing::warn!(%fault, "nobody can be parked");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("weir-park".into()).spawn(load) {
        tracing::warn!(%error, "the driver is loaded with the first park");
    }
}

/// What went wrong, and whether everything is as it was before.
pub struct Failed {
    /// Why.
    pub why: Fault,
    /// Whether all processes run.
    pub undone: bool,
}

fn settle(shared: &Shared, job: &ParkJob, done: Result<(), Failed>, took: Duration) {
    let response = shared.registry().settle_park(job, done, took, now());
    if let Some(line) = job.line {
        shared.post(line, response);
    }
}

fn take(shared: &Arc<Shared>, job: &ParkJob) -> Result<(), Failed> {
    let nothing_done = |why| Failed { why, undone: true };
    let driver = shared.checkpoints().map_err(nothing_done)?;
    look(&job.members, job.bytes).map_err(nothing_done)?;
    shared.pause(SETTLE);
    let is_wanted = || shared.registry().is_wanted(job.tenant);
    order::take(driver, &job.members, PATIENCE, &is_wanted)
}

fn bring_back(shared: &Arc<Shared>, job: &ParkJob) -> Result<(), Failed> {
    let failed = |why| Failed { why, undone: false };
    let driver = shared.checkpoints().map_err(failed)?;
    order::bring_back(driver, &job.members).map_err(failed)
}

/// What the driver does not look at before it begins (gpu-truths, rule 15).
fn look(members: &[Member], bytes: Bytes) -> Result<(), Fault> {
    if let Some(stopped) = members.iter().find(|member| crate::birth::is_stopped(member.pid)) {
        let message = format!("process {} is stopped: it would not let itself be locked", stopped.pid);
        return Err(Fault::new(&codes::PARK, message, "let it go on (SIGCONT) first"));
    }
    host::check(members, bytes)
}
