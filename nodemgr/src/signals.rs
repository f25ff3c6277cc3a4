//! What comes from outside the node: a power cap, carbon intensity, a price. Each is one number in a file or at a URL, and
//! says how much of a GPU best effort may have at most: all of it up to `full`, nothing from `none` on, between them in
//! proportion. Of several the strictest holds.

use std::collections::BTreeMap;
use std::io::Read;

use serde::{Deserialize, Serialize};
use weir_protocol::units::Nanos;

use crate::fault::Fault;
use crate::shared::{Shared, now};

/// How often each is read, if not said otherwise, in seconds.
const EVERY_S: u64 = 10;

/// What was read last holds for so many periods; then nobody knows, and nothing is taken from anybody.
const HOLDS: u64 = 6;

/// Longest text that is read.
const MAX_TEXT: u64 = 4096;

/// One signal, as it is configured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRow {
    /// A file by its absolute path, or a URL: its first word is the number.
    pub from: String,
    /// Up to here best effort may have everything.
    pub full: f64,
    /// From here on it has nothing; it may lie below `full`.
    pub none: f64,
    /// How often it is read, in seconds.
    pub every_s: Option<u64>,
}

/// One signal under its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// Its name: `power_cap`, `carbon`, `price`.
    pub name: String,
    /// What is configured.
    pub row: SignalRow,
}

/// A signal as it stands, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignalStats {
    /// Its name.
    pub name: String,
    /// What was read last.
    pub value: Option<f64>,
    /// Part of a GPU that best effort may have by it, in thousandths.
    pub best_effort_permille: u16,
    /// Why it could not be read, if so.
    pub failing: Option<String>,
}

impl SignalRow {
    /// Checks what a person wrote.
    ///
    /// # Errors
    /// Message and help.
    pub fn check(&self) -> Result<(), (String, String)> {
        let is_url = self.is_url();
        if is_url && let Err(Fault { message, help, .. }) = crate::latency::check_url(&self.from) {
            return Err((message, help));
        }
        if !is_url && !self.from.starts_with('/') {
            let message =
                format!("from = `{}` is neither an absolute path nor a URL", self.from.escape_debug());
            return Err((message, "write \"/path/to/file\" or \"http://127.0.0.1:9000/carbon\"".into()));
        }
        let numbers = self.full.is_finite() && self.none.is_finite();
        if !numbers || self.full.total_cmp(&self.none).is_eq() {
            let message = format!("full = {} and none = {} are no two numbers", self.full, self.none);
            return Err((
                message,
                "say from where to where best effort shrinks: full = 200, none = 400".into(),
            ));
        }
        match self.every_s {
            Some(0) | Some(86_401..) => {
                Err(("every_s is out of range".into(), "choose 1 to 86400 seconds".into()))
            }
            _ => Ok(()),
        }
    }

    fn is_url(&self) -> bool {
        self.from.contains("://")
    }

    fn period(&self) -> Nanos {
        Nanos::from_secs(self.every_s.unwrap_or(EVERY_S))
    }

    /// What `value` leaves to best effort, in thousandths.
    pub fn permille(&self, value: f64) -> u16 {
        let part = ((self.none - value) / (self.none - self.full)).clamp(0.0, 1.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let permille = (part * 1000.0).round() as u16;
        permille
    }
}

/// All signals, as the thread that reads files and has URLs read sees them.
pub(crate) struct Outside {
    signals: Vec<(Signal, Reading)>,
}

#[derive(Clone, Debug, Default)]
struct Reading {
    value: Option<f64>,
    at: Nanos,
    next: Nanos,
    failing: Option<String>,
}

impl Outside {
    pub(crate) fn new(signals: Vec<Signal>) -> Self {
        Self { signals: signals.into_iter().map(|signal| (signal, Reading::default())).collect() }
    }

    /// Whether any is at a URL.
    pub(crate) fn has_urls(&self) -> bool {
        self.signals.iter().any(|(signal, _)| signal.row.is_url())
    }

