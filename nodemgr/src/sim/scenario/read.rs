//! Reading a scenario and its traces, and refusing what makes no sense.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use weir_protocol::units::Bytes;

use super::{Scenario, trace};
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
        let text = text_of(path, "name a TOML file; bench/scenarios has examples")?;
        let mut scenario = Self::parse(&text, path)?;
        let servers = scenario.tenant.iter_mut().filter_map(|tenant| tenant.inference.as_mut());
        for arrivals in servers.map(|server| &mut server.arrivals) {
            if let Some(file) = &arrivals.trace {
                arrivals.recorded = trace::read(&path.with_file_name(file), arrivals.times)?;
            }
        }
        Ok(scenario)
    }

    /// The scenario in `text`, without what stands in its traces; `path` is for messages only.
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

/// What stands in a file.
pub(super) fn text_of(path: &Path, help: &str) -> Result<String, Fault> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
    read.map_err(|error| refuse(path, format!("cannot be read: {error}"), help))?;
    match text.len() as u64 > LONGEST {
        true => Err(refuse(path, format!("is longer than {}", Bytes(LONGEST)), help)),
        false => Ok(text),
    }
}

pub(super) fn refuse(path: &Path, what: String, help: &str) -> Fault {
    Fault::new(&codes::SCENARIO, format!("`{}` {what}", path.display()), help)
}
