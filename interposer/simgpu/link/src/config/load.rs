//! Reading a configuration: the file, then single keys from the environment, then what must go together.

use std::path::Path;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use super::{Config, Profile};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read the configuration `{path}`: {why}\nhelp: correct WEIR_SIMGPU_CONFIG, or unset it for the defaults"
    )]
    Read {
        /// Which.
        path: String,
        /// The system's word.
        why: std::io::Error,
    },
    /// The file has nonsense in it.
    #[error(
        "the configuration `{path}` cannot be used:\n{why}help: `weir-simgpu check {path}` tries it again"
    )]
    File {
        /// Which.
        path: String,
        /// With line, key and range.
        why: String,
    },
    /// A variable has nonsense in it.
    #[error(
        "the environment variable {name}={value} cannot be used: {why}\nhelp: correct it, or unset it for the default"
    )]
    Variable {
        /// Which.
        name: &'static str,
        /// What it says.
        value: String,
        /// What is wrong.
        why: String,
    },
    /// Values that do not go together.
    #[error("{0}")]
    Conflict(String),
}

/// Variables that override keys, and whether the value is text in TOML.
const OVERRIDES: [(&str, &str, bool); 7] = [
    ("WEIR_SIMGPU_GPUS", "gpus", false),
    ("WEIR_SIMGPU_MEMORY", "memory", true),
    ("WEIR_SIMGPU_SMS", "sms", false),
    ("WEIR_SIMGPU_MODE", "mode", true),
    ("WEIR_SIMGPU_SLICE_US", "slice_us", false),
    ("WEIR_SIMGPU_SWITCH_US", "switch_us", false),
    ("WEIR_SIMGPU_DRIVER_VERSION", "driver_version", false),
];

/// The variable that names the profile.
const PROFILE: &str = "WEIR_SIMGPU_PROFILE";

fn named(value: &str) -> Result<Profile, ConfigError> {
    let from: StrDeserializer<'_, Error> = value.into_deserializer();
    let refuse =
        |why: Error| ConfigError::Variable { name: PROFILE, value: value.into(), why: why.to_string() };
    Profile::deserialize(from).map_err(refuse)
}

impl Config {
    /// From a file, if one is named, and from the environment.
    ///
    /// # Errors
    /// [`ConfigError`], with the line or the variable.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let get = |name: &str| std::env::var(name).ok();
        let profile = get(PROFILE).map(|value| named(&value)).transpose()?;
        let config = match path {
            Some(path) => Self::from_file_as(path, profile)?,
            None => Self::of(profile.unwrap_or_default()),
        };
        config.overridden(get)
    }

    /// From a file alone.
    ///
    /// # Errors
    /// [`ConfigError`], with the line.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Self::from_file_as(path, None)
    }

    fn from_file_as(path: &Path, profile: Option<Profile>) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|why| ConfigError::Read { path: shown.clone(), why })?;
        Self::from_text(&text, shown, profile)
    }

    fn from_text(text: &str, path: String, profile: Option<Profile>) -> Result<Self, ConfigError> {
        let refuse = |why: toml::de::Error| ConfigError::File { path, why: why.to_string() };
        let config: Self = toml::from_str(text).map_err(refuse)?;
        match profile.unwrap_or(config.profile) {
            Profile::H200 => config.consistent(),
            other => Self::of(other).with(text)?.consistent(),
        }
    }

    /// With what a text sets; it has been found to be in order.
    fn with(self, text: &str) -> Result<Self, ConfigError> {
        let conflict = |why: &dyn std::fmt::Display| ConfigError::Conflict(why.to_string());
        let mut all = toml::Table::try_from(&self).map_err(|why| conflict(&why))?;
        let set: toml::Table = text.parse().map_err(|why| conflict(&why))?;
        all.extend(set.into_iter().filter(|(key, _)| key != "profile"));
        all.try_into().map_err(|why| conflict(&why))
    }

    /// With the variables that `get` finds.
    fn overridden(self, get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut table = toml::Table::try_from(&self).map_err(|why| ConfigError::Conflict(why.to_string()))?;
        for (name, key, text) in OVERRIDES {
            let Some(value) = get(name) else { continue };
            let refuse = |why: String| ConfigError::Variable { name, value: value.clone(), why };
            let parsed = if text {
                toml::Value::String(value.clone())
            } else {
                let number = value.parse().map_err(|_| refuse("a whole number is expected".into()))?;
                toml::Value::Integer(number)
            };
            // Tried alone, so that the error is about this variable.
            let alone = toml::Table::from_iter([(key.to_owned(), parsed.clone())]);
            alone.try_into::<Self>().map_err(|why| refuse(why.message().to_owned()))?;
            table.insert(key.to_owned(), parsed);
        }
        table.try_into::<Self>().map_err(|why| ConfigError::Conflict(why.to_string()))?.consistent()
    }

    /// Refuses values that do not go together.
    fn consistent(self) -> Result<Self, ConfigError> {
        if self.context_overhead.0 >= self.memory.0 {
            let (overhead, memory) = (self.context_overhead, self.memory);
            return Err(ConfigError::Conflict(format!(
                "context_overhead = {overhead} does not fit into memory = {memory}\nhelp: set context_overhead below memory"
            )));
        }
        if self.cut_least_us > self.cut_most_us {
            let (least, most) = (self.cut_least_us, self.cut_most_us);
            return Err(ConfigError::Conflict(format!(
                "cut_least_us = {least} is more than cut_most_us = {most}\nhelp: set cut_least_us to cut_most_us at most"
            )));
        }
        if self.idle_w > self.busy_w {
            let (idle, busy) = (self.idle_w, self.busy_w);
            return Err(ConfigError::Conflict(format!(
                "idle_w = {idle} is more than busy_w = {busy}\nhelp: set idle_w to busy_w at most"
            )));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::units::Bytes;

    #[test]
    fn the_environment_wins_over_the_file_and_its_nonsense_is_named() {
        let get = |name: &str| (name == "WEIR_SIMGPU_MEMORY").then(|| "8GiB".to_owned());
        assert_eq!(Config::default().overridden(get).unwrap().memory, Bytes::gib(8));
        let get = |name: &str| (name == "WEIR_SIMGPU_SMS").then(|| "0".to_owned());
        let why = Config::default().overridden(get).unwrap_err().to_string();
        assert!(why.contains("WEIR_SIMGPU_SMS=0") && why.contains("help:"), "{why}");
    }

    #[test]
    fn a_profile_says_what_the_file_does_not_and_the_file_what_it_does() {
        let file = |text: &str| Config::from_text(text, String::new(), None).unwrap();
        let unkind = Config::of(Profile::Unkind);
        assert_eq!(file("profile = 'unkind'"), unkind);
        let wanted = Config { drift_ppm: 7, slice_us: 500, ..unkind };
        assert_eq!(file("profile = 'unkind'\ndrift_ppm = 7\nslice_us = 500"), wanted);
        assert_eq!(file("profile = 'h200'"), Config::default());
        assert!(named("kind").unwrap_err().to_string().contains("h200"));
    }

    #[test]
    fn a_card_that_draws_more_at_rest_than_at_work_is_refused() {
        let config = Config { idle_w: 500, ..Config::default() };
        let why = config.consistent().unwrap_err().to_string();
        assert!(
            why.contains("idle_w = 500") && why.contains("busy_w = 400") && why.contains("help:"),
            "{why}"
        );
    }
}
