//! `weir web`: what it shows to whom, and that Prometheus itself can read it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use weir_nodemgr::config::Persistent;
use weir_nodemgr::control::schema::CreateTenant;
use weir_nodemgr::control::{PowerStats, Stats};
use weir_nodemgr::latency::{HINT, Promise, Source};
use weir_nodemgr::registry::Latency;
use weir_nodemgr::signals::SignalStats;

use crate::stage::{Actor, DEADLINE, Stage, wish};

const TOKEN: &str = "a-token-of-enough-characters";

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// A process that dies with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Web {
    url: String,
    process: Running,
}

impl Web {
    fn start(stage: &Stage, more: &[&str]) -> Self {
        Self::start_as(stage, Command::new(env!("CARGO_BIN_EXE_weir")), more)
    }

    /// With the token, and as this user from the start.
    fn of_user(stage: &Stage, user: u32, more: &[&str]) -> Self {
        let program = stage.path().join("weir"); // others may not reach the one that was built
        if !program.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
        }
        let token = token_file(stage.path(), TOKEN, 0o600);
        std::os::unix::fs::chown(&token, Some(user), None).unwrap();
        let mut command = Command::new(program);
        command.uid(user).current_dir("/");
        Self::start_as(stage, command, &[&["--token-file", token.to_str().unwrap()], more].concat())
    }

    fn start_as(stage: &Stage, mut command: Command, more: &[&str]) -> Self {
        // It gives up root, and the throw-away directory is closed to others.
        std::fs::set_permissions(stage.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        command.arg("--dir").arg(stage.place.base()).args(["web", "--listen=127.0.0.1:0"]).args(more);
        let mut process = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { url: line.trim().strip_suffix("/metrics").unwrap().to_owned(), process }
    }

    fn with_token(stage: &Stage, more: &[&str]) -> Self {
        let file = token_file(stage.path(), TOKEN, 0o600);
        Self::start(stage, &[&["--token-file", file.to_str().unwrap()], more].concat())
    }

    /// Status and body.
    fn get(&self, path: &str, token: &str) -> (u16, String) {
        let ask = agent().get(format!("{}{path}", self.url));
        let ask = if token.is_empty() { ask } else { ask.header("Authorization", format!("Bearer {token}")) };
        let mut answer = ask.call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    fn post(&self, body: &str) -> (u16, Value) {
        self.post_with(TOKEN, body)
    }

    fn post_with(&self, token: &str, body: &str) -> (u16, Value) {
        let ask = agent().post(format!("{}/v1/do", self.url));
        let ask = if token.is_empty() { ask } else { ask.header("Authorization", format!("Bearer {token}")) };
        let mut answer = ask.send(body).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), serde_json::from_str(&text).unwrap())
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(DEADLINE));
    config.build().new_agent()
}

fn token_file(dir: &Path, token: &str, mode: u32) -> PathBuf {
    let path = dir.join("token");
    std::fs::write(&path, token).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// A tenant that has done something.
fn busy(stage: &Stage) -> (weir_nodemgr::control::Client, Actor) {
    let mut run = stage.client();
    let created = run.create(CreateTenant { limit_permille: Some(800), ..wish("train", 60) }).unwrap();
    let mut process = Actor::ready(&created);
    assert_eq!(process.ask("hold 4096"), "held");
    assert_eq!(process.ask("launch"), "launched");
    assert_eq!(process.ask("wait gate 1500"), "waited");
    (run, process)
}

#[test]
fn metrics_are_for_everybody_and_all_else_is_for_whoever_has_the_token() {
    let stage = Stage::new();
    let _busy = busy(&stage);
    let web = Web::with_token(&stage, &[]);
    let (status, page) = web.get("/metrics", "");
    assert_eq!(status, 200);
    let pair = "gpu=\"0\",UUID=\"GPU-00000000-0000-0000-0000-000000000000\",tenant=\"train\"";
    for line in [
        format!("weir_memory_used_bytes{{{pair}}} 4096.0"),
        format!("weir_launches_total{{{pair}}} 1.0"),
        format!("weir_wait_seconds_total{{{pair},cause=\"gate\"}} 1.5"),
        format!("weir_limit_ratio{{{pair}}} 0.8"),
        "weir_tenant_state{tenant=\"train\",state=\"enforced\"} 1.0".to_owned(),
        "weir_off 0".to_owned(),
        "weir_nvml_state{state=\"none\"} 1.0".to_owned(),
        "weir_unmanaged_processes{gpu=\"0\",UUID=\"GPU-00000000-0000-0000-0000-000000000000\"} 0.0"
            .to_owned(),
        "weir_resize_latency_seconds_bucket{le=\"+Inf\"} 0".to_owned(),
    ] {
        assert!(page.lines().any(|known| known == line), "{line}\n{page}");
    }
    assert!(page.ends_with("# EOF\n"), "the format's own end");
    for path in ["/v1/stats", "/v1/policy", "/v1/events?after=0", "/v1/why/train"] {
        for token in ["", "a-token-of-enough-characterS"] {
            assert_eq!(web.get(path, token).0, 401, "{path}");
        }
    }
    let stats: Value = serde_json::from_str(&web.get("/v1/stats", TOKEN).1).unwrap();
    assert_eq!((&stats["is"], &stats["tenants"][0]["name"]), (&"stats".into(), &"train".into()));
    assert_eq!(web.get("/v1/events", TOKEN).0, 200);
    assert_eq!(web.get("/v1/why/ghost", TOKEN).0, 404);
    assert_eq!(web.get("/elsewhere", "").0, 404);
}

/// The table of metrics in the document of the API: the rows' first cells.
fn documented() -> Vec<&'static str> {
    let document = include_str!("../../../docs/api.md").split_once("\n## Metrics\n").unwrap().1;
    document.lines().filter(|row| row.starts_with("| `")).map(|row| row.split('|').nth(1).unwrap()).collect()
}

