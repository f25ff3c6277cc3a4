//! When and where best-effort work runs (CE-NAS, papers.md 3.11; power by PWR's two levels, 3.7).
//!
//! A GPU that works draws what it draws busy rather than idle: the difference is the work's. An hour of a site can take as
//! many GPUs as it has, and as many as its power cap leaves. All GPU-hours cost the same work, so that filling the hours
//! with the least carbon per GPU-hour first is the optimum: no exchange of two hours can lower the sum.
//!
//! ```text
//! fixed       from now on, at every site alike, until it is done
//! following   hours and sites in order of watts times grams, until it is done
//! ```

use serde::Serialize;

use super::model::{Batch, Site};

/// Work at a site in an hour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slot {
    /// The site.
    pub site: String,
    /// Hours from now.
    pub hour: usize,
    /// GPUs that work, on average.
    pub gpus: f64,
    /// Carbon, in grams.
    pub grams: f64,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shift {
    /// What runs, in order of hours, then of sites.
    pub slots: Vec<Slot>,
    /// Carbon of a GPU-hour of work, in grams.
    pub grams_per_gpu_hour: f64,
    /// When the last work is done, in hours from now.
    pub done_h: usize,
}

/// An hour of a site.
struct Room<'a> {
    site: &'a Site,
    hour: usize,
    gpus: f64,
    left: f64,  // part of the hour that has not gone
    grams: f64, // of a GPU-hour
}

impl Room<'_> {
    /// What can be done in it, in GPU-hours.
    fn work(&self) -> f64 {
        self.gpus * self.left
    }
}

/// No work, wherever there is room.
const NOTHING: Batch = Batch { gpu_hours: 0.0, deadline_h: 0, gone: 0.0, most_gpus: f64::INFINITY };

/// From now on, at every site.
pub fn fixed(sites: &[Site], batch: &Batch) -> Option<Shift> {
    let mut rooms = rooms(sites, batch);
    rooms.sort_by_key(|room| room.hour);
    let mut left = batch.gpu_hours;
    let mut slots = Vec::new();
    for hour in rooms.chunk_by(|a, b| a.hour == b.hour) {
        let all: f64 = hour.iter().map(Room::work).sum();
        let part = (left / all.max(1e-9)).min(1.0);
        slots.extend(hour.iter().map(|room| (room, room.work() * part)));
        left -= all * part;
    }
    plan(slots, left, batch)
}

/// Where and when the least carbon is set free.
pub fn following(sites: &[Site], batch: &Batch) -> Option<Shift> {
    let mut rooms = rooms(sites, batch);
    rooms.sort_by(|a, b| a.grams.total_cmp(&b.grams).then(a.hour.cmp(&b.hour)));
    let mut left = batch.gpu_hours;
    let mut free = vec![batch.most_gpus; batch.deadline_h];
    let slots: Vec<_> = rooms
        .iter()
        .map(|room| {
            let gpus = room.gpus.min(free[room.hour]);
            let work = (gpus * room.left).min(left);
            free[room.hour] -= gpus;
            left -= work;
            (room, work)
        })
        .collect();
    plan(slots, left, batch)
}

/// All that power caps leave of the first hour, by site, the cleanest first.
pub fn at_once(sites: &[Site]) -> Vec<(&str, f64)> {
    let first = Batch { deadline_h: 1, ..NOTHING };
    let mut rooms = rooms(sites, &first);
    rooms.sort_by(|a, b| a.grams.total_cmp(&b.grams));
    rooms.iter().map(|room| (room.site.name.as_str(), room.gpus)).collect()
}

/// GPU-hours that can be done by the deadline.
pub fn capacity(sites: &[Site], deadline_h: usize) -> f64 {
    rooms(sites, &Batch { deadline_h, ..NOTHING }).iter().map(Room::work).sum()
}

fn rooms<'a>(sites: &'a [Site], batch: &Batch) -> Vec<Room<'a>> {
    let of = |site: &'a Site| {
        site.hours.iter().take(batch.deadline_h).enumerate().map(move |(hour, signals)| {
            let work_watts = site.busy_watts - site.idle_watts;
            let gpus = f64::from(site.gpus);
            // What the cap leaves when all of the site's GPUs idle.
            let spare =
                signals.cap_watts.map(|cap| ((cap - gpus * site.idle_watts) / work_watts).clamp(0.0, gpus));
            Room {
                site,
                hour,
                gpus: spare.unwrap_or(gpus),
                left: if hour == 0 { 1.0 - batch.gone } else { 1.0 },
                grams: work_watts / 1000.0 * signals.grams_per_kwh,
            }
        })
    };
    sites.iter().flat_map(of).collect()
}

