//! `weir-bench agree`: whether the simulator and reality come to the same. One scenario goes through `weir sim` in virtual time
//! and through real processes on the simulated driver, the node manager and `libweir.so` with them, from the same seed. Its
//! times are scaled by ten, so that what the machine's own scheduler does stays small beside them.

mod lateness;
mod player;

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use serde::Serialize;
use weir_nodemgr::control::policy::AskPolicy;
use weir_nodemgr::control::schema::CreateTenant;
use weir_nodemgr::fault::Fault;
use weir_nodemgr::latency::{HINT, Source};
use weir_nodemgr::sim::scenario::{Metric, Tenant};
use weir_nodemgr::sim::{self, START, Scenario, Spread, Told};
use weir_protocol::units::{Bytes, SmShare};

use self::lateness::Lateness;
pub use self::player::{PlayerOptions, run as play};
use crate::report::{Bar, Report};
use crate::rig::{Cost, Rig, true_use};
use crate::stage::{self, THIS_PROGRAM};

/// How much longer everything takes than the scenario says.
const SLOWER: f64 = 10.0;

/// After the window, so that requests which came in it can be served; as in the simulator.
const GRACE: u64 = 2_000_000_000;

/// From the players' readiness to the scenario's beginning.
const LEAD: u64 = 100_000_000;

/// What may lie between the two (issue 4).
const PERCENT: f64 = 5.0;
const P99_MS: f64 = 1.0;

/// Flags of the benchmark.
#[derive(clap::Args)]
pub struct Options {
    /// Print one JSON document on stdout instead of lines.
    #[arg(long)]
    json: bool,
    /// The scenario
    #[arg(long, value_name = "PATH")]
    scenario: Option<PathBuf>,
    /// The policy, on both sides
    #[arg(long, default_value = "weir")]
    policy: String,
    /// Another length than the scenario's, in seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
}

/// What one tenant came to, here and there.
#[derive(Debug, Serialize)]
struct Beside {
    tenant: String,
    simulated: Got,
    real: Got,
}

