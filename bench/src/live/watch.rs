//! The side that watches: players, what they say, and for how long they have said nothing.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use weir_protocol::units::Bytes;
use weir_simgpu_link::books::Context;

use super::player::MEETING_BYTES;
use crate::rig::{Control, Rig, true_use};

/// A program none of whose threads comes further for this long hangs.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Two looks at the books are so far apart: many time slices.
const BETWEEN_BOOKS: Duration = Duration::from_millis(200);

/// A tenant whose processes have died is gone within some ticks.
const GONE: Duration = Duration::from_secs(2);

/// Between two looks whether it is.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Where a pair meets: kernels since 6.5 refuse to pin the pages of files on disks for a driver.
const SHARED_MEMORY: &str = "/dev/shm";

/// Request and limit of each tenant, in percent.
pub const SHARE: u16 = 10;

/// Something that a player said, or that it ended.
pub struct Said {
    /// Which tenant.
    pub tenant: usize,
    /// In which life of it.
    pub life: usize,
    /// Which of its processes.
    pub rank: usize,
    /// What; nothing if the process ended.
    pub line: Option<String>,
}

/// What a tenant's processes are to each other.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many there are.
    pub processes: usize,
    /// Whether they are ranks that have a GPU each, and wait for each other in collectives.
    pub gang: bool,
}

impl Shape {
    /// The same on these GPUs: on real ones nobody is a gang, since there may be one GPU alone.
    pub fn on(self, rig: &Rig) -> Self {
        Self { gang: self.gang && rig.is_simulated(), ..self }
    }

    fn gpus(self) -> &'static [&'static str] {
        if self.gang { &["0", "1"] } else { &["0"] }
    }
}

/// One tenant with its one or two processes, all of which run the same program at a time.
pub struct Tenant {
    /// How often it was started.
    pub life: usize,
    /// What its processes are to each other.
    pub shape: Shape,
    name: String,
    place: Option<PathBuf>,
    players: Vec<Child>,
    busy: Vec<bool>,
    /// The program that runs.
    pub seed: Option<u64>,
    /// How many of the directed programs it was given.
    pub opened: u64,
    /// Nothing more is asked of it.
    pub rests: bool,
    since: Instant,
    began: Instant,
    since_asked: Instant,
    asked: bool, // and not yet answered
    answers: Vec<Option<String>>,
    before: Vec<Option<String>>,
    _meet: tempfile::NamedTempFile,
}

/// What became of a tenant, by its counters and by the GPU's books.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Launches.
    pub launches: u64,
    /// Launches that waited at the gate.
    pub throttled: u64,
    /// Launches that passed as debt.
    pub forced: u64,
    /// Time that launches waited, ns.
    pub waited_ns: u64,
    /// Launches of collectives.
    pub collectives: u64,
    /// GPU time used, ns.
    pub used_ns: u64,
    /// GPU time charged, ns.
    pub charged_ns: u64,
    /// Time for which the tenant was there, ns.
    pub wall_ns: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.launches += other.launches;
        self.throttled += other.throttled;
        self.forced += other.forced;
        self.waited_ns += other.waited_ns;
        self.collectives += other.collectives;
        self.used_ns += other.used_ns;
        self.charged_ns += other.charged_ns;
        self.wall_ns += other.wall_ns;
    }
}

impl Tenant {
    /// Ends the processes. The place of the tenant, if it is there for longer than they are: nobody has come under it yet, and the next
    /// ones may.
    pub fn end(&mut self, control: Option<&mut Control>) -> io::Result<Option<PathBuf>> {
        self.kill();
        let Some(control) = control else { return Ok(None) };
        let begin = Instant::now();
        while control.stats()?.tenants.iter().any(|tenant| tenant.name == self.name) {
            if begin.elapsed() > GONE {
                return Ok(self.place.clone());
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(None)
    }

    fn kill(&mut self) {
        for player in &mut self.players {
            let _ = player.kill();
            let _ = player.wait();
        }
    }

    /// Starts the processes; under Weir if there is a `control`, else bare. `kept` is the place of an earlier life that is still there.
    pub fn start(
        rig: &Rig,
        control: Option<&mut Control>,
        (number, life, shape): (usize, usize, Shape),
        kept: Option<PathBuf>,
        said: &Sender<Said>,
    ) -> io::Result<Self> {
        let meet = tempfile::NamedTempFile::new_in(SHARED_MEMORY)?;
        meet.as_file().set_len(MEETING_BYTES)?;
        let name = format!("live{number}x{life}");
        let place = match control {
            Some(_) if kept.is_some() => kept,
            Some(control) => Some(control.create_limited(shape.gpus(), &name, SHARE, Bytes::gib(1))?.dir),
            None => None,
        };
        let player = |rank| {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["live-player", "--rank", &format!("{rank}")]);
            if shape.processes > 1 {
                command.arg("--meet").arg(meet.path());
            }
            rig.environment(&mut command);
            if shape.gang {
                command.arg("--collective").env("CUDA_VISIBLE_DEVICES", format!("{rank}"));
            }
            if let Some(place) = &place {
                command.env("LD_PRELOAD", rig.preload()).env("WEIR_DIR", place);
            }
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let lines = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?).lines();
            let said = said.clone();
            std::thread::spawn(move || {
                let lines = lines.map_while(Result::ok).map(Some).chain([None]);
                lines
                    .map(|line| said.send(Said { tenant: number, life, rank, line }))
                    .all(|sent| sent.is_ok())
            });
            Ok::<_, io::Error>(child)
        };
        let players = (0..shape.processes).map(player).collect::<io::Result<Vec<_>>>()?;
        let (busy, now) = (vec![true; players.len()], Instant::now());
        Ok(Self {
            life,
            shape,
            name,
            place,
            players,
            busy,
            seed: None,
            opened: 0,
            rests: false,
            since: now,
            began: now,
            since_asked: now,
            asked: false,
            answers: vec![None; shape.processes],
            before: Vec::new(),
            _meet: meet,
        })
    }

