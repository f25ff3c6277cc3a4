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
    /// Part of an instance's capacity that is planned for: the rest takes what arrives unevenly. Ours.
    pub utilisation: f64,
    /// Part of a request's patience in which a queue is to be gone. Ours.
    pub queue_patience: f64,
    /// Over how many seconds arrivals are averaged. Ours: the shortest that is not mostly noise.
    pub rate_s: f64,
    /// A share is lowered to the most that the last so many seconds needed. Ours.
    pub lower_s: usize,
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
            utilisation: 0.8,
            queue_patience: 0.5,
            rate_s: 10.0,
            lower_s: 10,
            idle_s: 84,
            idle_park_s: 20,
            keep_parked: 1,
            forget_parked_s: 3600,
            bin_s: 10,
            bins: 180,
            refit_bins: 6,
            forecast_level: 0.5,
        }
    }
}
