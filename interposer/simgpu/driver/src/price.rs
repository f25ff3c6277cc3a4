//! What a launch costs: the configuration's row for the kernel's name, looked up once per function.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_simgpu_link::config::{Config, DRIVER_VERSION, KernelRow, waves_ns};
use weir_simgpu_link::{Kernel, place};

use crate::graph::Sets;
use crate::launch::Launch;

/// What launches of one function cost.
pub struct Price {
    row: Option<KernelRow>,
    /// It sets a conditional node's switch.
    pub sets: Option<Sets>,
    ns_per_block: u64,
    launches: AtomicU64, // counted where the time depends on the data
}

impl Price {
    /// The price of kernels of this name.
    pub fn of_name(name: &str, config: &Config) -> Price {
        Price {
            row: config.kernel_row(name).cloned(),
            sets: Sets::of_name(name),
            ns_per_block: config.ns_per_block,
            launches: AtomicU64::new(0),
        }
    }

    /// Whether launches run until a word is set.
    #[inline]
    pub fn spins(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.spins)
    }

    /// Whether launches do more than take time.
    #[inline]
    pub fn is_special(&self) -> bool {
        self.spins() || self.sets.is_some()
    }

    /// What this launch asks of `sms` of a device's `all`. A kernel whose time the table gives has it on the whole device:
    /// with fewer SMs than it would hold there it takes longer in proportion.
    #[inline]
    pub fn of(&self, launch: &Launch, sms: u32, all: u32) -> Kernel {
        let (blocks, per_sm) = (launch.blocks(), launch.blocks_per_sm());
        let solo_ns = match &self.row {
            Some(row) if row.spread > 1.0 => {
                let nth = self.launches.fetch_add(1, Ordering::Relaxed);
                row.of_data(row.solo_ns(blocks, per_sm, sms, self.ns_per_block), nth)
            }
            Some(row) => row.solo_ns(blocks, per_sm, sms, self.ns_per_block),
            None => waves_ns(self.ns_per_block, blocks, per_sm, sms),
        };
        // Resident blocks, as the broker counts them: the fullest SMs hold `per_sm` of them each.
        let held = u32::try_from(blocks.div_ceil(u64::from(per_sm.max(1)))).unwrap_or(u32::MAX);
        let blocks = self.row.as_ref().and_then(|row| row.blocks).unwrap_or(held);
        let timed = self.row.as_ref().is_some_and(|row| row.time_us.is_some());
        let (solo_ns, blocks) = match blocks.min(all) {
            wanted if wanted <= sms => (solo_ns, blocks),
            wanted if timed => (solo_ns.saturating_mul(wanted.into()) / u64::from(sms.max(1)), sms),
            _ => (solo_ns, sms),
        };
        let bandwidth_permille = self.row.as_ref().map_or(0, |row| row.bandwidth * 10);
        Kernel { solo_ns, blocks, bandwidth_permille, spins: self.spins() }
    }
}

/// The driver version that the configuration says. A configuration that cannot be used is `cuInit`'s to
/// refuse; until then the default holds.
pub fn driver_version() -> u32 {
    let path = std::env::var_os(place::CONFIG).map(PathBuf::from);
    Config::load(path.as_deref()).map_or(DRIVER_VERSION, |config| config.driver_version)
}
