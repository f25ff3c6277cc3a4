//! One instance whose share follows the requests: elastic in one dimension, like HAS-GPU's quotas without its instances.
//! It keeps at least the profiled share, at which its SLO holds, and gives up all but the least when nobody asks.

use serde::{Deserialize, Serialize};

use super::demand::Demand;
use super::{Policy, Rules, Scaler, Seen, Service, Wish};

pub(super) fn boxed(rules: &Rules) -> Box<dyn Scaler> {
    Box::new(Vertical { demand: Demand::new(rules, false), rules: rules.clone(), idle: 0 })
}

#[derive(Serialize, Deserialize)]
struct Vertical {
    demand: Demand,
    rules: Rules,
    idle: u64,
}

impl Policy for Vertical {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn decide(&mut self, service: &Service, seen: &Seen) -> Wish {
        let need = self.demand.see(service, seen);
        let speed = need.arriving / self.rules.utilisation + need.queued_s / self.demand.over_s(service);
        self.idle = if seen.is_idle() { self.idle + 1 } else { 0 };
        let least = if self.idle < self.rules.idle_s { service.request } else { service.shares[0] };
        let share = service.share_within(service.speed.least_share(speed).max(least));
        // What the GPU has not cannot be given.
        let share = if seen.ready > 0 { share.min(seen.room.max(service.shares[0])) } else { share };
        Wish { instances: service.within(1), parked: 0, share, why: "requests a second" }
    }
}