/// The plan, if nothing is left.
fn plan(slots: Vec<(&Room<'_>, f64)>, left: f64, batch: &Batch) -> Option<Shift> {
    if left > 1e-6 {
        return None;
    }
    let mut slots: Vec<_> = slots
        .into_iter()
        .filter(|(_, work)| *work > 0.0)
        .map(|(room, work)| Slot {
            site: room.site.name.clone(),
            hour: room.hour,
            gpus: work / room.left,
            grams: work * room.grams,
        })
        .collect();
    slots.sort_by(|a, b| a.hour.cmp(&b.hour).then_with(|| a.site.cmp(&b.site)));
    let grams: f64 = slots.iter().map(|slot| slot.grams).sum();
    let done_h = slots.last().map_or(0, |slot| slot.hour + 1);
    Some(Shift { slots, grams_per_gpu_hour: grams / batch.gpu_hours, done_h })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::model::Hour;
    use super::*;

    fn site(name: &str, gpus: u32, hours: &[(f64, Option<f64>)]) -> Site {
        Site {
            name: name.into(),
            gpus,
            samples_per_s: 1.0,
            samples: 0,
            wan_bits_per_s: 1e9,
            gpu_hour_cost: 1.0,
            busy_watts: 400.0,
            idle_watts: 50.0,
            hours: hours
                .iter()
                .map(|&(grams_per_kwh, cap_watts)| Hour { grams_per_kwh, cap_watts })
                .collect(),
        }
    }

    const FOUR: Batch = Batch { gpu_hours: 4.0, deadline_h: 3, ..NOTHING };

    #[test]
    fn work_waits_for_the_clean_hour_and_is_done_by_the_deadline() {
        let sites = [site("a", 2, &[(500.0, None), (100.0, None), (300.0, None), (1.0, None)])];
        let following = following(&sites, &FOUR).unwrap();
        let hours: Vec<_> = following.slots.iter().map(|slot| (slot.hour, slot.gpus)).collect();
        assert_eq!(hours, [(1, 2.0), (2, 2.0)], "the fourth hour lies after the deadline");
        assert!((following.grams_per_gpu_hour - 0.35 * 200.0).abs() < 1e-9);
        assert!((fixed(&sites, &FOUR).unwrap().grams_per_gpu_hour - 0.35 * 300.0).abs() < 1e-9);
    }

    #[test]
    fn of_an_hour_that_has_gone_in_part_less_can_be_had_by_as_many_gpus() {
        let sites = [site("a", 4, &[(10.0, None), (20.0, None)])];
        let batch = Batch { gpu_hours: 4.0, deadline_h: 2, gone: 0.75, ..NOTHING };
        let following = following(&sites, &batch).unwrap();
        let slots: Vec<_> = following.slots.iter().map(|slot| (slot.hour, slot.gpus)).collect();
        assert_eq!(slots, [(0, 4.0), (1, 3.0)], "a quarter of an hour of four, and an hour of three");
        assert_eq!(super::following(&sites, &Batch { gpu_hours: 5.5, ..batch }), None);
        assert_eq!(at_once(&sites), [("a", 4.0)]);
    }

    #[test]
    fn who_can_use_few_gpus_at_once_begins_sooner() {
        let sites =
            [site("a", 4, &[(30.0, None), (20.0, None)]), site("b", 4, &[(40.0, None), (10.0, None)])];
        let batch = Batch { gpu_hours: 7.0, deadline_h: 2, most_gpus: 4.0, ..NOTHING };
        let slots = following(&sites, &batch).unwrap().slots;
        let slots: Vec<_> = slots.iter().map(|slot| (slot.hour, slot.site.as_str(), slot.gpus)).collect();
        assert_eq!(
            slots,
            [(0, "a", 3.0), (1, "b", 4.0)],
            "with eight all of it would wait for the second hour"
        );
        assert_eq!(following(&sites, &Batch { gpu_hours: 8.5, ..batch }), None);
    }

    #[test]
    fn work_goes_where_it_is_clean() {
        let sites = [site("coal", 4, &[(800.0, None); 3]), site("wind", 4, &[(20.0, None); 3])];
        let following = following(&sites, &FOUR).unwrap();
        assert!(following.slots.iter().all(|slot| slot.site == "wind"));
    }

    #[test]
    fn a_power_cap_leaves_room_for_as_many_gpus_as_it_has_watts() {
        // Two idle GPUs draw 100 W; one that works 350 W more.
        let sites = [site("a", 2, &[(100.0, Some(450.0)), (200.0, None), (300.0, Some(90.0))])];
        let three = Batch { gpu_hours: 3.0, ..FOUR };
        let hours: Vec<_> =
            following(&sites, &three).unwrap().slots.iter().map(|slot| (slot.hour, slot.gpus)).collect();
        assert_eq!(hours, [(0, 1.0), (1, 2.0)]);
        assert_eq!(following(&sites, &FOUR), None, "no room for a fourth GPU-hour");
    }

    proptest! {
        #[test]
        fn following_the_signal_is_never_dirtier_and_does_the_same_work(
            grams in prop::collection::vec(1.0..900.0f64, 2..24), gpus in 1..9u32, part in 0.05..1.0f64,
        ) {
            let hours: Vec<_> = grams.iter().map(|grams| (*grams, None)).collect();
            let sites = [site("a", gpus, &hours), site("b", 1, &hours[1..])];
            let deadline_h = hours.len();
            let batch = Batch { gpu_hours: part * capacity(&sites, deadline_h), deadline_h, ..NOTHING };
            let (fixed, following) = (fixed(&sites, &batch).unwrap(), following(&sites, &batch).unwrap());
            prop_assert!(following.grams_per_gpu_hour <= fixed.grams_per_gpu_hour + 1e-9);
            for plan in [fixed, following] {
                let done: f64 = plan.slots.iter().map(|slot| slot.gpus).sum();
                prop_assert!((done - batch.gpu_hours).abs() < 1e-6);
                prop_assert!(plan.done_h <= deadline_h);
            }
        }
    }
}