    /// Those at URLs whose time has come: their places, and where they are.
    pub(crate) fn due_urls(&self, now: Nanos) -> impl Iterator<Item = (usize, &str)> {
        let due = self.signals.iter().enumerate().filter(move |(_, (_, reading))| now >= reading.next);
        due.filter(|(_, (signal, _))| signal.row.is_url())
            .map(|(at, (signal, _))| (at, signal.row.from.as_str()))
    }

    /// Reads those in files whose time has come.
    pub(crate) fn read_files(&mut self, now: Nanos) {
        for (Signal { row, .. }, reading) in &mut self.signals {
            if !row.is_url() && now >= reading.next {
                reading.take(read_file(&row.from).and_then(|text| number(&text)), row.period());
            }
        }
    }

    /// The one at this place was read.
    pub(crate) fn take(&mut self, signal: usize, read: Result<f64, String>) {
        if let Some((Signal { row, .. }, reading)) = self.signals.get_mut(signal) {
            reading.take(read, row.period());
        }
    }

    /// Nobody could read the one at this place yet: what was read last holds until it is old.
    pub(crate) fn fail(&mut self, signal: usize, why: String) {
        if let Some((_, reading)) = self.signals.get_mut(signal) {
            reading.failing = Some(why);
        }
    }

    /// Leaves in the registry what follows.
    pub(crate) fn leave(&self, shared: &Shared) {
        if self.signals.is_empty() {
            return;
        }
        let stats = self.signals.iter().map(|(Signal { name, row }, reading)| {
            let fresh = now().since(reading.at).0 <= row.period().0.saturating_mul(HOLDS);
            let value = reading.value.filter(|_| fresh);
            let best_effort_permille = value.map_or(1000, |value| row.permille(value));
            SignalStats { name: name.clone(), value, best_effort_permille, failing: reading.failing.clone() }
        });
        shared.registry().note_signals(stats.collect());
    }
}

impl Reading {
    fn take(&mut self, read: Result<f64, String>, period: Nanos) {
        self.next = Nanos(now().0.saturating_add(period.0));
        match read {
            Ok(value) => (self.value, self.at, self.failing) = (Some(value), now(), None),
            Err(why) => self.failing = Some(why),
        }
    }
}

/// The first word of what a file or a page says.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let word = text.split_whitespace().next().unwrap_or_default();
    let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
    number
        .ok_or_else(|| format!("`{}` is no number", word.chars().take(40).collect::<String>().escape_debug()))
}

fn read_file(path: &str) -> Result<String, String> {
    use std::os::unix::fs::OpenOptionsExt;
    // A named pipe in its place must not hold the thread up.
    let open = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut text = String::new();
    let read = open.and_then(|file| file.take(MAX_TEXT).read_to_string(&mut text));
    read.map(|_| text).map_err(|error| error.to_string())
}

/// The configured rows as signals.
pub fn of(rows: &BTreeMap<String, SignalRow>) -> Vec<Signal> {
    rows.iter().map(|(name, row)| Signal { name: name.clone(), row: row.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(full: f64, none: f64) -> SignalRow {
        SignalRow { from: "/x".into(), full, none, every_s: None }
    }

    #[test]
    fn best_effort_shrinks_in_proportion_whichever_way_the_signal_counts() {
        let carbon = row(200.0, 400.0);
        assert_eq!([100.0, 200.0, 300.0, 400.0, 900.0].map(|g| carbon.permille(g)), [1000, 1000, 500, 0, 0]);
        let spare_watts = row(300.0, 0.0);
        assert_eq!([500.0, 150.0, -5.0].map(|watts| spare_watts.permille(watts)), [1000, 500, 0]);
    }

    #[test]
    fn a_file_with_a_number_is_read_and_others_say_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("carbon");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_file(path.to_str().unwrap()).and_then(|text| number(&text))
        };
        assert_eq!(read(" 312.5 gCO2/kWh\n"), Ok(312.5));
        assert_eq!(read("high"), Err("`high` is no number".into()));
        assert_eq!(read("inf"), Err("`inf` is no number".into()));
        assert!(read_file("/no/such/file").is_err());
    }
}
