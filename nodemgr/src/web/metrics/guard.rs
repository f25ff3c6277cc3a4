//! What stands outside of the budgets: processes without one, NVML's account against the ledgers, and how long a change of
//! budget takes.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{Page, of_gpu, one, pairs};
use crate::control::Stats;
use crate::gpus::Health;
use crate::histogram::Histogram;

pub(super) fn guard(page: &mut Page, stats: &Stats) {
    let states = Health::ALL.map(|state| {
        let holds = f64::from(u8::from(stats.node.nvml == state));
        (vec![("state", state.as_str().to_owned())], holds)
    });
    page.gauge("weir_nvml_state", None, "1 for how it stands with NVML", states.to_vec());
    let unmanaged = stats.gpus.iter().map(|gpu| {
        let count = stats.unmanaged.iter().filter(|process| process.gpu == gpu.index).count();
        (of_gpu(gpu), count as f64)
    });
    let help = "Processes on a GPU that have no budget";
    page.gauge("weir_unmanaged_processes", None, help, unmanaged.collect());
    let draining = stats.gpus.iter().map(|gpu| {
        let held = stats.draining.iter().filter(|process| process.gpu == gpu.index);
        (of_gpu(gpu), held.map(|process| process.memory_bytes as f64).sum())
    });
    let help = "Memory that processes hold beyond their death";
    page.gauge("weir_memory_draining", Some(Unit::Bytes), help, draining.collect());
    let wedged = stats.gpus.iter().map(|gpu| {
        let stuck = stats.draining.iter().any(|process| process.gpu == gpu.index && process.wedged);
        (of_gpu(gpu), f64::from(u8::from(stuck)))
    });
    let help = "1 while a process holds memory so long after its death that the GPU is taken for stuck";
    page.gauge("weir_gpu_wedged", None, help, wedged.collect());
    let drift =
        pairs(stats, |_, gpu| gpu.memory_drift_bytes.map_or_else(Vec::new, |bytes| one(bytes as f64)));
    let help = "Memory held by NVML's account beyond the ledger's";
    page.gauge("weir_ledger_drift", Some(Unit::Bytes), help, drift);
    let help = "From a change of budget to the first launch under it";
    let resizes = Counted(stats.node.resize_latency.clone());
    page.0.register_with_unit("weir_resize_latency", help, Unit::Seconds, resizes);
}

/// A histogram that was counted elsewhere.
#[derive(Debug)]
struct Counted(Histogram);

impl EncodeMetric for Counted {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let Histogram { buckets, count, sum_s } = &self.0;
        let within: u64 = buckets.iter().map(|(_, count)| count).sum();
        let above = (f64::INFINITY, count.saturating_sub(within));
        let all: Vec<_> = buckets.iter().copied().chain([above]).collect();
        encoder.encode_histogram::<NoLabelSet>(*sum_s, *count, &all, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
