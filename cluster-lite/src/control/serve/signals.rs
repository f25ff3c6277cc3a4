//! The file of signals: read before anything is started, and again whenever it has changed.

use std::path::PathBuf;
use std::time::SystemTime;

use crate::control::Controller;
use crate::control::config::Config;
use crate::fault::Fault;
use crate::sites::signals::Signals;

/// The file, as it was read last.
pub struct SignalFile {
    path: PathBuf,
    sites: Vec<String>,
    changed: Option<SystemTime>,
}

impl SignalFile {
    /// Reads it, and lets the controller follow it; nothing if none is configured.
    ///
    /// # Errors
    /// It cannot be read, with its line.
    pub fn open(config: &Config, controller: &mut Controller) -> Result<Option<Self>, Fault> {
        let Some(path) = config.signals.clone() else { return Ok(None) };
        let sites = config.fleet.sites.iter().map(|site| site.name.clone()).collect();
        let mut file = Self { path, sites, changed: None };
        file.read(controller)?;
        Ok(Some(file))
    }

    /// Reads it again if it has changed. One that is wrong changes nothing but for being told of.
    pub fn look(&mut self, controller: &mut Controller, say: &dyn Fn(String)) {
        let unchanged = self.when() == self.changed;
        let read = if unchanged { Ok(()) } else { self.read(controller) };
        if let Err(fault) = read {
            say(format!("the signals before go on: {fault}"));
        }
    }

    fn read(&mut self, controller: &mut Controller) -> Result<(), Fault> {
        self.changed = self.when();
        controller.follow_signals(Signals::read(&self.path, &self.sites)?);
        Ok(())
    }

    fn when(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|metadata| metadata.modified()).ok()
    }
}