/// With what only a real GPU, a promise or a signal brings: a metric without a row is not on the page.
fn with_all_that_there_can_be(mut stats: Stats) -> Stats {
    stats.gpus[0].memory_used_bytes = Some(0);
    stats.gpus[0].power = PowerStats {
        draw_mw: Some(1),
        limit_mw: Some(1),
        energy_mj: Some(1),
        sm_clock_mhz: Some(1),
        sm_clock_most_mhz: Some(1),
        clock_reasons: Some(Vec::new()),
        ..PowerStats::default()
    };
    let tenant = &mut stats.tenants[0];
    tenant.gpus[0].energy_mj = Some(1);
    tenant.gpus[0].memory_drift_bytes = Some(0);
    tenant.gpus[0].total.copies.entry("peer".into()).or_default();
    tenant.budget.slo = Some(Promise { quantile_permille: 950, target_ns: 1 });
    let source = Source { url: HINT.into(), metric: "request".into() };
    tenant.latency = Some(Latency { recent_ns: Some(1), ..Latency::of(source) });
    let signal = SignalStats { name: "price".into(), value: None, best_effort_permille: 1000, failing: None };
    stats.signals.push(signal);
    stats
}

#[test]
fn the_document_has_every_metric_and_the_page_has_every_metric_of_the_document() {
    let stage = Stage::new();
    let _busy = busy(&stage);
    let page = weir_nodemgr::web::metrics::page(&with_all_that_there_can_be(stage.stats())).unwrap();
    // OpenMetrics: the samples of a counter end in `_total`, its name does not.
    let of_type = |line: &str| match line.strip_prefix("# TYPE ")?.split_once(' ')? {
        (name, "counter") => Some(format!("{name}_total")),
        (name, _) => Some(name.to_owned()),
    };
    let shown: BTreeSet<String> = page.lines().filter_map(of_type).collect();
    let quoted = documented().into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let written: BTreeSet<String> = quoted.map(|name| name.split('{').next().unwrap().to_owned()).collect();
    assert_eq!(shown, written);
    // The names that others build upon (faults C.2).
    for name in [
        "weir_build_info",
        "weir_gpu_time_seconds_total",
        "weir_ledger_drift_bytes",
        "weir_memory_limit_bytes",
        "weir_memory_used_bytes",
        "weir_resize_latency_seconds",
        "weir_tenant_state",
        "weir_throttled_launches_total",
        "weir_unmanaged_processes",
        "weir_wait_seconds_total",
    ] {
        assert!(shown.contains(name), "{name}");
    }
}

#[test]
fn without_a_token_there_is_nothing_but_metrics() {
    let stage = Stage::new();
    let web = Web::start(&stage, &[]);
    assert_eq!(web.get("/metrics", "").0, 200);
    assert_eq!(web.get("/v1/stats", TOKEN).0, 401);
}

