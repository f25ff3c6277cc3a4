//! `weir-bench share`: achieved share against request = limit, by the simulated GPU's own books.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use weir_protocol::units::Bytes;
use weir_simgpu_link::books::Books;
use weir_simgpu_link::config::Profile;

use crate::load::{self, Load};
use crate::report::{Bar, Report};
use crate::rig::{Control, Rig, SimulatedGpu, profile, true_use};
use crate::sample::most;
use crate::stolen::Tries;

/// Tenants that share the GPU.
#[derive(Clone, Copy, Debug, Serialize)]
struct Setting {
    /// Of each tenant. Where they sum to the whole, switching takes its part: then a share is one of what all of them used.
    requests_percent: &'static [u16],
    /// What each of them launches.
    load: Load,
    /// Whether somebody has told the manager what kernels cost. What a graph costs nobody can tell it.
    prices_told: bool,
    /// What the GPU is like.
    profile: Profile,
}

const fn setting(requests_percent: &'static [u16], load: Load, prices_told: bool) -> Setting {
    Setting { requests_percent, load, prices_told, profile: Profile::H200 }
}

/// On a GPU on which the same kernel takes a few hundredths more or less each time, and for seconds.
const fn unkind(requests_percent: &'static [u16], load: Load, prices_told: bool) -> Setting {
    Setting { profile: Profile::Unkind, ..setting(requests_percent, load, prices_told) }
}

/// The sweep.
const SETTINGS: [Setting; 17] = [
    setting(&[90, 10], Load::Mix, true),
    setting(&[70, 30], Load::Mix, true),
    setting(&[50, 50], Load::Mix, true),
    setting(&[20, 20, 20, 20, 20], Load::Mix, true),
    setting(&[60, 30], Load::Mix, true),
    setting(&[18, 18, 18, 18, 18], Load::Mix, true),
    setting(&[90, 10], Load::Mix, false),
    setting(&[50, 50], Load::Mix, false),
    setting(&[90, 10], Load::Graphs, false),
    setting(&[50, 50], Load::Graphs, false),
    setting(&[60, 30], Load::Graphs, false),
    setting(&[70, 30], Load::MixAndGraphs, false),
    unkind(&[90, 10], Load::Mix, true),
    unkind(&[70, 30], Load::Mix, true),
    unkind(&[20, 20, 20, 20, 20], Load::Mix, true),
    unkind(&[50, 50], Load::Mix, false),
    unkind(&[50, 50], Load::Graphs, false),
];

/// One window over which a share is taken, and how many of them.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOWS: usize = 8;

/// Before the first window: tenants find their pace.
const WARM_UP: Duration = Duration::from_secs(2);

/// The same where they have to learn first what kernels cost: a tenant of 10 % is seldom on the GPU.
const LEARNING: Duration = Duration::from_secs(6);

/// One tenant's outcome.
#[derive(Debug, Serialize)]
struct Tenant {
    request_percent: u16,
    achieved_percent: Vec<f64>,
    /// Charged by its true use, over all windows, in percent.
    charged_of_used_percent: f64,
    worst_error_points: f64,
}

/// One case's outcome.
#[derive(Debug, Serialize)]
struct Case {
    #[serde(flatten)]
    setting: Setting,
    tenants: Vec<Tenant>,
    switch_percent: f64,
    idle_percent: f64,
    /// What nobody used although somebody wanted it; only known where all of it was requested.
    lost_percent: Option<f64>,
}

/// What was measured, and how undisturbed.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    case: Case,
    tries: Tries,
}

