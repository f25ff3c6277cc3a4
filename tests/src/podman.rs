//! Containers of podman: as a user starts them, with the device of a CDI file. The image is a root file system with the
//! machine's programs; nothing is fetched.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::program::Program;
use crate::simgpu::SimGpu;

/// What a machine that is a container itself may need: fewer open files than podman asks for, and a runtime that knows
/// the old control groups.
const RELUCTANT: [&[&str]; 3] = [
    &[],
    &["--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"],
    &["--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000", "--runtime-is-runc"],
];

/// A podman with a store of its own.
pub struct Podman {
    dir: TempDir,
    flags: &'static [&'static str],
}

/// A file that podman finds devices in; removed with this value.
pub struct CdiFile(PathBuf);

impl Podman {
    /// One that can run containers here.
    ///
    /// # Errors
    /// Why none can; a story then says so and is skipped.
    ///
    /// # Panics
    /// If the file system fails.
    pub fn find() -> Result<Self, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("rootfs");
        for name in ["usr", "etc", "tmp", "run"] {
            std::fs::create_dir_all(root.join(name)).expect("a directory in it");
        }
        for name in ["bin", "lib", "lib64", "sbin"] {
            symlink(Path::new("usr").join(name), root.join(name)).expect("a link in it");
        }
        let mut podman = Self { dir, flags: &[] };
        let mut why = String::new();
        for flags in RELUCTANT {
            podman.flags = flags;
            let tried = podman.command(&[]).arg("true").stdin(Stdio::null()).output();
            let tried =
                tried.map_err(|_| "SKIPPED: there is no `podman`; install Debian package `podman`")?;
            if tried.status.success() {
                return Ok(podman);
            }
            why = String::from_utf8_lossy(&tried.stderr).into_owned();
        }
        Err(format!("SKIPPED: podman cannot run containers here: {why}"))
    }

    /// `podman run` up to the program, with further flags.
    fn command(&self, flags: &[String]) -> Command {
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.dir.path().join("store"));
        command.arg("--runroot").arg(self.dir.path().join("run"));
        command.args(["--cgroup-manager=cgroupfs", "--events-backend=none"]);
        if self.flags.contains(&"--runtime-is-runc") {
            command.args(["--runtime", "runc"]);
        }
        command.args(["run", "--rm", "--interactive", "--network=none", "--volume=/usr:/usr:ro"]);
        command.args(self.flags.iter().filter(|flag| flag.starts_with("--ulimit"))).args(flags);
        command.arg("--rootfs").arg(self.dir.path().join("rootfs"));
        command
    }

    /// A program in a container with these flags, and with the simulated GPU's driver and directory, as a device of its own
    /// would give it.
    pub fn program(&self, gpu: &SimGpu, mut flags: Vec<String>, share: &Path, arguments: &[&str]) -> Program {
        let same = |path: &Path, how: &str| format!("--volume={0}:{0}:{how}", path.display());
        flags.extend([same(share, "ro"), same(&gpu.dist().simgpu(), "ro"), same(gpu.dir(), "rw")]);
        flags.extend(gpu.environment().map(|(name, value)| format!("--env={name}={}", value.display())));
        let command = self.command(&flags);
        Program::bare(gpu, command.get_program()).args(command.get_args()).args(arguments)
    }
}

impl CdiFile {
    /// Puts it where podman looks.
    ///
    /// # Errors
    /// Why this machine does not let us.
    pub fn put(name: &str, text: &str) -> Result<Self, String> {
        let dir = Path::new("/var/run/cdi");
        let path = dir.join(format!("weir-{name}.json"));
        let put = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, text));
        put.map(|()| Self(path))
            .map_err(|error| format!("SKIPPED: no CDI file in {}: {error}", dir.display()))
    }
}

impl Drop for CdiFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
