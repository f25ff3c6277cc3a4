//! MPS and other interposers as baselines: a server beside a training job, once with NVIDIA's Multi-Process Service alone, once with
//! Weir managing it, and once under each interposer that was named; shares under both, and what tenants are charged by their SMs; and
//! kinds of work beside each other under MPS alone. The control daemon is started for this story alone, in a directory of its own,
//! where it is installed; on the simulated GPU its mode takes its place.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use weir_nodemgr::control::schema::ClassName;

use super::calibration::left_beside_a_spinner;
use super::finding::Finding;
use super::latency::{DECODE, Pair, Point, Scene};
use super::setup::{Setup, Wanted, file_name, tenant};
use super::side::{Side, Way};
use super::{pairs, share, weights};
use crate::rig::{Control, Rig};

/// NVIDIA's control program.
const CONTROL: &str = "nvidia-cuda-mps-control";

/// How long the daemon may take to be there.
const START: Duration = Duration::from_secs(10);

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let side = setup.best_side();
    let rig = setup.rig()?;
    let mut bare = Pair::start(&rig, &side, DECODE, (Way::Bare, Way::Bare))?;
    let scene = Scene::open(setup, &side, DECODE, &mut bare)?;
    drop(bare); // before a control daemon starts: it wants the GPU without other clients
    let mut measured = Measured { points: vec![scene.alone.clone()], ..Measured::default() };
    match Daemon::start(setup) {
        Err(why) => measured.without = Some(why),
        Ok(daemon) => {
            let mut rig = daemon.rig(setup, "")?;
            let mut pair = Pair::start(&rig, &side, DECODE, (Way::Bare, Way::Bare))?;
            measured.points.push(scene.beside(&mut pair, "MPS")?);
            drop(pair);
            setup.note(&measured.finding())?;
            measured.shares.push(share::at_once(setup, &rig, false)?);
            let ours = daemon.rig(setup, "policy = \"weir\"\n")?;
            measured.points.push(managed(&ours, &side, &scene)?);
            measured.shares.push(share::at_once(setup, &ours, true)?);
            weights::measure(setup, &ours, |charge| {
                measured.charges.push(charge);
                setup.note(&measured.finding())
            })?;
            drop(ours);
            measured.beside_a_spinner = Some(left_beside_a_spinner(setup, &rig)?);
            pairs::measure(setup, &mut rig, |pair| {
                measured.pairs.push(pair);
                setup.note(&measured.finding())
            })?;
        }
    }
    let rig = setup.rig()?; // the daemon is gone: others are measured where they would be used, without MPS
    for other in &setup.others {
        let mut pair = Pair::start(&rig, &side, DECODE, (Way::Other(other), Way::Other(other)))?;
        measured.points.push(scene.beside(&mut pair, &file_name(other))?);
        setup.note(&measured.finding())?;
    }
    Ok(measured.finding())
}

/// The same with Weir over MPS.
fn managed(rig: &Rig, side: &Side, scene: &Scene<'_>) -> io::Result<Point> {
    let mut control = Control::of(rig)?;
    let server = tenant(&mut control, Wanted::class("server", ClassName::Latency, Some(50)))?;
    let job = tenant(&mut control, Wanted::class("job", ClassName::Filler, None))?;
    let mut pair = Pair::start(rig, side, DECODE, (Way::Preload(&server), Way::Preload(&job)))?;
    scene.beside(&mut pair, "MPS under weir")
}

/// The control daemon, ours alone; or the simulated GPU's mode.
struct Daemon {
    directory: tempfile::TempDir,
    simulated: bool,
    process: Option<Child>,
}

