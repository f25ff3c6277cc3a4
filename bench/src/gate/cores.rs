//! Which processors run what.

use std::io;
use std::process::{Child, Command, Stdio};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::player::Part;
use crate::stage::THIS_PROGRAM;

/// How the processors are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// The filler has the last one of its own, all else shares the others.
    Free,
    /// Everybody runs anywhere, and a busy loop runs for each processor.
    Saturated,
}

/// Busy loops; they end with this.
pub struct Busy(Vec<Child>);

impl Cores {
    /// Shares them out for this process and for all that it starts.
    pub fn share_out(self) -> io::Result<Busy> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Self::Free => {
                let mut others = sched_getaffinity(None)?;
                if let Some(core) = self.of_filler() {
                    others.unset(core);
                    sched_setaffinity(None, &others)?;
                }
                Ok(Busy(Vec::new()))
            }
            Self::Saturated => {
                let mut all = CpuSet::new();
                (0..CpuSet::MAX_CPU).for_each(|core| all.set(core)); // those that there are, says the system
                sched_setaffinity(None, &all)?;
                let count = std::thread::available_parallelism().map_or(count, usize::from);
                (0..count).map(|_| busy()).collect::<io::Result<_>>().map(Busy)
            }
        }
    }

    /// The filler's own, if there is more than one.
    pub fn of_filler(self) -> Option<usize> {
        let last = || online_cores().checked_sub(1).filter(|last| *last > 0);
        if self == Self::Free { last() } else { None }
    }

    /// Starts something on the filler's processor, if it has one of its own.
    pub fn apart<T>(self, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(core) = self.of_filler() else { return start() };
        let others = sched_getaffinity(None)?;
        run_on(core)?;
        let started = start();
        sched_setaffinity(None, &others)?;
        started
    }

    /// Each processor, if there is one to spare; else anywhere.
    pub fn each(self) -> Vec<Option<usize>> {
        self.of_filler().map_or_else(|| vec![None], |last| (0..=last).map(Some).collect())
    }
}

/// Processors of the machine, numbered from zero.
fn online_cores() -> usize {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines().filter(|line| line.starts_with("processor")).count()
}

/// Runs the calling thread, and all that it starts, on this processor.
pub fn run_on(core: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    Ok(sched_setaffinity(None, &only)?)
}

/// The calling thread gives way to whoever else wants its processor.
pub fn give_way() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the calling thread, and a parameter that lives as long as the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn busy() -> io::Result<Child> {
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["gate-player", Part::Busy.name()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}

impl Drop for Busy {
    fn drop(&mut self) {
        for loops in &mut self.0 {
            let _ = loops.kill();
            let _ = loops.wait();
        }
    }
}
