//! Two nodes with a simulated GPU each, and the controller over them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use weir_cluster::control::serve::{Ask, Standings, ask};
use weir_cluster::profile::Profile;

use super::cast::{PATIENCE, ROLES, ServiceRow, costs};
use crate::rig::Rig;
use crate::stage;

/// The cluster's name: first part of its tenants'.
const NAME: &str = "demo";

/// Ports that instances of a node may have.
const PORTS: u16 = 50;

/// The scaling rules, shortened: the replay has no hours.
const RULES: [(&str, u32); 5] = [("history_s", 8), ("out_s", 2), ("in_s", 6), ("lower_s", 4), ("idle_s", 6)];

#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    dir: &'a str,
    listen: String,
    weir: PathBuf,
    rules: BTreeMap<&'a str, u32>,
    node: Vec<NodeRow>,
    service: Vec<ServiceRow>,
}

#[derive(Serialize)]
struct NodeRow {
    name: String,
    dir: PathBuf,
    ports: String,
    env: BTreeMap<&'static str, PathBuf>,
}

/// All of it; it ends in order when it is dropped.
pub struct Fleet {
    nodes: [Rig; 2],
    dir: tempfile::TempDir,
    controller: Option<Child>,
    port: u16,
}

impl Fleet {
    /// Starts the nodes.
    pub fn start() -> io::Result<Self> {
        let nodes = [Rig::simulated(&costs())?, Rig::simulated(&costs())?];
        Ok(Self { nodes, dir: tempfile::tempdir()?, controller: None, port: free_port()? })
    }

    /// The nodes, named `n0` and `n1`.
    pub fn nodes(&self) -> &[Rig; 2] {
        &self.nodes
    }

    /// Profiles each program on a node of its own, at the same time.
    pub fn profile(&self, windows: &[&str]) -> io::Result<Vec<Profile>> {
        let dir = self.dir.path();
        let started = ROLES.iter().zip(&self.nodes).map(|(role, node)| role.profile(node, dir, windows));
        let mut children = started.collect::<io::Result<Vec<_>>>()?;
        for (role, (node, child)) in ROLES.iter().zip(self.nodes.iter().zip(&mut children)) {
            let status =
                node.wait_within(PATIENCE, &format!("the profile of `{}`", role.name), || child.try_wait())?;
            if !status.success() {
                let log = fs::read_to_string(node.log(role.name)).unwrap_or_default();
                return Err(io::Error::other(format!(
                    "profiling `{}` ended with {status}:\n{log}",
                    role.name
                )));
            }
        }
        let read = |path: PathBuf| Profile::read(&path).map_err(|fault| io::Error::other(fault.to_string()));
        ROLES.iter().map(|role| read(role.profile_in(dir))).collect()
    }

    /// Starts the controller with the programs as services, and waits until the training has its GPU.
    pub fn serve(&mut self, profiles: &[Profile]) -> io::Result<()> {
        let file = File {
            name: NAME,
            dir: "state",
            listen: format!("127.0.0.1:{}", self.port),
            weir: stage::dist()?.join("bin/weir"),
            rules: RULES.into(),
            node: (0..).zip(&self.nodes).map(|(at, node)| self.node_row(at, node)).collect(),
            service: ROLES.iter().zip(profiles).map(|(role, p)| role.service(p, self.dir.path())).collect(),
        };
        let path = self.dir.path().join("cluster.toml");
        fs::write(&path, toml::to_string(&file).map_err(io::Error::other)?)?;
        let log = fs::File::create(self.dir.path().join("serve.log"))?;
        let mut command = Command::new(stage::dist()?.join("bin/weir-cluster"));
        command.arg("serve").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.controller = Some(command.spawn()?);
        self.nodes[0]
            .wait_within(PATIENCE, "the first step of the training", || Ok((self.steps() > 0).then_some(())))
    }

    fn node_row(&self, at: u16, node: &Rig) -> NodeRow {
        // Below those that the kernel gives to connections; two demos at once differ.
        let first = 20_000 + self.port % 120 * (2 * PORTS) + at * PORTS;
        NodeRow {
            name: format!("n{at}"),
            dir: node.directory().join("node"),
            ports: format!("{first}-{}", first + PORTS - 1),
            env: [("LD_LIBRARY_PATH", node.driver_directory())].into_iter().chain(node.variables()).collect(),
        }
    }

    /// Where requests go.
    pub fn url(&self, service: &str) -> String {
        format!("http://127.0.0.1:{}/{service}/answer", self.port)
    }

    /// How everything stands, with the last decisions.
    pub fn ps(&self) -> io::Result<Standings> {
        let answer = ask(&self.dir.path().join("state"), &Ask::Ps { decisions: true });
        answer.map_err(|fault| io::Error::other(format!("{fault}\n{}", self.log())))
    }

    /// What the controller said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("serve.log")).unwrap_or_default()
    }

    /// How far the training has come, by what it says.
    pub fn steps(&self) -> u64 {
        let logs = self.dir.path().join("state/instances");
        let of = |node: &str| fs::read_dir(logs.join(node)).into_iter().flatten().flatten();
        let files = ["n0", "n1"].into_iter().flat_map(of).map(|entry| entry.path());
        let told = files
            .filter(|path| path.extension().is_some_and(|end| end == "log"))
            .map(|path| last_step(&path));
        told.max().unwrap_or(0)
    }

    /// Ends all instances, the gateway and the controller, in order.
    pub fn end(&mut self) -> io::Result<()> {
        let Some(mut controller) = self.controller.take() else { return Ok(()) };
        kill_process(Pid::from_child(&controller), Signal::TERM)?;
        let status = controller.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("the controller ended with {status}\n{}", self.log()))),
        }
    }
}

/// The number behind the last `step` of a log.
fn last_step(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let number = |line: &str| line.strip_prefix("step ")?.split(':').next()?.parse().ok();
    text.lines().rev().find_map(number).unwrap_or(0)
}

/// A port that nobody has at the moment.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.end(); // killed, it would leave gateway and instances behind, as it should
    }
}
