//! Dilu's co-scaler as published (papers.md 1.6): one instance more when 20 of 40 s exceed what there is, one fewer when
//! 30 of 40 s lie below what one fewer would do, history cleared after each. Requests are counted.
//!
//! Its vertical half lends on each GPU: an instance with a queue has its limit where the GPU has so much free, else its
//! request. It never goes to zero: a service has one instance, or its floor.

use serde::{Deserialize, Serialize};

use super::demand::Demand;
use super::lately::Lately;
use super::{Policy, Rules, Scaler, Seen, Service, Wish};

pub(super) fn boxed(rules: &Rules) -> Box<dyn Scaler> {
    Box::new(Dilu {
        // One-second samples, not averaged.
        demand: Demand::new(&Rules { rate_s: 1e-3, rate_requests: 0.0, ..rules.clone() }, false),
        above: Lately::new(rules.history_s),
        below: Lately::new(rules.history_s),
        rules: rules.clone(),
    })
}

#[derive(Serialize, Deserialize)]
struct Dilu {
    demand: Demand,
    above: Lately,
    below: Lately,
    rules: Rules,
}

impl Policy for Dilu {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn decide(&mut self, service: &Service, seen: &Seen) -> Wish {
        let need = self.demand.see(service, seen).arriving;
        let capacity = service.capacity(service.request);
        let serving = seen.serving();
        let one = service.within(1);
        let above = self.above.push(need > f64::from(serving) * capacity);
        let below = self.below.push(serving > 1 && need < f64::from(serving - 1) * capacity);
        let (wanted, why) = match () {
            () if serving < one => (one, "its floor, or one"),
            () if above >= self.rules.out_s => (serving + 1, "too much for long enough"),
            () if below >= self.rules.in_s => (serving - 1, "too little for long enough"),
            () => (serving, "within what there is"),
        };
        let instances = service.within(wanted).max(one);
        if instances != serving {
            self.above.clear();
            self.below.clear();
        }
        let lent = seen.room.min(service.shares[1]).max(service.request);
        let share = if seen.queued > 0 { lent } else { service.request };
        Wish { instances, parked: 0, share, why }
    }
}
