//! What comes from beyond the tick: latencies that applications export or tell, and signals from outside the node. A thread
//! of its own asks for what is not told, and leaves the answers here.

use serde::{Deserialize, Serialize};
use weir_policy::{Counted, Signals, Slo};
use weir_protocol::units::Nanos;

use super::{Registry, Tenant};
use crate::events::{About, What};
use crate::latency::{Health, Promise, Reading, Source};
use crate::scraper::Asked;
use crate::signals::SignalStats;

/// A tenant's latency, as its own figures have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Where the figures come from.
    pub source: Source,
    /// The promised quantile of late, in nanoseconds; absent while no request came or nobody tells.
    pub recent_ns: Option<u64>,
    /// What policies are told besides.
    #[serde(skip)]
    pub counted: Option<Counted>,
    /// How it stands with the source.
    pub health: Health,
}

impl Latency {
    /// Of a source that nobody has asked yet.
    pub fn of(source: Source) -> Self {
        Self { source, recent_ns: None, counted: None, health: Health::default() }
    }
}

/// The process that reads pages, as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScraperStats {
    /// Its process id; absent while it does not run, as long as there is nothing to read, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// How often it has ended, or had to be ended, or could not be started.
    pub lost: u64,
}

/// What a policy is told.
pub(super) fn kept(promise: Option<Promise>, latency: Option<&Latency>) -> Option<Slo> {
    let Promise { quantile_permille, target_ns } = promise?;
    let recent = latency.and_then(|latency| latency.recent_ns).map(Nanos);
    let counted = latency.and_then(|latency| latency.counted);
    Some(Slo { quantile_permille, target: Nanos(target_ns), recent, counted })
}

impl Registry {
    /// A switch between contexts takes so long on each card, if that was measured.
    pub fn expect_switches(&mut self, takes: Option<Nanos>) {
        self.outside.switch = takes.unwrap_or(Signals::default().switch);
    }

    /// Whom to ask for latencies.
    pub(crate) fn latency_sources(&self) -> Vec<Asked> {
        let asked = |tenant: &Tenant| {
            let source = tenant.latency.as_ref()?.source.clone();
            if source.hint_metric().is_some() {
                return None;
            }
            Some(Asked { tenant: tenant.id, promise: tenant.budget.slo?, source })
        };
        self.tenants.iter().filter_map(asked).collect()
    }

    /// A source has answered, or has not.
    pub(crate) fn note_latency(&mut self, tenant: u64, reading: Reading, health: Health) {
        let Some(tenant) = self.tenants.iter_mut().find(|known| known.id == tenant) else { return };
        let (Some(latency), Some(promise)) = (&mut tenant.latency, tenant.budget.slo) else { return };
        let about = About::tenant(&tenant.name, tenant.owner);
        let fails = |health: &Health| matches!(health, Health::Failing(_));
        if fails(&latency.health) != fails(&health) {
            let why = if let Health::Failing(why) = &health { Some(why.clone()) } else { None };
            self.events.push(about, What::LatencySource { failing: why });
        }
        let misses = |recent: Option<u64>| recent.is_some_and(|ns| ns > promise.target_ns);
        let recent_ns = reading.recent.map(|recent| recent.0);
        if misses(latency.recent_ns) != misses(recent_ns) {
            let what = match recent_ns.filter(|ns| *ns > promise.target_ns) {
                Some(recent_ns) => What::SloMissed { slo: promise, recent_ns },
                None => What::SloKept { slo: promise },
            };
            self.events.push(about, what);
        }
        (latency.recent_ns, latency.counted, latency.health) = (recent_ns, reading.counted, health);
        self.anew = true;
    }

    /// The process that reads pages has been started, is not needed, or is lost, and why.
    pub(crate) fn note_scraper(&mut self, pid: Option<i32>, lost: Option<&str>) {
        self.scraper.pid = pid;
        if let Some(why) = lost {
            self.scraper.lost += 1;
            self.events.push(About::NODE, What::ScraperLost { why: why.into() });
        }
    }

    /// How it stands with the process that reads pages.
    pub fn scraper(&self) -> &ScraperStats {
        &self.scraper
    }

    /// The signals have been read.
    pub(crate) fn note_signals(&mut self, stats: Vec<SignalStats>) {
        let strictest = stats.iter().map(|signal| signal.best_effort_permille).min().unwrap_or(1000);
        let old = std::mem::replace(&mut self.outside.best_effort_permille, strictest);
        if old != strictest {
            self.events.push(About::NODE, What::SignalsChanged { best_effort_permille: strictest });
        }
        for signal in &stats {
            let before = self.signals.iter().find(|known| known.name == signal.name);
            if before.is_none_or(|before| before.failing.is_some() != signal.failing.is_some())
                && let Some(why) = &signal.failing
            {
                let what = What::SignalFailing { name: signal.name.clone(), why: why.clone() };
                self.events.push(About::NODE, what);
            }
        }
        self.signals = stats;
    }

    /// The signals as they were read last.
    pub fn signals(&self) -> &[SignalStats] {
        &self.signals
    }
}
