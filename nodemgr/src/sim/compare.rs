//! Several rules on one scenario, each beside every tenant alone.

use serde::{Deserialize, Serialize};
use weir_simgpu_model::{Mode, Nanos};

use super::apart;
use super::engine::{Reserved, Rule, Run, TICK, TenantRun, WAKE, run};
use super::measure::{Gaps, LONG_RUN, percent, quantile};
use super::scenario::{Metric, Scenario, Sharing, Tenant};
use crate::codes;
use crate::control::schema::ClassName;
use crate::fault::Fault;
use crate::nearest::nearest;

/// What is queued in front of a better one that wakes, at most, besides a unit.
const CAP: Nanos = weir_policy::SHORT_CAP.0;

/// A way to share a GPU, by name.
#[derive(Clone, Copy)]
pub struct Ruler {
    /// Its name.
    pub name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Alone,
    Run(Rule),
}

/// Those that are no policies, with what they are.
pub const RULES: [(&str, &str); 5] = [
    ("alone", "each tenant by itself on the GPU"),
    ("slicing", "no gate: the driver's time slices"),
    ("mps", "no gate: all kernels at once"),
    ("mps-request", "the same, each tenant in a partition as large as its request"),
    ("mps-limit", "the same, as large as its limit"),
];

/// The ruler called `name`: a policy, or one of [`RULES`].
///
/// # Errors
/// [`codes::POLICY_UNKNOWN`], with the nearest name or all that there are.
pub fn ruler(name: &str) -> Result<Ruler, Fault> {
    let policy = weir_policy::find(name).map(|row| (row.name, Kind::Run(Rule::Policy(row))));
    let found = policy.or(match name {
        "alone" => Some(("alone", Kind::Alone)),
        "slicing" => Some(("slicing", Kind::Run(Rule::Driver(Mode::TimeSlice)))),
        "mps" => Some(("mps", Kind::Run(Rule::Driver(Mode::Mps)))),
        "mps-request" => Some(("mps-request", Kind::Run(Rule::Partitions(Reserved::Request)))),
        "mps-limit" => Some(("mps-limit", Kind::Run(Rule::Partitions(Reserved::Limit)))),
        _ => None,
    });
    found.map(|(name, kind)| Ruler { name, kind }).ok_or_else(|| {
        let rules = RULES.iter().map(|(name, _)| *name);
        let names: Vec<_> = weir_policy::POLICIES.iter().map(|row| row.name).chain(rules).collect();
        let message = format!("there is no policy `{}`", name.escape_debug());
        let all = || format!("choose from: {}", names.join(", "));
        let help =
            nearest(name, names.iter().copied()).map_or_else(all, |near| format!("did you mean `{near}`?"));
        Fault::new(&codes::POLICY_UNKNOWN, message, help)
    })
}

/// The policies that there are, by name.
pub fn policies() -> impl Iterator<Item = &'static str> {
    weir_policy::POLICIES.iter().map(|row| row.name)
}

/// What several rules made of one scenario. Everything in it is simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of the document.
    pub schema: u32,
    /// Always: no GPU was used.
    pub simulated: bool,
    /// What the scenario is.
    pub about: String,
    /// The seed.
    pub seed: u64,
    /// Simulated seconds that were measured, of each rule.
    pub seconds: f64,
    /// Simulated seconds in all: of each rule, and of each tenant alone, the warm-up with them.
    pub simulated_seconds: f64,
    /// Moments in all of these at which something was due or done: what a simulation takes grows with them.
    pub events: u64,
    /// One for each rule.
    pub outcomes: Vec<Outcome>,
}

/// What one rule made of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The rule.
    pub policy: &'static str,
    /// At least one kernel ran, percent of the time; none for `alone`.
    pub busy_percent: Option<f64>,
    /// The driver switched contexts.
    pub switch_percent: Option<f64>,
    /// Idle time of those that are no fillers, percent of the time.
    pub idle_percent: Option<f64>,
    /// What fillers had of it.
    pub idle_filled_percent: Option<f64>,
    /// What could have been filled (a gap less detection, drain and two switches), percent of the time.
    pub fillable_percent: Option<f64>,
    /// What fillers had of that.
    pub fillable_filled_percent: Option<f64>,
    /// The tenants.
    pub tenants: Vec<TenantOutcome>,
}