#[derive(Debug, Serialize)]
struct Got {
    share_percent: f64,
    iterations: f64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// Measures and prints.
pub fn run(options: &Options) -> io::Result<ExitCode> {
    let scenario = scenario(options)?;
    let simulated = simulate(&scenario, &options.policy)?;
    let lateness = Lateness::watch();
    let real = perform(&scenario, &options.policy)?;
    let late = lateness.stop();
    let names = scenario.tenant.iter().map(|tenant| tenant.name.clone());
    let rows = names.zip(simulated).zip(real);
    let rows: Vec<Beside> =
        rows.map(|((tenant, simulated), real)| Beside { tenant, simulated, real }).collect();
    let mut report = Report::new("agree", true);
    let worst = |of: fn(&Beside) -> Option<f64>| rows.iter().filter_map(of).fold(0.0, f64::max);
    for (name, of) in [
        ("agree.share_percent", share as fn(&Beside) -> Option<f64>),
        ("agree.p50_percent", p50),
        ("agree.p99_percent", p99),
    ] {
        let bar = Bar::at_most(name, worst(of), "%", PERCENT);
        report.bar(match late.p99 <= P99_MS {
            true => bar,
            false => {
                bar.unjudged("the machine was busy: one sleep of 1 ms in a hundred came later than that")
            }
        });
    }
    report.figure("late_ms", late);
    report.figure("policy", &options.policy);
    report.figure("scenario", &scenario.about);
    report.figure("slower", SLOWER);
    report.figure("tenants", &rows);
    Ok(report.finish(options.json))
}

fn scenario(options: &Options) -> io::Result<Scenario> {
    let standard = || stage::workspace().join("bench/scenarios/agree.toml");
    let path = options.scenario.clone().unwrap_or_else(standard);
    let mut scenario = Scenario::read(&path).map_err(fault)?.slowed(SLOWER);
    scenario.seconds = options.seconds.unwrap_or(scenario.seconds);
    Ok(scenario)
}

/// How far reality lies from the simulator, in percent of the latter.
fn percent_off(simulated: f64, real: f64) -> f64 {
    100.0 * (real - simulated).abs() / simulated
}

fn share(row: &Beside) -> Option<f64> {
    Some(percent_off(row.simulated.share_percent, row.real.share_percent))
}

fn p50(row: &Beside) -> Option<f64> {
    Some(percent_off(row.simulated.p50_ms?, row.real.p50_ms?))
}

/// What goes beyond the millisecond that is anybody's.
fn p99(row: &Beside) -> Option<f64> {
    let (simulated, real) = (row.simulated.p99_ms?, row.real.p99_ms?);
    Some(100.0 * ((real - simulated).abs() - P99_MS).max(0.0) / simulated)
}

fn simulate(scenario: &Scenario, policy: &str) -> io::Result<Vec<Got>> {
    let ruler = sim::ruler(policy).map_err(fault)?;
    let comparison = sim::compare(scenario, &[ruler]).map_err(fault)?;
    let tenants = comparison.outcomes.into_iter().flat_map(|outcome| outcome.tenants);
    let got = tenants.zip(&scenario.tenant).map(|(got, tenant)| {
        let latency = match tenant.slo_on {
            Metric::Request => got.request,
            Metric::FirstToken => got.first_token,
            Metric::PerToken => got.per_token,
        };
        Got::of(got.share_percent, got.iterations_per_s * scenario.seconds, latency)
    });
    Ok(got.collect())
}

impl Got {
    fn of(share_percent: f64, iterations: f64, latency: Option<Spread>) -> Self {
        Self {
            share_percent,
            iterations,
            p50_ms: latency.map(|spread| spread.p50_ms),
            p95_ms: latency.map(|spread| spread.p95_ms),
            p99_ms: latency.map(|spread| spread.p99_ms),
        }
    }
}

/// A tenant's process.
struct Actor {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

fn perform(scenario: &Scenario, policy: &str) -> io::Result<Vec<Got>> {
    let names: Vec<(String, u64)> = scenario.kernels().into_iter().map(|ns| (kernel_name(ns), ns)).collect();
    let costs = names.iter().map(|(name, ns)| Cost { name: name.clone().leak(), time_us: *ns as f64 / 1e3 });
    let rig = Rig::simulated(&costs.collect::<Vec<_>>())?;
    let mut control = rig.control()?;
    let asked = AskPolicy { name: Some(policy.into()), ..AskPolicy::default() };
    control.policy(asked).map_err(fault)?;
    let script = tempfile::NamedTempFile::with_suffix(".toml")?;
    std::fs::write(script.path(), toml::to_string(scenario).map_err(io::Error::other)?)?;
    let mut actors = Vec::new();
    for (at, tenant) in scenario.tenant.iter().enumerate() {
        let created = control.create(wanted(tenant)?).map_err(fault)?;
        actors.push(Actor::start(&rig, script.path(), at, &created.dir)?);
    }
    actors.iter_mut().try_for_each(|actor| actor.heard().map(drop))?;
    let begins = now() + LEAD;
    actors.iter_mut().try_for_each(|actor| writeln!(actor.hears, "{begins}"))?;
    let window = scenario.window();
    let pids: Vec<i32> = actors.iter().map(|actor| actor.child.id().cast_signed()).collect();
    let before = books_at(&rig, begins + window.from - START, &pids)?;
    let after = books_at(&rig, begins + window.to - START, &pids)?;
    let share = |at: usize| 100.0 * (after.1[at] - before.1[at]) as f64 / (after.0 - before.0) as f64;
    let told = |(at, actor): (usize, &mut Actor)| {
        let told: Told = serde_json::from_str(&actor.heard()?).map_err(io::Error::other)?;
        actor.child.wait()?;
        if told.unserved > 0 {
            let message =
                format!("{} requests of {} were not served", told.unserved, scenario.tenant[at].name);
            return Err(io::Error::other(message));
        }
        Ok(Got::of(share(at), told.iterations as f64, told.latency))
    };
    actors.iter_mut().enumerate().map(told).collect()
}

fn wanted(tenant: &Tenant) -> io::Result<CreateTenant> {
    Ok(CreateTenant {
        name: tenant.name.clone(),
        class: tenant.class,
        request_permille: tenant.request().map_err(fault)?.map(SmShare::as_permille),
        limit_permille: tenant.limit().map_err(fault)?.map(SmShare::as_permille),
        memory_bytes: Some(Bytes::gib(1).0),
        slo: tenant.slo.clone(),
        latency_from: tenant
            .slo
            .as_ref()
            .map(|_| Source { url: HINT.into(), metric: tenant.slo_on.name().to_string_lossy().into() }),
        ..CreateTenant::default()
    })
}

impl Actor {
    fn start(rig: &Rig, scenario: &Path, tenant: usize, place: &Path) -> io::Result<Self> {
        let mut command = Command::new(THIS_PROGRAM);
        command.arg("agree-player").arg(scenario).arg(tenant.to_string());
        rig.environment(&mut command);
        command.env("LD_PRELOAD", rig.preload()).env("WEIR_DIR", place);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let says = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let hears = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, says, hears })
    }

    fn heard(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// When the books were taken, at this moment or right after it, and what each process had used by then.
fn books_at(rig: &Rig, moment: u64, pids: &[i32]) -> io::Result<(u64, Vec<u64>)> {
    std::thread::sleep(Duration::from_nanos(moment.saturating_sub(now()))); // the scenario runs meanwhile
    let books = rig.books()?;
    Ok((books.now_ns, pids.iter().map(|pid| true_use(&books, *pid)).collect()))
}

/// The kernel that takes so long.
fn kernel_name(ns: u64) -> String {
    format!("takes_{ns}_ns")
}

/// On the monotonic clock, ns.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn fault(fault: Fault) -> io::Error {
    io::Error::other(fault.to_string())
}
