//! Policies: who may use how much of each GPU during the next tick.
//!
//! ```text
//!   usage pages, NVML --> Observation --> Policy::decide --> grants --> grant pages
//! ```
//!
//! A policy is a state machine without clock, files or threads (`clippy.toml` holds that line): everything it
//! knows stands in the [`Observation`], so the node manager and the policy simulator run the same code. Shares
//! are in thousandths of a GPU, rates in millionths, times in nanoseconds.
//!
//! Each GPU has a policy of its own, so that an emergency on one throttles nobody on another (papers 1.5, weakness 2).
//! A new policy is one file and one row in [`POLICIES`]; `static_shares` is the template, and docs/writing-a-policy.md the way.

mod asked;
mod bursts;
mod cooling;
mod dilu;
mod grants;
mod history;
mod lend;
mod lull;
mod memory;
mod observation;
pub mod park;
mod pools;
mod pressure;
mod promise;
mod purse;
mod rhythm;
mod slack;
mod specinf;
mod static_shares;
#[cfg(test)]
mod story;
mod tgs;
mod weir;

pub use grants::{Beside, SHORT_CAP, grant, turn};
pub use lend::{IDLE_AFTER, is_busy};
pub use observation::{Class, Counted, Mode, Observation, Power, Sample, Signals, Slo, Work};
use weir_protocol::pages::Grant;
use weir_protocol::units::Nanos;

/// What one tenant gets, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What it is granted.
    pub grant: Grant,
    /// The policy's state for it, as people see it: `STEADY`, `EMERGENCY`, `FILL`.
    pub state: &'static str,
}

/// Turns what was seen into what is granted. One for each GPU.
pub trait Policy: Send {
    /// One decision for each of `seen.samples`, in their order. Called once per tick; the answer lives in a buffer
    /// of the policy, so that a tick allocates nothing once the number of tenants stands still.
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision];

    /// Those of whom it has to know at `now` how long they have been still, by their positions at the last look; of the
    /// others only whether they have moved. None: it has to be told of all, and asked to [`decide`](Self::decide).
    fn awake(&self, _now: Nanos, _mode: Mode) -> Option<&[usize]> {
        None
    }

    /// As [`decide`](Self::decide), where tenants, budgets and mode are as they were: `seen.samples` is true of those that are
    /// [awake](Self::awake), and of those in `moved`; of nobody else has anything changed but for how long he has been
    /// still. None: the last decisions hold.
    fn follow(&mut self, seen: &Observation<'_>, _moved: &[usize]) -> Option<&[Decision]> {
        Some(self.decide(seen))
    }
}

/// A policy as people choose it.
pub struct Row {
    /// Its name on the command line and in the configuration.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Whether fillers give way: their gates close as soon as a latency or primary tenant has work, before any tick.
    pub fillers_give_way: bool,
    /// Whether it decides, for these tenants, by nothing but their budgets, the signals, and who is [busy](is_busy): then its
    /// last decisions hold until one of these changes, and it misses nothing if it is not asked until then.
    pub rests: fn(&[Sample]) -> bool,
    /// A fresh instance.
    pub build: fn() -> Box<dyn Policy>,
}

/// Every policy, in the order in which `--help` shows them.
pub const POLICIES: &[Row] = &[
    Row {
        name: "weir",
        about: "the most filler work subject to promised latencies and a primary's speed; static where there is neither",
        fillers_give_way: true,
        rests: weir::is_static,
        build: || Box::<weir::Weir>::default(),
    },
    Row {
        name: "static",
        about: "each tenant has its request; unused share is lent in proportion to requests, up to the limits",
        fillers_give_way: false,
        rests: |_| true,
        build: || Box::<static_shares::StaticShares>::default(),
    },
    Row {
        name: "dilu",
        about: "fillers shrink while bursts of the others are stretched, and grow back (RCKM)",
        fillers_give_way: false,
        rests: |_| false,
        build: || Box::<dilu::Dilu>::default(),
    },
    Row {
        name: "specinf",
        about: "fillers run in bubbles of the others' work, and for as long as these are foretold to last",
        fillers_give_way: true,
        rests: |_| false,
        build: || Box::<specinf::SpecInf>::default(),
    },
    Row {
        name: "tgs",
        about: "fillers grow while the others' work stays within 3 % of its peak: a baseline",
        fillers_give_way: false,
        rests: |_| false,
        build: || Box::<tgs::Tgs>::default(),
    },
];

/// The policy called `name`.
pub fn find(name: &str) -> Option<&'static Row> {
    POLICIES.iter().find(|row| row.name == name)
}
