//! The calibration file of a card, as `weir doctor --measure` writes it: what policies and the simulator go by. It is a configuration
//! of the simulated GPU, of which no more is read here.

use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Bytes, Nanos};

/// What was measured, as far as it stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Calibration {
    /// A context's time slice, in microseconds.
    pub slice_us: Option<f64>,
    /// A switch from one context to another, in microseconds.
    pub switch_us: Option<f64>,
    /// What a context costs, as a size.
    context_overhead: Option<String>,
    /// What the card draws at rest, in watts.
    idle_w: Option<f64>,
    /// The same at work.
    busy_w: Option<f64>,
    /// What single commands take of the GPU.
    marks: Marks,
}

/// What single commands take of the GPU, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Marks {
    wait_on_host_ns: Option<f64>,
}

/// A wait that takes longer costs more than it gains: a piece of half a millisecond takes two hundred times as long.
const MOST_WAIT_NS: f64 = 10_000.0;

/// More than any card draws, in watts.
const MOST_W: f64 = 10_000.0;

/// What a card draws, in milliwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draw {
    /// At rest.
    pub idle_mw: u32,
    /// At work.
    pub busy_mw: u32,
}

impl Calibration {
    /// Reads it.
    ///
    /// # Errors
    /// Message and help, if it cannot be read, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, (String, String)> {
        let wrong = |why: String| {
            let message = format!("the calibration file `{}` cannot be used: {why}", path.display());
            (message, "write it anew with `weir doctor --measure`".to_owned())
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let read: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let within = |us: Option<f64>| us.is_none_or(|us| (1.0..=1e6).contains(&us));
        if !within(read.slice_us) || !within(read.switch_us) {
            return Err(wrong("slice_us and switch_us are from 1 to 1,000,000 us".into()));
        }
        if [read.idle_w, read.busy_w].into_iter().flatten().any(|watts| !(0.0..=MOST_W).contains(&watts)) {
            return Err(wrong(format!("idle_w and busy_w are from 0 to {MOST_W} W")));
        }
        if let (Some(idle), Some(busy)) = (read.idle_w, read.busy_w)
            && idle > busy
        {
            return Err(wrong(format!("it draws {idle} W at rest and {busy} W at work")));
        }
        read.size().map_err(wrong)?;
        Ok(read)
    }

    /// What a switch takes.
    pub fn switch(&self) -> Option<Nanos> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 us to 1 s")]
        let nanos = |us: f64| Nanos((us * 1e3) as u64);
        self.switch_us.map(nanos)
    }

    /// Whether launches may wait in their streams on this card: such a wait was measured, and is short.
    pub fn has_short_waits(&self) -> bool {
        self.marks.wait_on_host_ns.is_some_and(|ns| ns <= MOST_WAIT_NS)
    }

    /// What a context costs.
    pub fn context_memory(&self) -> Option<Bytes> {
        self.size().ok().flatten()
    }

    /// What the card draws, if both were measured.
    pub fn draw(&self) -> Option<Draw> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MOST_W")]
        let milliwatts = |watts: f64| (watts * 1e3) as u32;
        let (idle, busy) = self.idle_w.zip(self.busy_w)?;
        Some(Draw { idle_mw: milliwatts(idle), busy_mw: milliwatts(busy) })
    }

    fn size(&self) -> Result<Option<Bytes>, String> {
        let size = self.context_overhead.as_deref().map(str::parse::<Bytes>).transpose();
        size.map_err(|error| format!("context_overhead: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_file_tells_what_the_card_is_like_and_one_that_cannot_be_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Calibration::read(&path)
        };
        let text =
            "slice_us = 1912 # time slice\nswitch_us = 94\nsms = 132\ncontext_overhead = \"524288000B\"\n";
        let measured = read(text).unwrap();
        assert_eq!((measured.slice_us, measured.switch()), (Some(1_912.0), Some(Nanos::from_micros(94))));
        assert_eq!(measured.context_memory(), Some(Bytes::mib(500)));
        assert_eq!(measured.draw(), None);
        assert!(
            !measured.has_short_waits() && read("marks.wait_on_host_ns = 2270\n").unwrap().has_short_waits()
        );
        assert!(!read("marks.wait_on_host_ns = 40000\n").unwrap().has_short_waits());
        let drawn = read("idle_w = 61.5\nbusy_w = 398\n").unwrap().draw();
        assert_eq!(drawn, Some(Draw { idle_mw: 61_500, busy_mw: 398_000 }));
        assert_eq!(read("sms = 132\n").unwrap(), Calibration::default());
        for wrong in [
            "slice_us = 0",
            "busy_w = -1",
            "idle_w = 400\nbusy_w = 60",
            "switch_us = nan",
            "slice_us = \"long\"",
            "slice_us =",
            "context_overhead = \"much\"",
        ] {
            let (message, help) = read(wrong).err().unwrap();
            assert!(message.contains("calibration.toml") && help.contains("--measure"), "{wrong}: {message}");
        }
        assert!(Calibration::read(&directory.path().join("absent")).is_err());
    }
}
