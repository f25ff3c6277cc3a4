//! A row measured: its programs alone, and together in each setting, all of these taking turns (A B A B).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use weir_nodemgr::config::GatePlace;

use super::client::{self, Answer, Client};
use super::pairs::{Kind, Pair, Work};
use super::setting::Setting;
use crate::rig::{Rig, true_use};

/// A window of an eager server is so many times as long as another server's.
const EAGER: u32 = 3;

/// The name of Weir's thread in each program.
const HELPER: &str = "weir-helper";

/// How much is done.
#[derive(Clone, Debug, Serialize)]
pub struct Effort {
    /// Each setting so often.
    pub rounds: usize,
    /// Before a window: prices are learnt, tenants find their pace.
    pub warm_up: Duration,
    /// A window of programs that count units.
    pub window: Duration,
    /// A window of those that serve requests.
    pub serving: Duration,
    /// Another factor than the rows'.
    pub slow: Option<f64>,
    /// Where launches wait, in the words of the node's configuration.
    pub gate: GatePlace,
    /// The library that is preloaded, if not the one that was built.
    pub interposer: Option<PathBuf>,
}

/// What a program came to.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Got {
    /// Units a second of the card.
    pub per_s: Option<f64>,
    /// Latencies of the card, ms.
    pub p50_ms: Option<f64>,
    /// The same.
    pub p99_ms: Option<f64>,
    /// In one window.
    pub requests: Option<u32>,
    /// For so much of the time some of its work was not done.
    pub undrained_percent: Option<f64>,
    /// By the simulated GPU's books.
    pub used_percent: f64,
    /// What Weir's helper in it took of a core.
    pub helper_core_percent: Option<f64>,
}

/// What came of a setting: medians of its windows.
#[derive(Clone, Debug, Serialize)]
pub struct Together {
    /// Each program.
    pub tenants: Vec<Got>,
    /// What went to switches.
    pub switch_percent: f64,
}

/// A row's outcome.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// The row.
    #[serde(flatten)]
    pub pair: &'static Pair,
    /// How many times slower than on a card it ran.
    pub slow: f64,
    /// Each program alone.
    pub alone: Vec<Got>,
    /// All of them, in each setting.
    pub settings: BTreeMap<Setting, Together>,
}

/// Measures a row.
pub fn measure(pair: &'static Pair, effort: &Effort) -> io::Result<Measured> {
    let slow = effort.slow.unwrap_or_else(|| pair.slow());
    let bench = Bench::open(pair, effort, slow)?;
    let mut alone: BTreeMap<&str, Vec<Together>> = BTreeMap::new();
    let mut windows: BTreeMap<Setting, Vec<Together>> = BTreeMap::new();
    for round in 1..=effort.rounds {
        for work in pair.works {
            let of_work = alone.entry(work.name).or_default();
            if of_work.len() < round {
                of_work.push(bench.run(std::slice::from_ref(work), Setting::Plain)?);
            }
        }
        for setting in Setting::of(pair) {
            windows.entry(*setting).or_default().push(bench.run(pair.works, *setting)?);
        }
    }
    let each = |work: &Work| medians(alone.get(work.name)?).tenants.first().copied();
    Ok(Measured {
        name: pair.name(),
        pair,
        slow,
        alone: pair.works.iter().filter_map(each).collect(),
        settings: windows.into_iter().map(|(setting, windows)| (setting, medians(&windows))).collect(),
    })
}

/// The node on which a row's programs run.
struct Bench<'a> {
    rig: Rig,
    _calibration: tempfile::NamedTempFile, // the manager reads it when it starts
    pair: &'a Pair,
    effort: &'a Effort,
    slow: f64,
}

impl<'a> Bench<'a> {
    fn open(pair: &'a Pair, effort: &'a Effort, slow: f64) -> io::Result<Self> {
        let gpu = client::configuration(slow)?;
        let calibration = tempfile::NamedTempFile::with_suffix(".toml")?;
        std::fs::write(calibration.path(), &gpu)?;
        let node = format!("calibration = {:?}\ngate = {:?}\n", calibration.path(), effort.gate.name());
        let rig = Rig::configured(true, &gpu, &node)?;
        Ok(Self { rig, _calibration: calibration, pair, effort, slow })
    }

