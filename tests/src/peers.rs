//! Test programs that other projects wrote for interposers of their own: run, never copied, fetched or built by us.
//! Somebody builds them by hand and names their directory in `WEIR_PEERS`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The directory with the programs.
const PROGRAMS: &str = "WEIR_PEERS";

/// The file name under which they expect to be preloaded, if they look for it (vgpu-manager's: `libvgpu-control.so`).
const LIBRARY: &str = "WEIR_PEERS_LIBRARY";

/// What was built.
pub struct Peers {
    /// The programs, by name.
    pub programs: Vec<PathBuf>,
    /// The library's name.
    pub library: String,
}

impl Peers {
    /// Finds them.
    ///
    /// # Errors
    /// Nobody has named a directory; a story then says so and is skipped.
    ///
    /// # Panics
    /// If there is no program in the directory that is named.
    pub fn find() -> Result<Self, String> {
        let Some(directory) = std::env::var_os(PROGRAMS) else {
            return Err(format!("SKIPPED: {PROGRAMS} names no directory with peers' test programs"));
        };
        let entries = std::fs::read_dir(&directory);
        let entries = entries.unwrap_or_else(|error| panic!("{PROGRAMS}={}: {error}", directory.display()));
        let mut programs: Vec<_> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_program(path)).collect();
        programs.sort();
        assert!(!programs.is_empty(), "{PROGRAMS}={}: there is no program in it", directory.display());
        Ok(Self { programs, library: std::env::var(LIBRARY).unwrap_or_else(|_| "libweir.so".into()) })
    }
}

/// Whether this can be run: a script that somebody left beside the programs is none.
fn is_program(path: &Path) -> bool {
    let executable =
        path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    executable && std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}
