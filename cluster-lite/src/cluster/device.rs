//! Kinds of GPU: what one is called, holds, does and costs.

use serde::{Deserialize, Serialize};
use weir_protocol::units::Bytes;

use super::ClusterError;

/// One kind of GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceClass {
    /// Its name, such as `T4`.
    pub name: String,
    /// Memory that tenants may hold. Zero: not known, and then no demand may ask for any.
    pub memory: Bytes,
    /// Work done in a second, relative to the class that a profile was taken on.
    pub speed: f64,
    /// Watts with no tenant on it.
    pub idle_watts: f64,
    /// Watts with any tenant on it: the two-level model (arXiv 2412.17484, section III).
    pub full_watts: f64,
    /// Price of one hour, in whatever currency all classes share.
    pub cost_per_hour: f64,
}

impl DeviceClass {
    /// A class of which nothing but name and memory is known: speed 1, no watts, no price.
    pub fn new(name: impl Into<String>, memory: Bytes) -> Self {
        Self { name: name.into(), memory, speed: 1.0, idle_watts: 0.0, full_watts: 0.0, cost_per_hour: 0.0 }
    }

    /// What its first tenant adds, in watts.
    pub fn waking_watts(&self) -> f64 {
        self.full_watts - self.idle_watts
    }

    pub(super) fn check(&self) -> Result<(), ClusterError> {
        let wrong =
            |what: &'static str, value: f64| ClusterError::Class { name: self.name.clone(), what, value };
        let least_zero = |what, value: f64| {
            if value >= 0.0 && value.is_finite() { Ok(()) } else { Err(wrong(what, value)) }
        };
        if !(self.speed > 0.0 && self.speed.is_finite()) {
            return Err(wrong("speed", self.speed));
        }
        least_zero("idle watts", self.idle_watts)?;
        least_zero("price of an hour", self.cost_per_hour)?;
        if self.full_watts >= self.idle_watts && self.full_watts.is_finite() {
            return Ok(());
        }
        Err(wrong("full watts", self.full_watts))
    }
}

/// A device class of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(super) u8);

impl ClassId {
    pub(crate) const fn from_index(index: u8) -> Self {
        Self(index)
    }

    /// Its place in the cluster's list of classes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Some of a cluster's device classes, at most [`ClassSet::MOST`] in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassSet(u64);

impl ClassSet {
    /// Every class.
    pub const ANY: Self = Self(u64::MAX);
    /// No class.
    pub const NONE: Self = Self(0);
    /// How many classes a cluster may have.
    pub const MOST: usize = 64;

    /// The same and `class`.
    #[must_use]
    pub const fn with(self, class: ClassId) -> Self {
        Self(self.0 | 1 << class.0)
    }

    /// Whether `class` is among them.
    pub const fn has(self, class: ClassId) -> bool {
        self.0 & 1 << class.0 != 0
    }
}

impl FromIterator<ClassId> for ClassSet {
    fn from_iter<I: IntoIterator<Item = ClassId>>(classes: I) -> Self {
        classes.into_iter().fold(Self::NONE, Self::with)
    }
}
