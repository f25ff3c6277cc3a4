//! Latencies that tenants' processes tell by themselves (`weir_latency`): looked at with the marks, without a question to
//! anybody.

use std::collections::BTreeMap;

use weir_protocol::pages::Told;
use weir_protocol::units::Nanos;

use super::Tenant;
use crate::latency::{Figures, Health, Promise, Window};

/// What a promise has come to: the tenant, its quantile of late, and how it stands with the source.
pub(super) type Answer = (u64, Option<Nanos>, Health);

/// The last seconds of every tenant that tells.
#[derive(Default)]
pub(super) struct Listener {
    windows: BTreeMap<u64, Window>,
}

impl Listener {
    /// Looks at all of them.
    pub(super) fn look(&mut self, tenants: &[Tenant], now: Nanos) -> Vec<Answer> {
        self.windows.retain(|id, _| tenants.iter().any(|tenant| tenant.id == *id));
        let asked = |tenant: &Tenant| Some((tenant.id, tenant.budget.slo?, figures(tenant)?));
        let asked: Vec<_> = tenants.iter().filter_map(asked).collect();
        asked.into_iter().map(|asked| self.judge(asked, now)).collect()
    }

    fn judge(&mut self, (tenant, promise, figures): (u64, Promise, Figures), now: Nanos) -> Answer {
        let quantile = f64::from(promise.quantile_permille) / 1000.0;
        let recent = self.windows.entry(tenant).or_default().push(now, &figures, quantile);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "floats cast to integers saturate, and no bound is negative"
        )]
        let recent = recent.map(|ns| Nanos(ns as u64));
        (tenant, recent, if recent.is_some() { Health::Told } else { Health::Idle })
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
