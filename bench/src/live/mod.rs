//! `weir-bench live`: random programs of streams, flags, host functions, captures and collectives under hard throttling.
//! Each of them ends without Weir, by construction (`generate`) and, for a sample of the seeds, by trial. So whatever
//! hangs, hangs by our doing.
//!
//! ```text
//! weir-bench live [--programs 100000] [--seconds 180] [--seed 0] [--gpus 3] [--mode both]
//! weir-bench live --profile unkind                # on cards less kind than an H200
//! weir-bench live --seed 4711 --programs 1       # a failing seed again
//! ```

mod calls;
mod directed;
mod execute;
mod generate;
mod player;
mod program;
mod random;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_simgpu_link::config::Profile;

use crate::report::{Bar, Report};
use crate::rig::{Control, Rig, SimulatedGpu, profile};
pub use player::{Options as PlayerOptions, run as play};
pub use random::Random;
use watch::{Said, Shape, Tenant, Totals};

/// Eight tenants of 10 %: the GPU has room for all, each is throttled. The ranks of a gang have a GPU each, of which the second one
/// is theirs alone.
const TENANTS: [Shape; 8] = {
    const ONE: Shape = Shape { processes: 1, gang: false };
    let mut tenants = [ONE; 8];
    tenants[0] = Shape { processes: 2, gang: false };
    tenants[1] = Shape { processes: 2, gang: true };
    tenants
};

/// A tenant whose processes failed so often is not started again: what fails does so each time.
const MOST_LIVES: usize = 8;

/// So many programs are run without Weir first.
const BARE: u64 = 400;

/// What the benchmark takes.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Print one JSON document on stdout instead of lines.
    #[arg(long)]
    json: bool,
    /// Seed of the first program; each further one has the next number.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many programs [default: as many as fit the time]
    #[arg(long)]
    programs: Option<u64>,
    /// For how long, unless a number of programs is given.
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// How many tenants, of 10 % each; the first two have two processes.
    #[arg(long, default_value_t = TENANTS.len(), value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=8))]
    tenants: usize,
    /// How tenants share a GPU: in turns, at once, or every second of the GPUs at once.
    #[arg(long, value_enum, default_value_t = Mode::TimeSlice)]
    mode: Mode,
    /// What GPUs are like otherwise: `h200` or `unkind`
    #[arg(long, value_parser = profile, default_value = "h200")]
    profile: Profile,
    /// How many simulated GPUs at a time, each with so many tenants and its part of the programs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    gpus: u64,
    /// Run without Weir.
    #[arg(long)]
    bare: bool,
}

/// How tenants share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    TimeSlice,
    Mps,
    Both,
}

impl Mode {
    /// The simulated GPU's word for it, for the GPU of this number.
    fn of(self, gpu: usize) -> &'static str {
        match self {
            Self::Mps => "mps",
            Self::Both if gpu % 2 == 1 => "mps",
            _ => "time-slice",
        }
    }
}

/// A simulated GPU.
#[derive(Clone, Copy)]
struct Card {
    mode: &'static str,
    profile: Profile,
}

impl Options {
    fn card(&self, gpu: usize) -> Card {
        Card { mode: self.mode.of(gpu), profile: self.profile }
    }
}

/// A kernel of the simulated GPU.
#[derive(Clone, Debug, Serialize)]
struct Kernel {
    name: &'static str,
    time_us: f64,
    blocks: u32,
    spins: bool,
}

/// A program that did not end well.
#[derive(Clone, Debug, Serialize)]
struct Failure {
    seed: u64,
    what: String,
    program: String,
}

/// What came out.
#[derive(Default)]
struct Outcome {
    programs: u64,
    hangs: Vec<Failure>,
    errors: Vec<Failure>,
    longest_launch: (u64, u64),       // ns, and in which program
    longest_program: (Duration, u64), // and which
    totals: Totals,
    wall: Duration,
}

