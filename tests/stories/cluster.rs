//! `weir-cluster serve` with real processes: two nodes, a service that wakes, grows, shrinks and ends, a controller that is
//! killed in the middle, a node that is drained. No request fails.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir_tests::dist::{Dist, client, python};
use weir_tests::node::Node;
use weir_tests::simgpu::SimGpu;
use weir_tests::wait;

const KERNELS: &str = "linger_ms = 3_600_000\n[[kernel]]\nname = \"*\"\ntime_us = 200\n";
const PRICED: &str = "[[price]]\nname = \"*\"\ntime_us = 200\n";

/// The command, of the laid-out build, or `$WEIR_CLUSTER`.
fn program() -> PathBuf {
    let named = std::env::var_os("WEIR_CLUSTER").map(PathBuf::from);
    let program = named.unwrap_or_else(|| Dist::find().root().join("bin/weir-cluster"));
    assert!(program.exists(), "there is no `{}`\nhelp: run scripts/build first", program.display());
    program
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// A running controller.
struct Cluster {
    dir: tempfile::TempDir,
    port: u16,
    process: Child,
}

fn spawn(dir: &Path) -> Child {
    let log = std::fs::File::options().append(true).create(true).open(dir.join("serve.log")).expect("a log");
    let mut command = Command::new(program());
    command.arg("serve").arg(dir.join("cluster.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("weir-cluster starts")
}

impl Cluster {
    /// With a service whose instances have this request each, two at most.
    fn start(gpus: [&SimGpu; 2], nodes: [&Node<'_>; 2], request: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let mut text = format!(
            "name = \"t\"\ndir = \"state\"\nlisten = \"127.0.0.1:{port}\"\nweir = {:?}\nscale = \"horizontal\"\n\
             [rules]\nhistory_s = 4\nout_s = 2\nin_s = 3\nidle_s = 4\n",
            gpus[0].dist().weir()
        );
        for (at, (gpu, node)) in gpus.into_iter().zip(nodes).enumerate() {
            let first = 22_000 + at * 500 + usize::from(port % 400);
            let env = gpu.environment().map(|(name, value)| format!("{name} = {value:?}")).join(", ");
            text += &format!(
                "[[node]]\nname = \"n{at}\"\ndir = {:?}\nports = \"{first}-{}\"\nenv = {{ {env} }}\n",
                node.dir(),
                first + 99
            );
        }
        text += &format!(
            "[[service]]\nname = \"web\"\ncommand = [{:?}, {:?}, \"{{port}}\"]\nrequest = \"{request}\"\nlimit = \"60%\"\n\
             memory = \"2GiB\"\nconcurrency = 2\nready = \"/healthz\"\nceiling = 2\n",
            python(),
            client("numba_serve.py")
        );
        std::fs::write(dir.path().join("cluster.toml"), text).expect("a file");
        let process = spawn(dir.path());
        let cluster = Self { dir, port, process };
        wait::until("a gateway that listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        cluster
    }

    fn kill(&mut self) {
        self.process.kill().expect("a controller");
        self.process.wait().expect("a controller");
    }

    fn start_again(&mut self) {
        self.process = spawn(self.dir.path());
    }

    /// What a command says of how everything stands; nothing while nobody answers.
    fn standings(&self, command: &str, arguments: &[&str]) -> Option<serde_json::Value> {
        let file = self.dir.path().join("cluster.toml");
        let output = Command::new(program()).args(["--json", command]).arg(file).args(arguments).output();
        serde_json::from_slice(&output.ok()?.stdout).ok()
    }

    /// Instances in this state; nothing while nobody answers.
    fn count(&self, state: &str) -> Option<usize> {
        let shown = self.standings("ps", &[])?;
        let instances = shown["instances"].as_array()?;
        Some(instances.iter().filter(|instance| state.is_empty() || instance["state"] == state).count())
    }

    fn wait_for(&self, state: &str, count: usize) {
        wait::until(&format!("{count} instances `{state}`"), || {
            (self.count(state) == Some(count)).then_some(())
        });
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("serve.log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // In order: killed, it would leave gateway and instances behind, as it should.
        weir_tests::program::signal(self.process.id().cast_signed(), libc::SIGTERM);
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

/// Asks without a pause until it is stopped; what did not go well is kept.
fn ask(port: u16, stop: &Arc<AtomicBool>, answered: &Arc<AtomicU64>) -> std::thread::JoinHandle<Vec<String>> {
    let (stop, answered) = (stop.clone(), answered.clone());
    std::thread::spawn(move || {
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
    })
}

/// Ends what asks, of which nothing may have failed.
fn end(askers: Vec<std::thread::JoinHandle<Vec<String>>>, stop: &AtomicBool, cluster: &Cluster) {
    stop.store(true, Ordering::Relaxed);
    let failed: Vec<String> = askers.into_iter().flat_map(|asker| asker.join().expect("an asker")).collect();
    assert!(failed.is_empty(), "{failed:?}\n{}", cluster.log());
}

#[test]
fn a_service_wakes_grows_shrinks_and_ends_and_a_killed_controller_fails_no_request() {
    let gpus = [SimGpu::new(KERNELS), SimGpu::new(KERNELS)];
    let nodes = [Node::start(&gpus[0], PRICED), Node::start(&gpus[1], PRICED)];
    let mut cluster = Cluster::start([&gpus[0], &gpus[1]], [&nodes[0], &nodes[1]], "60%");
    cluster.wait_for("", 0);
    let first = get(cluster.port, "/web/x").unwrap();
    assert!(first.starts_with("HTTP/1.1 200"), "from zero: {first}\n{}", cluster.log());
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let askers: Vec<_> = (0..6).map(|_| ask(cluster.port, &stop, &answered)).collect();
    cluster.wait_for("ready", 2);

    cluster.kill();
    let before = answered.load(Ordering::Relaxed);
    wait::until("requests that are answered without a controller", || {
        (answered.load(Ordering::Relaxed) > before + 20).then_some(())
    });
    cluster.start_again();
    cluster.wait_for("ready", 2);
    let tenants: usize = nodes.iter().map(|node| node.stats().tenants.len()).sum();
    assert_eq!(tenants, 2, "nothing was started twice:\n{}", cluster.log());

    end(askers, &stop, &cluster);
    cluster.wait_for("", 0);
    wait::until("nodes without tenants", || {
        nodes.iter().all(|node| node.stats().tenants.is_empty()).then_some(())
    });
    let metrics = get(cluster.port, "/metrics").unwrap();
    let all = answered.load(Ordering::Relaxed) + 1;
    let row = format!("outcome=\"answered\"}} {all}");
    assert!(metrics.contains(&row), "{all} were answered:\n{metrics}");
}

#[test]
fn the_instances_of_a_node_that_is_drained_move_and_no_request_fails() {
    let gpus = [SimGpu::new(KERNELS), SimGpu::new(KERNELS)];
    let nodes = [Node::start(&gpus[0], PRICED), Node::start(&gpus[1], PRICED)];
    let cluster = Cluster::start([&gpus[0], &gpus[1]], [&nodes[0], &nodes[1]], "40%");
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let askers: Vec<_> = (0..6).map(|_| ask(cluster.port, &stop, &answered)).collect();
    cluster.wait_for("ready", 2);
    let tenants = || [nodes[0].stats().tenants.len(), nodes[1].stats().tenants.len()];
    let drained = usize::from(tenants()[0] == 0); // both may be on one
    let name = format!("n{drained}");
    let is_open = |standings: serde_json::Value| {
        let rows = standings["nodes"].as_array().expect("nodes").clone();
        rows.iter().find(|row| row["name"] == name.as_str()).expect("it is there")["open"] == true
    };

    assert!(!is_open(cluster.standings("drain", &[&name]).expect("an answer")));
    wait::until("a node without tenants, and two instances on the other", || {
        (tenants()[drained] == 0 && cluster.count("ready") == Some(2)).then_some(())
    });
    assert_eq!(tenants()[1 - drained], 2, "{}", cluster.log());
    assert!(is_open(cluster.standings("drain", &[&name, "--off"]).expect("an answer")));
    end(askers, &stop, &cluster);
    assert!(answered.load(Ordering::Relaxed) > 0);
}
