//! Schema 1 of the public API, name by name. A field may be added: then the snapshot is taken anew. If one has gone, or has
//! another type, `schema::SCHEMA` is raised (docs/api.md).

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use weir_nodemgr::calibration::Draw;
use weir_nodemgr::config::Persistent;
use weir_nodemgr::control::history::{Events, Why};
use weir_nodemgr::control::park::ParkDone;
use weir_nodemgr::control::schema::{Budget, CreateTenant, Response, SCHEMA, SetDone};
use weir_nodemgr::control::{DrainingStats, PowerStats, Stats, UnmanagedStats};
use weir_nodemgr::events::Event;
use weir_nodemgr::latency::{HINT, Health, Promise, Source};
use weir_nodemgr::registry::{Latency, ScraperStats, Stand};
use weir_nodemgr::signals::SignalStats;
use weir_nodemgr::{Fault, mps};

use crate::shape::Shape;
use crate::stage::{Actor, DEADLINE, Stage, wish};

/// One of each event, with every field that it can have.
const EVENTS: &str = include_str!("events.jsonl");

/// A node manager with a tenant that has launched and waited, and one of the configuration.
struct Scene {
    stage: Stage,
    run: weir_nodemgr::control::Client,
    process: Actor,
}

impl Scene {
    fn new() -> Self {
        let kept = Persistent { wanted: wish("kept", 10), owner: 0, at: "weir.toml:3:1".into() };
        let stage = Stage::with(|options| options.tenants = vec![kept]);
        let mut run = stage.client();
        let created = run.create(wish("train", 60)).unwrap();
        let mut process = Actor::ready(&created);
        assert_eq!(process.ask("hold 4096"), "held");
        Self { stage, run, process }
    }

    /// What `weir --json` says, one document a line or one in all.
    fn weir(&self, args: &[&str]) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output =
            command.arg("--dir").arg(self.stage.place.base()).arg("--json").args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::Deserializer::from_slice(&output.stdout).into_iter().map(Result::unwrap).collect()
    }

    fn one(&self, args: &[&str]) -> Value {
        let documents = self.weir(args);
        assert_eq!(documents.len(), 1, "{args:?}");
        documents.into_iter().next().unwrap()
    }

    /// `weir why` of the tenant, after a second in which something moved.
    fn why(&mut self) -> Value {
        let start = Instant::now();
        loop {
            assert_eq!(self.process.ask("launch"), "launched");
            assert_eq!(self.process.ask("wait gate 10"), "waited");
            let why = self.one(&["why", "train"]);
            if !why["gpus"][0]["moments"].as_array().unwrap().is_empty() {
                return why;
            }
            assert!(start.elapsed() < DEADLINE, "{why}");
        }
    }
}

fn budget() -> Budget {
    let slo = Some(Promise { quantile_permille: 950, target_ns: 1 });
    let text =
        json!({"request_permille": 1, "limit_permille": 1, "memory_bytes": 1, "copy_limit_bytes_per_s": 1});
    Budget { slo, ..serde_json::from_value(text).unwrap() }
}

/// The same with what only a real GPU, a promise, a signal or a stranger brings.
fn with_all_that_there_can_be(mut stats: Stats) -> Stats {
    stats.node.nvml_why = Some(String::new());
    stats.node.scraper = ScraperStats { pid: Some(1), lost: 1 };
    stats.gpus[0].memory_used_bytes = Some(1);
    stats.gpus[0].power = PowerStats {
        draw_mw: Some(1),
        limit_mw: Some(1),
        idle_mw: Some(1),
        calibrated: Some(Draw { idle_mw: 1, busy_mw: 1 }),
        energy_mj: Some(1),
        sm_clock_mhz: Some(1),
        sm_clock_most_mhz: Some(1),
        clock_reasons: Some(vec![String::new()]),
    };
    let failing = Some(String::new());
    stats.signals =
        vec![SignalStats { name: String::new(), value: Some(0.5), best_effort_permille: 1, failing }];
    stats.unmanaged = vec![UnmanagedStats {
        gpu: 0,
        pid: Some(1),
        uid: 1,
        program: Some(String::new()),
        memory_bytes: Some(1),
        tenant: Some(String::new()),
        keeps_limits: true,
        outcome: Some(String::new()),
    }];
    stats.draining = vec![DrainingStats {
        gpu: 0,
        pid: Some(1),
        uid: 1,
        tenant: String::new(),
        memory_bytes: 1,
        wedged: true,
    }];
    let tenant = stats.tenants.iter_mut().find(|tenant| tenant.name == "train").unwrap();
    let source = Source { url: HINT.into(), metric: "request".into() };
    let health = Health::Failing(String::new());
    tenant.latency = Some(Latency { recent_ns: Some(1), health, ..Latency::of(source) });
    (tenant.budget, tenant.budget_at_start, tenant.configured) = (budget(), budget(), Some(budget()));
    tenant.unreached_pids = vec![1];
    let gpu = &mut tenant.gpus[0];
    (gpu.energy_mj, gpu.memory_drift_bytes) = (Some(1), Some(1));
    let copied = gpu.total.copies.entry("peer".into()).or_default().to_owned();
    for counters in [&mut gpu.total, &mut gpu.processes[0].counters] {
        counters.copies.insert("peer".into(), copied);
        let counts =
            [&mut counters.calls, &mut counters.memory_calls, &mut counters.graphs, &mut counters.stalls_ns];
        counts.into_iter().for_each(|counts| _ = counts.insert("one".into(), 1));
    }
    gpu.processes[0].memory_by_kind_bytes.insert("plain".into(), 1);
    stats
}

fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap()
}

#[test]
fn the_number_is_the_one_that_the_snapshots_are_of() {
    let scene = Scene::new();
    assert_eq!(SCHEMA, 1, "the snapshots of this file are those of another schema now: take them anew");
    for command in [&["stats"][..], &["ps"], &["explain"], &["config", "show"]] {
        assert_eq!(scene.one(command)["schema"], SCHEMA, "{command:?}");
    }
}

#[test]
fn the_statistics_have_the_names_and_types_of_schema_1() {
    let scene = Scene::new();
    let (stats, ps) = (scene.one(&["stats"]), scene.one(&["ps"]));
    let rich = with_all_that_there_can_be(serde_json::from_value(stats.clone()).unwrap());
    let whole = Shape::of([&stats, &value(&rich)]);
    assert_eq!(Shape::of([&ps]).beyond(&whole), [""; 0], "`weir ps --json` is what `weir stats` prints");
    assert_eq!(Shape::of([&stats]).beyond(&Shape::of([&ps])), [""; 0], "all of it");
    insta::assert_snapshot!("stats", whole);
}

#[test]
fn what_a_tenant_waited_for_has_the_names_and_types_of_schema_1() {
    let mut scene = Scene::new();
    let mut why = scene.why();
    assert!(!std::mem::take(&mut why["events"]).as_array().unwrap().is_empty()); // those of `weir events`
    why["events"] = json!([]);
    let mut rich: Why = serde_json::from_value(why.clone()).unwrap();
    rich.budget = budget();
    rich.gpus[0].moments[0].beside = Some((String::new(), 1));
    insta::assert_snapshot!("why", Shape::of([&why, &value(&rich)]));
}

#[test]
fn every_event_has_the_names_and_types_of_schema_1() {
    let known: Vec<Event> = EVENTS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shapes: Vec<_> = known.iter().map(value).map(|event| (name(&event), Shape::of([&event]))).collect();
    for (told, line) in known.iter().map(value).zip(EVENTS.lines()) {
        assert_eq!(
            told,
            serde_json::from_str::<Value>(line).unwrap(),
            "no field has gone, or is unknown here"
        );
    }
    let names: BTreeSet<_> = shapes.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, every_name(), "one of each event is in events.jsonl");
    let scene = Scene::new();
    scene.one(&["policy", "--gpu", "0", "tgs"]);
    scene.one(&["set", "train", "--request", "30%"]);
    let of_why = scene.one(&["why", "train"])["events"].as_array().unwrap().clone();
    for event in scene.weir(&["events"]).into_iter().chain(of_why) {
        let (_, shape) = shapes.iter().find(|(known, _)| *known == name(&event)).unwrap();
        assert_eq!(Shape::of([&event]).beyond(shape), [""; 0], "{event}");
    }
    let texts: Vec<_> = shapes.iter().map(|(name, shape)| format!("{name}\n{shape}")).collect();
    insta::assert_snapshot!("events", texts.join("\n"));
}

fn name(event: &Value) -> String {
    event["event"].as_str().unwrap().to_owned()
}

/// Every event that there is, as the reader names them where one is none.
fn every_name() -> BTreeSet<String> {
    let nonsense = json!({"seq": 1, "time_unix_ms": 1, "event": "nonsense"});
    let refused = serde_json::from_value::<Event>(nonsense).unwrap_err().to_string();
    let known = refused.split_once("expected one of").expect("it names those that it knows").1;
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_other_answer_has_the_names_and_types_of_schema_1() {
    let mut scene = Scene::new();
    let file = scene.stage.path().join("weir.toml");
    std::fs::write(&file, "policy = \"static\"\n").unwrap();
    let file = file.to_str().unwrap();
    let set = scene.one(&["set", "train", "--request", "30%"]);
    let done: SetDone = serde_json::from_value(set.clone()).unwrap();
    let (old, new) = (budget(), budget());
    let set_rich = value(&SetDone { old, new, first_launch_us: Some(0.5), ..done });
    let client = mps::Client { pipe_directory: "/".into(), active_thread_percentage: 1, priority: 0 };
    let mut created = scene.run.create(CreateTenant { unique: true, ..wish("more", 1) }).unwrap();
    (created.mps, created.budget) = (Some(client), budget());
    let parked = ParkDone { tenant: String::new(), stand: Stand::Parked, memory_bytes: 1, took_ms: 1 };
    let at = Some(String::new());
    let fault = Fault { code: String::new(), message: String::new(), at, help: String::new() };
    let events = Events { events: Vec::new(), last: 1, missed: 1 };
    let answers = [
        ("policy", vec![scene.one(&["policy"])]),
        ("set", vec![set, set_rich]),
        ("off, on", vec![scene.one(&["off"]), scene.one(&["on"])]),
        ("check", vec![scene.one(&["check", file])]),
        ("config show", vec![scene.one(&["config", "show", "--config", file])]),
        ("explain", vec![scene.one(&["explain"])]),
        ("explain CODE", vec![scene.one(&["explain", "W0107"])]),
        ("park, unpark", vec![value(&parked)]),
        ("created, on the socket", vec![value(&Response::Created(created))]),
        ("events, on the socket", vec![value(&Response::Events(events))]),
        ("error, on the socket", vec![value(&Response::Error(fault))]),
    ];
    let texts: Vec<_> = answers.iter().map(|(of, all)| format!("{of}\n{}", Shape::of(all))).collect();
    insta::assert_snapshot!("answers", texts.join("\n"));
}
