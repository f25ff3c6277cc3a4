//! A whole node in a temporary directory: the simulated GPU, a node manager over it, and tenants whose programs are
//! ours to start. Everything ends with the rig.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
use weir_nodemgr::control::schema::{ClassName, CreateTenant, Created, SetBudget, SetDone};
use weir_nodemgr::control::{Client, Stats};
use weir_nodemgr::place::Place;
use weir_protocol::price::PriceRow;
use weir_protocol::units::Bytes;
use weir_simgpu_link::books::Books;
use weir_simgpu_link::config::{Profile, SMS};

use crate::stage;

/// Longest wait for something that should happen at once.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// What a kernel costs, on the simulated GPU and by the operator's price table alike.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Kernel name; `*` stands for any run of characters.
    pub name: &'static str,
    /// GPU time of one launch, in microseconds.
    pub time_us: f64,
}

/// How the simulated GPU runs kernels; of it the operator's price table knows the bandwidth and nothing else.
#[derive(Clone, Debug, Serialize)]
pub struct Kernel {
    /// Kernel name.
    pub name: &'static str,
    /// GPU time of one launch, in microseconds.
    pub time_us: f64,
    /// Blocks resident, one on each SM.
    pub blocks: u32,
    /// Part of the memory's bandwidth, in percent.
    pub bandwidth: u32,
    /// Longest by shortest launch.
    pub spread: f64,
}

impl Kernel {
    /// Mean time of a launch: data-dependent times are spread evenly on a logarithmic scale around `time_us`.
    pub fn mean_us(&self) -> f64 {
        let root = self.spread.sqrt();
        if self.spread > 1.0 { self.time_us * (root - 1.0 / root) / self.spread.ln() } else { self.time_us }
    }
}

/// A simulated GPU's configuration.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatedGpu<'a, K> {
    /// What it is like otherwise.
    pub profile: Profile,
    /// `time-slice` or `mps`.
    pub mode: &'static str,
    /// How many there are.
    pub gpus: u32,
    /// SMs of each.
    pub sms: u32,
    /// What kernels take.
    pub kernel: &'a [K],
}

impl<'a, K> SimulatedGpu<'a, K> {
    /// One in time slices, on which kernels take this.
    pub fn of(kernel: &'a [K]) -> Self {
        Self { profile: Profile::H200, mode: "time-slice", gpus: 1, sms: SMS, kernel }
    }
}

/// A profile by its name in the configuration.
pub fn profile(name: &str) -> Result<Profile, String> {
    Profile::deserialize(IntoDeserializer::<serde::de::value::Error>::into_deserializer(name))
        .map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct NodeConfig<'a, P> {
    gate: &'static str,
    price: &'a [P],
}

