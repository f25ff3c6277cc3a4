//! What a policy sees.

pub use weir_protocol::message::SWITCH;
use weir_protocol::pages::Stall;
use weir_protocol::units::{Bytes, Nanos, SmShare, Tokens};

/// What a tenant is to its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Online, with a latency to keep.
    Latency,
    /// The work that fillers must not slow.
    #[default]
    Primary,
    /// Best effort.
    Filler,
}

/// How the GPU's time is divided among contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One context at a time.
    #[default]
    TimeSlicing,
    /// Contexts overlap (MPS).
    Overlap,
}

/// A promise to a tenant's users, `p95 < 200ms` say, and how it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// Which quantile of the requests, in thousandths.
    pub quantile_permille: u16,
    /// Its bound.
    pub target: Nanos,
    /// That quantile of late, as the tenant's own figures say; none while no request came or nobody tells.
    pub recent: Option<Nanos>,
    /// How many requests there were, and how many were late; none where the figures do not count them.
    pub counted: Option<Counted>,
}

/// Requests of which the latency is known, since somebody first looked. Both only grow; policies look at differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// All of them.
    pub requests: u64,
    /// Those that took as long as the bound or longer.
    pub late: u64,
}

/// What a tenant has done on the GPU since it was made. All only grow; policies look at differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Work handed to the driver, as it was predicted and since corrected.
    pub charged: Tokens,
    /// Wall time of its processes by what it went to, as [`Stall::ALL`] has them: our gate and the neighbours' slices stand
    /// apart, so that neither is taken for interference (gpu-truths, rule 3).
    pub stalls: [Nanos; Stall::ALL.len()],
}

/// One tenant on the GPU.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Which tenant: a number never used twice, by which a policy keeps what it remembers.
    pub tenant: u64,
    /// The tenant's class.
    pub class: Class,
    /// Share guaranteed.
    pub request: SmShare,
    /// Share never exceeded.
    pub limit: SmShare,
    /// Memory that the tenant may hold.
    pub memory_limit: Bytes,
    /// Memory that it holds.
    pub memory_held: Bytes,
    /// Predicted work handed to the driver and not known to be done.
    pub outstanding: Nanos,
    /// How long nothing of the tenant has moved; zero while it works or waits.
    pub idle_for: Nanos,
    /// What it has done.
    pub work: Work,
    /// What it promised its users.
    pub slo: Option<Slo>,
}

/// What is known beside the tenants: signals from outside the node (power, carbon, price), and the GPU's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    /// Part of the GPU that best effort may have at most, in thousandths.
    pub best_effort_permille: u16,
    /// What holds the GPU's clocks back; none where it does not say, or has not for long.
    pub power: Option<Power>,
    /// What a switch from one context to another takes: as the card was calibrated, or [`SWITCH`].
    pub switch: Nanos,
}

impl Default for Signals {
    fn default() -> Self {
        Self { best_effort_permille: 1_000, power: None, switch: SWITCH }
    }
}

/// What was read last of a GPU's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// How much longer work takes at these clocks than at the highest, in thousandths: 1,000 where neither power nor heat holds
    /// them back.
    pub slowed_permille: u32,
    /// When it was read, by the manager's clock: about once a second.
    pub read_at: Nanos,
}

/// All tenants on one GPU at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The manager's monotonic clock.
    pub now: Nanos,
    /// How tenants meet there.
    pub mode: Mode,
    /// What is heard beside the tenants.
    pub signals: Signals,
    /// One row per tenant.
    pub samples: &'a [Sample],
}

impl Observation<'_> {
    /// What it costs to go from one tenant to another: a switch of contexts, and nothing where they meet at the same time.
    pub fn switch(&self) -> Nanos {
        if self.mode == Mode::Overlap { Nanos(0) } else { self.signals.switch }
    }
}
