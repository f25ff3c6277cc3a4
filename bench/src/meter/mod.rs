//! `weir-bench meter`: what programs are charged against what they truly used, by the simulated GPU's own books. Nobody
//! has told the node manager what their kernels cost; only what they take of the memory's bandwidth, which no event tells.

mod cases;
mod divided;
mod limits;
mod pace;

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use serde::Serialize;
use weir_protocol::units::Bytes;

use crate::report::{Bar, Report};
use crate::rig::{Control, Kernel, Rig, SimulatedGpu, true_use};
use crate::stage::THIS_PROGRAM;
use crate::stolen::Tries;
use cases::{CASES, Case, KERNELS, PAIRS};
pub use pace::run as pace;

/// Windows of about a second of GPU time; in the first one prices are still being learnt.
const WINDOWS: usize = 4;

/// One program, alone or beside another.
#[derive(Debug, Serialize)]
struct Outcome {
    program: &'static str,
    beside: Option<&'static str>,
    mode: &'static str,
    /// The bar, or what cannot be told if that is more.
    limit_percent: f64,
    /// Charged by true use, in percent, of each window.
    error_percent: Vec<f64>,
    /// The same in the window in which everything was new.
    first_error_percent: f64,
    /// Part of the charge that was measured and not estimated.
    measured_percent: f64,
    /// Charged and true, of one launch.
    launch_ns: (f64, f64),
    /// What is known in the end of each kernel that was launched, and of the graph.
    signatures: Vec<Signature>,
    /// How undisturbed it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    tries: Option<Tries>,
}

/// A kernel: its price, and what it takes alone. Or a graph: what a launch was charged, and what it truly used.
#[derive(Debug, Serialize)]
struct Signature {
    kernel: &'static str,
    charged_ns: f64,
    alone_ns: f64,
    /// The bar, or what cannot be told if that is more.
    limit_percent: f64,
}

impl Signature {
    /// Whether it can be told as well as the bar wants it.
    fn is_told_apart(&self) -> bool {
        self.limit_percent <= limits::signature_bar(self.alone_ns / 1e3)
    }

    /// By how much it is off, in percent of what it may be.
    fn of_limit_percent(&self) -> f64 {
        let error_percent = 100.0 * (self.charged_ns / self.alone_ns - 1.0).abs();
        100.0 * error_percent / self.limit_percent
    }
}

/// What the benchmark takes.
#[derive(clap::Args)]
pub struct Options {
    /// Print one JSON document on stdout instead of lines.
    #[arg(long)]
    json: bool,
    /// Only programs with this in their names; of pairs, those with such a program
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Only one of `time-slice` and `mps`
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Only programs beside another
    #[arg(long)]
    pairs: bool,
}

impl Options {
    fn wants(&self, case: usize) -> bool {
        self.case.as_ref().is_none_or(|name| CASES[case].name.contains(name.as_str()))
    }
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<ExitCode, io::Error> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let modes = ["time-slice", "mps"].into_iter();
    for mode in modes.filter(|mode| options.mode.as_ref().is_none_or(|wanted| wanted == mode)) {
        for case in (0..CASES.len()).filter(|case| !options.pairs && options.wants(*case)) {
            alone.extend(at_peace(mode, &[case])?);
        }
        for (one, other) in
            PAIRS.into_iter().filter(|(one, other)| options.wants(*one) || options.wants(*other))
        {
            beside.extend(at_peace(mode, &[one, other])?);
        }
    }
    if alone.is_empty() && beside.is_empty() {
        return Err(io::Error::other("no program has this in its name, or there is no such mode"));
    }
    let all = || alone.iter().chain(&beside);
    let mut report = Report::new("meter", true);
    let told = all().filter(|outcome| outcome.limit_percent <= limits::BAR).map(Outcome::worst);
    let error = told.fold(0.0, f64::max);
    report.bar(Bar::at_most("meter.error_percent", error, "percent", limits::BAR));
    let others = all().filter(|outcome| outcome.limit_percent > limits::BAR);
    let of_limit = others.map(|outcome| 100.0 * outcome.worst() / outcome.limit_percent).fold(0.0, f64::max);
    report.bar(Bar::at_most("meter.of_computed_limit_percent", of_limit, "percent", 110.0));
    let worst = |told: bool| {
        let signatures = all().flat_map(|outcome| &outcome.signatures);
        let these = signatures.filter(|signature| signature.is_told_apart() == told);
        these.map(Signature::of_limit_percent).fold(0.0, f64::max)
    };
    report.bar(Bar::at_most("meter.signature_of_limit_percent", worst(true), "percent", 100.0));
    let name = "meter.signature_of_computed_limit_percent";
    report.bar(Bar::at_most(name, worst(false), "percent", 110.0));
    for mode in ["time-slice", "mps"] {
        let worst = |outcomes: &[Outcome]| {
            let errors = outcomes.iter().filter(|outcome| outcome.mode == mode).map(Outcome::worst);
            errors.fold(0.0, f64::max)
        };
        report.figure(&format!("worst_alone_{mode}_percent"), worst(&alone));
        report.figure(&format!("worst_beside_{mode}_percent"), worst(&beside));
    }
    report.figure("alone", alone);
    report.figure("beside", beside);
    Ok(report.finish(options.json))
}

