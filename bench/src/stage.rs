//! Where the measured parts lie: `dist/`, as `scripts/build` lays it out.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// This very program, to be started once more: also where building has put another file in its place.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// The workspace that this binary was built from.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The commit that this was built from: as it was written down when the GPU check was packed, else as the workspace has it now. `with
/// changes` behind it says that the source was not as it is in there.
pub fn commit() -> String {
    let packed = dist().ok().and_then(|dist| std::fs::read_to_string(dist.join("commit")).ok());
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(workspace()).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let here = || {
        let commit = git(&["rev-parse", "HEAD"])?;
        let changes = if git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
            ""
        } else {
            " with changes"
        };
        Some(commit + changes)
    };
    packed.map(|commit| commit.trim().to_owned()).or_else(here).unwrap_or_else(|| "unknown".into())
}

/// `$WEIR_DIST` as it is; or where this program lies, if it was laid out with the others; or `dist/`, built now.
pub fn dist() -> io::Result<&'static Path> {
    static DIST: OnceLock<PathBuf> = OnceLock::new();
    if let Some(known) = DIST.get() {
        return Ok(known);
    }
    let dist = match std::env::var_os("WEIR_DIST") {
        Some(dist) => PathBuf::from(dist).canonicalize()?,
        None => laid_out().map_or_else(build, Ok)?,
    };
    Ok(DIST.get_or_init(|| dist))
}

/// The directory above this program's, if the library lies there too.
fn laid_out() -> Option<PathBuf> {
    let dist = std::env::current_exe().ok()?.parent()?.parent()?.to_path_buf();
    dist.join("lib/weir/libweir.so").exists().then_some(dist)
}

/// Builds everything; its talk goes to stderr, stdout is the document's alone.
fn build() -> io::Result<PathBuf> {
    let script = workspace().join("scripts/build");
    let status = Command::new(&script).stdin(Stdio::null()).stdout(io::stderr()).status()?;
    if status.success() {
        return workspace().join("dist").canonicalize();
    }
    Err(io::Error::other(format!("`{}` failed: {status}", script.display())))
}

/// A directory in which `library` is found as `libcuda.so.1`.
pub fn as_driver(library: &Path) -> io::Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    std::os::unix::fs::symlink(library.canonicalize()?, directory.path().join("libcuda.so.1"))?;
    Ok(directory)
}