/// A running node.
pub struct Rig {
    directory: tempfile::TempDir,
    dist: &'static Path,
    node: Child,
    simulated: bool,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Rig {
    /// A node over one simulated GPU on which kernels cost `costs`.
    pub fn simulated(costs: &[Cost]) -> io::Result<Self> {
        Self::told(&SimulatedGpu::of(costs))
    }

    /// A node over one simulated GPU that has been told what its kernels cost.
    pub fn told(gpu: &SimulatedGpu<'_, Cost>) -> io::Result<Self> {
        Self::start(gpu, gpu.kernel)
    }

    /// The same where launches wait on the host: calls that return late say when a gate was closed.
    pub fn gated_on_the_host(costs: &[Cost]) -> io::Result<Self> {
        Self::start_with("host", &SimulatedGpu::of(costs), costs)
    }

    /// A node over so many simulated GPUs, on which nothing will run.
    pub fn of_gpus(gpus: u32) -> io::Result<Self> {
        Self::start::<Cost, Cost>(&SimulatedGpu { gpus, ..SimulatedGpu::of(&[]) }, &[])
    }

    /// A node over one simulated GPU whose kernels' costs nobody has told it.
    pub fn untold<K: Serialize>(gpu: &SimulatedGpu<'_, K>) -> io::Result<Self> {
        Self::start::<_, Cost>(gpu, &[])
    }

    /// The same, but for the bandwidth that kernels take: that no event tells.
    pub fn told_of_bandwidth(gpu: &SimulatedGpu<'_, Kernel>) -> io::Result<Self> {
        let told = gpu.kernel.iter().filter(|kernel| kernel.bandwidth > 0).map(|kernel| PriceRow {
            name: kernel.name.into(),
            bandwidth_percent: Some(f64::from(kernel.bandwidth)),
            ..PriceRow::default()
        });
        Self::start(gpu, &told.collect::<Vec<_>>())
    }

    /// A node over simulated GPUs, or over the machine's own: of their configuration and the node manager's, as they stand in TOML.
    pub fn configured(simulated: bool, gpu: &str, node: &str) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("simgpu.toml"), gpu)?;
        let node = if node.is_empty() { "price = []\n" } else { node }; // an empty file is refused as a mistake
        fs::write(directory.path().join("weir.toml"), node)?;
        let dist = stage::dist()?;
        let node = self::node(directory.path(), dist, simulated, None)?;
        let rig = Self { directory, dist, node, simulated, variables: Vec::new() };
        rig.wait_for("the node manager", || Ok(rig.control().is_ok().then_some(())))?;
        Ok(rig)
    }

    fn start<K: Serialize, P: Serialize>(gpu: &SimulatedGpu<'_, K>, prices: &[P]) -> io::Result<Self> {
        Self::start_with("auto", gpu, prices)
    }

    fn start_with<K: Serialize, P: Serialize>(
        gate: &'static str,
        gpu: &SimulatedGpu<'_, K>,
        prices: &[P],
    ) -> io::Result<Self> {
        let gpu = toml::to_string(gpu).map_err(io::Error::other)?;
        let node = toml::to_string(&NodeConfig { gate, price: prices }).map_err(io::Error::other)?;
        Self::configured(true, &gpu, &node)
    }

    /// Kills the node manager, as nothing in it can prevent.
    pub fn kill_node(&mut self) -> io::Result<()> {
        self.node.kill()?;
        self.node.wait().map(drop)
    }

    /// Starts another one in its place, and does not wait until it answers.
    pub fn start_node(&mut self) -> io::Result<()> {
        self.node = node(self.directory.path(), self.dist, self.simulated, None)?;
        Ok(())
    }

    /// The same; the other one dies when it comes to this place (`weir_nodemgr::failpoint::PLACES`).
    pub fn start_node_to_die_at(&mut self, place: &str) -> io::Result<()> {
        self.node = node(self.directory.path(), self.dist, self.simulated, Some(place))?;
        Ok(())
    }

    /// Waits until the node manager has died by itself.
    pub fn wait_for_death(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            if self.node.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1)); // between two looks at another process
        }
        Err(io::Error::other(format!("the node manager did not die within {DEADLINE:?}\n{}", self.logs())))
    }

    /// The most memory that the node manager has ever had, its tenants' pages included.
    pub fn node_peak_bytes(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.node.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
        let kib: u64 = peak.unwrap_or_default().parse().map_err(io::Error::other)?;
        Ok(kib << 10)
    }

    /// Processor time that all threads of the node manager have taken.
    pub fn node_cpu(&self) -> io::Result<Duration> {
        let mut sum = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.node.id()))? {
            let taken = fs::read_to_string(thread?.path().join("schedstat"))?;
            let ns: u64 =
                taken.split_whitespace().next().unwrap_or_default().parse().map_err(io::Error::other)?;
            sum += ns;
        }
        Ok(Duration::from_nanos(sum))
    }

    /// How long `weir ps` takes, from the start of its process to its end.
    pub fn ps(&self) -> io::Result<Duration> {
        let mut command = Command::new(self.dist.join("bin/weir"));
        command.arg("ps").arg("--dir").arg(self.directory.path().join("node")).stdout(Stdio::null());
        let start = Instant::now();
        let status = command.status()?;
        let took = start.elapsed();
        if status.success() { Ok(took) } else { Err(io::Error::other(format!("`weir ps` failed: {status}"))) }
    }

    /// A new connection to the node manager.
    pub fn control(&self) -> io::Result<Client> {
        let place = Place::at(&self.directory.path().join("node")).map_err(fault)?;
        Client::connect(&place).map_err(fault)
    }

    /// Where the programs of a rig find the driver.
    pub fn environment(&self, command: &mut Command) {
        environment(command, self.directory.path(), self.dist, self.simulated);
        command.envs(self.variables.iter().cloned());
    }

    /// Gives its programs these variables, too.
    pub fn add_variables(&mut self, variables: Vec<(&'static str, PathBuf)>) {
        self.variables.extend(variables);
    }

    /// And this one no longer.
    pub fn remove_variable(&mut self, name: &str) {
        self.variables.retain(|(other, _)| *other != name);
    }

    /// `weir run` of a program, with its output in a file of the rig.
    pub fn weir_run(&self, name: &str, budget: &[&str], program: &[&str]) -> io::Result<Child> {
        let log = fs::File::create(self.log(name))?;
        let mut command = Command::new(self.dist.join("bin/weir"));
        command.arg("run").arg("--dir").arg(self.directory.path().join("node")).args(["--name", name]);
        command.args(budget).arg("--").args(program);
        self.environment(&mut command);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).spawn()
    }

    /// Where the output of a program that was started by [`Self::weir_run`] lies.
    pub fn log(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.log"))
    }

    /// Where programs shall look for the driver first: the simulated one's directory, or nowhere in particular.
    pub fn driver_directory(&self) -> PathBuf {
        if self.simulated { self.dist.join("simgpu") } else { PathBuf::new() }
    }

    /// What the simulated driver finds its GPU by.
    pub fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        if self.simulated { variables(self.directory.path()).to_vec() } else { Vec::new() }
    }

    /// Where libweir.so lies.
    pub fn preload(&self) -> PathBuf {
        self.dist.join("lib/weir/libweir.so")
    }

    /// Whether its GPUs are simulated.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Where it keeps its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The simulated GPU's own books.
    pub fn books(&self) -> io::Result<Books> {
        let mut command = Command::new(self.dist.join("simgpu/weir-simgpu"));
        command.arg("books").arg("--dir").arg(self.directory.path().join("simgpu"));
        let output = command.stderr(Stdio::inherit()).output()?;
        serde_json::from_slice(&output.stdout).map_err(io::Error::other)
    }

    /// Asks `ready` until it has an answer, which should be soon.
    pub fn wait_for<T>(&self, what: &str, ready: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
        self.wait_within(DEADLINE, what, ready)
    }

    /// The same for what may take so long.
    pub fn wait_within<T>(
        &self,
        patience: Duration,
        what: &str,
        mut ready: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let start = Instant::now();
        loop {
            if let Some(answer) = ready()? {
                return Ok(answer);
            }
            if start.elapsed() > patience {
                let logs = self.logs();
                return Err(io::Error::other(format!("{what} did not come up within {patience:?}\n{logs}")));
            }
            std::thread::sleep(Duration::from_millis(5)); // between two looks at real processes
        }
    }

    /// The last lines of every log, for an error message.
    fn logs(&self) -> String {
        let entries = fs::read_dir(self.directory.path()).into_iter().flatten().flatten();
        let logs = entries.filter(|entry| entry.path().extension().is_some_and(|ext| ext == "log"));
        let tail = |path: PathBuf| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {}\n{}\n", path.display(), lines[lines.len().saturating_sub(15)..].join("\n"))
        };
        logs.map(|entry| tail(entry.path())).collect()
    }
}

