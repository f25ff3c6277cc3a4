//! Best-effort work that follows the signals: which sites may have how many instances of it in this hour. What is left to do is planned
//! anew each time ([`crate::sites::shift`]): the cleanest hours and sites before the deadline first, as far as power caps leave room. An
//! instance counts as one busy GPU.
//!
//! What was done is the time that instances were at work on a GPU, by their nodes' own word; it outlives the controller.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_protocol::units::Nanos;

use super::model::{Batch, Fleet};
use super::order::Report;
use crate::sites::shift::{at_once, following};
use crate::sites::signals::{HOUR, Signals};
use crate::sites::{self, Site};

/// Hours that are planned at most: no forecast reaches further.
const LONGEST_H: u64 = 24 * 14;

/// How much has been done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    services: BTreeMap<String, Nanos>,
    /// What each tenant had done when it was looked at last.
    tenants: BTreeMap<String, Nanos>,
}

impl Done {
    /// Adds what tenants have done since the last look at their node.
    pub fn look(&mut self, report: &Report, fleet: &Fleet) {
        for (name, seen) in &report.tenants {
            let service = fleet.parse_tenant(name).and_then(|(service, _)| fleet.service(service));
            let Some(service) = service.filter(|service| service.batch.is_some()) else { continue };
            let before = self.tenants.insert(name.clone(), seen.spent.at_work).unwrap_or(Nanos(0));
            // One that says less than before has begun anew.
            let more = seen.spent.at_work.0.checked_sub(before.0).unwrap_or(seen.spent.at_work.0);
            let done = self.services.entry(service.name.clone()).or_insert(Nanos(0));
            done.0 = done.0.saturating_add(more);
        }
    }

    /// A tenant is no more, and nothing is told of it again.
    pub fn forget(&mut self, tenant: &str) {
        self.tenants.remove(tenant);
    }

    /// What a service has done.
    pub fn of(&self, service: &str) -> Nanos {
        self.services.get(service).copied().unwrap_or(Nanos(0))
    }
}

/// A site as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteNow {
    /// Its name.
    pub name: String,
    /// Its GPUs that could have work.
    pub gpus: u32,
    /// GPUs on which something else is: they draw their power already.
    pub busy: u32,
    /// What one draws when idle, and when busy.
    pub watts: [f64; 2],
}

/// How many instances each site may have in this hour, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// By site; those that are not there have none.
    pub sites: BTreeMap<String, u32>,
    /// Why.
    pub why: String,
}

/// For work of which so much is done.
pub fn quota(batch: &Batch, done: Nanos, now: Nanos, sites: &[SiteNow], signals: &Signals) -> Quota {
    let left = batch.gpu_time.since(done);
    if left == Nanos(0) {
        return Quota { sites: BTreeMap::new(), why: "its work is done".into() };
    }
    let begun = now.0 / HOUR.0;
    let hours = batch.done_by.0.div_ceil(HOUR.0).saturating_sub(begun).min(LONGEST_H);
    let deadline_h = usize::try_from(hours).unwrap_or(0);
    let sites: Vec<Site> = sites.iter().map(|site| planned(site, now, deadline_h.max(1), signals)).collect();
    let gpu_hours = left.0 as f64 / HOUR.0 as f64;
    let gone = (now.0 % HOUR.0) as f64 / HOUR.0 as f64;
    match following(&sites, &sites::Batch { gpu_hours, deadline_h, gone }) {
        None => {
            let all = at_once(&sites).into_iter().map(|(site, gpus)| (site.to_owned(), whole(gpus)));
            let why = format!("{gpu_hours:.2} GPU-hours are left, more than fit in before its time: at once");
            Quota { sites: all.collect(), why }
        }
        Some(plan) => {
            let now = plan.slots.iter().filter(|slot| slot.hour == 0);
            let all: BTreeMap<_, _> = now.map(|slot| (slot.site.clone(), whole(slot.gpus))).collect();
            let next = plan.slots.first().map_or(0, |slot| slot.hour);
            let grams = plan.grams_per_gpu_hour;
            let why = match next {
                0 => format!("{gpu_hours:.2} GPU-hours are left, at {grams:.0} g CO2 each"),
                hours => format!("{gpu_hours:.2} GPU-hours wait for a cleaner hour, {hours} from this one"),
            };
            Quota { sites: all, why }
        }
    }
}

/// The site as planning sees it: what others draw there comes off its cap, and what is left of that is for whole GPUs.
fn planned(site: &SiteNow, now: Nanos, hours: usize, signals: &Signals) -> Site {
    let [idle, busy] = site.watts;
    let at_rest = f64::from(site.gpus) * idle;
    let others = f64::from(site.busy) * (busy - idle);
    let mut hours = signals.hours(&site.name, now, hours);
    for hour in &mut hours {
        let gpus = |cap: f64| ((cap - at_rest - others) / (busy - idle)).floor().max(0.0);
        hour.cap_watts = hour.cap_watts.map(|cap| at_rest + gpus(cap) * (busy - idle));
    }
    Site::for_work(&site.name, site.gpus, site.watts, hours)
}

/// So many instances: a part of a GPU takes a whole one.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no more than a site has")]
fn whole(gpus: f64) -> u32 {
    (gpus - 1e-6).ceil().max(0.0) as u32
}

#[cfg(test)]
mod tests;
