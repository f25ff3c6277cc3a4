//! The calibration file of a card, as `weir doctor --measure` writes it: what policies and the simulator go by. It is a configuration
//! of the simulated GPU, of which no more is read here.

use std::path::Path;

use serde::Deserialize;
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
        read.size().map_err(wrong)?;
        Ok(read)
    }

    /// What a switch takes.
    pub fn switch(&self) -> Option<Nanos> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 us to 1 s")]
        let nanos = |us: f64| Nanos((us * 1e3) as u64);
        self.switch_us.map(nanos)
    }

    /// What a context costs.
    pub fn context_memory(&self) -> Option<Bytes> {
        self.size().ok().flatten()
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
        assert_eq!(read("sms = 132\n").unwrap(), Calibration::default());
        for wrong in [
            "slice_us = 0",
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