/// What one tenant got.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantOutcome {
    /// Its name.
    pub tenant: String,
    /// Its class.
    pub class: ClassName,
    /// SM time that it had, percent of the time, by the device's books.
    pub share_percent: f64,
    /// What it missed of the smaller of its request and what it uses alone; points.
    pub share_error_points: f64,
    /// The least share that it had of ten seconds in which it had work throughout, percent; none if there were none, or
    /// no policy ruled.
    pub least_share_percent: Option<f64>,
    /// Work done in a second, as long as it takes alone: milliseconds.
    pub work_ms_per_s: f64,
    /// The same against alone, percent.
    pub of_alone_percent: Option<f64>,
    /// p99 of its requests against alone, less one, percent.
    pub p99_longer_percent: Option<f64>,
    /// Iterations or batches in a second.
    pub iterations_per_s: f64,
    /// Requests that came in the window.
    pub requests: usize,
    /// Of these, not served within two seconds after it.
    pub unserved: u64,
    /// From arrival to the last token.
    pub request: Option<Spread>,
    /// From arrival to the first token.
    pub first_token: Option<Spread>,
    /// Between two tokens.
    pub per_token: Option<Spread>,
    /// Requests beyond the promised bound, percent.
    pub slo_violations_percent: Option<f64>,
    /// Whether the promise was kept.
    pub slo_kept: Option<bool>,
    /// The policy's states for it, in percent of the ticks.
    pub states_percent: Vec<(&'static str, f64)>,
}

impl TenantOutcome {
    /// What it loses against alone, percent: p99 where it serves requests, else work.
    pub fn worse_percent(&self) -> Option<f64> {
        self.p99_longer_percent.or(self.of_alone_percent.map(|percent| 100.0 - percent))
    }
}

/// A latency in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub p50_ms: f64,
    /// 95 of 100 are no longer.
    pub p95_ms: f64,
    /// 99 of 100 are no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// Runs the scenario under each of these, and each tenant alone, with nothing in its way.
///
/// # Errors
/// The budgets do not fit on one GPU.
pub fn compare(scenario: &Scenario, rulers: &[Ruler]) -> Result<Comparison, Fault> {
    let all: Vec<usize> = (0..scenario.tenant.len()).collect();
    let alone = all.iter().map(|at| (vec![*at], Rule::Driver(scenario.device.mode.into())));
    let ruled = rulers.iter().filter_map(|ruler| match ruler.kind {
        Kind::Alone => None,
        Kind::Run(rule) => Some((all.clone(), rule)),
    });
    let jobs: Vec<_> = alone.chain(ruled).collect();
    let runs = apart::each(&jobs, |(seated, rule)| run(scenario, seated, *rule));
    let runs = runs.into_iter().collect::<Result<Vec<Run>, Fault>>()?;
    let (alone, ruled) = runs.split_at(all.len());
    let mut ruled = ruled.iter();
    let outcomes = rulers.iter().filter_map(|ruler| match ruler.kind {
        Kind::Alone => Some(outcome_alone(scenario, ruler.name, alone)),
        Kind::Run(_) => Some(outcome(scenario, ruler.name, ruled.next()?, alone)),
    });
    let outcomes = outcomes.collect();
    let simulated: Nanos = runs.iter().map(|run| run.simulated).sum();
    Ok(Comparison {
        schema: 1,
        simulated: true,
        about: scenario.about.clone(),
        seed: scenario.seed,
        seconds: scenario.seconds,
        simulated_seconds: simulated as f64 / 1e9,
        events: runs.iter().map(|run| run.events).sum(),
        outcomes,
    })
}

fn outcome_alone(scenario: &Scenario, policy: &'static str, alone: &[Run]) -> Outcome {
    let tenants = scenario.tenant.iter().zip(alone);
    Outcome {
        policy,
        busy_percent: None,
        switch_percent: None,
        idle_percent: None,
        idle_filled_percent: None,
        fillable_percent: None,
        fillable_filled_percent: None,
        tenants: tenants.map(|(tenant, run)| judge(tenant, run, &run.tenants[0], run)).collect(),
    }
}