    /// One window of these programs.
    fn run(&self, works: &[Work], setting: Setting) -> io::Result<Together> {
        let mut control = self.rig.control()?; // tenants live as long as it does
        let interposer = self.effort.interposer.clone().unwrap_or_else(|| self.rig.preload());
        let mut clients = Vec::new();
        for at in 0..works.len() {
            let tenant = setting.tenant(self.pair, at, self.slow);
            let create = |tenant| control.create(tenant).map_err(|fault| io::Error::other(fault.to_string()));
            let place = tenant.map(create).transpose()?.map(|created| created.dir);
            let weir = place.as_deref().map(|place| (interposer.as_path(), place));
            clients.push(Client::start(&self.rig, self.slow, weir)?);
        }
        perform(&mut clients, works, self.effort.warm_up)?;
        let before = self.rig.books()?;
        let helpers_before: Vec<_> = clients.iter().map(helper_time).collect();
        let answers = perform(&mut clients, works, self.window(works))?;
        let after = self.rig.books()?;
        let helpers =
            clients.iter().zip(helpers_before).map(|(client, before)| Some((before?, helper_time(client)?)));
        let percent = |then: u64, now: u64| {
            100.0 * now.saturating_sub(then) as f64 / after.now_ns.saturating_sub(before.now_ns) as f64
        };
        let used = |client: &Client| percent(true_use(&before, client.pid), true_use(&after, client.pid));
        let switches =
            |books: &weir_simgpu_link::books::Books| books.gpus.iter().map(|gpu| gpu.switch_ns).sum();
        let got = |((client, answer), helper): ((&Client, Answer), Option<(u64, u64)>)| Got {
            helper_core_percent: helper.map(|(then, now)| percent(then, now)),
            ..Got::of(answer, used(client))
        };
        Ok(Together {
            tenants: clients.iter().zip(answers).zip(helpers).map(got).collect(),
            switch_percent: percent(switches(&before), switches(&after)),
        })
    }

    /// How long one of these programs takes: a server in the first place needs enough requests, and an eager one, whose
    /// requests are rarer, more time for them.
    fn window(&self, works: &[Work]) -> Duration {
        let is_eager = || self.pair.kind == Kind::Online && !self.pair.is_dense();
        match works {
            [server, ..] if server.serves => self.effort.serving * if is_eager() { EAGER } else { 1 },
            _ => self.effort.window,
        }
    }
}

/// Processor time of Weir's helper in this program, in nanoseconds; none without Weir.
fn helper_time(client: &Client) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", client.pid)).ok()?;
    let read = |path: std::path::PathBuf, name: &str| std::fs::read_to_string(path.join(name)).ok();
    let is_helper =
        |path: &std::path::PathBuf| read(path.clone(), "comm").is_some_and(|name| name.trim() == HELPER);
    let helper = threads.filter_map(|thread| Some(thread.ok()?.path())).find(is_helper)?;
    read(helper, "schedstat")?.split(' ').next()?.parse().ok()
}

/// All work for so long.
fn perform(clients: &mut [Client], works: &[Work], time: Duration) -> io::Result<Vec<Answer>> {
    clients.iter_mut().zip(works).try_for_each(|(client, work)| client.work(work.name, time))?;
    clients.iter_mut().map(Client::answer).collect()
}

impl Got {
    fn of(answer: Answer, used_percent: f64) -> Self {
        let Answer { per_s, p50_ms, p99_ms, requests, undrained_percent } = answer;
        Self { per_s, p50_ms, p99_ms, requests, undrained_percent, used_percent, helper_core_percent: None }
    }
}

/// Of windows of the same programs.
fn medians(windows: &[Together]) -> Together {
    let tenants = windows.first().map_or(0, |window| window.tenants.len());
    let of = |at: usize, field: fn(&Got) -> Option<f64>| {
        let figures = windows.iter().filter_map(|window| field(window.tenants.get(at)?));
        median(figures.collect())
    };
    let got = |at: usize| Got {
        per_s: of(at, |got| got.per_s),
        p50_ms: of(at, |got| got.p50_ms),
        p99_ms: of(at, |got| got.p99_ms),
        requests: windows.first().and_then(|window| window.tenants.get(at)?.requests),
        undrained_percent: of(at, |got| got.undrained_percent),
        used_percent: of(at, |got| Some(got.used_percent)).unwrap_or(f64::NAN),
        helper_core_percent: of(at, |got| got.helper_core_percent),
    };
    let switches = windows.iter().map(|window| window.switch_percent).collect();
    Together {
        tenants: (0..tenants).map(got).collect(),
        switch_percent: median(switches).unwrap_or(f64::NAN),
    }
}

/// The one in the middle, or the mean of the two there; none of nothing.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let (low, high) = (figures.get(figures.len().checked_sub(1)? / 2)?, figures.get(figures.len() / 2)?);
    Some(low.midpoint(*high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_is_between_them_and_of_nothing_there_is_none() {
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(vec![]), None);
    }
}
