//! Who has stirred in his sleep: one word of each tenant, on the usage page of its first GPU.
//!
//! ```text
//!   manager   marks the tenant as asleep; looks whether it has work, and at its pulse; from then on only at the word
//!   tenant    shows its work, or its wait; looks whether it is marked; moves the word
//! ```
//!
//! Each does its two things in one order with the other's ([`Bell`](weir_protocol::pages::Bell)), so that one of them sees.

use std::sync::Arc;

use super::pages::Pages;
use super::tenant::Tenant;

/// The words.
#[derive(Default)]
pub(super) struct Stirs {
    rows: Vec<(usize, Arc<Pages>, u64)>, // a tenant's position, its first GPU's pages, and what stood there last
    stirred: Vec<usize>,
}

impl Stirs {
    /// Those of `tenants`. Whoever has stirred before is looked at anew anyway.
    pub(super) fn of(tenants: &[Tenant]) -> Self {
        let first = tenants.iter().enumerate().filter_map(|(at, tenant)| Some((at, tenant.cells.first()?)));
        let rows = first.map(|(at, cell)| (at, cell.pages.clone(), cell.pages.usage.stirs())).collect();
        Self { rows, stirred: Vec::new() }
    }

    /// Looks at all of them; says which tenants have stirred, by their positions.
    pub(super) fn look(&mut self) -> &[usize] {
        self.stirred.clear();
        for (at, pages, before) in &mut self.rows {
            let stirs = pages.usage.stirs();
            if std::mem::replace(before, stirs) != stirs {
                self.stirred.push(*at);
            }
        }
        &self.stirred
    }
}
