//! Small C programs and libraries that a story writes itself: preloads of other people, programs of other kinds.

use std::path::Path;
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
