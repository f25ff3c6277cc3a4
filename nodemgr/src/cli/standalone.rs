//! A run without a daemon: `weir run` is itself the node manager of one tenant, over the same sockets and pages.

use std::path::Path;

use weir_protocol::message::FailMode;

use super::printer;
use crate::codes;
use crate::control::Absence;
use crate::fault::Fault;
use crate::gpus::Source;
use crate::manager::{Manager, Options};
use crate::place::Place;

/// A manager that ends with this value, and the directory that goes with it.
pub struct Standalone {
    _manager: Manager,
    dir: tempfile::TempDir,
}

impl Standalone {
    /// Starts one, and says why: nobody is at `place`.
    ///
    /// # Errors
    /// As [`Manager::start`].
    pub fn start(place: &Place, absence: Absence) -> Result<Self, Fault> {
        // Before the start: if that fails, the reason for it counts all the more.
        let reason = match absence {
            Absence::Never => "no node manager runs".to_owned(),
            Absence::Ended => format!(
                "there was a node manager at `{}` and it does not answer (connection refused)",
                place.base().display()
            ),
        };
        printer::talk(format_args!(
            "weir: {reason}, so this run keeps its own budget; another stand-alone run would not know of it \
             (`weir node` manages several)"
        ));
        let failed = |error| {
            Fault::system(
                &codes::PLACE,
                "make a temporary directory",
                error,
                "set TMPDIR to a directory that can be written",
            )
        };
        let dir = tempfile::Builder::new().prefix("weir-").tempdir_in(short_dir()).map_err(failed)?;
        let mut options = Options::new(Place::at(dir.path())?, Source::Nvml);
        options.mode = FailMode::Standalone;
        let manager = Manager::start(options)?;
        Ok(Self { _manager: manager, dir })
    }

    /// Where it lies.
    ///
    /// # Errors
    /// Never in practice: the place was good a moment ago.
    pub fn place(&self) -> Result<Place, Fault> {
        Place::at(self.dir.path())
    }
}

/// A socket's path is short, and the temporary directories of test runners are not.
fn short_dir() -> std::path::PathBuf {
    let dir = std::env::temp_dir();
    let longest =
        Path::new("weir-XXXXXX").join("tenants").join("n".repeat(crate::place::MAX_NAME)).join("tenant.sock");
    let fits = dir.join(longest).as_os_str().len() <= crate::place::MAX_SOCKET_PATH;
    if fits && dir.is_absolute() { dir } else { "/tmp".into() }
}