fn node(directory: &Path, dist: &Path, simulated: bool, dies_at: Option<&str>) -> io::Result<Child> {
    let log = fs::File::options().create(true).append(true).open(directory.join("node.log"))?;
    let mut command = match dies_at {
        None => Command::new(dist.join("bin/weir")),
        Some(_) => Command::new(dist.join("test/weir-failpoints")),
    };
    command.envs(dies_at.map(|place| ("WEIR_NODE_FAILPOINT", place)));
    command.arg("node").arg("--dir").arg(directory.join("node"));
    command.arg("--config").arg(directory.join("weir.toml"));
    environment(&mut command, directory, dist, simulated);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

fn environment(command: &mut Command, directory: &Path, dist: &Path, simulated: bool) {
    command.env_remove("LD_PRELOAD").env_remove("WEIR_DIR");
    if simulated {
        command.env("LD_LIBRARY_PATH", dist.join("simgpu")).envs(variables(directory));
    }
}

fn variables(directory: &Path) -> [(&'static str, PathBuf); 2] {
    [("WEIR_SIMGPU_DIR", directory.join("simgpu")), ("WEIR_SIMGPU_CONFIG", directory.join("simgpu.toml"))]
}

fn fault(fault: weir_nodemgr::fault::Fault) -> io::Error {
    io::Error::other(fault.to_string())
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

/// A control connection, with the operations in the units of this crate.
pub struct Control(Client);

impl Control {
    /// Connects.
    pub fn of(rig: &Rig) -> io::Result<Self> {
        rig.control().map(Self)
    }

    /// Makes a tenant with request = limit.
    pub fn create(&mut self, name: &str, percent: u16, memory: Bytes) -> io::Result<Created> {
        self.create_limited(&[], name, percent, memory)
    }

    /// Makes a tenant on these GPUs with request = limit.
    pub fn create_limited(
        &mut self,
        gpus: &[&str],
        name: &str,
        percent: u16,
        memory: Bytes,
    ) -> io::Result<Created> {
        let wanted = CreateTenant {
            name: name.into(),
            gpus: gpus.iter().map(|gpu| (*gpu).to_owned()).collect(),
            request_permille: Some(percent * 10),
            limit_permille: Some(percent * 10),
            memory_bytes: Some(memory.0),
            ..CreateTenant::default()
        };
        self.0.create(wanted).map_err(fault)
    }

    /// Makes a tenant of a class on these GPUs, with this request in percent.
    pub fn create_on(
        &mut self,
        gpus: &[&str],
        name: &str,
        class: ClassName,
        request: Option<u16>,
        memory: Bytes,
    ) -> io::Result<Created> {
        let wanted = CreateTenant {
            name: name.into(),
            gpus: gpus.iter().map(|gpu| (*gpu).to_owned()).collect(),
            request_permille: request.map(|percent| percent * 10),
            memory_bytes: Some(memory.0),
            class,
            ..CreateTenant::default()
        };
        self.0.create(wanted).map_err(fault)
    }

    /// Sets request and limit alike.
    pub fn set(&mut self, name: &str, percent: u16) -> io::Result<SetDone> {
        let change = SetBudget {
            tenant: name.into(),
            request_permille: Some(percent * 10),
            limit_permille: Some(percent * 10),
            ..SetBudget::default()
        };
        self.0.set(change).map_err(fault)
    }

    /// For whatever else can be asked.
    pub fn client(&mut self) -> &mut Client {
        &mut self.0
    }

    /// Everything that the manager knows.
    pub fn stats(&mut self) -> io::Result<Stats> {
        self.0.stats().map_err(fault)
    }
}

/// True use of each process by the books, in nanoseconds, and when they were taken.
pub fn true_use(books: &Books, pid: i32) -> u64 {
    let clients = books.gpus.iter().flat_map(|gpu| &gpu.clients).filter(|client| client.pid == pid);
    clients.flat_map(|client| &client.contexts).map(|context| context.true_use_ns).sum()
}