/// One process of a program.
struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
    prices_ns: Vec<u64>,
}

/// One program as a tenant of its own.
struct Paced {
    case: usize,
    tenant: String,
    processes: Vec<Process>,
}

impl Process {
    fn start(rig: &Rig, place: &Path, case: usize) -> io::Result<Self> {
        let mut command = Command::new(THIS_PROGRAM);
        command.args(["pace", &case.to_string()]);
        rig.environment(&mut command);
        command.env("LD_PRELOAD", rig.preload()).env("WEIR_DIR", place);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().map(BufReader::new).ok_or(io::ErrorKind::BrokenPipe)?;
        let mut process = Self { child, said, prices_ns: Vec::new() };
        process.hear()?;
        Ok(process)
    }

    fn go(&mut self) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), |stdin| writeln!(stdin))
    }

    fn hear(&mut self) -> io::Result<()> {
        let mut line = String::new();
        match self.said.read_line(&mut line)? {
            0 => Err(io::Error::other("a program ended")),
            _ => {
                self.prices_ns = line.split_whitespace().filter_map(|price| price.parse().ok()).collect();
                Ok(())
            }
        }
    }
}

impl Paced {
    fn start(rig: &Rig, control: &mut Control, case: usize, percent: u16) -> io::Result<Self> {
        let tenant = format!("case{case}");
        let created = control.create(&tenant, percent, Bytes::gib(2))?;
        let process = |_| Process::start(rig, &created.dir, case);
        let processes = (0..CASES[case].processes).map(process).collect::<io::Result<_>>()?;
        Ok(Self { case, tenant, processes })
    }

    fn go(&mut self) -> io::Result<()> {
        self.processes.iter_mut().try_for_each(Process::go)
    }

    fn hear(&mut self) -> io::Result<()> {
        self.processes.iter_mut().try_for_each(Process::hear)
    }

    /// Of each process, beside that program.
    fn signatures(&self, beside: Option<&Case>, mode: &str) -> Vec<Signature> {
        let case = &CASES[self.case];
        let kernels = case.mix.iter().filter_map(|(name, _)| KERNELS.iter().find(|k| k.name == *name));
        let signature = |(kernel, price_ns): (&Kernel, &u64)| Signature {
            kernel: kernel.name,
            charged_ns: *price_ns as f64,
            alone_ns: 1e3 * limits::alone_us(case, kernel),
            limit_percent: limits::of_signature(case, beside, mode, kernel),
        };
        let prices = self.processes.iter().flat_map(|process| kernels.clone().zip(&process.prices_ns));
        prices.map(signature).filter(|_| case.rhythm.has_kernels()).collect()
    }

