//! Best-effort work that follows the signals: which sites may have how many instances of it in this hour. What is left to do is planned
//! anew each time ([`crate::sites::shift`]): the cleanest hours and sites before the deadline first, as far as power caps leave room. An
//! instance counts as one busy GPU.
//!
//! What was done is the time that instances were at work on a GPU, by their nodes' own word; it outlives the controller.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_protocol::units::Nanos;

use super::model::Batch;
use super::order::Report;
use crate::sites::shift::{at_once, following};
use crate::sites::signals::{HOUR, Signals};
use crate::sites::{self, Site};

/// Hours that are planned at most: no forecast reaches further.
const LONGEST_H: u64 = 24 * 14;

/// Less than this of a GPU's time is nothing that could be left.
const NOTHING: Nanos = Nanos::from_millis(100);

/// How much has been done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// By the service, and when it was to be done: with another time it is other work.
    services: BTreeMap<String, (Nanos, Nanos)>,
    /// What each tenant had done when it was looked at last.
    tenants: BTreeMap<String, Nanos>,
}

impl Done {
    /// Adds what tenants have done since the last look at their node; `work_of` says whose they are. Of those that were forgotten it says
    /// nothing: they may still be there, and were counted.
    pub fn look(&mut self, report: &Report, work_of: impl Fn(&str) -> Option<(String, Batch)>) {
        for (name, seen) in &report.tenants {
            let Some((service, batch)) = work_of(name) else { continue };
            let before = self.tenants.insert(name.clone(), seen.spent.at_work).unwrap_or(Nanos(0));
            // One that says less than before has begun anew.
            let more = seen.spent.at_work.0.checked_sub(before.0).unwrap_or(seen.spent.at_work.0);
            let done = self.of(&service, &batch);
            self.services.insert(service, (batch.done_by, Nanos(done.0.saturating_add(more))));
        }
    }

    /// A tenant is no more, and is nobody's.
    pub fn forget(&mut self, tenant: &str) {
        self.tenants.remove(tenant);
    }

    /// What of this work is done.
    pub fn of(&self, service: &str, batch: &Batch) -> Nanos {
        let done = self.services.get(service).filter(|(done_by, _)| *done_by == batch.done_by);
        done.map_or(Nanos(0), |(_, done)| *done)
    }
}

/// A site as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteNow {
    /// Its name.
    pub name: String,
    /// Its GPUs that could have work.
    pub gpus: u32,
    /// Its other ones, which draw power at least at rest: of nodes that are drained or silent, or without room.
    pub others: u32,
    /// GPUs on which something else is, or was when they were heard of last: they draw their power already.
    pub busy: u32,
    /// What one draws when idle, and when busy.
    pub watts: [f64; 2],
}

/// How many instances each site may have in this hour, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// By site; those that are not there have none.
    pub sites: BTreeMap<String, u32>,
    /// Why.
    pub why: String,
    /// Whether nothing is left to do.
    pub is_done: bool,
}

/// For work of which so much is done, with no more than `most` instances.
pub fn quota(
    batch: &Batch,
    done: Nanos,
    most: u32,
    now: Nanos,
    sites: &[SiteNow],
    signals: &Signals,
) -> Quota {
    let left = batch.gpu_time.since(done);
    if left < NOTHING {
        return Quota { sites: BTreeMap::new(), why: "its work is done".into(), is_done: true };
    }
    let hours = batch.done_by.0.div_ceil(HOUR.0).saturating_sub(now.0 / HOUR.0).min(LONGEST_H);
    let deadline_h = usize::try_from(hours).unwrap_or(0);
    let sites: Vec<Site> = sites.iter().map(|site| planned(site, now, deadline_h.max(1), signals)).collect();
    let gpu_hours = left.0 as f64 / HOUR.0 as f64;
    let gone = (now.0 % HOUR.0) as f64 / HOUR.0 as f64;
    let work = sites::Batch { gpu_hours, deadline_h, gone, most_gpus: f64::from(most) };
    let Some(plan) = following(&sites, &work) else {
        let why = format!("{gpu_hours:.2} GPU-hours are left, more than fit in before its time: at once");
        let all = at_once(&sites).into_iter().map(|(site, gpus)| (site.to_owned(), whole(gpus)));
        return Quota { sites: within(all, most), why, is_done: false };
    };
    let this_hour = plan.slots.iter().filter(|slot| slot.hour == 0);
    let grams = plan.grams_per_gpu_hour;
    let why = match plan.slots.first().map_or(0, |slot| slot.hour) {
        0 => format!("{gpu_hours:.2} GPU-hours are left, at {grams:.0} g CO2 each"),
        hours => format!("{gpu_hours:.2} GPU-hours wait for a cleaner hour, {hours} from this one"),
    };
    let this_hour = this_hour.map(|slot| (slot.site.clone(), whole(slot.gpus)));
    Quota { sites: within(this_hour, most), why, is_done: false }
}

/// What a site had in this hour it keeps, as far as caps and ceiling allow: what is left to do is never quite what was planned, and nobody
/// is to be ended and started for that.
pub fn kept(
    quota: Quota,
    before: &BTreeMap<String, u32>,
    most: u32,
    now: Nanos,
    sites: &[SiteNow],
    signals: &Signals,
) -> Quota {
    let planned: Vec<Site> = sites.iter().map(|site| planned(site, now, 1, signals)).collect();
    let room: BTreeMap<_, _> = at_once(&planned).into_iter().collect();
    let mut left = most.saturating_sub(quota.sites.values().sum());
    let mut sites = quota.sites;
    for (site, before) in before {
        let own = sites.entry(site.clone()).or_insert(0);
        let more = (*before).min(whole(room.get(site.as_str()).copied().unwrap_or(0.0)));
        let more = more.saturating_sub(*own).min(left);
        *own += more;
        left -= more;
    }
    Quota { sites, ..quota }
}

/// No more than so many in all, those that come first before the others.
fn within(sites: impl Iterator<Item = (String, u32)>, most: u32) -> BTreeMap<String, u32> {
    let mut left = most;
    let cut = sites.map(|(site, count)| {
        let count = count.min(left);
        left -= count;
        (site, count)
    });
    cut.collect()
}

/// The site as planning sees it: what others draw there comes off its cap, and what is left of that is for whole GPUs.
fn planned(site: &SiteNow, now: Nanos, hours: usize, signals: &Signals) -> Site {
    let [idle, busy] = site.watts;
    let at_rest = f64::from(site.gpus + site.others) * idle;
    let others = f64::from(site.busy) * (busy - idle);
    let mut hours = signals.hours(&site.name, now, hours);
    for hour in &mut hours {
        let gpus = |cap: f64| ((cap - at_rest - others) / (busy - idle)).floor().max(0.0);
        let room = |cap: f64| f64::from(site.gpus) * idle + gpus(cap) * (busy - idle);
        hour.cap_watts = hour.cap_watts.map(room);
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
