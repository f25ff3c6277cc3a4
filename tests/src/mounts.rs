//! Mount namespaces of a story's own: `/etc/ld.so.preload`, the loader's cache and mounts over the driver without a
//! trace on the machine.

use std::path::Path;
use std::process::Command;

use crate::program::Program;
use crate::simgpu::SimGpu;

/// How a mount namespace can be had here: the arguments of `unshare`.
///
/// # Errors
/// Why it cannot; a story then says so and is skipped.
pub fn permitted() -> Result<&'static [&'static str], String> {
    const WAYS: [&[&str]; 2] = [&["--mount"], &["--mount", "--user", "--map-root-user"]];
    let works = |way: &&&[&str]| {
        let tried =
            Command::new("unshare").args(**way).args(["mount", "-t", "tmpfs", "none", "/run"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    WAYS.iter()
        .find(works)
        .copied()
        .ok_or_else(|| "SKIPPED: this machine permits no mount namespace".to_owned())
}

/// A program in a mount namespace that a shell script has prepared first. In the script `$T` is a directory for it, and
/// `/etc` is a copy.
pub fn program(way: &[&str], gpu: &SimGpu, scratch: &Path, script: &str, program: &Path) -> Program {
    let prepare = format!(
        "set -e; mkdir \"$T/etc\"; cp -a /etc/. \"$T/etc\"; mount --bind \"$T/etc\" /etc\n{script}\nunset T; exec \"$@\""
    );
    Program::bare(gpu, "unshare").args(way).args(["sh", "-c", &prepare, "sh"]).arg(program).env("T", scratch)
}