fn outcome(scenario: &Scenario, policy: &'static str, run: &Run, alone: &[Run]) -> Outcome {
    let of_time = |part: Nanos| percent(part, run.window.length());
    let gaps = Gaps::of(&run.gaps, cost(scenario));
    let tenants = scenario.tenant.iter().zip(&run.tenants).zip(alone);
    let tenants = tenants.map(|((tenant, got), alone)| judge(tenant, run, got, alone)).collect();
    Outcome {
        policy,
        busy_percent: of_time(run.device.busy),
        switch_percent: of_time(run.device.switch),
        idle_percent: of_time(gaps.idle),
        idle_filled_percent: gaps.raw_percent(),
        fillable_percent: of_time(gaps.fillable),
        fillable_filled_percent: gaps.fillable_percent(),
        tenants,
    }
}

/// What of a gap cannot be filled (design 10): until it is seen (the manager's next tick and a wake-up), until what a filler
/// has queued is done (its cap and a unit), and a switch to the filler and one back.
fn cost(scenario: &Scenario) -> Nanos {
    let fillers = scenario.tenant.iter().filter(|tenant| tenant.class == ClassName::Filler);
    let unit = fillers.map(Tenant::unit).max().unwrap_or(0);
    let switches = match scenario.device.mode {
        Sharing::TimeSlice => 2 * scenario.switch(),
        Sharing::Mps => 0,
    };
    TICK + WAKE + CAP + unit + switches
}

fn judge(tenant: &Tenant, run: &Run, got: &TenantRun, alone: &Run) -> TenantOutcome {
    let window = run.window.length();
    let share = percent(got.used, window).unwrap_or(0.0);
    let wants = percent(alone.tenants[0].used, window).unwrap_or(0.0);
    let request = tenant.request().ok().flatten().map_or(0.0, weir_protocol::units::SmShare::as_percent);
    let seconds = window as f64 / 1e9;
    let ticks: u64 = got.states.iter().map(|(_, ticks)| ticks).sum();
    let (violations, kept) = promise(tenant, got);
    TenantOutcome {
        tenant: tenant.name.clone(),
        class: tenant.class,
        share_percent: share,
        share_error_points: (request.min(wants) - share).max(0.0),
        least_share_percent: got.least_of_long_run.and_then(|least| percent(least, LONG_RUN)),
        work_ms_per_s: got.work as f64 / 1e6 / seconds,
        of_alone_percent: percent(got.work, alone.tenants[0].work),
        p99_longer_percent: longer(got, &alone.tenants[0]),
        iterations_per_s: got.log.iterations() as f64 / seconds,
        requests: got.log.counted().count() + usize::try_from(got.log.open()).unwrap_or(0),
        unserved: got.log.unserved(),
        request: spread(&got.log.latencies(Metric::Request)),
        first_token: spread(&got.log.latencies(Metric::FirstToken)),
        per_token: spread(&got.log.latencies(Metric::PerToken)),
        slo_violations_percent: violations,
        slo_kept: kept,
        states_percent: got.states.iter().map(|(s, n)| (*s, 100.0 * *n as f64 / ticks as f64)).collect(),
    }
}

fn longer(got: &TenantRun, alone: &TenantRun) -> Option<f64> {
    let p99 = |run: &TenantRun| quantile(&run.log.latencies(Metric::Request), 990);
    Some(percent(p99(got)?, p99(alone)?)? - 100.0)
}

/// The spread of latencies that are in order; of none: none.
pub(super) fn spread(sorted: &[Nanos]) -> Option<Spread> {
    let at = |permille| quantile(sorted, permille).map(|ns| ns as f64 / 1e6);
    Some(Spread { p50_ms: at(500)?, p95_ms: at(950)?, p99_ms: at(990)?, max_ms: at(1_000)? })
}

/// How many requests went beyond the bound, and whether the quantile kept it. Who was not served went beyond it.
fn promise(tenant: &Tenant, got: &TenantRun) -> (Option<f64>, Option<bool>) {
    let Some(promise) = tenant.promise() else { return (None, None) };
    let latencies = got.log.latencies(tenant.slo_on);
    let late = latencies.iter().filter(|latency| **latency >= promise.target.0).count() as u64;
    let (late, all) = (late + got.log.open(), latencies.len() as u64 + got.log.open());
    let allowed = 100.0 - f64::from(promise.quantile_permille) / 10.0;
    let violations = percent(late, all);
    (violations, violations.map(|percent| percent <= allowed))
}
