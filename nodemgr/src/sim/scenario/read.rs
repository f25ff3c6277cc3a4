//! Reading a scenario, and refusing one that makes no sense.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use weir_protocol::units::Bytes;

use super::Scenario;
use crate::codes;
use crate::config;
use crate::fault::Fault;

/// Longest file, in bytes: a trace with a rate for each second of a day takes half a megabyte.
const LONGEST: u64 = 16 << 20;

impl Scenario {
    /// Reads the file.
    ///
    /// # Errors
    /// [`codes::SCENARIO`], with the line where there is one.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
        read.map_err(|error| {
            refuse(path, format!("cannot be read: {error}"), "name a TOML file; bench/scenarios has examples")
        })?;
        if text.len() as u64 > LONGEST {
            return Err(refuse(path, format!("is longer than {}", Bytes(LONGEST)), "name a TOML file"));
        }
        Self::parse(&text, path)
    }

    /// The scenario in `text`; `path` is for messages only.
    ///
    /// # Errors
    /// [`codes::SCENARIO`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Fault> {
        let scenario: Self = toml::from_str(text)
            .map_err(|error| config::misunderstood(&codes::SCENARIO, text, path, &error))?;
        scenario.check().map_err(|(what, help)| refuse(path, format!("has {what}"), &help))?;
        Ok(scenario)
    }
}

fn refuse(path: &Path, what: String, help: &str) -> Fault {
    Fault::new(&codes::SCENARIO, format!("`{}` {what}", path.display()), help)
}
