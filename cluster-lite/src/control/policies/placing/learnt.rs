//! What was measured of instances beside each other, until it is too old: what was found too slow is not put together again, and so
//! never measured again, but it need not stay so. After an hour it is forgotten, and tried once more.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use weir_protocol::units::Nanos;

use crate::cluster::Name;
use crate::control::measure::Measured;
use crate::place::interference::MOST_SLOWDOWN;

/// What a measured slowdown counts against those before it.
const NEW: f64 = 0.25;
/// Windows in which somebody was beside others until what he lost is believed.
pub const BELIEVED: u32 = 3;
/// Pairs and sets that are remembered; the one that was not seen for longest goes first.
const MOST: usize = 256;
/// What was not seen for so long is forgotten.
pub const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(3_600);

/// All of it, what was seen longest ago first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Learnt(VecDeque<Row>);

/// How much slower one is beside others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    victim: String,
    beside: Vec<String>,
    windows: u32,
    ln_slowdown: f64,
    seen: Nanos,
}

impl Learnt {
    /// One more window.
    pub fn learn(&mut self, now: Nanos, measured: &Measured) {
        let new = measured.slowdown.clamp(1.0, MOST_SLOWDOWN).ln();
        let is_it = |row: &Row| row.victim == measured.victim && row.beside == measured.beside;
        let known = self.0.iter().position(is_it).and_then(|at| self.0.remove(at));
        let fresh = || Row {
            victim: measured.victim.clone(),
            beside: measured.beside.clone(),
            windows: 0,
            ln_slowdown: new,
            seen: now,
        };
        let row = known.unwrap_or_else(fresh);
        let ln_slowdown = row.ln_slowdown + NEW * (new - row.ln_slowdown);
        self.0.push_back(Row { windows: row.windows.saturating_add(1), ln_slowdown, seen: now, ..row });
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// What was not seen for too long is no more; whether there was any.
    pub fn forget(&mut self, now: Nanos) -> bool {
        let before = self.0.len();
        self.0.retain(|row| now.since(row.seen) < FORGOTTEN_AFTER);
        self.0.len() < before
    }

    /// How many times slower each is, as far as it was seen often enough.
    pub fn believed(&self) -> BTreeMap<(Name, Vec<Name>), f64> {
        let name = |service: &String| Name::from(service.as_str());
        let rows = self.0.iter().filter(|row| row.windows >= BELIEVED);
        let of =
            |row: &Row| ((name(&row.victim), row.beside.iter().map(name).collect()), row.ln_slowdown.exp());
        rows.map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(victim: &str, slowdown: f64) -> Measured {
        Measured { victim: victim.into(), beside: vec!["b".into()], slowdown }
    }

    #[test]
    fn what_is_not_seen_for_an_hour_is_forgotten_and_what_is_seen_stays() {
        let mut learnt = Learnt::default();
        let seconds = |seconds| Nanos::from_secs(1_000 + seconds);
        for second in 0..u64::from(BELIEVED) {
            learnt.learn(seconds(second), &measured("old", 2.0));
            learnt.learn(seconds(3_000 + second), &measured("new", 1.2));
        }
        assert!(!learnt.forget(seconds(3_500)) && learnt.believed().len() == 2);
        assert!(learnt.forget(seconds(3_700)));
        let left: Vec<_> = learnt.believed().into_iter().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(&*left[0].0.0, "new");
        learnt.learn(seconds(3_700), &measured("old", 1.1));
        assert_eq!(learnt.believed().len(), 1, "and it is not believed at once when it comes again");
    }

    #[test]
    fn there_is_room_for_so_many_and_the_oldest_goes_first() {
        let mut learnt = Learnt::default();
        for number in 0..=MOST {
            (0..BELIEVED).for_each(|_| learnt.learn(Nanos(1), &measured(&format!("{number}"), 1.5)));
        }
        let believed = learnt.believed();
        assert_eq!(believed.len(), MOST);
        assert!(believed.keys().all(|(victim, _)| &**victim != "0"));
    }
}
