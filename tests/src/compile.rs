//! Small C programs and libraries that a story writes itself: preloads of other people, programs of other kinds.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles one C file.
///
/// # Panics
/// If the compiler does not like it, or is not there.
pub fn c(arguments: &[&str], source: &Path, out: &Path) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&compiler);
    // Libraries come behind the file that needs them.
    let done = command.args(["-O1", "-Wall", "-o"]).arg(out).arg(source).args(arguments).output();
    match done {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{}: {}", source.display(), String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("{compiler}: {error}\nhelp: install Debian package `gcc`"),
    }
}

/// A file of the compiler's own, such as a run-time library, if it has it.
pub fn own_file(name: &str) -> Option<PathBuf> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let told = Command::new(compiler).arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(told.stdout).ok()?.trim());
    path.is_absolute().then_some(path) // else it only says the name again
}
