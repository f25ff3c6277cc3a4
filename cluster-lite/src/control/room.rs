//! What is free on each GPU: all of it, less what is reserved for our instances and what strangers have.

use weir_nodemgr::calibration::Draw;
use weir_protocol::units::{Bytes, SmShare};

use super::model::{Budget, Instance, InstanceId, Place};
use super::order::GpuSeen;

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
    /// Our instances there: service, what is reserved.
    pub residents: Vec<(InstanceId, String, Budget)>,
}

impl Room {
    /// A GPU as its node reports it, with those of `instances` that are there.
    pub fn of<'a>(place: Place, seen: &GpuSeen, instances: impl Iterator<Item = &'a Instance>) -> Self {
        let here = instances.filter(|instance| instance.place == place);
        let residents = here.map(|i| (i.id, i.service.clone(), i.reserves())).collect();
        Self {
            device: seen.name.clone(),
            memory: seen.memory,
            foreign_request: seen.foreign_request,
            foreign_memory: seen.foreign_memory,
            draw: seen.draw,
            place,
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

    /// Whether this much more fits.
    pub fn holds(&self, budget: &Budget) -> bool {
        budget.request <= self.free_request() && budget.memory <= self.free_memory()
    }
}
