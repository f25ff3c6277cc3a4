//! What a tenant's programs are told of it when they start: by the manager, or by the launch file.

use weir_policy::Beside;
use weir_protocol::launch::Launch;
use weir_protocol::message::GpuGrant;
use weir_protocol::pages::{Grant, Rate};
use weir_protocol::units::Bytes;

use super::cell::unlimited;
use super::{Latency, Registry, Tenant};

impl Registry {
    /// What is left to the tenant without a manager: its request, and its limits of memory and copies.
    pub fn launch(&self, tenant: u64, context_memory: Bytes) -> Option<Launch> {
        let tenant = self.tenant(tenant)?;
        let budget = &tenant.budget;
        let rate = Rate::from(budget.request);
        let grant = weir_policy::grant(rate, budget.request, budget.memory, Beside::default());
        let grant = Grant { copy_limit: budget.copy_limit, ..grant };
        Some(Launch {
            tenant: tenant.name.clone(),
            class: tenant.class.into(),
            oversubscribe: tenant.oversubscribe,
            context_memory,
            latency_metric: tenant.told_metric(),
            grant: if self.is_off() { unlimited(grant) } else { grant },
            gpus: self.granted_gpus(tenant),
        })
    }

    /// The tenant's GPUs, as its processes are told of them.
    pub fn granted_gpus(&self, tenant: &Tenant) -> Vec<GpuGrant> {
        let granted = |cell: &super::Cell| {
            let device = self.gpus.devices.get(cell.gpu)?;
            let mps = self.is_mps(cell.gpu);
            let in_stream = self.gate.is_stream(device.is_simulated());
            let switch = self.outside.switch;
            Some(GpuGrant { uuid: device.uuid, memory_total: device.memory_total, mps, in_stream, switch })
        };
        tenant.cells.iter().filter_map(granted).collect()
    }
}

impl Tenant {
    /// The metric by which its processes are to tell their latencies.
    pub fn told_metric(&self) -> Option<String> {
        let told = |latency: &Latency| latency.source.hint_metric().map(str::to_owned);
        self.latency.as_ref().and_then(told)
    }
}
