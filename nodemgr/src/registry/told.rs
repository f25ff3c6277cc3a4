//! Latencies that tenants' processes tell by themselves (`weir_latency`): looked at as often as pages are read, without a
//! question to anybody.

use std::collections::BTreeMap;

use weir_protocol::pages::Told;
use weir_protocol::units::Nanos;

use super::Tenant;
use crate::latency::{Figures, Health, Promise, Reading, Window};

/// What a promise has come to: the tenant, what its figures say, and how it stands with the source.
pub(super) type Answer = (u64, Reading, Health);

/// Between two looks. Policies take a second for the time between two readings (`weir-policy::slack`): by ten in a second, of which
/// each moved the hold by a quarter of what it was too long by, a hold went to nothing and back all the time.
const EACH: Nanos = Nanos::from_secs(1);

/// The last seconds of every tenant that tells.
#[derive(Default)]
pub(super) struct Listener {
    looked_at: Option<Nanos>,
    windows: BTreeMap<u64, Window>,
}

impl Listener {
    /// Looks at all of them, if it is time to.
    pub(super) fn look(&mut self, tenants: &[Tenant], now: Nanos) -> Vec<Answer> {
        if self.looked_at.is_some_and(|at| now.since(at) < EACH) {
            return Vec::new();
        }
        self.looked_at = Some(now);
        self.windows.retain(|id, _| tenants.iter().any(|tenant| tenant.id == *id));
        let asked = |tenant: &Tenant| Some((tenant.id, tenant.budget.slo?, figures(tenant)?));
        let asked: Vec<_> = tenants.iter().filter_map(asked).collect();
        asked.into_iter().map(|asked| self.judge(asked, now)).collect()
    }

    fn judge(&mut self, (tenant, promise, figures): (u64, Promise, Figures), now: Nanos) -> Answer {
        let reading = self.windows.entry(tenant).or_default().push(now, &figures, promise, 1.0);
        (tenant, reading, if reading.recent.is_some() { Health::Told } else { Health::Idle })
    }
}

/// What the tenant has told so far, in nanoseconds; nothing if others are asked for its latencies.
fn figures(tenant: &Tenant) -> Option<Figures> {
    tenant.latency.as_ref()?.source.hint_metric()?;
    let told: &Told = &tenant.cells.first()?.pages.usage.told;
    let bucket = |(bound, below): (Nanos, u64)| {
        let bound = if bound.0 == u64::MAX { f64::INFINITY } else { bound.0 as f64 };
        (bound, below as f64)
    };
    Some(Figures { buckets: told.below().map(bucket).collect(), quantiles: Vec::new() })
}
