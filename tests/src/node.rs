//! A node manager of a story's own, over a simulated GPU.

use std::ffi::OsStr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use weir_nodemgr::control::park::ParkDone;
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
        std::fs::write(dir.path().join("weir.toml"), config).expect("a file in it");
        let process = spawn(command(gpu, dir.path(), &gpu.dist().weir(), &[]));
        let mut node = Self { gpu, dir, process };
        node.wait_for_an_answer();
        node
    }

    fn wait_for_an_answer(&mut self) {
        wait::until("a node manager that answers", || {
            self.alive().then(|| self.ask(&["stats"]).ok()).flatten()
        });
    }

    /// Kills it and starts another one in its place.
    pub fn restart(&mut self) {
        self.start_again(&self.gpu.dist().weir(), &[]);
    }

    /// The same, with these variables in its environment.
    pub fn restart_with(&mut self, variables: &[(&str, &OsStr)]) {
        self.start_again(&self.gpu.dist().weir(), variables);
    }

    /// The same, as `launcher` starts it: a command that is followed by the manager's, and becomes it or ends with it.
    pub fn restart_by(
        &mut self,
        launcher: &[&str],
        variables: &[(&str, &OsStr)],
        prepare: impl FnOnce(&mut Command),
    ) {
        let mut command = command(self.gpu, self.dir.path(), &self.gpu.dist().weir(), launcher);
        prepare(command.envs(variables.iter().copied()));
        self.start_again_by(command);
    }

    fn start_again(&mut self, weir: &Path, variables: &[(&str, &OsStr)]) {
        let mut command = command(self.gpu, self.dir.path(), weir, &[]);
        command.envs(variables.iter().copied());
        self.start_again_by(command);
    }

    fn start_again_by(&mut self, command: Command) {
        self.kill();
        self.process = spawn(command);
        self.wait_for_an_answer();
    }

    /// The same, with another build of the same protocol.
    pub fn restart_as_another_build(&mut self) {
        self.start_again(&self.gpu.dist().failing_weir(), &[]);
    }

    /// The same as [`Self::restart`], under a supervisor that listens at `place` and waits so long for a sign of life.
    pub fn restart_under(&mut self, place: &Path, patience: Duration) {
        let patience = patience.as_micros().to_string();
        let variables = [("NOTIFY_SOCKET", place.as_os_str()), ("WATCHDOG_USEC", patience.as_ref())];
        self.start_again(&self.gpu.dist().weir(), &variables);
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).expect("process ids fit")
    }

    /// The same; the other one dies when it comes to this place (`weir_nodemgr::failpoint::PLACES`).
    pub fn restart_to_die_at(&mut self, place: &str) {
        let variables = [("WEIR_NODE_FAILPOINT", place.as_ref())];
        self.start_again(&self.gpu.dist().failing_weir(), &variables);
    }

    /// Waits until it has died by itself.
    ///
    /// # Panics
    /// If it does not, or not of SIGKILL.
    pub fn wait_until_dead(&mut self) {
        let status = wait::until("the node manager's death", || self.process.try_wait().ok().flatten());
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{}", self.log());
    }

    /// Asks it to end, as a supervisor does, and waits until it has.
    ///
    /// # Panics
    /// If it does not, or not well.
    pub fn end(&mut self) {
        crate::program::signal(self.pid(), libc::SIGTERM);
        let status = wait::until("the node manager's end", || self.process.try_wait().ok().flatten());
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// What it, and those before it, have said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("node.log")).unwrap_or_default()
    }

    fn alive(&mut self) -> bool {
        if let Ok(Some(status)) = self.process.try_wait() {
            panic!("the node manager ended with {status}:\n{}", self.log());
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

    /// What a `weir` command says to people, on stdout and stderr.
    ///
    /// # Panics
    /// If there is no `weir`.
    pub fn says(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(self.gpu.dist().weir());
        let output =
            command.envs(self.gpu.environment()).arg("--dir").arg(self.dir()).args(arguments).output();
        let output = output.expect("weir starts");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
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

    /// `weir park`.
    ///
    /// # Errors
    /// What it says on stderr; as the next one.
    pub fn park(&self, tenant: &str) -> Result<ParkDone, String> {
        let answer = self.ask(&["park", tenant])?;
        Ok(serde_json::from_slice(&answer).expect("the answer is JSON of its own schema"))
    }

    /// `weir unpark`.
    ///
    /// # Errors
    /// As above.
    pub fn unpark(&self, tenant: &str) -> Result<ParkDone, String> {
        let answer = self.ask(&["unpark", tenant])?;
        Ok(serde_json::from_slice(&answer).expect("the answer is JSON of its own schema"))
    }

    /// `weir set`.
    ///
    /// # Panics
    /// If it fails.
    pub fn set(&self, tenant: &str, arguments: &[&str]) -> SetDone {
        self.try_set(tenant, arguments).unwrap_or_else(|why| panic!("weir set {tenant} {arguments:?}: {why}"))
    }

    /// `weir set`, and why it failed.
    ///
    /// # Errors
    /// What it says on stderr.
    pub fn try_set(&self, tenant: &str, arguments: &[&str]) -> Result<SetDone, String> {
        let answer = self.ask(&[&["set", tenant], arguments].concat())?;
        Ok(serde_json::from_slice(&answer).expect("the answer is JSON of its own schema"))
    }
}

/// `weir node`, as `launcher` starts it.
fn command(gpu: &SimGpu, dir: &Path, weir: &Path, launcher: &[&str]) -> Command {
    let log = std::fs::File::options().append(true).create(true).open(dir.join("node.log"));
    let words = launcher.iter().map(OsStr::new).chain([weir.as_os_str()]).collect::<Vec<_>>();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .arg("--dir")
        .arg(dir)
        .args(["node", "--config"])
        .arg(dir.join("weir.toml"))
        .envs(gpu.environment())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.expect("a file in it"))
        .process_group(0);
    command
}

fn spawn(mut command: Command) -> Child {
    command.spawn().expect("the node manager starts")
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}
