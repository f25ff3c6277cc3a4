//! Who plays: two programs straight from PyPI, each profiled on a node of its own and then a service of the controller.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use weir_cluster::profile::{Profile, Slo};

use crate::rig::{Cost, Rig};
use crate::stage;

/// What kernels cost on the simulated GPUs: a request of the server takes 4 ms and its batch 18 (beside 70 of
/// the host), a step of the training some 6.
pub fn costs() -> Vec<Cost> {
    vec![
        Cost { name: "*prefill*", time_us: 4_000.0 },
        Cost { name: "*decode*", time_us: 1_500.0 },
        Cost { name: "*", time_us: 400.0 },
    ]
}

/// A program and what is asked of it.
pub struct Role {
    /// Name of the service.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    script: &'static str,
    /// Arguments of the script while it is profiled.
    profiled: &'static [&'static str],
    /// Arguments of the script as an instance; `BATCH` stands for the batch that was found.
    served: &'static [&'static str],
    /// Flags of `weir-cluster profile`.
    flags: &'static [&'static str],
    /// What users are promised: a request may wait for the batch that is under way.
    slo: Option<&'static str>,
    ready: &'static str,
    /// Fewest and most instances.
    range: [u32; 2],
}

/// The server, and the training beside it.
pub const ROLES: [Role; 2] = [
    Role {
        name: "serve",
        what: "numba-cuda",
        script: "serve_numba.py",
        profiled: &["--steady", "--batch", "{batch}"],
        served: &["{port}", "--batch", "BATCH"],
        flags: &[
            "--kind=inference",
            "--slo=p95 < 200ms",
            "--latency=latency_ms: ([0-9.]+)",
            "--max-batch=8",
            "--memory=2GiB",
        ],
        slo: Some("p95 < 500ms"),
        ready: "/healthz",
        range: [0, 3],
    },
    Role {
        name: "train",
        what: "tinygrad",
        script: "train_tinygrad.py",
        profiled: &["--log"],
        served: &["--log"],
        flags: &["--rate=([0-9.]+) steps/s", "--unit=steps/s", "--keep=50%", "--memory=4GiB"],
        slo: None,
        ready: "runs",
        range: [1, 1],
    },
];

/// Longest that profiling may take: its programs are read from disk and compile their kernels first.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// tinygrad's own settings; numba does not look at them.
const SETTINGS: [(&str, &str); 3] = [("DEV", "CUDA"), ("TRAINING", "1"), ("PYTHONUNBUFFERED", "1")];

/// A row of `cluster.toml`.
#[derive(Serialize)]
pub struct ServiceRow {
    name: &'static str,
    command: Vec<String>,
    env: BTreeMap<&'static str, &'static str>,
    profile: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    slo: Option<&'static str>,
    ready: &'static str,
    floor: u32,
    ceiling: u32,
    cold_start_s: f64,
}

impl Role {
    /// The bound of what users are promised, in milliseconds.
    pub fn bound_ms(&self) -> f64 {
        let slo = self.slo.and_then(|slo| slo.parse::<Slo>().ok());
        slo.map_or(f64::NAN, |slo| slo.bound.0 as f64 / 1e6)
    }

    fn program(&self) -> [String; 2] {
        let root = stage::workspace();
        [root.join(".venv/bin/python"), root.join("bench/demo").join(self.script)]
            .map(|path| path.display().to_string())
    }

    /// Where its profile lies.
    pub fn profile_in(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.profile.toml", self.name))
    }

    /// `weir-cluster profile` of it on a node; what it says goes into a file of the rig.
    pub fn profile(&self, rig: &Rig, dir: &Path, windows: &[&str]) -> io::Result<Child> {
        let dist = stage::dist()?;
        let log = std::fs::File::create(rig.log(self.name))?;
        let mut command = Command::new(dist.join("bin/weir-cluster"));
        command.arg("profile").arg("--dir").arg(rig.directory().join("node")).args(["--name", self.name]);
        command.args(self.flags).args(windows).arg("--out").arg(self.profile_in(dir)).arg("--");
        command.args(self.program()).args(self.profiled);
        rig.environment(&mut command);
        command.envs(SETTINGS).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
    }

    /// It as a service with this profile.
    pub fn service(&self, profile: &Profile, dir: &Path) -> ServiceRow {
        let batch = profile.inference.as_ref().map_or(1, |inference| inference.batch).to_string();
        let served = self.served.iter().map(|word| word.replace("BATCH", &batch));
        ServiceRow {
            name: self.name,
            command: self.program().into_iter().chain(served).collect(),
            env: SETTINGS.into(),
            profile: self.profile_in(dir),
            slo: self.slo,
            ready: self.ready,
            floor: self.range[0],
            ceiling: self.range[1],
            cold_start_s: 3.0,
        }
    }
}