/// Which programs to run.
#[derive(Clone, Copy)]
struct Plan {
    first: u64,
    count: u64,
    until: Option<Instant>,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<ExitCode, io::Error> {
    let first = options.seed;
    let tenants = if options.programs == Some(1) { 1 } else { options.tenants };
    let bare = options.programs.unwrap_or(BARE).min(BARE);
    let bare = Session::new(Some(options.card(0)), false, tenants)?.play(Plan {
        first,
        count: bare,
        until: None,
    })?;
    let mut report = Report::new("live", true);
    report.figure("bare", bare.figures());
    if options.bare {
        report.bar(Bar::at_most(
            "live.bare_hangs",
            (bare.hangs.len() + bare.errors.len()) as f64,
            "programs",
            0.0,
        ));
        return Ok(report.finish(options.json));
    }
    let until = options.programs.is_none().then(|| Instant::now() + Duration::from_secs(options.seconds));
    let plan = Plan { first, count: options.programs.unwrap_or(u64::MAX), until };
    let outcome = side_by_side(plan.parts(options.gpus), |gpu| options.card(gpu), tenants)?;
    let failed = [&bare.hangs, &bare.errors, &outcome.errors].iter().map(|list| list.len()).sum::<usize>();
    report.bar(Bar::at_most("live.hangs", outcome.hangs.len() as f64, "programs", 0.0));
    report.bar(Bar::at_most("live.errors", failed as f64, "programs", 0.0));
    report.figure("throttled", outcome.figures());
    report.figure("limit_percent", watch::SHARE);
    Ok(report.finish(options.json))
}

/// What came of programs that others have run.
pub struct Checked {
    /// How many ended.
    pub programs: u64,
    /// How many hung.
    pub hangs: usize,
    /// How many failed otherwise.
    pub errors: usize,
    /// The launch that was held back longest.
    pub longest_launch_ms: f64,
    /// Everything else.
    pub figures: serde_json::Value,
}

/// Runs what is no matter of chance, and then random programs for so long, throttled, on either kind of GPU.
pub fn check(simulated: bool, tenants: usize, time: Duration) -> io::Result<Checked> {
    let plan = Plan { first: 0, count: u64::MAX, until: Some(Instant::now() + time) };
    let card = simulated.then(|| Card { mode: Mode::TimeSlice.of(0), profile: Profile::H200 });
    let outcome = Session::new(card, true, tenants)?.play(plan)?;
    Ok(Checked {
        programs: outcome.programs,
        hangs: outcome.hangs.len(),
        errors: outcome.errors.len(),
        longest_launch_ms: outcome.longest_launch.0 as f64 / 1e6,
        figures: outcome.figures(),
    })
}

/// Runs each plan on a GPU of its own, all at once.
fn side_by_side(
    plans: Vec<Plan>,
    card: impl Fn(usize) -> Card + Copy + Send + Sync,
    tenants: usize,
) -> io::Result<Outcome> {
    std::thread::scope(|scope| {
        let play =
            |(gpu, plan)| scope.spawn(move || Session::new(Some(card(gpu)), true, tenants)?.play(plan));
        let played: Vec<_> = plans.into_iter().enumerate().map(play).collect();
        let mut outcome = Outcome::default();
        for played in played {
            let one = played.join().map_err(|_| io::Error::other("a session ended early"))?;
            outcome += one?;
        }
        Ok(outcome)
    })
}

impl Plan {
    /// As many plans, of other seeds each.
    fn parts(self, parts: u64) -> Vec<Self> {
        let count = self.count.div_ceil(parts);
        let part = |n| match n {
            0 => Self { count, ..self },
            n => Self { first: self.first + directed::COUNT + n * count, count, ..self },
        };
        (0..parts).map(part).collect()
    }
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.hangs.extend(other.hangs);
        self.errors.extend(other.errors);
        self.longest_launch = self.longest_launch.max(other.longest_launch);
        self.longest_program = self.longest_program.max(other.longest_program);
        self.totals += other.totals;
        self.wall = self.wall.max(other.wall);
    }
}

/// Tenants and the node they run on.
struct Session {
    rig: Rig,
    control: Option<Control>,
    tenants: Vec<Tenant>,
    said: Receiver<Said>,
    mouth: Sender<Said>,
    outcome: Outcome,
}

