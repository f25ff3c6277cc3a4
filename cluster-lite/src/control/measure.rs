//! How much slower instances run beside each other than alone, by what their nodes say of their time: that corrects what placement
//! predicts from solo profiles (SMore, TPDS 36(5), 2025: predictions that are refined while services run).
//!
//! A window is [`WINDOW`] of a GPU that had the same instances with the same budgets throughout, and nobody else. In it
//!
//! ```text
//! slowdown = all of an instance's time / (all of it - what it waited at our gate or for a neighbour)
//! ```
//!
//! It says nothing where somebody there has no profile, or does much less than his profile says he can: beside idle services
//! everybody is fast. Nor does it of an instance that its own limit holds: it would have waited alone.

use std::collections::BTreeMap;

use weir_protocol::units::{Nanos, SmShare};

use super::model::{Fleet, Place};
use super::order::{Report, Seen, Spent};
use crate::profile::Stalls;

/// How long a window is at least.
const WINDOW: Nanos = Nanos::from_secs(10);
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
    /// What a node's report says of its GPUs, beside those before it.
    pub fn look(&mut self, report: &Report, fleet: &Fleet) -> Vec<Measured> {
        let gpus = report.gpus.iter().enumerate();
        let each = gpus.flat_map(|(gpu, seen)| {
            let place = Place { node: report.node.clone(), gpu };
            let alone = seen.foreign_request.as_permille() == 0 && seen.foreign_memory.0 == 0;
            let here = report.tenants.iter().filter(|(_, tenant)| tenant.gpu == gpu && !tenant.parked);
            let tenants: BTreeMap<_, _> = here.map(|(name, tenant)| (name.clone(), *tenant)).collect();
            if !alone || tenants.len() < 2 {
                self.0.remove(&place);
                return Vec::new();
            }
            let now = Window { since: report.asked_at, tenants };
            match self.0.get(&place).filter(|window| window.has_the_same(&now)) {
                Some(window) if now.since.since(window.since) < WINDOW => Vec::new(),
                Some(window) => {
                    let measured = window.until(&now, fleet).unwrap_or_default();
                    self.0.insert(place, now);
                    measured
                }
                None => {
                    self.0.insert(place, now);
                    Vec::new()
                }
            }
        });
        each.collect()
    }
}

impl Window {
    fn has_the_same(&self, now: &Self) -> bool {
        let alike = |(one, other): ((&String, &Seen), (&String, &Seen))| {
            one.0 == other.0 && one.1.budget == other.1.budget
        };
        self.tenants.len() == now.tenants.len() && self.tenants.iter().zip(&now.tenants).all(alike)
    }

    /// What it came to; nothing if somebody had too little to do, or nobody knows how much he can do.
    fn until(&self, now: &Self, fleet: &Fleet) -> Option<Vec<Measured>> {
        let mut all = Vec::with_capacity(now.tenants.len());
        for (name, seen) in &now.tenants {
            let (service, _) = fleet.parse_tenant(name)?;
            let profile = fleet.service(service)?.profile.as_ref()?;
            let spent = seen.spent.since(&self.tenants.get(name)?.spent)?;
            (spent.busy() >= BUSY * busy(&profile.stalls)).then_some(())?;
            all.push((service, seen, spent));
        }
        let measured = all.iter().enumerate().filter(|(_, (_, seen, spent))| {
            let held = f64::from(seen.budget.limit.as_permille()) / 1_000.0 * HELD;
            seen.budget.limit == SmShare::FULL || spent.part(spent.at_work) < held
        });
        let measured = measured.map(|(at, (victim, _, spent))| {
            let others = all.iter().enumerate().filter(|(other, _)| *other != at);
            let mut beside: Vec<_> = others.map(|(_, (service, ..))| (*service).to_owned()).collect();
            beside.sort_unstable();
            Measured { victim: (*victim).to_owned(), beside, slowdown: spent.slowdown() }
        });
        Some(measured.collect())
    }
}

/// Part of its time alone in which a tenant is at work.
fn busy(alone: &Stalls) -> f64 {
    alone.compute + alone.communication + alone.copies
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

    fn part(&self, of: Nanos) -> f64 {
        of.0 as f64 / self.all()
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
