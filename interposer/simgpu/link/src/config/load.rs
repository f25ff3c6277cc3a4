//! Reading a configuration: the file, then single keys from the environment, then what must go together.

use std::path::Path;

use super::Config;

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

impl Config {
    /// From a file, if one is named, and from the environment.
    ///
    /// # Errors
    /// [`ConfigError`], with the line or the variable.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let config = path.map_or_else(|| Ok(Self::default()), Self::from_file)?;
        config.overridden(|name| std::env::var(name).ok())
    }

    /// From a file alone.
    ///
    /// # Errors
    /// [`ConfigError`], with the line.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|why| ConfigError::Read { path: shown.clone(), why })?;
        let config: Self =
            toml::from_str(&text).map_err(|why| ConfigError::File { path: shown, why: why.to_string() })?;
        config.consistent()
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
    fn a_card_that_draws_more_at_rest_than_at_work_is_refused() {
        let config = Config { idle_w: 500, ..Config::default() };
        let why = config.consistent().unwrap_err().to_string();
        assert!(
            why.contains("idle_w = 500") && why.contains("busy_w = 400") && why.contains("help:"),
            "{why}"
        );
    }
}
