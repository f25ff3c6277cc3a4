//! One instance whose share follows the requests: elastic in one dimension, like HAS-GPU's quotas without its instances.

use super::demand::Demand;
use super::{Rules, Scaler, Seen, Service, Wish};

pub(super) fn boxed(rules: &Rules) -> Box<dyn Scaler> {
    Box::new(Vertical { demand: Demand::new(rules, false), utilisation: rules.utilisation })
}

struct Vertical {
    demand: Demand,
    utilisation: f64,
}

impl Scaler for Vertical {
    fn wish(&mut self, service: &Service, seen: &Seen) -> Wish {
        let need = self.demand.see(service, seen);
        let speed = need.arriving / self.utilisation + need.queued_s / self.demand.over_s();
        let share = service.share_within(service.speed.least_share(speed));
        // What the GPU has not cannot be given.
        let share = if seen.ready > 0 { share.min(seen.room.max(service.shares[0])) } else { share };
        Wish { instances: service.within(1), parked: 0, share, why: "requests a second" }
    }
}
