//! Containers of `runc`, the runtime below docker, containerd and podman: what a CDI file says is applied here as those
//! apply it, to a root file system that has the machine's programs and nothing of ours.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::Program;
use crate::simgpu::SimGpu;

/// A container that can be run, once.
pub struct Container {
    bundle: TempDir,
    config: Value,
}

impl Container {
    /// A container with the simulated GPU's driver and directory, as another file of CDI would give it.
    ///
    /// # Errors
    /// Why no container can run here; a story then says so and is skipped.
    ///
    /// # Panics
    /// If the file system fails.
    pub fn new(gpu: &SimGpu) -> Result<Self, String> {
        let bundle = tempfile::tempdir().expect("a temporary directory");
        let made = Command::new("runc").arg("spec").current_dir(&bundle).output();
        if !made.is_ok_and(|output| output.status.success()) {
            return Err("SKIPPED: there is no `runc`; install Debian package `runc`".into());
        }
        let text = std::fs::read(bundle.path().join("config.json")).expect("what `runc spec` wrote");
        let config: Value = serde_json::from_slice(&text).expect("JSON");
        let root = bundle.path().join("rootfs");
        std::fs::create_dir(&root).expect("a directory in it");
        for name in ["bin", "lib", "lib64", "sbin"] {
            symlink(Path::new("usr").join(name), root.join(name)).expect("a link in it");
        }
        let copied = Command::new("cp").args(["-a", "/etc"]).arg(&root).status();
        assert!(copied.is_ok_and(|status| status.success()), "/etc can be copied");
        let mut container = Self { bundle, config };
        container.config["process"]["terminal"] = false.into();
        container.config["root"]["readonly"] = false.into();
        container.mount(Path::new("/usr"), Path::new("/usr"), &["rbind", "ro"]);
        container.tried()?;
        for (name, value) in gpu.environment() {
            container.env(&format!("{name}={}", value.display()));
        }
        container.share(&gpu.dist().simgpu());
        container.share_writable(gpu.dir());
        Ok(container)
    }

    /// Whether a container with nothing special runs.
    fn tried(&self) -> Result<(), String> {
        let mut config = self.config.clone();
        config["process"]["args"] = json!(["true"]);
        let output = self.command(&config).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("SKIPPED: `runc` cannot be started: {error}"))?;
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("SKIPPED: containers cannot run here: {why}"))
        }
    }

    fn mount(&mut self, from: &Path, to: &Path, options: &[&str]) {
        let mount = json!({"type": "bind", "source": from, "destination": to, "options": options});
        self.config["mounts"].as_array_mut().expect("`runc spec` writes mounts").push(mount);
    }

    /// One more environment variable.
    pub fn env(&mut self, line: &str) {
        self.config["process"]["env"].as_array_mut().expect("`runc spec` writes variables").push(line.into());
    }

    /// The same path inside as outside, to be read.
    pub fn share(&mut self, path: &Path) {
        self.mount(path, path, &["rbind", "ro"]);
    }

    /// The same path inside as outside.
    pub fn share_writable(&mut self, path: &Path) {
        self.mount(path, path, &["rbind", "rw"]);
    }

    /// What a CDI file says of its one device.
    ///
    /// # Panics
    /// If it is not what CDI asks for.
    pub fn apply(&mut self, cdi: &Value) {
        assert!(
            cdi["cdiVersion"].is_string() && cdi["kind"].as_str().is_some_and(|kind| kind.contains('/')),
            "{cdi}"
        );
        let edits = &cdi["devices"][0]["containerEdits"];
        for line in edits["env"].as_array().into_iter().flatten() {
            self.env(line.as_str().expect("NAME=VALUE"));
        }
        for mount in edits["mounts"].as_array().into_iter().flatten() {
            let path = |key: &str| PathBuf::from(mount[key].as_str().expect("a path"));
            let options = mount["options"].as_array().into_iter().flatten().filter_map(Value::as_str);
            self.mount(&path("hostPath"), &path("containerPath"), &options.collect::<Vec<_>>());
        }
    }

    /// The program, in this container.
    pub fn program(self, gpu: &SimGpu, arguments: &[&str]) -> (Program, Self) {
        let mut config = self.config.clone();
        config["process"]["args"] = json!(arguments);
        let command = self.command(&config);
        let program = Program::bare(gpu, command.get_program()).args(command.get_args());
        (program, self)
    }

    /// `runc run` of this configuration.
    fn command(&self, config: &Value) -> Command {
        let file = self.bundle.path().join("config.json");
        std::fs::write(file, config.to_string()).expect("a file in it");
        let name = self.bundle.path().file_name().unwrap_or_default().to_string_lossy().replace('.', "weir-");
        let mut command = Command::new("runc");
        command.arg("run").arg("--bundle").arg(self.bundle.path()).arg(name);
        command
    }
}
