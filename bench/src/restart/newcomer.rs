//! The seventeenth client, for whom the node manager is at work when it dies: a tenant of its own by `weir run`.

use std::io;
use std::process::Child;

use weir_nodemgr::control::TenantStats;

use crate::rig::{Control, Rig, true_use};

const NAME: &str = "newcomer";

/// A newcomer, if there is one yet.
pub struct Newcomer(Option<Child>);

impl Newcomer {
    /// Who has to be at work before the manager comes to `place`.
    pub fn before(rig: &Rig, place: &str) -> io::Result<Self> {
        let mut newcomer = Self(None);
        if !is_on_the_way_in(place) {
            newcomer.start(rig)?;
            at_work(rig)?;
        }
        Ok(newcomer)
    }

    fn start(&mut self, rig: &Rig) -> io::Result<()> {
        let program = std::env::current_exe()?;
        let program = program.to_str().ok_or_else(|| io::Error::other("this program's path is not UTF-8"))?;
        let budget = ["--request", "1%", "--memory", "512MiB"];
        self.0 = Some(rig.weir_run(NAME, &budget, &[program, "load", "medium"])?);
        Ok(())
    }

    /// Does what brings the manager there.
    pub fn bring_to(mut self, rig: &Rig, place: &str) -> io::Result<Self> {
        match (step(place), &mut self.0) {
            ("resize", _) => {
                if Control::of(rig)?.set(NAME, 2).is_ok() {
                    return Err(io::Error::other("the manager was to die of it"));
                }
            }
            ("bury", _) => kill(tenant(rig)?.and_then(|tenant| tenant.pids.first().copied()))?,
            ("end", Some(run)) => drop(run.stdin.take()),
            _ => self.start(rig)?,
        }
        Ok(self)
    }

    /// Lets it end under the next manager, and says whether that went as it should.
    pub fn end(self, rig: &Rig, place: &str) -> io::Result<bool> {
        let Some(mut run) = self.0 else { return Ok(true) };
        if step(place) == "register" {
            at_work(rig)?;
        }
        drop(run.stdin.take());
        let is_well = run.wait()?.success();
        rig.wait_for("the newcomer's end", || Ok(tenant(rig)?.is_none().then_some(())))?;
        // Where the manager was asked for the tenant itself when it died, the run says so; and a killed program has not ended well.
        Ok(is_well != matches!(step(place), "create" | "bury"))
    }
}

/// The first part of a place's name.
fn step(place: &str) -> &str {
    place.split_once('.').map_or(place, |(step, _)| step)
}

fn is_on_the_way_in(place: &str) -> bool {
    matches!(step(place), "create" | "register")
}

fn tenant(rig: &Rig) -> io::Result<Option<TenantStats>> {
    let tenants = Control::of(rig)?.stats()?.tenants;
    Ok(tenants.into_iter().find(|tenant| tenant.name == NAME))
}

/// Waits until its kernels run.
fn at_work(rig: &Rig) -> io::Result<()> {
    rig.wait_for("the newcomer", || {
        let Some(pid) = tenant(rig)?.and_then(|tenant| tenant.pids.first().copied()) else { return Ok(None) };
        Ok((true_use(&rig.books()?, pid) > 0).then_some(()))
    })
}

fn kill(pid: Option<i32>) -> io::Result<()> {
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the newcomer has no process"))?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
}