impl Session {
    /// On a simulated GPU, or on the machine's own.
    fn new(card: Option<Card>, throttled: bool, tenants: usize) -> io::Result<Self> {
        let mut kernels: Vec<Kernel> = generate::KERNELS
            .iter()
            .map(|(name, time_us, _)| Kernel { name, time_us: *time_us, blocks: 20, spins: false })
            .collect();
        let spins = |name| Kernel { name, time_us: 10.0, blocks: 1, spins: true };
        kernels.extend([calls::SPIN, calls::COLLECTIVE].map(spins));
        let rig = match card {
            Some(Card { mode, profile }) => {
                Rig::untold(&SimulatedGpu { mode, profile, gpus: 2, ..SimulatedGpu::of(&kernels) })?
            }
            None => Rig::configured(false, "", "")?,
        };
        let mut control = if throttled { Some(Control::of(&rig)?) } else { None };
        let (mouth, said) = channel();
        let shapes = &TENANTS[..tenants.min(TENANTS.len())];
        let start = |(number, shape): (usize, &Shape)| {
            Tenant::start(&rig, control.as_mut(), (number, 0, shape.on(&rig)), None, &mouth)
        };
        let tenants = shapes.iter().enumerate().map(start).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { rig, control, tenants, said, mouth, outcome: Outcome::default() })
    }

    fn play(mut self, plan: Plan) -> io::Result<Outcome> {
        let start = Instant::now();
        let mut next = 0;
        let opens = plan.first == 0 && plan.count > 1;
        let first = if opens { directed::COUNT } else { plan.first };
        let mut working = self.tenants.len();
        while working > 0 {
            let deadline = self.tenants.iter().filter(|t| !t.rests).map(Tenant::deadline).min();
            let timeout = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            match self.said.recv_timeout(timeout) {
                Ok(said) => self.hear(&said)?,
                Err(RecvTimeoutError::Timeout) => self.ask_the_late()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            for tenant in self.tenants.iter_mut().filter(|tenant| tenant.is_idle()) {
                // Each tenant begins with what is no matter of chance.
                if opens && tenant.opened < directed::COUNT {
                    tenant.go(tenant.opened);
                    tenant.opened += 1;
                    continue;
                }
                let over = next >= plan.count || plan.until.is_some_and(|until| Instant::now() >= until);
                if over {
                    tenant.rests = true;
                } else {
                    tenant.go(first + next);
                    next += 1;
                }
            }
            working = self.tenants.iter().filter(|tenant| !tenant.rests).count();
        }
        self.outcome.wall = start.elapsed();
        for tenant in &self.tenants {
            self.outcome.totals += tenant.totals(&self.rig, self.control.as_mut())?;
        }
        Ok(self.outcome)
    }

    fn hear(&mut self, said: &Said) -> io::Result<()> {
        let tenant = &mut self.tenants[said.tenant];
        if said.life != tenant.life || tenant.rests {
            return Ok(()); // the last words of one that was killed
        }
        let words: Vec<&str> = said.line.as_deref().unwrap_or("ended").splitn(3, ' ').collect();
        match words.as_slice() {
            ["where", ..] => {
                if tenant.stands_where_it_stood(said) {
                    self.hangs(said.tenant)?;
                }
            }
            ["ready"] => drop(tenant.done(said.rank)),
            ["done", seed, longest] => {
                let seed = seed.parse().unwrap_or(0);
                let longest = (longest.parse().unwrap_or(u64::MAX), seed);
                self.outcome.longest_launch = self.outcome.longest_launch.max(longest);
                if let Some(took) = tenant.finished(said.rank) {
                    self.outcome.programs += 1;
                    self.outcome.longest_program = self.outcome.longest_program.max((took, seed));
                }
            }
            _ => {
                let failure =
                    failure(tenant, said.line.clone().unwrap_or_else(|| "the process ended".into()));
                self.outcome.errors.push(failure);
                self.restart(said.tenant)?;
            }
        }
        Ok(())
    }

    /// Programs that take long are asked where they are; who does not even answer hangs.
    fn ask_the_late(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for number in 0..self.tenants.len() {
            let tenant = &mut self.tenants[number];
            if !tenant.rests && tenant.deadline() <= now && !tenant.ask_where() {
                self.hangs(number)?;
            }
        }
        Ok(())
    }

    /// Notes a hang, and goes on with new processes.
    fn hangs(&mut self, number: usize) -> io::Result<()> {
        let tenant = &self.tenants[number];
        let report = tenant.report(&self.rig, self.control.as_mut())?;
        self.outcome.hangs.push(failure(tenant, report));
        self.restart(number)
    }

    /// Ends a tenant's processes first, so that its budget is free for its next life.
    fn restart(&mut self, number: usize) -> io::Result<()> {
        let tenant = &mut self.tenants[number];
        self.outcome.totals += tenant.totals(&self.rig, self.control.as_mut())?;
        if tenant.life == MOST_LIVES {
            tenant.rests = true;
            return tenant.end(self.control.as_mut()).map(drop);
        }
        let (life, shape) = (tenant.life + 1, tenant.shape);
        let kept = tenant.end(self.control.as_mut())?;
        let control = self.control.as_mut();
        let fresh = Tenant::start(&self.rig, control, (number, life, shape), kept, &self.mouth)?;
        self.tenants[number] = fresh;
        self.tenants[number].opened = directed::COUNT; // what hung once would hang again
        Ok(())
    }
}

/// What went wrong with the program that a tenant runs, said on stderr at once.
fn failure(tenant: &Tenant, what: String) -> Failure {
    let seed = tenant.seed.unwrap_or(0);
    let program = generate::program(seed).to_string();
    let _ = writeln!(io::stderr(), "seed {seed}: {what}\n  {program}");
    Failure { seed, what, program }
}

impl Outcome {
    fn figures(&self) -> serde_json::Value {
        let totals = &self.totals;
        let ms = |ns: u64| ns as f64 / 1e6;
        serde_json::json!({
            "programs": self.programs,
            "wall_s": self.wall.as_secs_f64(),
            "hangs": self.hangs,
            "errors": self.errors,
            "launches": totals.launches,
            "throttled": totals.throttled,
            "forced": totals.forced,
            "collectives": totals.collectives,
            "longest_launch_ms": ms(self.longest_launch.0),
            "longest_launch_seed": self.longest_launch.1,
            "longest_program_ms": self.longest_program.0.as_secs_f64() * 1e3,
            "longest_program_seed": self.longest_program.1,
            "waited_s": ms(totals.waited_ns) / 1e3,
            "mean_share_percent": 100.0 * totals.used_ns as f64 / totals.wall_ns.max(1) as f64,
            "charged_of_used_percent": 100.0 * totals.charged_ns as f64 / totals.used_ns.max(1) as f64,
        })
    }
}
