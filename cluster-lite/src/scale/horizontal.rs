//! Instances by count, at a fixed share: what a cluster's own autoscaler does (Kubernetes' formula, with its tolerance
//! and its window before scaling in).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::demand::Demand;
use super::{Policy, Rules, Scaler, Seen, Service, Wish};

/// Seconds that the most of is taken before scaling in (Kubernetes: 300).
const WINDOW_S: usize = 300;
/// By how much the ratio may miss 1 before anything is done (Kubernetes: 0.1).
const TOLERANCE: f64 = 0.1;

pub(super) fn boxed(rules: &Rules) -> Box<dyn Scaler> {
    Box::new(Horizontal {
        demand: Demand::new(rules, false),
        rules: rules.clone(),
        idle: 0,
        wanted: VecDeque::new(),
    })
}

#[derive(Serialize, Deserialize)]
struct Horizontal {
    demand: Demand,
    rules: Rules,
    idle: u64,
    wanted: VecDeque<u32>,
}

impl Policy for Horizontal {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn decide(&mut self, service: &Service, seen: &Seen) -> Wish {
        let need = self.demand.see(service, seen);
        self.idle = if seen.is_idle() { self.idle + 1 } else { 0 };
        let capacity = service.capacity(service.request) * self.rules.utilisation;
        let serving = seen.serving();
        let ratio = (need.arriving + need.queued_s / self.demand.over_s(service)) / capacity;
        let settled = (ratio - f64::from(serving)).abs() <= TOLERANCE * f64::from(serving);
        let now = if settled { serving } else { ceil(ratio) };
        let busy = u32::from(self.idle < self.rules.idle_s && (serving > 0 || !seen.is_idle()));
        if self.wanted.len() == WINDOW_S {
            self.wanted.pop_front();
        }
        self.wanted.push_back(now.max(busy));
        let most = self.wanted.iter().copied().max().unwrap_or(0);
        // A window of silence is over when the idle time is: going to zero has its own rule.
        let instances = if busy == 0 { 0 } else { most };
        Wish {
            instances: service.within(instances),
            parked: 0,
            share: service.request,
            why: "requests a second",
        }
    }
}

/// Rounded up; what no number of instances can be counts as very many.
pub(super) fn ceil(instances: f64) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what u32 holds")]
    let whole = (instances - 1e-9).ceil().clamp(0.0, 1e6) as u32;
    whole
}
