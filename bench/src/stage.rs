//! Building and laying out what a benchmark needs: the interposer, the drivers, the binaries.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace that this binary was built from.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Builds a package in release mode and returns the directory of its artefacts. Cargo's talk goes to stderr.
pub fn build(packages: &[&str]) -> io::Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace()).args(["build", "--release", "--quiet"]);
    packages.iter().for_each(|package| {
        cargo.args(["-p", package]);
    });
    if !cargo.status()?.success() {
        return Err(io::Error::other(format!("cargo build of {} failed", packages.join(", "))));
    }
    Ok(target_directory().join("release"))
}

fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => workspace().join(directory),
        None => workspace().join("target"),
    }
}

/// A directory in which `library` is found as `libcuda.so.1`.
pub fn as_driver(library: &Path) -> io::Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    std::os::unix::fs::symlink(library.canonicalize()?, directory.path().join("libcuda.so.1"))?;
    Ok(directory)
}