    /// One of the processes has done what it was to do; says whether all have.
    pub fn done(&mut self, rank: usize) -> bool {
        if let Some(busy) = self.busy.get_mut(rank) {
            *busy = false;
        }
        self.busy.iter().all(|busy| !busy)
    }

    /// Runs a program.
    pub fn go(&mut self, seed: u64) {
        (self.seed, self.since) = (Some(seed), Instant::now());
        self.busy.fill(true);
        self.since_asked = self.since;
        self.asked = false;
        self.answers.fill(None);
        self.before.clear();
        self.tell(&format!("run {seed}"));
    }

    /// Has every process say where it is; says no if one has not even answered the last time.
    pub fn ask_where(&mut self) -> bool {
        let silent = self.asked;
        self.since_asked = Instant::now();
        self.asked = true;
        self.tell("where");
        !silent
    }

    fn tell(&mut self, line: &str) {
        for stdin in self.players.iter_mut().filter_map(|player| player.stdin.as_mut()) {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush()); // its end is seen on its stdout
        }
    }

    /// Whether it has nothing to do and may get something.
    pub fn is_idle(&self) -> bool {
        !self.rests && self.busy.iter().all(|busy| !busy)
    }

    /// One of the processes has ended the program; says how long it took when all have.
    pub fn finished(&mut self, rank: usize) -> Option<Duration> {
        self.done(rank).then(|| self.since.elapsed())
    }

    /// When it will have hung, unless it says something before.
    pub fn deadline(&self) -> Instant {
        self.since_asked + PATIENCE
    }

    /// What it did.
    pub fn totals(&self, rig: &Rig, control: Option<&mut Control>) -> io::Result<Totals> {
        let mut used_ns = 0; // by the books of a simulated GPU: a real one keeps none
        if rig.is_simulated() {
            let books = rig.books()?;
            used_ns = self.players.iter().map(|player| true_use(&books, player.id().cast_signed())).sum();
        }
        // Its part is of each of its GPUs.
        let wall_ns = self.began.elapsed().as_nanos() * self.shape.gpus().len() as u128;
        let wall_ns = u64::try_from(wall_ns).unwrap_or(u64::MAX);
        let mut totals = Totals { used_ns, wall_ns, ..Totals::default() };
        let Some(control) = control else { return Ok(totals) };
        let stats = control.stats()?;
        let tenant = stats.tenants.iter().find(|tenant| tenant.name == self.name);
        for total in tenant.iter().flat_map(|tenant| &tenant.gpus).map(|gpu| &gpu.total) {
            totals.launches += total.launches;
            totals.throttled += total.throttled;
            totals.forced += total.forced;
            totals.waited_ns += total.waited_ns;
            totals.charged_ns += total.charged_ns;
            totals.collectives += total.collectives;
        }
        Ok(totals)
    }

    /// Takes in where a process says it is; says whether all of them are where they were the last time.
    pub fn stands_where_it_stood(&mut self, said: &Said) -> bool {
        if let Some(answer) = self.answers.get_mut(said.rank) {
            answer.clone_from(&said.line);
        }
        if self.answers.iter().any(Option::is_none) {
            return false;
        }
        self.asked = false;
        let fresh = self.answers.iter_mut().map(Option::take).collect();
        let before = std::mem::replace(&mut self.before, fresh);
        before == self.before
    }

    /// What every thread of its processes does in the kernel, what the GPU has of them and what the manager says of them, for
    /// the report of a hang.
    pub fn report(&self, rig: &Rig, control: Option<&mut Control>) -> io::Result<String> {
        let threads: String = self.players.iter().map(|player| threads(player.id())).collect();
        let mut on_gpu = String::new();
        // Twice: does the GPU turn to it at all?
        let looks = if rig.is_simulated() { 2 } else { 0 };
        for _ in 0..looks {
            let books = rig.books()?;
            for player in &self.players {
                let pid = player.id().cast_signed();
                let clients =
                    books.gpus.iter().flat_map(|gpu| &gpu.clients).filter(|client| client.pid == pid);
                for context in clients.flat_map(|client| &client.contexts) {
                    let Context { queued, switches, launches, true_use_ns, .. } = context;
                    let at = books.now_ns / 1_000_000;
                    on_gpu += &format!(
                        "  {pid} at {at} ms: {queued} commands queued, {launches} kernels done, used {true_use_ns} ns, {switches} switches\n"
                    );
                }
            }
            std::thread::sleep(BETWEEN_BOOKS);
        }
        let stats = control.map(Control::stats).transpose()?;
        let tenant = stats.iter().flat_map(|stats| &stats.tenants).find(|tenant| tenant.name == self.name);
        let said = tenant.map(serde_json::to_string).transpose()?.unwrap_or_default();
        Ok(format!("{threads}{on_gpu}  {said}"))
    }
}

/// What every thread of a process does in the kernel.
fn threads(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let about = |path: &Path| {
        let read =
            |what: &str| std::fs::read_to_string(path.join(what)).unwrap_or_default().trim().to_owned();
        format!("  {pid} {}: {} {}\n", read("comm"), read("wchan"), read("syscall"))
    };
    tasks.map(|task| about(&task.path())).collect()
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.kill();
    }
}
