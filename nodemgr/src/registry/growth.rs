//! What contexts may still grow by: the limits of a card's tenants, a reserve for each process and the card's own reserve shall
//! fit on the card, or a tenant is shown as overcommitted (gpu-truths, rule 14).
//!
//! A context grows after it was made, with modules that are loaded late, with the local memory of a kernel with deep stacks, with
//! its heap; what it takes then is charged and cannot be refused. Nobody is refused for it beforehand: whether it grows is the
//! program's affair, and a limit that fits today is what the operator asked for.

use weir_protocol::units::Bytes;

use super::Registry;

/// What a process's contexts may grow by where nobody says. Arithmetic, not measured: a kernel whose threads need 1 KiB of stack
/// more has the driver take that for every thread that can be resident, 132 SMs x 2,048 threads on an H100, 264 MiB; and 8 MiB
/// for the heap of `malloc` on the device, CUDA's default.
pub const DEFAULT_GROWTH: Bytes = Bytes::mib(272);

impl Registry {
    /// Contexts of one process may grow by so much.
    pub fn expect_growth(&mut self, each: Option<Bytes>) {
        self.growth = each.unwrap_or(DEFAULT_GROWTH);
    }

    /// Notes by how much each tenant, with those that came before it, exceeds what its cards can give to all.
    pub(super) fn note_growth(&mut self) {
        let usable: Vec<u64> = (0..self.gpus.devices.len()).map(|gpu| self.usable_memory(gpu).0).collect();
        let mut taken = vec![0u64; usable.len()];
        let mut by_age: Vec<_> = self.tenants.iter_mut().collect();
        by_age.sort_unstable_by_key(|tenant| tenant.id);
        for tenant in by_age {
            let parked = tenant.is_parked();
            let processes = tenant.processes.len().max(1) as u64;
            let wants = tenant.budget.memory.0.saturating_add(self.growth.0.saturating_mul(processes));
            for cell in &mut tenant.cells {
                let (Some(taken), Some(usable)) = (taken.get_mut(cell.gpu), usable.get(cell.gpu)) else {
                    continue;
                };
                if !parked {
                    *taken = taken.saturating_add(wants);
                }
                cell.uncovered = Bytes(if parked { 0 } else { taken.saturating_sub(*usable) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_its_sum_says() {
        assert_eq!(DEFAULT_GROWTH, Bytes(132 * 2_048 * 1_024 + 8 * 1_024 * 1_024));
    }
}
