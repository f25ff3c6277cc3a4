//! What is free on each GPU: all of it, less what is reserved for our instances and what strangers have.

use weir_nodemgr::calibration::Draw;
use weir_protocol::units::{Bytes, SmShare};

use super::model::{Budget, Fleet, Instance, InstanceId, Place, Service};
use super::order::GpuSeen;
use crate::cluster::Backbone;

/// One GPU with those on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    /// Which.
    pub place: Place,
    /// The product's name.
    pub device: String,
    /// Memory that tenants can have together.
    pub memory: Bytes,
    /// Share that strangers have.
    pub foreign_request: SmShare,
    /// Memory that strangers have.
    pub foreign_memory: Bytes,
    /// What it draws, if that was measured.
    pub draw: Option<Draw>,
    /// Weights that one of our instances there holds for all that share them.
    pub backbones: Vec<Backbone>,
    /// Our instances there: service, what is reserved.
    pub residents: Vec<(InstanceId, String, Budget)>,
}

impl Room {
    /// A GPU as its node reports it, with those of `instances` that are there.
    pub fn of<'a>(
        place: Place,
        seen: &GpuSeen,
        instances: impl Iterator<Item = &'a Instance>,
        fleet: &Fleet,
    ) -> Self {
        let here = instances.filter(|instance| instance.place == place);
        let residents: Vec<_> = here.map(|i| (i.id, i.service.clone(), i.reserves())).collect();
        let held =
            residents.iter().filter_map(|(_, service, budget)| fleet.service(service)?.held_with(budget));
        let backbones = held.cloned().collect();
        Self {
            device: seen.name.clone(),
            memory: seen.memory,
            foreign_request: seen.foreign_request,
            foreign_memory: seen.foreign_memory,
            draw: seen.draw,
            place,
            backbones,
            residents,
        }
    }

    /// Share that nobody has reserved.
    pub fn free_request(&self) -> SmShare {
        let ours: u32 = self.residents.iter().map(|(.., b)| u32::from(b.request.as_permille())).sum();
        let free = 1000u32.saturating_sub(ours + u32::from(self.foreign_request.as_permille()));
        SmShare::permille(u16::try_from(free).unwrap_or(0))
    }

    /// Memory that nobody has reserved.
    pub fn free_memory(&self) -> Bytes {
        let ours = self.residents.iter().fold(0u64, |sum, (.., b)| sum.saturating_add(b.memory.0));
        Bytes(self.memory.0.saturating_sub(ours.saturating_add(self.foreign_memory.0)))
    }

    /// What one more instance of a service needs here: its backbone only where nobody holds it yet.
    pub fn need(&self, service: &Service) -> Budget {
        let held = service.backbone.as_ref().is_none_or(|backbone| self.backbones.contains(backbone));
        if held { service.budget } else { service.with_backbone() }
    }

    /// Whether this much more fits.
    pub fn holds(&self, budget: &Budget) -> bool {
        budget.request <= self.free_request() && budget.memory <= self.free_memory()
    }
}
