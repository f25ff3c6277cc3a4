//! Once a second, beside the tick: who is on the GPUs by NVML's account, and how much he holds there, against what the
//! registry knows. A process without a budget is told of, and what the operator has chosen follows; what a tenant holds by
//! the two accounts is compared, and the difference told in bytes.
//!
//! The registry is read before and after NVML is, and only what both looks have in common is judged: whoever comes or goes
//! meanwhile is nobody's fault.

mod compare;
mod freeze;
mod process;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_protocol::message::FailMode;
use weir_protocol::units::Nanos;

pub use compare::{Census, Found, Seat};
pub use process::Who;

use crate::birth;
use crate::gpus::{Asker, GpuReading, Listed, STALE};
use crate::shared::{Shared, now};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// What follows for a process that is on a GPU and has no budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// It is told of.
    #[default]
    Report,
    /// And what it holds is not promised to anybody.
    Withhold,
    /// And it stands still with its control group, unless it is one that is never killed either.
    Freeze,
    /// And it is killed, unless it is root's, the driver's own, or keeps to the limits of an earlier node manager.
    Kill,
}

impl Rule {
    /// As it is written in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Withhold => "withhold",
            Self::Freeze => "freeze",
            Self::Kill => "kill",
        }
    }
}

/// How a process without a budget is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// With its control group.
    Freeze,
    /// For good.
    Kill,
}

/// A process without a budget, on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The GPU, by index.
    pub gpu: usize,
    /// What NVML says of it.
    pub listed: Listed,
    /// What the system says of it.
    pub who: Who,
    /// The tenant of which it seems to be: the one that has started it, or whose container it is in.
    pub tenant: Option<u64>,
}

/// Starts to look, if there is somebody to ask.
///
/// # Errors
/// The thread cannot be made.
pub(crate) fn start(shared: Arc<Shared>, asker: Option<Asker>) -> io::Result<Option<JoinHandle<()>>> {
    let Some(mut asker) = asker else { return Ok(None) };
    let run = move || {
        while !shared.is_stopping() {
            look(&shared, &mut asker);
            let log = shared.registry().take_guards_log();
            log.iter().for_each(|line| tracing::warn!("{line}"));
            shared.pause(PERIOD);
        }
    };
    std::thread::Builder::new().name("weir-guard".into()).spawn(run).map(Some)
}

fn look(shared: &Shared, asker: &mut Asker) {
    let before = shared.registry().census();
    let asked = now();
    match asker.ask(STALE, || shared.is_stopping()) {
        Err(why) => shared.registry().note_nvml_silence(why),
        Ok(reading) => {
            let after = shared.registry().census();
            let found = compare::compare(&reading, &before, &after);
            let own = std::process::id().cast_signed(); // it has the driver once somebody was parked
            let strangers = found.strangers.iter().filter(|(_, listed)| listed.pid != own);
            let strangers = strangers.filter_map(|(gpu, listed)| {
                let who = process::look(listed.pid)?;
                let tenant = after.tenant_of(&who);
                // A run without a daemon has no say over the GPU, and so over nobody but its own.
                (tenant.is_some() || shared.mode != FailMode::Standalone).then_some(())?;
                Some(Stranger { gpu: *gpu, listed: *listed, who, tenant })
            });
            let strangers: Vec<_> = strangers.collect();
            shared.registry().note_power(&reading);
            let doomed = shared.registry().note_reading(&reading, &found, strangers);
            note_draining(shared, &reading, asked);
            for (stranger, what) in doomed {
                let done = match what {
                    Stop::Freeze => freeze::freeze(&stranger, &after),
                    Stop::Kill => kill(&stranger).map(|()| String::new()),
                };
                shared.registry().note_stop(&stranger, what, done);
            }
        }
    }
}

/// What follows for budgets holds with the next tick.
fn note_draining(shared: &Shared, reading: &[Result<GpuReading, String>], asked: Nanos) {
    let mut registry = shared.registry();
    registry.note_draining(reading, asked, now());
    if registry.is_anew() {
        shared.hasten(&mut registry);
    }
}

/// By its pidfd: its number may be another's by now.
fn kill(stranger: &Stranger) -> Result<(), String> {
    let pidfd = birth::find(stranger.listed.pid, stranger.who.birth).ok_or("it has gone by itself")?;
    rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL)
        .map_err(|error| error.to_string())
}
