//! A node manager of a story's own, over a simulated GPU.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use weir_nodemgr::control::schema::SetDone;
use weir_nodemgr::control::{Stats, TenantStats};

use crate::simgpu::SimGpu;
use crate::wait;

/// A running `weir node`.
pub struct Node<'a> {
    gpu: &'a SimGpu,
    dir: TempDir,
    process: Child,
}

impl<'a> Node<'a> {
    /// Starts one with this configuration (TOML) and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(gpu: &'a SimGpu, config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("weir.toml");
        std::fs::write(&file, config).expect("a file in it");
        let log = std::fs::File::create(dir.path().join("node.log")).expect("a file in it");
        let process = Command::new(gpu.dist().weir())
            .arg("--dir")
            .arg(dir.path())
            .args(["node", "--config"])
            .arg(&file)
            .envs(gpu.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("the node manager starts");
        let mut node = Self { gpu, dir, process };
        wait::until("a node manager that answers", || {
            node.alive().then(|| node.ask(&["stats"]).ok()).flatten()
        });
        node
    }

    fn alive(&mut self) -> bool {
        if let Ok(Some(status)) = self.process.try_wait() {
            let log = std::fs::read_to_string(self.dir.path().join("node.log")).unwrap_or_default();
            panic!("the node manager ended with {status}:\n{log}");
        }
        true
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of one tenant: what a container is given.
    pub fn tenant_dir(&self, name: &str) -> std::path::PathBuf {
        self.dir().join("tenants").join(name)
    }

    /// Kills it, as nothing in it can prevent.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// What a `weir --json` command prints on stdout, or on stderr if it fails.
    fn ask(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new(self.gpu.dist().weir());
        let output = command.arg("--json").arg("--dir").arg(self.dir()).args(arguments).output();
        let output = output.map_err(|error| error.to_string())?;
        let failed = || String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(output.stdout) } else { Err(failed()) }
    }

    /// What a `weir --json` command prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn weir(&self, arguments: &[&str]) -> Vec<u8> {
        self.ask(arguments).unwrap_or_else(|why| panic!("weir {arguments:?}: {why}"))
    }

    /// `weir stats`.
    ///
    /// # Panics
    /// If it fails.
    pub fn stats(&self) -> Stats {
        let stats = self.ask(&["stats"]).expect("weir stats answers");
        serde_json::from_slice(&stats).expect("statistics are JSON of their own schema")
    }

    /// One tenant's part of it; nothing once the tenant has ended.
    pub fn tenant(&self, name: &str) -> Option<TenantStats> {
        self.stats().tenants.into_iter().find(|tenant| tenant.name == name)
    }

    /// `weir set`.
    ///
    /// # Panics
    /// If it fails.
    pub fn set(&self, tenant: &str, arguments: &[&str]) -> SetDone {
        let answer = self.ask(&[&["set", tenant], arguments].concat());
        let answer = answer.unwrap_or_else(|why| panic!("weir set {tenant} {arguments:?}: {why}"));
        serde_json::from_slice(&answer).expect("the answer is JSON of its own schema")
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}
