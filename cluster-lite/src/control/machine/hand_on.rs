//! Shared weights outlive whoever held them: when the instance that has them in its budget is gone, the oldest of the others on
//! its GPU takes them over, before anybody else is placed there.

use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::Controller;
use crate::control::model::{Budget, Instance, InstanceId};

impl Controller {
    pub(super) fn hand_on(&mut self, now: Nanos) {
        let sharing: Vec<InstanceId> = self
            .instances
            .values()
            .filter(|i| i.state.serves() && self.lacks_holder(i))
            .map(|i| i.id)
            .collect();
        for id in sharing {
            // Whoever came before it in this turn may have taken them.
            let Some(instance) = self.instances.get(&id).cloned().filter(|i| self.lacks_holder(i)) else {
                continue;
            };
            let Some(service) = self.fleet.service(&instance.service) else { continue };
            let backbone = service.backbone.as_ref().map_or(Bytes(0), |backbone| backbone.memory);
            let budget = Budget { memory: service.with_backbone().memory, ..instance.budget };
            let grows = Budget { request: SmShare::ZERO, limit: SmShare::ZERO, memory: backbone };
            let rooms = self.rooms_of(&instance.place.node);
            if rooms.iter().any(|room| room.place == instance.place && room.holds(&grows)) {
                let decision =
                    self.decided(&instance, "resize", "holds the backbone from now on".into(), now);
                let held = instance.held.union(instance.budget).union(budget);
                self.keep(Instance { budget, held, decision, ..instance });
            }
        }
    }

    /// Whether it shares weights which nobody on its GPU holds.
    fn lacks_holder(&self, instance: &Instance) -> bool {
        let backbone = self.fleet.service(&instance.service).and_then(|service| service.backbone.as_ref());
        backbone.is_some_and(|backbone| {
            let mut here = self.instances.values().filter(|other| other.place == instance.place);
            !here.any(|other| {
                let service = self.fleet.service(&other.service);
                service.and_then(|service| service.held_with(&other.reserves())) == Some(backbone)
            })
        })
    }
}
