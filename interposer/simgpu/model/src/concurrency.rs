//! Kernels that are resident together: a fluid model. Each runs at a rate (its progress per ns), which
//! changes only when a kernel comes or goes.
//!
//! SMs: a kernel wants min(1, blocks / SMs) of the device; what is asked beyond 1 slows all of the same
//! priority in proportion, more urgent ones first. Bandwidth: demands beyond the knee slow each kernel by as
//! much as it depends on memory. A kernel alone runs at rate 1, always.

use crate::Nanos;
use crate::device::StreamId;
use crate::spec::{Kernel, Spec};

/// Rate 1 in fixed point; also the unit of remaining work per ns.
pub(crate) const FULL: u64 = 1 << 16;
/// Kernels that can be resident at once. Source: CUDA programming guide, compute capability 8.0.
pub(crate) const MOST_RESIDENT: usize = 128;
/// What the least urgent kernels keep, thousandths: blocks that are resident stay on their SMs.
const FLOOR: u64 = 10;

/// A kernel on the device.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    pub stream: StreamId,
    pub context: usize,
    pub priority: i32,
    /// Work left, ns x [`FULL`].
    pub left: u64,
    /// Progress per ns, of [`FULL`].
    pub rate: u64,
    pub spins: bool,
    /// It is no kernel, but something that the front end does between two.
    pub is_mark: bool,
    /// Part of the SMs it wants, thousandths.
    sms: u64,
    /// Part of the bandwidth, thousandths.
    bandwidth: u64,
}

impl Resident {
    pub fn new(stream: StreamId, context: usize, priority: i32, kernel: Kernel, spec: &Spec) -> Self {
        let sms = u64::from(kernel.blocks) * 1000 / u64::from(spec.sms.max(1));
        // 1 hour x 2^16 fits into 64 bits 70 times over.
        let left = kernel.solo.clamp(1, 1 << 46) * FULL;
        let bandwidth = u64::from(kernel.bandwidth_permille.min(1000));
        let spins = kernel.spins;
        let sms = sms.clamp(1, 1000);
        Self { stream, context, priority, left, rate: FULL, spins, is_mark: false, sms, bandwidth }
    }

    /// Its part when busy time is divided: what it keeps others from.
    pub fn weight(&self) -> u64 {
        self.sms.max(self.bandwidth)
    }

    /// Part of the SMs it wants, thousandths.
    pub fn sms(&self) -> u64 {
        self.sms
    }

    /// ns until it ends at its present rate; `None` while it spins.
    pub fn ends_in(&self) -> Option<Nanos> {
        (!self.spins).then(|| self.left.div_ceil(self.rate.max(1)))
    }
}

/// Sets everyone's rate for who is resident now.
pub(crate) fn set_rates(resident: &mut [Resident], knee: u64) {
    if let [only] = resident {
        only.rate = FULL;
        return;
    }
    share_sms(resident);
    let demand: u64 = resident.iter().map(|kernel| kernel.bandwidth).sum();
    // What one kernel can draw alone it could draw before: the limit is never below the greediest.
    let limit = resident.iter().map(|kernel| kernel.bandwidth).max().unwrap_or(0).max(knee).max(1);
    let pressure = (demand * 1000 / limit).saturating_sub(1000);
    for kernel in resident {
        kernel.rate = (kernel.rate * 1_000_000 / (1_000_000 + pressure * kernel.bandwidth)).max(1);
    }
}

/// The most urgent (lowest) priority takes what it wants, the next what is left.
fn share_sms(resident: &mut [Resident]) {
    let mut free = 1000;
    let mut level = resident.iter().map(|kernel| kernel.priority).min();
    while let Some(priority) = level {
        let group = |kernel: &&mut Resident| kernel.priority == priority;
        let wanted: u64 = resident.iter_mut().filter(group).map(|kernel| kernel.sms).sum();
        let granted = wanted.min(free.max(FLOOR));
        for kernel in resident.iter_mut().filter(group) {
            kernel.rate = FULL * granted / wanted.max(1);
        }
        free -= granted.min(free);
        level = resident.iter().map(|kernel| kernel.priority).filter(|other| *other > priority).min();
    }
}
