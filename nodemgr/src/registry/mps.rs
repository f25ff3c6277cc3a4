//! Which GPUs are shared by MPS, and what that means for the tenants there.

use std::collections::BTreeSet;
use std::path::PathBuf;

use weir_policy::Mode;

use super::{Registry, Tenant};
use crate::codes;
use crate::fault::Fault;
use crate::mps::{Client, Row};

/// The GPUs, by index, and where their control daemon is.
#[derive(Default)]
pub(super) struct Shared {
    gpus: BTreeSet<usize>,
    pipe_directory: PathBuf,
}

impl Shared {
    /// How tenants meet on this GPU.
    pub(super) fn mode(&self, gpu: usize) -> Mode {
        if self.gpus.contains(&gpu) { Mode::Overlap } else { Mode::TimeSlicing }
    }

    /// Whether a process could use all of these GPUs: its environment makes it a client of MPS everywhere, or nowhere.
    pub(super) fn check_alike(&self, gpus: &[usize]) -> Result<(), Fault> {
        let by_mps = gpus.iter().filter(|gpu| self.gpus.contains(gpu)).count();
        if by_mps == 0 || by_mps == gpus.len() {
            return Ok(());
        }
        let message = "some of these GPUs are shared by MPS and others in turns";
        Err(Fault::new(&codes::MPS, message, "name GPUs that are shared alike; `weir ps --json` tells"))
    }
}

impl Registry {
    /// From here on these GPUs are shared by MPS.
    ///
    /// # Errors
    /// A GPU that is not there.
    pub fn share_by_mps(&mut self, row: Option<&Row>) -> Result<(), Fault> {
        let Some(row) = row else { return Ok(()) };
        let gpus = match &row.gpu {
            Some(names) => self.resolve_gpus(names)?,
            None => (0..self.gpus.devices.len()).collect(),
        };
        self.mps =
            Shared { gpus: gpus.into_iter().collect(), pipe_directory: row.pipe_directory().to_owned() };
        Ok(())
    }

    /// Whether tenants share this GPU by MPS.
    pub fn is_mps(&self, gpu: usize) -> bool {
        self.mps.mode(gpu) == Mode::Overlap
    }

    /// What the tenant's processes must say to MPS, where its GPUs are shared by it. The partition is the same for all of them,
    /// whenever they start.
    pub fn mps_client(&self, tenant: &Tenant) -> Option<Client> {
        let gpu = tenant.cells.first()?.gpu;
        let partition = tenant.budget_at_start.limit;
        self.is_mps(gpu).then(|| Client::of(&self.mps.pipe_directory, tenant.class, partition))
    }
}
