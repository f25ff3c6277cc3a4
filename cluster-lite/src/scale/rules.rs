//! Every parameter of the policies.

use serde::{Deserialize, Serialize};

/// What the policies go by. Times in seconds, since they are asked once a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// How many of the last seconds the lazy rule remembers (Dilu, `scaler.py`: 40).
    pub history_s: usize,
    /// Out when at least so many of them exceed (Dilu: 20).
    pub out_s: usize,
    /// In when at least so many of them lie below (Dilu: 30).
    pub in_s: usize,
    /// How much more than what arrives one instance fewer must have been able to do. Ours: what keeps 1 from following 2 and 2 from following 1.
    pub in_room: f64,
    /// Part of an instance's capacity that is planned for: the rest takes what arrives unevenly. Ours.
    pub utilisation: f64,
    /// Part of a request's patience in which a queue is to be gone. Ours.
    pub queue_patience: f64,
    /// Over how many seconds arrivals are averaged. Ours.
    pub rate_s: f64,
    /// Over how many requests they are averaged at least: the mean of fewer says little. Ours.
    pub rate_requests: f64,
    /// Over how many seconds at most. Ours.
    pub rate_most_s: f64,
    /// A share is lowered to the most that the last so many seconds needed. Ours.
    pub lower_s: usize,
    /// A share beyond the profiled one is worth having while it buys at least this part of what it bought up to there. Ours.
    pub worthwhile: f64,
    /// A service without work for so long goes to zero. Ours: twice a cold start's p90 (42 s, Alibaba 2026).
    pub idle_s: u64,
    /// The same where it can be parked, since it comes back in a tenth of the time. Ours.
    pub idle_park_s: u64,
    /// Instances kept parked: host memory, no GPU. Ours.
    pub keep_parked: u32,
    /// A service that has been at zero for so long gives up its parked instances too. Ours.
    pub forget_parked_s: u64,
    /// Length of the forecast's bins. Ours.
    pub bin_s: u64,
    /// How many bins it looks back on. Ours.
    pub bins: usize,
    /// How many bins pass between two fits. Ours.
    pub refit_bins: u64,
    /// Level of the forecast's interval whose upper end is prepared for. Ours.
    pub forecast_level: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            history_s: 40,
            out_s: 20,
            in_s: 30,
            in_room: 1.15,
            utilisation: 0.8,
            queue_patience: 0.5,
            rate_s: 10.0,
            rate_requests: 16.0,
            rate_most_s: 120.0,
            lower_s: 10,
            worthwhile: 0.1,
            idle_s: 84,
            idle_park_s: 20,
            keep_parked: 2,
            forget_parked_s: 3600,
            bin_s: 10,
            bins: 180,
            refit_bins: 6,
            forecast_level: 0.5,
        }
    }
}
