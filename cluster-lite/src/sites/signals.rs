//! Signals from outside, as a file that whoever knows them keeps up to date: how dirty each site's power is and will be, and how much
//! of it there is.
//!
//! ```text
//! hour,site,grams_per_kwh,cap_watts
//! 2026-11-28T01:00:00Z,north,180,2500
//! 2026-11-28T02:00:00Z,north,90,
//! ```
//!
//! An hour without a row is as the last one before it that has one, or as the first: forecasts end sooner than deadlines.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use weir_protocol::units::Nanos;

use super::model::Hour;
use crate::fault::Fault;
use crate::trace::lines;

/// An hour.
pub const HOUR: Nanos = Nanos::from_secs(3_600);

/// More than any power is worth a thought at: grams of CO2 per kilowatt-hour, and watts.
const MOST: f64 = 1e9;

const HELP: &str = "signals have the columns hour,site,grams_per_kwh,cap_watts: a whole hour such as 2026-11-28T01:00:00Z, a site, grams \
     of CO2 from 0, watts from 0 or nothing";

/// What is known of sites by the hour since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals(BTreeMap<String, BTreeMap<u64, Hour>>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    hour: String,
    site: String,
    grams_per_kwh: f64,
    cap_watts: Option<f64>,
}

impl Signals {
    /// Reads a file; each of `sites` must be in it.
    ///
    /// # Errors
    /// A fault with file and line.
    pub fn read(path: &Path, sites: &[String]) -> Result<Self, Fault> {
        let mut all = BTreeMap::<String, BTreeMap<u64, Hour>>::new();
        for line in lines::read::<Row>(path, HELP)? {
            let wrong = |message: String| Fault::input(path.display(), line.number, message, HELP);
            let Row { hour: text, site, grams_per_kwh, cap_watts } = line.row;
            if !sites.contains(&site) {
                return Err(wrong(format!("no node is at site `{site}`")));
            }
            let hour = hour(&text).ok_or_else(|| wrong(format!("`{text}` is no whole hour")))?;
            for number in [Some(grams_per_kwh), cap_watts].into_iter().flatten() {
                if !(0.0..=MOST).contains(&number) {
                    return Err(wrong(format!("{number} is neither carbon nor power")));
                }
            }
            let hours = all.entry(site).or_default();
            if hours.insert(hour, Hour { grams_per_kwh, cap_watts }).is_some() {
                return Err(wrong(format!("the hour {text} is there twice")));
            }
        }
        match sites.iter().find(|site| !all.contains_key(*site)) {
            Some(site) => {
                Err(Fault::input(path.display(), 1, format!("nothing is said of site `{site}`"), HELP))
            }
            None => Ok(Self(all)),
        }
    }

    /// So many hours at a site, from the one that `now` lies in; nothing is known of others.
    pub fn hours(&self, site: &str, now: Nanos, count: usize) -> Vec<Hour> {
        let Some(known) = self.0.get(site) else { return Vec::new() };
        let first = now.0 / HOUR.0;
        let of = |hour| {
            let last = known.range(..=hour).next_back().or_else(|| known.first_key_value());
            last.map(|(_, signals)| *signals)
        };
        (first..).take(count).filter_map(of).collect()
    }
}

/// Hours since 1970.
fn hour(text: &str) -> Option<u64> {
    let seconds = u64::try_from(text.parse::<Timestamp>().ok()?.as_second()).ok()?;
    (seconds % 3_600 == 0).then_some(seconds / 3_600)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Signals, Fault> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("signals.csv");
        std::fs::write(&path, format!("hour,site,grams_per_kwh,cap_watts\n{text}")).unwrap();
        Signals::read(&path, &["north".into(), "south".into()])
    }

    const SOUTH: &str = "1970-01-01T00:00:00Z,south,400,\n";

    #[test]
    fn an_hour_without_a_row_is_as_the_last_one_before_it() {
        let rows = "1970-01-01T02:00:00Z,north,80,1500\n1970-01-01T01:00:00Z,north,300,\n";
        let signals = read(&format!("{SOUTH}{rows}")).unwrap();
        let grams = |now| -> Vec<f64> {
            signals.hours("north", now, 3).iter().map(|hour| hour.grams_per_kwh).collect()
        };
        assert_eq!(grams(Nanos(5)), [300.0, 300.0, 80.0], "before the first there is none");
        assert_eq!(grams(Nanos(HOUR.0 + HOUR.0 / 2)), [300.0, 80.0, 80.0]);
        assert_eq!(signals.hours("north", Nanos(HOUR.0 * 9), 1)[0].cap_watts, Some(1_500.0));
        assert!(signals.hours("east", Nanos(0), 3).is_empty());
    }

    #[test]
    fn what_cannot_be_has_its_line() {
        for (row, why) in [
            ("1970-01-01T02:30:00Z,north,80,", "no whole hour"),
            ("tomorrow,north,80,", "no whole hour"),
            ("1970-01-01T02:00:00Z,west,80,", "no node is at site `west`"),
            ("1970-01-01T02:00:00Z,north,-1,", "neither carbon nor power"),
            ("1970-01-01T02:00:00Z,north,80,NaN", "neither carbon nor power"),
            ("1970-01-01T00:00:00Z,south,80,", "there twice"),
        ] {
            let told = read(&format!("{SOUTH}{row}\n")).unwrap_err().to_string();
            assert!(told.contains(why) && told.contains("signals.csv:3"), "{row}: {told}");
        }
        assert!(read(SOUTH).unwrap_err().to_string().contains("nothing is said of site `north`"));
    }
}
