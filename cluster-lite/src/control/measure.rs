//! How much slower instances run beside each other than alone, by what their nodes say of their time: that corrects what placement
//! predicts from solo profiles (SMore, TPDS 36(5), 2025: predictions that are refined while services run).
//!
//! A window is [`WINDOW`] of a GPU that had the same instances with the same budgets, all of them ready, and nobody else. In it
//!
//! ```text
//! slowdown = all of an instance's time / (all of it - what it waited at our gate or for a neighbour)
//! ```
//!
//! over the same of its profile. It says nothing where somebody there has no profile, or does much less than his profile says he can:
//! beside idle services everybody is fast. Nor where somebody is held by his own limit: he would have waited alone, and burdens the
//! others less than with another one. So it is services that have all they can do of which something is learnt.

use std::collections::BTreeMap;

use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::model::{Fleet, Place};
use super::order::{Report, Seen, Spent};
use crate::profile::Stalls;

/// How long a window is at least, ...
const WINDOW: Nanos = Nanos::from_secs(10);
/// ... and at most: what a silence hides nobody knows.
const LONGEST: Nanos = Nanos::from_secs(20);
/// This part of a window, or more, is in what a tenant says of its time: it is told up to its last call of the driver.
const TOLD: f64 = 0.9;
/// Who is at work for this part of what his profile says, or more, has work enough.
const BUSY: f64 = 0.8;
/// Who is at work for this part of his limit, or more, may be held by it.
const HELD: f64 = 0.9;

/// An instance of a service was so many times slower beside instances of others, whose names are in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Whose it is.
    pub victim: String,
    /// Services of the others, one for each instance.
    pub beside: Vec<String>,
    /// Time beside them over time alone.
    pub slowdown: f64,
}

/// The windows that are under way.
#[derive(Debug, Default)]
pub struct Watch(BTreeMap<Place, Window>);

/// Tenants of a GPU, as they were when it began.
#[derive(Debug)]
struct Window {
    since: Nanos,
    tenants: BTreeMap<String, Seen>,
}

impl Watch {
    /// What a node's report says of its GPUs, beside those before it; `is_ready` says of which tenants something can be learnt.
    pub fn look(&mut self, report: &Report, fleet: &Fleet, is_ready: impl Fn(&str) -> bool) -> Vec<Measured> {
        let places = (0..report.gpus.len()).map(|gpu| Place { node: report.node.clone(), gpu });
        places.flat_map(|place| self.look_at(place, report, fleet, &is_ready)).collect()
    }

    fn look_at(
        &mut self,
        place: Place,
        report: &Report,
        fleet: &Fleet,
        is_ready: &impl Fn(&str) -> bool,
    ) -> Vec<Measured> {
        let Some(now) = Window::begun(place.gpu, report, fleet, is_ready) else {
            self.0.remove(&place);
            return Vec::new();
        };
        let before = self.0.get(&place).filter(|window| window.has_the_same(&now));
        let lasted = before.map(|window| now.since.since(window.since));
        if lasted.is_some_and(|lasted| lasted < WINDOW) {
            return Vec::new();
        }
        let whole = before.filter(|_| lasted.is_some_and(|lasted| lasted <= LONGEST));
        let measured = whole.and_then(|window| window.until(&now, fleet));
        self.0.insert(place, now);
        measured.unwrap_or_default()
    }
}

impl Window {
    /// One that begins with a report, where several instances are beside each other on a GPU, and nobody else. Fillers do not count: they
    /// have what the others leave.
    fn begun(gpu: usize, report: &Report, fleet: &Fleet, is_ready: &impl Fn(&str) -> bool) -> Option<Self> {
        let seen = report.gpus.get(gpu)?;
        let fills = |name: &str| {
            let service = fleet.parse_tenant(name).and_then(|(service, _)| fleet.service(service));
            service.is_some_and(|service| service.class == ClassName::Filler)
        };
        let here = report.tenants.iter();
        let here = here.filter(|(name, tenant)| tenant.gpu == gpu && !tenant.parked && !fills(name));
        let tenants: BTreeMap<_, _> = here.map(|(name, tenant)| (name.clone(), *tenant)).collect();
        let alone = seen.foreign_request == SmShare::ZERO && seen.foreign_memory == Bytes(0);
        let counts = alone && tenants.len() > 1 && tenants.keys().all(|name| is_ready(name));
        counts.then_some(Self { since: report.asked_at, tenants })
    }

    fn has_the_same(&self, now: &Self) -> bool {
        let alike = |(one, other): ((&String, &Seen), (&String, &Seen))| {
            one.0 == other.0 && one.1.budget == other.1.budget
        };
        self.tenants.len() == now.tenants.len() && self.tenants.iter().zip(&now.tenants).all(alike)
    }

    /// What it came to; nothing if somebody had too little to do, was held by his limit, or nobody knows how much he can do.
    fn until(&self, now: &Self, fleet: &Fleet) -> Option<Vec<Measured>> {
        let wall = now.since.since(self.since).0 as f64;
        let mut all = Vec::with_capacity(now.tenants.len());
        for (name, seen) in &now.tenants {
            let (service, _) = fleet.parse_tenant(name)?;
            let profile = fleet.service(service)?.profile.as_ref()?;
            let spent = seen.spent.since(&self.tenants.get(name)?.spent)?;
            let held = HELD * f64::from(seen.budget.limit.as_permille()) / 1_000.0;
            let is_held = seen.budget.limit < SmShare::FULL && spent.at_work.0 as f64 >= held * wall;
            let is_busy = spent.all() >= TOLD * wall && spent.busy() >= BUSY * busy(&profile.stalls);
            (is_busy && !is_held).then_some(())?;
            all.push((service, spent.slowdown() / slowdown_alone(&profile.stalls)));
        }
        let measured = all.iter().enumerate().map(|(at, (victim, slowdown))| {
            let others = all.iter().enumerate().filter(|(other, _)| *other != at);
            let mut beside: Vec<_> = others.map(|(_, (service, _))| (*service).to_owned()).collect();
            beside.sort_unstable();
            Measured { victim: (*victim).to_owned(), beside, slowdown: *slowdown }
        });
        Some(measured.collect())
    }
}

/// Part of its time alone, but for waits, in which a tenant is at work.
fn busy(alone: &Stalls) -> f64 {
    (alone.compute + alone.communication + alone.copies) * slowdown_alone(alone)
}

/// What it waits when nobody is there is no neighbour's doing.
fn slowdown_alone(alone: &Stalls) -> f64 {
    1.0 / (1.0 - alone.gate - alone.neighbour).max(0.01)
}

impl Spent {
    /// What was spent between two looks; nothing if the later one says less, or the same: a program that began anew, or none.
    fn since(&self, before: &Self) -> Option<Self> {
        let at_work = self.at_work.0.checked_sub(before.at_work.0)?;
        let by_itself = self.by_itself.0.checked_sub(before.by_itself.0)?;
        let waited = self.waited.0.checked_sub(before.waited.0)?;
        let [at_work, by_itself, waited] = [at_work, by_itself, waited].map(Nanos);
        (at_work > Nanos(0)).then_some(Self { at_work, by_itself, waited })
    }

    fn all(&self) -> f64 {
        (self.at_work.0 + self.by_itself.0 + self.waited.0) as f64
    }

    /// Part of what would be its time alone in which it was at work.
    fn busy(&self) -> f64 {
        self.at_work.0 as f64 / (self.at_work.0 + self.by_itself.0) as f64
    }

    fn slowdown(&self) -> f64 {
        self.all() / (self.at_work.0 + self.by_itself.0) as f64
    }
}

#[cfg(test)]
mod tests;
