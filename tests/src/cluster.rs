//! A running `weir-cluster serve` of a story's own, and who asks it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::dist::{Dist, client, python};
use crate::node::Node;
use crate::simgpu::SimGpu;
use crate::wait;

/// Kernels of the server, which nobody has to wait for, ...
pub const KERNELS: &str = "linger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 200\n";

/// ... and what the node managers are told of them.
pub const PRICED: &str = "[[price]]\nname = \"*\"\ntime_us = 200\n";

/// The command, of the laid-out build, or `$WEIR_CLUSTER`.
///
/// # Panics
/// If there is none.
pub fn program() -> PathBuf {
    let named = std::env::var_os("WEIR_CLUSTER").map(PathBuf::from);
    let program = named.unwrap_or_else(|| Dist::find().root().join("bin/weir-cluster"));
    assert!(program.exists(), "there is no `{}`\nhelp: run scripts/build first", program.display());
    program
}

/// A port that nobody has.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// A running controller.
pub struct Cluster {
    dir: tempfile::TempDir,
    /// Of its gateway.
    pub port: u16,
    process: Child,
}

fn spawn(dir: &Path) -> Child {
    let log = std::fs::File::options().append(true).create(true).open(dir.join("serve.log")).expect("a log");
    let mut command = Command::new(program());
    command.arg("serve").arg(dir.join("cluster.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("weir-cluster starts")
}

/// The row of node `n<at>`: `reach` says where its manager is; more is its instances' environment.
pub fn node_row(at: usize, gpu: &SimGpu, reach: &str, more: &[String]) -> String {
    let first = 22_000 + at * 500 + usize::from(free_port() % 400);
    let env = gpu.environment().map(|(name, value)| format!("{name} = {value:?}"));
    let env = env.iter().chain(more).cloned().collect::<Vec<_>>().join(", ");
    format!("[[node]]\nname = \"n{at}\"\n{reach}\nports = \"{first}-{}\"\nenv = {{ {env} }}\n", first + 99)
}

/// The row of a node of this machine.
pub fn node_here(at: usize, gpu: &SimGpu, node: &Node<'_>) -> String {
    node_row(at, gpu, &format!("dir = {:?}", node.dir()), &[])
}

impl Cluster {
    /// On these nodes, with a service whose instances have this request each; `more` are further lines of it.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(weir: &Path, nodes: &[String], request: &str, more: &str) -> Self {
        let asks =
            format!("request = \"{request}\"\nlimit = \"60%\"\nmemory = \"2GiB\"\nconcurrency = 2\n{more}");
        Self::scaled_by("horizontal", weir, nodes, &asks)
    }

    /// The same, scaled by some policy; `service` are all lines of the service but its name, its command and how it is ready.
    ///
    /// # Panics
    /// If it does not start.
    pub fn scaled_by(scale: &str, weir: &Path, nodes: &[String], service: &str) -> Self {
        let text = format!(
            "scale = {scale:?}\nstale_after_s = 3\n[rules]\nhistory_s = 4\nout_s = 2\nin_s = 3\nidle_s = 4\n{}\
             [[service]]\nname = \"web\"\ncommand = [{:?}, {:?}, \"{{port}}\"]\nready = \"/healthz\"\n{service}",
            nodes.concat(),
            python(),
            client("numba_serve.py")
        );
        Self::of(weir, &text)
    }

    /// With all that its configuration says beyond the first lines.
    ///
    /// # Panics
    /// If it does not start.
    pub fn of(weir: &Path, text: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let head = format!("name = \"t\"\ndir = \"state\"\nlisten = \"127.0.0.1:{port}\"\nweir = {weir:?}\n");
        std::fs::write(dir.path().join("cluster.toml"), head + text).expect("a file");
        let process = spawn(dir.path());
        let cluster = Self { dir, port, process };
        wait::until("a gateway that listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        cluster
    }

    /// Kills the controller, as nothing in it can prevent.
    ///
    /// # Panics
    /// If there is none.
    pub fn kill(&mut self) {
        self.process.kill().expect("a controller");
        self.process.wait().expect("a controller");
    }

    /// Starts another one in its place.
    pub fn start_again(&mut self) {
        self.process = spawn(self.dir.path());
    }

    /// What a command says of how everything stands; nothing while nobody answers.
    pub fn standings(&self, command: &str, arguments: &[&str]) -> Option<serde_json::Value> {
        let file = self.dir.path().join("cluster.toml");
        let output = Command::new(program()).args(["--json", command]).arg(file).args(arguments).output();
        serde_json::from_slice(&output.ok()?.stdout).ok()
    }

    /// Instances in this state; nothing while nobody answers.
    pub fn count(&self, state: &str) -> Option<usize> {
        let shown = self.standings("ps", &[])?;
        let instances = shown["instances"].as_array()?;
        Some(instances.iter().filter(|instance| state.is_empty() || instance["state"] == state).count())
    }

    /// Waits until so many instances are in this state, or there are so many.
    ///
    /// # Panics
    /// If it does not come to that, with what the controller has said.
    pub fn wait_for(&self, state: &str, count: usize) {
        wait::until(&format!("{count} instances `{state}`"), || {
            (self.count(state) == Some(count)).then_some(())
        });
    }

    /// What it has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("serve.log")).unwrap_or_default()
    }

    /// Asks the service once.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn get(&self, path: &str) -> std::io::Result<String> {
        get(self.port, path)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // In order: killed, it would leave gateway and instances behind, as it should.
        crate::program::signal(self.process.id().cast_signed(), libc::SIGTERM);
        let _ = self.process.wait();
    }
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(90)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Programs that ask a service without a pause.
pub struct Askers {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<String>>>, // each with what did not go well
}

impl Askers {
    /// So many of them.
    pub fn start(cluster: &Cluster, count: usize) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let ask = |_| {
            let (stop, answered, port) = (stop.clone(), answered.clone(), cluster.port);
            std::thread::spawn(move || ask(port, &stop, &answered))
        };
        let threads = (0..count).map(ask).collect();
        Self { stop, answered, threads }
    }

    /// Requests that were answered.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many more are.
    ///
    /// # Panics
    /// If they are not.
    pub fn wait_for(&self, more: u64, what: &str) {
        let before = self.answered();
        wait::until(what, || (self.answered() > before + more).then_some(()));
    }

    /// Ends them; says how many were answered.
    ///
    /// # Panics
    /// If anything was not.
    pub fn end(self, cluster: &Cluster) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let failed: Vec<String> =
            self.threads.into_iter().flat_map(|asker| asker.join().expect("an asker")).collect();
        assert!(failed.is_empty(), "{failed:?}\n{}", cluster.log());
        self.answered.load(Ordering::Relaxed)
    }
}

fn ask(port: u16, stop: &AtomicBool, answered: &AtomicU64) -> Vec<String> {
    let mut failed = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match get(port, "/web/x") {
            Ok(text) if text.starts_with("HTTP/1.1 200") => {
                answered.fetch_add(1, Ordering::Relaxed);
            }
            other => failed.push(format!("{other:?}")),
        }
    }
    failed
}