    /// Charged and measured by our books, used by the GPU's, and launches.
    fn books(&self, rig: &Rig, control: &mut Control) -> io::Result<[u64; 4]> {
        let stats = control.stats()?;
        let tenant = stats.tenants.iter().find(|tenant| tenant.name == self.tenant);
        let total = tenant.and_then(|tenant| tenant.gpus.first()).map(|gpu| &gpu.total);
        let total = total.ok_or_else(|| io::Error::other("the tenant is gone"))?;
        let books = rig.books()?;
        let pids = self.processes.iter().map(|process| process.child.id().cast_signed());
        let used = pids.map(|pid| true_use(&books, pid)).sum();
        Ok([total.charged_ns, total.measured_ns, used, total.launches])
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures until the machine's host leaves the processors alone.
fn at_peace(mode: &'static str, cases: &[usize]) -> io::Result<Vec<Outcome>> {
    let (outcomes, tries) = Tries::until_peace(|| measure(mode, cases))?;
    let with = |outcome| Outcome { tries: Some(tries.clone()), ..outcome };
    Ok(outcomes.into_iter().map(with).collect())
}

fn measure(mode: &'static str, cases: &[usize]) -> io::Result<Vec<Outcome>> {
    let sms = CASES[cases[0]].sms; // of a pair both have as many
    let rig = Rig::told_of_bandwidth(&SimulatedGpu { mode, sms, ..SimulatedGpu::of(&KERNELS) })?;
    let mut control = Control::of(&rig)?;
    let percent = if cases.len() == 1 { 100 } else { 50 };
    let programs = cases.iter().map(|case| Paced::start(&rig, &mut control, *case, percent));
    let mut programs = programs.collect::<io::Result<Vec<_>>>()?;
    let mut books = vec![Vec::new(); programs.len()];
    for _ in 0..=WINDOWS {
        // Everybody stands still while the books are read, so both tell of the same work.
        for (program, books) in programs.iter().zip(&mut books) {
            books.push(program.books(&rig, &mut control)?);
        }
        programs.iter_mut().try_for_each(Paced::go)?;
        programs.iter_mut().try_for_each(Paced::hear)?;
    }
    let outcome = |(n, books): (usize, &Vec<[u64; 4]>)| {
        let other = cases.iter().enumerate().find(|(other, _)| *other != n);
        let beside = other.map(|(_, case)| &CASES[*case]);
        let signatures = programs[n].signatures(beside, mode);
        Outcome::of(&CASES[cases[n]], beside, mode, books).with(signatures, CASES[cases[n]].rhythm.is_graph())
    };
    Ok(books.iter().enumerate().map(outcome).collect())
}

impl Outcome {
    fn of(
        case: &'static Case,
        beside: Option<&'static Case>,
        mode: &'static str,
        books: &[[u64; 4]],
    ) -> Self {
        let window = |pair: &[[u64; 4]]| match pair {
            [before, after] => std::array::from_fn(|n| after[n].saturating_sub(before[n]) as f64),
            _ => [f64::NAN; 4],
        };
        let windows: Vec<[f64; 4]> = books.windows(2).map(window).collect();
        let error = |[charged, _, used, _]: &[f64; 4]| 100.0 * (charged / used - 1.0);
        let sum = |n: usize| windows.iter().skip(1).map(|window| window[n]).sum::<f64>();
        Self {
            program: case.name,
            beside: beside.map(|other| other.name),
            mode,
            limit_percent: limits::of(case, beside, mode),
            error_percent: windows.iter().skip(1).map(error).collect(),
            first_error_percent: windows.first().map_or(f64::NAN, error),
            measured_percent: 100.0 * sum(1) / sum(0),
            launch_ns: (sum(0) / sum(3), sum(2) / sum(3)),
            signatures: Vec::new(),
            tries: None,
        }
    }

    /// Of the kernels, and of the graph if there is one.
    fn with(mut self, kernels: Vec<Signature>, is_graph: bool) -> Self {
        let (charged_ns, alone_ns) = self.launch_ns;
        let limit_percent = limits::signature_bar(alone_ns / 1e3);
        let graph = is_graph.then_some(Signature { kernel: "graph", charged_ns, alone_ns, limit_percent });
        self.signatures = kernels.into_iter().chain(graph).collect();
        self
    }

    /// The worst window, but for the first.
    fn worst(&self) -> f64 {
        self.error_percent.iter().map(|error| error.abs()).fold(0.0, f64::max)
    }
}
