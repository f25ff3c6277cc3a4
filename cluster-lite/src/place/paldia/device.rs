//! A device class as a profiled service sees it.

use super::{Class, Curve, MOST_GPUS};
use crate::cluster::DeviceClass;
use crate::place::interference::{Predictor, Service};
use crate::place::undisturbed::Solo;
use crate::profile::Profile;

/// Most instances of a service on one GPU that are looked at.
const MOST_TOGETHER: u64 = 8;

impl Class {
    /// `device` for batches of an inference service: the profiled time with the whole GPU, over the device's speed. It is the
    /// quantile of the SLO, and is taken for constant. Nothing of a profile that is not of inference.
    pub fn of(device: &DeviceClass, profile: &Profile) -> Option<Self> {
        let inference = profile.inference.as_ref()?;
        let mut predictor = Predictor::default();
        let (name, uses) = (profile.name.clone(), Some(Solo::of(profile).uses));
        let service =
            predictor.know(Service { family: name.clone(), name, batch: Some(inference.batch), uses });
        let by_memory = device.memory.0 / profile.memory.0.max(1);
        let by_request = 1_000 / u64::from(profile.request.as_permille().max(1));
        let together = by_memory.min(by_request).clamp(1, MOST_TOGETHER);
        let together = usize::try_from(together).unwrap_or(1);
        Some(Self {
            name: device.name.clone(),
            cost_per_h: device.cost_per_hour,
            free: MOST_GPUS,
            memory: device.memory,
            needs: profile.memory,
            service_ms: inference.latency_alone_ms / device.speed,
            variation: 0.0,
            curve: Curve::predicted(&predictor.table(), service, together),
        })
    }
}
