//! What each process used by the *driver's* account, not by our own counters: the simulated GPU's books, or NVML's
//! utilisation of a real one.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use nvml_wrapper::Nvml;

use crate::rig::{Rig, true_use};

/// The account.
pub enum DriverSide {
    /// The simulated GPU's books: exact.
    Simulated,
    /// NVML's utilisation samples, summed up: as good as NVML.
    Real(Box<Real>),
}

/// NVML's samples so far.
pub struct Real {
    nvml: Nvml,
    name: String,
    last_seen_us: Option<u64>,
    used_ns: HashMap<i32, u64>,
}

/// One reading: when, and what each process had used by then, both in nanoseconds.
pub struct Reading {
    /// The clock of the account.
    pub now_ns: u64,
    /// Used so far, in the order of the processes asked for.
    pub used_ns: Vec<u64>,
}

/// Whether this machine has a GPU that a program could use.
pub fn has_real_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

impl DriverSide {
    /// The account of the GPU in use.
    pub fn new(simulated: bool) -> io::Result<Self> {
        if simulated {
            return Ok(Self::Simulated);
        }
        let library = "libnvidia-ml.so.1".as_ref(); // the one that drivers bring; the other name is for building
        let nvml = Nvml::builder().lib_path(library).init().map_err(io::Error::other)?;
        let name = nvml.device_by_index(0).and_then(|device| device.name()).map_err(io::Error::other)?;
        Ok(Self::Real(Box::new(Real { nvml, name, last_seen_us: None, used_ns: HashMap::new() })))
    }

    /// The GPU's name; the simulated one says so.
    pub fn name(&self) -> &str {
        match self {
            Self::Simulated => "simulated",
            Self::Real(real) => &real.name,
        }
    }

    /// What each process has used so far. Processes of one tenant are summed.
    pub fn read(&mut self, rig: &Rig, tenants: &[Vec<i32>]) -> io::Result<Reading> {
        match self {
            Self::Simulated => {
                let books = rig.books()?;
                let of = |pids: &Vec<i32>| pids.iter().map(|pid| true_use(&books, *pid)).sum();
                Ok(Reading { now_ns: books.now_ns, used_ns: tenants.iter().map(of).collect() })
            }
            Self::Real(real) => real.read(tenants).map_err(io::Error::other),
        }
    }
}

impl Real {
    fn read(&mut self, tenants: &[Vec<i32>]) -> Result<Reading, nvml_wrapper::error::NvmlError> {
        let device = self.nvml.device_by_index(0)?;
        let samples = device.process_utilization_stats(self.last_seen_us)?;
        let newest = samples.iter().map(|sample| sample.timestamp).max().or(self.last_seen_us).unwrap_or(0);
        let span_us = newest - self.last_seen_us.unwrap_or(newest);
        for sample in samples {
            let pid = sample.pid.cast_signed();
            *self.used_ns.entry(pid).or_default() += span_us * 10 * u64::from(sample.sm_util);
        }
        self.last_seen_us = Some(newest);
        let of = |pids: &Vec<i32>| pids.iter().map(|pid| self.used_ns.get(pid).copied().unwrap_or(0)).sum();
        Ok(Reading { now_ns: newest * 1_000, used_ns: tenants.iter().map(of).collect() })
    }
}