impl Daemon {
    /// Starts one; or why there is none.
    fn start(setup: &Setup) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut daemon = Self { directory, simulated: setup.simulated, process: None };
        if setup.simulated {
            return Ok(daemon);
        }
        let log = File::create(daemon.pipes().join("control.log")).map_err(|error| error.to_string())?;
        let mut command = Command::new(CONTROL);
        command
            .arg("-f")
            .envs(daemon.variables())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| e.to_string())?);
        let started = command.stderr(log).spawn();
        daemon.process = Some(started.map_err(|error| format!("no MPS: `{CONTROL}`: {error}"))?);
        let start = std::time::Instant::now();
        while !daemon.pipes().join("control").exists() {
            let ended =
                daemon.process.as_mut().is_some_and(|process| !matches!(process.try_wait(), Ok(None)));
            if ended || start.elapsed() > START {
                let said = std::fs::read_to_string(daemon.pipes().join("control.log")).unwrap_or_default();
                return Err(format!("no MPS: `{CONTROL}` does not come up: {}", said.trim()));
            }
            std::thread::sleep(Duration::from_millis(20)); // between two looks at another process
        }
        // By this file the node manager knows that it lives; one in the foreground may write none.
        let (file, pid) =
            (daemon.pipes().join(format!("{CONTROL}.pid")), daemon.process.as_ref().map(Child::id));
        if let (false, Some(pid)) = (file.exists(), pid) {
            std::fs::write(file, pid.to_string()).map_err(|error| error.to_string())?;
        }
        Ok(daemon)
    }

    fn pipes(&self) -> PathBuf {
        self.directory.path().to_path_buf()
    }

    fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("CUDA_MPS_PIPE_DIRECTORY", self.pipes()), ("CUDA_MPS_LOG_DIRECTORY", self.pipes())]
    }

    /// A node whose programs are its clients.
    fn rig(&self, setup: &Setup, node: &str) -> io::Result<Rig> {
        let managed = match (self.simulated, node.is_empty()) {
            (false, false) => format!("[mps]\npipe_directory = \"{}\"\n", self.pipes().display()),
            _ => String::new(),
        };
        let mut rig = setup.rig_with("mode = \"mps\"\n", &format!("{node}{managed}"))?;
        if !self.simulated {
            rig.add_variables(self.variables().to_vec());
        }
        Ok(rig)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Asked by its own pipe it ends its servers, too.
            let mut quit = Command::new("sh");
            quit.args(["-c", &format!("echo quit | {CONTROL}")]);
            let variables = [("CUDA_MPS_PIPE_DIRECTORY", self.directory.path())];
            let _ = quit
                .envs(variables)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// What was measured so far.
#[derive(Default)]
struct Measured {
    points: Vec<Point>,
    /// Shares without Weir, and with it.
    shares: Vec<share::Case>,
    /// What tenants at once are charged.
    charges: Vec<weights::Charge>,
    /// Kinds of work at once.
    pairs: Vec<pairs::Pair>,
    /// What is left to a filler beside one block that waits, of what it gets done alone.
    beside_a_spinner: Option<f64>,
    /// Why there is no MPS.
    without: Option<String>,
}

impl Measured {
    fn finding(&self) -> Finding {
        let served = self.points.iter().all(|point| point.requests > 0 && point.p99_us > 0.0);
        let whole = !self.charges.is_empty() && self.charges.iter().all(weights::Charge::is_whole);
        let measured =
            served && self.points.len() >= 3 && self.shares.len() == 2 && whole && !self.pairs.is_empty();
        let points = self.points.iter().map(|point| {
            let Point { rule, p99_us, p99_ratio, job_percent, .. } = point;
            let job = if job_percent.is_nan() { String::new() } else { format!(", job {job_percent:.0} %") };
            format!("{rule}: p99 {:.2} ms ({p99_ratio:.2}x){job}", p99_us / 1e3)
        });
        let spinner = self
            .beside_a_spinner
            .map(|left| format!("a filler beside one block that waits: {:.0} % of alone", 100.0 * left));
        let shared = self.shares.iter().map(share::Case::told);
        let charged = self.charges.iter().map(weights::Charge::told);
        let told = points
            .chain(shared)
            .chain(charged)
            .chain(spinner)
            .chain(self.pairs.iter().map(pairs::Pair::told));
        Finding {
            // A baseline: nothing is promised of others, but that they were measured; of ours, that nobody runs for nothing. Without MPS there is no verdict.
            holds: self.without.is_none().then_some(measured),
            line: told.chain(self.without.clone()).collect::<Vec<_>>().join("; "),
            figures: json!({
                "points": self.points, "shares": self.shares, "charges": self.charges, "pairs": self.pairs,
                "beside_a_spinner": self.beside_a_spinner,
            }),
            ..Finding::default()
        }
    }
}