#[test]
fn one_that_only_reads_changes_nothing_and_refuses_nonsense() {
    let stage = Stage::new();
    let _busy = busy(&stage);
    let web = Web::with_token(&stage, &[]);
    let (status, answer) = web.post(r#"{"do":"set","tenant":"train","request_permille":300}"#);
    assert_eq!((status, &answer["code"]), (403, &"W0120".into()));
    assert_eq!(web.post(r#"{"do":"switch","off":true}"#).0, 403);
    assert_eq!(web.post("{").0, 400);
    assert_eq!(web.post(&"x".repeat(100 << 10)).0, 400, "longer than any request");
    assert_eq!(web.post(r#"{"do":"stats"}"#).0, 200);
    assert!(!stage.stats().node.off);
    assert_eq!(stage.tenant("train").unwrap().budget.request.as_permille(), 600);
}

#[test]
fn a_budget_is_set_over_http_only_with_the_token_and_only_where_that_is_allowed() {
    const SET: &str = r#"{"do":"set","tenant":"train","request_permille":300}"#;
    let own = rustix::process::geteuid();
    let owner = if own.is_root() { NOBODY } else { own.as_raw() }; // root gives up its rights, and there may be no group `weir`
    let tenant = Persistent { wanted: wish("train", 60), owner, at: "weir.toml:3:1".into() };
    let stage = Stage::with(|options| options.tenants = vec![tenant]);
    let request = || stage.tenant("train").unwrap().budget.request.as_permille();
    let reads = Web::of_user(&stage, owner, &[]);
    let (status, answer) = reads.post(SET);
    assert_eq!((status, &answer["code"], request()), (403, &"W0120".into(), 600), "{answer}");
    let sets = Web::of_user(&stage, owner, &["--allow-set"]);
    for token in ["", "a-token-of-enough-characterS"] {
        let (status, answer) = sets.post_with(token, SET);
        assert_eq!((status, request()), (401, 600), "{answer}");
    }
    let (status, answer) = sets.post(SET);
    assert_eq!((status, &answer["is"], request()), (200, &"set".into(), 300), "{answer}");
}

#[test]
fn it_outlives_the_node_manager_and_says_that_nobody_answers() {
    let stage = Stage::new();
    let mut web = Web::with_token(&stage, &[]);
    drop(stage);
    assert_eq!(web.get("/metrics", "").0, 503);
    assert!(web.process.0.try_wait().unwrap().is_none(), "it still serves");
}

/// Debian's package `prometheus`, from the path or `$WEIR_PROMETHEUS`.
fn prometheus() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_PROMETHEUS").map(PathBuf::from);
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let found = || std::env::split_paths(&dirs).map(|dir| dir.join("prometheus")).find(|path| path.exists());
    named.or_else(found)
}

#[test]
fn prometheus_itself_scrapes_it() {
    let Some(program) = prometheus() else {
        return eprintln!("skipped: no prometheus (Debian's package of that name, or WEIR_PROMETHEUS)");
    };
    let stage = Stage::new();
    let _busy = busy(&stage);
    let web = Web::start(&stage, &[]);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("prometheus.yml");
    let target = web.url.strip_prefix("http://").unwrap();
    let text = format!(
        "scrape_configs:\n- job_name: weir\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{target}']\n"
    );
    std::fs::write(&config, text).unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // free again
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
    command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Running(command.spawn().unwrap());
    let query = |expression: &str| -> Option<Value> {
        let ask = agent().get(format!("http://{address}/api/v1/query")).query("query", expression);
        let text = ask.call().ok()?.body_mut().read_to_string().ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        value["data"]["result"].get(0).cloned()
    };
    let start = Instant::now();
    let until = |expression: &str| loop {
        if let Some(found) = query(expression) {
            break found;
        }
        assert!(start.elapsed() < 3 * DEADLINE, "{expression} has not come");
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    };
    assert_eq!(until("up{job=\"weir\"} == 1")["value"][1], "1", "it takes the page for one of its own");
    let waited = until("weir_wait_seconds_total{cause=\"gate\"}");
    assert_eq!((&waited["value"][1], &waited["metric"]["tenant"]), (&"1.5".into(), &"train".into()));
    let kind =
        agent().get(format!("http://{address}/api/v1/metadata")).query("metric", "weir_memory_used_bytes");
    let kind: Value =
        serde_json::from_str(&kind.call().unwrap().body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(kind["data"]["weir_memory_used_bytes"][0]["type"], "gauge");
}
