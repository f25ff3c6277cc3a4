//! How tenants share the GPU, and what that makes of the device.

use weir_simgpu_model::{Mode, Nanos, Spec};

use super::{SMS, SUBMIT_TO_START};
use crate::fault::Fault;
use crate::mps;
use crate::sim::scenario::{self, Scenario, Tenant};

/// How tenants share the GPU.
#[derive(Clone, Copy)]
pub enum Rule {
    /// As this policy says.
    Policy(&'static weir_policy::Row),
    /// By nothing but the driver, in this mode.
    Driver(Mode),
    /// All at once, each in a partition of the SMs that never changes.
    Partitions(Reserved),
}

/// How large a partition is.
#[derive(Clone, Copy)]
pub enum Reserved {
    /// What the tenant is guaranteed.
    Request,
    /// What it may have at most.
    Limit,
}

impl Rule {
    pub(super) fn mode(self, scenario: &Scenario) -> Mode {
        match self {
            Rule::Policy(_) => scenario.device.mode.into(),
            Rule::Driver(mode) => mode,
            Rule::Partitions(_) => Mode::Mps,
        }
    }

    /// The priority of a tenant's streams where all run at once, the lower one first: under a policy that of its class, as
    /// `weir run` sets it.
    pub(super) fn priority(self, tenant: &Tenant) -> i32 {
        match self {
            Rule::Policy(_) => i32::from(mps::priority(tenant.class)),
            Rule::Driver(_) | Rule::Partitions(_) => 0,
        }
    }

    /// SMs that a tenant's kernels may have where all run at once. Under a policy that is its limit, as `weir run` sets it
    /// (docs/mps.md); who states none has all.
    pub(super) fn partition(self, tenant: &Tenant) -> Result<u32, Fault> {
        let share = match self {
            Rule::Driver(_) => None,
            Rule::Partitions(Reserved::Request) => tenant.request()?,
            Rule::Policy(_) | Rule::Partitions(Reserved::Limit) => tenant.limit()?,
        };
        Ok(share.map_or(SMS, |share| (u32::from(share.as_permille()) * SMS / 1_000).max(1)))
    }
}

/// The device of a run.
pub(super) fn spec(scenario: &Scenario, rule: Rule) -> Spec {
    let standard = Spec::default();
    let us = |us: Option<f64>, or: Nanos| us.map_or(or, |us| scenario::nanos(us * 1e3));
    Spec {
        sms: SMS,
        mode: rule.mode(scenario),
        slice: us(scenario.device.slice_us, standard.slice),
        switch: us(scenario.device.switch_us, standard.switch),
        submit_to_start: SUBMIT_TO_START,
        ..standard
    }
}