/// What the benchmark takes.
#[derive(clap::Args)]
pub struct Options {
    /// Print one JSON document on stdout instead of lines.
    #[arg(long)]
    json: bool,
    /// Only tenants that launch this
    #[arg(long)]
    load: Option<Load>,
    /// Only on GPUs like this: `h200` or `unkind`
    #[arg(long, value_parser = profile)]
    profile: Option<Profile>,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<ExitCode, io::Error> {
    let mut report = Report::new("share", true);
    let wanted = |setting: &Setting| {
        let profile = options.profile.is_none_or(|profile| setting.profile == profile);
        profile && options.load.is_none_or(|load| setting.load == load)
    };
    let cases = SETTINGS.into_iter().filter(wanted).map(|setting| {
        let (case, tries) = Tries::until_peace(|| measure(setting))?;
        Ok(Measured { case, tries })
    });
    let cases = cases.collect::<io::Result<Vec<_>>>()?;
    if cases.is_empty() {
        return Err(io::Error::other("no tenant of the sweep launches this"));
    }
    for (name, profile, limit) in
        [("share.error_points", Profile::H200, 1.0), ("share.hardware_error_points", Profile::Unkind, 2.0)]
    {
        let of = cases.iter().filter(|measured| measured.case.setting.profile == profile);
        let errors: Vec<f64> =
            of.flat_map(|measured| &measured.case.tenants).map(|tenant| tenant.worst_error_points).collect();
        if !errors.is_empty() {
            report.bar(Bar::at_most(name, most(errors.into_iter()), "points", limit));
        }
    }
    let lost = most(cases.iter().filter_map(|measured| measured.case.lost_percent));
    report.bar(Bar::at_most("share.overhead_percent", lost, "percent", 3.0));
    report.figure("cases", cases);
    Ok(report.finish(options.json))
}

fn measure(setting: Setting) -> io::Result<Case> {
    let costs = load::costs();
    let gpu = SimulatedGpu { profile: setting.profile, ..SimulatedGpu::of(&costs) };
    let rig = if setting.prices_told { Rig::told(&gpu)? } else { Rig::untold(&gpu)? };
    let mut control = Control::of(&rig)?;
    let mut loads = Vec::new();
    for (number, percent) in setting.requests_percent.iter().enumerate() {
        let created = control.create(&format!("tenant{number}"), *percent, Bytes::gib(1))?;
        loads.push(load::start(&rig, &created.dir, setting.load)?);
    }
    let pids: Vec<i32> = loads.iter().filter_map(|load| i32::try_from(load.id()).ok()).collect();
    rig.wait_for("the tenants", || {
        let books = rig.books()?;
        Ok(pids.iter().all(|pid| true_use(&books, *pid) > 0).then_some(()))
    })?;
    std::thread::sleep(if setting.prices_told { WARM_UP } else { LEARNING });
    let (mut books, before) = (vec![rig.books()?], charged(&mut control)?);
    for _ in 0..WINDOWS {
        std::thread::sleep(WINDOW);
        books.push(rig.books()?);
    }
    let charged: Vec<u64> =
        charged(&mut control)?.iter().zip(&before).map(|(now, then)| now - then).collect();
    for mut load in loads {
        load.kill()?;
        load.wait()?;
    }
    Ok(judge(setting, &pids, &books, &charged))
}

/// What each tenant was charged so far, in nanoseconds.
fn charged(control: &mut Control) -> io::Result<Vec<u64>> {
    let stats = control.stats()?;
    Ok(stats.tenants.iter().filter_map(|t| t.gpus.first()).map(|gpu| gpu.total.charged_ns).collect())
}

/// Shares of each window, from the books at its two ends.
fn judge(setting: Setting, pids: &[i32], books: &[Books], charged_ns: &[u64]) -> Case {
    let requests = setting.requests_percent;
    let whole = requests.iter().sum::<u16>() == 100;
    let share = |pid: i32, pair: &[Books]| match pair {
        [start, end] => {
            let used = |pid: i32| true_use(end, pid).saturating_sub(true_use(start, pid));
            let wall = end.now_ns.saturating_sub(start.now_ns);
            let of = if whole { pids.iter().map(|pid| used(*pid)).sum() } else { wall };
            100.0 * used(pid) as f64 / of as f64
        }
        _ => f64::NAN,
    };
    let used = |pid: i32| match (books.first(), books.last()) {
        (Some(first), Some(last)) => true_use(last, pid).saturating_sub(true_use(first, pid)),
        _ => 0,
    };
    let tenants = requests.iter().zip(pids).zip(charged_ns).map(|((&request, &pid), &charged_ns)| {
        let achieved: Vec<f64> = books.windows(2).map(|pair| share(pid, pair)).collect();
        let error = |achieved: &f64| (achieved - f64::from(request)).abs();
        let worst = most(achieved.iter().map(error));
        let charged_of_used_percent = 100.0 * charged_ns as f64 / used(pid) as f64;
        Tenant {
            request_percent: request,
            achieved_percent: achieved,
            charged_of_used_percent,
            worst_error_points: worst,
        }
    });
    let tenants = tenants.collect();
    let part = |of: fn(&weir_simgpu_link::books::Gpu) -> u64| match (books.first(), books.last()) {
        (Some(first), Some(last)) => {
            let sum = |books: &Books| books.gpus.iter().map(of).sum::<u64>();
            100.0 * (sum(last) - sum(first)) as f64 / (last.now_ns - first.now_ns) as f64
        }
        _ => f64::NAN,
    };
    let (switch_percent, idle_percent) = (part(|gpu| gpu.switch_ns), part(|gpu| gpu.idle_ns));
    Case {
        setting,
        tenants,
        switch_percent,
        idle_percent,
        lost_percent: whole.then_some(switch_percent + idle_percent),
    }
}
