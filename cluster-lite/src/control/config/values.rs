//! The values of a service's row, each with the line of its mistake.

use weir_protocol::units::{Bytes, Nanos, SmShare};

use crate::cluster::Backbone;
use crate::control::model::Batch;
use crate::control::work::Told;
use crate::fault::Fault;
use crate::profile::Slo;
use crate::toml_lines::Lines;

/// One row of services while it is read.
pub(super) struct Values<'a> {
    pub at: usize,
    pub lines: &'a Lines<'a>,
}

impl Values<'_> {
    pub fn wrong(&self, key: &str, message: impl Into<String>, help: impl Into<String>) -> Fault {
        self.lines.row("service", self.at, key, message, help)
    }

    pub fn share(&self, key: &str, text: Option<&str>) -> Result<Option<SmShare>, Fault> {
        let parse = |text: &str| {
            let share = text.parse::<SmShare>();
            share.map_err(|error| self.wrong(key, format!("{key}: {error}"), error.hint()))
        };
        text.map(parse).transpose()
    }

    pub fn size(&self, key: &str, text: Option<&str>) -> Result<Option<Bytes>, Fault> {
        let parse = |text: &str| {
            let size = text.parse::<Bytes>();
            size.map_err(|error| self.wrong(key, format!("{key}: {error}"), error.hint()))
        };
        text.map(parse).transpose()
    }

    pub fn slo(&self, text: Option<&str>) -> Result<Option<Slo>, Fault> {
        let parse =
            |text: &str| text.parse::<Slo>().map_err(|fault| self.wrong("slo", fault.message, fault.help));
        text.map(parse).transpose()
    }

    pub fn seconds(&self, key: &str, value: Option<f64>, default: u64) -> Result<Nanos, Fault> {
        let Some(value) = value else { return Ok(Nanos::from_secs(default)) };
        if !(0.001..=86_400.0).contains(&value) {
            let message = format!("{key} is {value}");
            return Err(self.wrong(key, message, "give seconds, from 0.001 to 86400"));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a day")]
        Ok(Nanos((value * 1e9) as u64))
    }

    /// `NAME=SIZE`.
    pub fn backbone(&self, text: Option<&str>) -> Result<Option<Backbone>, Fault> {
        let wrong = |message: String| {
            self.wrong(
                "backbone",
                message,
                "write it as \"llama2-7b=13GiB\": a name for the weights, and their memory",
            )
        };
        let Some(text) = text else { return Ok(None) };
        let (name, memory) =
            text.split_once('=').ok_or_else(|| wrong(format!("backbone `{text}` has no memory")))?;
        let memory = memory.trim().parse::<Bytes>().map_err(|error| wrong(format!("backbone: {error}")))?;
        if name.trim().is_empty() || memory == Bytes(0) {
            return Err(wrong(format!("backbone `{text}` has no name or no memory")));
        }
        Ok(Some(Backbone { name: name.trim().into(), memory }))
    }

    /// Work that follows the signals: so many hours of a GPU, and when they are to be done.
    pub fn batch(&self, gpu_hours: Option<f64>, done_by: Option<&str>) -> Result<Option<Batch>, Fault> {
        let (hours, text) = match (gpu_hours, done_by) {
            (None, None) => return Ok(None),
            (Some(hours), Some(text)) => (hours, text),
            (hours, _) => {
                let key = if hours.is_some() { "gpu_hours" } else { "done_by" };
                let message = "gpu_hours and done_by belong together";
                return Err(self.wrong(key, message, "say how much is to be done, and by when"));
            }
        };
        if !(0.001..=1e6).contains(&hours) {
            let message = format!("gpu_hours is {hours}");
            return Err(self.wrong("gpu_hours", message, "give hours of a GPU, from 0.001 to 1000000"));
        }
        let when = text.parse::<jiff::Timestamp>().ok().and_then(|when| u64::try_from(when.as_second()).ok());
        let when = when.filter(|seconds| seconds.is_multiple_of(3_600)).ok_or_else(|| {
            let help = "write a whole hour such as \"2026-11-28T06:00:00Z\"";
            self.wrong("done_by", format!("`{text}` is no whole hour"), help)
        })?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a century")]
        Ok(Some(Batch { gpu_time: Nanos((hours * 3.6e12) as u64), done_by: Nanos::from_secs(when) }))
    }

    /// What tells the work of a request.
    pub fn work(&self, header: Option<&str>, us_per_byte: Option<f64>) -> Result<Option<Told>, Fault> {
        let plain = |name: &str| name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        match (header, us_per_byte) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                let message = "work_header and work_us_per_byte exclude each other";
                Err(self.wrong("work_us_per_byte", message, "leave one of them out"))
            }
            (Some(name), None) if plain(name) && !name.is_empty() => {
                Ok(Some(Told::Header(name.to_lowercase())))
            }
            (Some(name), None) => {
                let message = format!("`{name}` is no name of a header");
                Err(self.wrong("work_header", message, "use letters, digits and `-`, such as X-GPU-Ms"))
            }
            (None, Some(us)) if (0.001..=1e6).contains(&us) =>
            {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "at most a second"
                )]
                Ok(Some(Told::Length((us * 1e3).round() as u64)))
            }
            (None, Some(us)) => {
                let message = format!("work_us_per_byte is {us}");
                Err(self.wrong(
                    "work_us_per_byte",
                    message,
                    "give microseconds of a GPU, from 0.001 to 1000000",
                ))
            }
        }
    }
}
