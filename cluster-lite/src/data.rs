//! Where the public traces lie that some tests and benchmarks read; they are no part of the project.

use std::path::PathBuf;

/// The file `name` below `$WEIR_DATA`, or below `../shared/data` of the project's root. Where it is absent, says so on stderr.
pub fn find(name: &str) -> Option<PathBuf> {
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    let root = std::env::var_os("WEIR_DATA").map_or(beside, PathBuf::from);
    let path = root.join(name);
    if !path.is_file() {
        crate::cli::talk(format!("skipped: {} is absent", path.display()));
        return None;
    }
    Some(path)
}
