//! How much of the GPU a latency tenant does not need to keep its promise.
//!
//! A server that decodes step after step leaves no bubbles, and yet may be faster than it promised. What is between its
//! latency and the bound can be spent: each step is held back for a filler's turn (gpu-truths 2a).
//!
//! ```text
//!   goal     15/16 of the bound
//!   alone    what the latency would be without fillers: recent x (1 - lent)
//!   wanted   1 - alone / goal
//!   lent     rises towards `wanted` by a quarter of the way with each reading, falls to it at once;
//!            nothing while the bound is broken
//! ```
//!
//! A latency that does not rise with what is lent lets it rise on; one that rises faster than by the time taken, as under
//! a long queue, lets it fall. The latency is a figure of the last seconds, so it is believed only as it comes in.

use weir_protocol::units::Nanos;

use crate::lend::FULL;
use crate::promise::Reading;

/// Part of the bound that is aimed at, in sixteenths: a quantile of few requests is not exact.
const GOAL_SIXTEENTHS: u64 = 15;

/// The way up is gone in so many parts.
const RISE: u32 = 4;

/// What one tenant lends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slack {
    lent: u32, // millionths
    spare: Nanos,
}

impl Slack {
    /// The tenant's latency was read.
    pub fn note(&mut self, reading: Reading) {
        let Reading { recent, target } = reading;
        self.spare = target.since(recent);
        let goal = (u128::from(target.0) * u128::from(GOAL_SIXTEENTHS) / 16).max(1);
        let alone = u128::from(recent.0) * u128::from(FULL.saturating_sub(self.lent)) / goal;
        let wanted = FULL.saturating_sub(u32::try_from(alone).unwrap_or(FULL));
        self.lent = match wanted {
            _ if recent >= target => 0,
            wanted if wanted > self.lent => self.lent + (wanted - self.lent).div_ceil(RISE),
            wanted => wanted,
        };
    }

    /// Part of the GPU that is lent, in millionths.
    pub fn lent(&self) -> u32 {
        self.lent
    }

    /// Longest that one request may be held back.
    pub fn spare(&self) -> Nanos {
        self.spare
    }
}
