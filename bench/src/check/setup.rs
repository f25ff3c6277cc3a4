//! What every story gets: the GPU under test, and the clients that run there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weir_nodemgr::control::TenantStats;
use weir_nodemgr::control::schema::{ClassName, CreateTenant};
use weir_protocol::units::Bytes;

use super::finding::Finding;
use super::player::work;
use super::side::Side;
use crate::rig::{Control, Rig};

/// Names the Python that has PyTorch.
const PYTHON: &str = "WEIR_PYTHON";

/// What every story gets.
pub struct Setup {
    /// Whether the GPU is simulated.
    pub simulated: bool,
    /// As little as shows that all of it works.
    pub quick: bool,
    /// The Python that has PyTorch on this GPU, or why there is none.
    pub torch: Result<PathBuf, String>,
    /// Other interposers, to be measured beside ours.
    pub others: Vec<PathBuf>,
    /// Where a story leaves what it has found so far.
    pub notes: PathBuf,
}

impl Setup {
    /// A node over the GPU under test; kernels of the check have their times, and nobody has told the node manager.
    pub fn rig(&self) -> io::Result<Rig> {
        self.rig_with("mode = \"time-slice\"\n", "")
    }

    /// The same with more in the simulated GPU's configuration, and in the node manager's.
    pub fn rig_with(&self, gpu: &str, node: &str) -> io::Result<Rig> {
        let table = work::table().map_err(io::Error::other)?;
        Rig::configured(self.simulated, &format!("{gpu}{table}"), node)
    }

    /// How much is to be done: all, or in the short form this.
    pub fn of<T>(&self, all: T, quick: T) -> T {
        if self.quick { quick } else { all }
    }

    /// So many seconds, or in the short form this many milliseconds.
    pub fn time(&self, all_s: u64, quick_ms: u64) -> Duration {
        self.of(Duration::from_secs(all_s), Duration::from_millis(quick_ms))
    }

    /// Who plays: the twin always, PyTorch where it is.
    pub fn sides(&self) -> Vec<Side> {
        [Some(Side::Twin), self.torch.clone().ok().map(Side::Torch)].into_iter().flatten().collect()
    }

    /// PyTorch where it is, else the twin.
    pub fn best_side(&self) -> Side {
        self.torch.clone().map_or(Side::Twin, Side::Torch)
    }

    /// Whether this Python has vLLM beside PyTorch. It is not imported for that: it takes a while.
    pub fn has_vllm(&self, side: &Side) -> bool {
        let Side::Torch(python) = side else { return false };
        let test = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)";
        Command::new(python).args(["-c", test]).output().is_ok_and(|output| output.status.success())
    }

    /// A word on why PyTorch plays no part, if it does not.
    pub fn without_torch(&self) -> String {
        self.torch.as_ref().err().map_or_else(String::new, |why| format!("; PyTorch left out: {why}"))
    }

    /// Leaves what is found so far, and says so: it stands if the story is cut off.
    pub fn note(&self, finding: &Finding) -> io::Result<()> {
        let beside = self.notes.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec(finding)?)?;
        std::fs::rename(&beside, &self.notes)?;
        writeln!(io::stderr(), "gpu-check: so far: {}", finding.line)
    }
}

/// Looks for PyTorch that can use the GPU.
pub fn find_torch(simulated: bool) -> Result<PathBuf, String> {
    if simulated {
        return Err("it contains libcudart, which the simulated driver refuses".into());
    }
    let python = std::env::var_os(PYTHON).map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let test = "import torch; assert torch.cuda.is_available(), 'torch sees no GPU'";
    let tried = Command::new(&python).args(["-c", test]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(python),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr)
                .trim()
                .lines()
                .last()
                .unwrap_or("it fails")
                .to_owned();
            Err(format!("{}: {said}", python.display()))
        }
        Err(error) => Err(format!("{}: {error}", python.display())),
    }
}

/// Does all of these at the same time, in threads; the first failure is the answer.
pub fn at_once<T: Send, F: FnOnce() -> io::Result<T> + Send>(
    tasks: impl Iterator<Item = F>,
) -> io::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = tasks.map(|task| scope.spawn(task)).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, io::Result<T>>| {
            thread.join().map_err(|_| io::Error::other("a run ended early"))?
        };
        running.into_iter().map(ended).collect()
    })
}

/// What a tenant of a story asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its class.
    pub class: ClassName,
    /// Guaranteed, in percent.
    pub request: Option<u16>,
    /// Never more, in percent.
    pub limit: u16,
    /// Memory.
    pub memory: Bytes,
    /// What it promises of what it tells as `request`, such as `p99 < 5ms`.
    pub slo: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// A tenant whose limit is its request.
    pub fn share(name: &'a str, percent: u16) -> Self {
        Self {
            name,
            class: ClassName::Primary,
            request: Some(percent),
            limit: percent,
            memory: MEMORY,
            slo: None,
        }
    }

    /// A tenant of a class.
    pub fn class(name: &'a str, class: ClassName, request: Option<u16>) -> Self {
        Self { name, class, request, limit: 100, memory: MEMORY, slo: None }
    }
}

/// Enough for PyTorch's contexts and small models, and so little that five fit on any card.
pub const MEMORY: Bytes = Bytes::gib(6);

/// Makes a tenant; its directory.
pub fn tenant(control: &mut Control, wanted: Wanted<'_>) -> io::Result<PathBuf> {
    let source =
        weir_nodemgr::latency::Source { url: weir_nodemgr::latency::HINT.into(), metric: "request".into() };
    let wanted = CreateTenant {
        name: wanted.name.into(),
        class: wanted.class,
        request_permille: wanted.request.map(|percent| percent * 10),
        limit_permille: Some(wanted.limit * 10),
        memory_bytes: Some(wanted.memory.0),
        slo: wanted.slo.map(str::to_owned),
        latency_from: wanted.slo.map(|_| source),
        ..CreateTenant::default()
    };
    let created = control.client().create(wanted).map_err(|fault| io::Error::other(fault.to_string()))?;
    Ok(created.dir)
}

/// What the manager says of a tenant.
pub fn stats_of(control: &mut Control, name: &str) -> io::Result<TenantStats> {
    let stats = control.stats()?;
    let found = stats.tenants.into_iter().find(|tenant| tenant.name == name);
    found.ok_or_else(|| io::Error::other(format!("the node manager knows no tenant `{name}`")))
}

/// Gives players some time to find their pace: real processes on a real clock.
pub fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// A library's name without its directory.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
