//! Latencies and signals, from a server of the story's own.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex};

use weir_nodemgr::control::history::AskEvents;
use weir_nodemgr::control::schema::{CreateTenant, SetBudget};
use weir_nodemgr::events::What;
use weir_nodemgr::latency::{Health, Source};
use weir_nodemgr::signals::{Signal, SignalRow};
use weir_policy::{Counted, Decision, Observation, Policy, Row};

use crate::stage::{Actor, DEADLINE, Stage, wish};

/// A server that says what it is told to.
pub struct Server {
    pub url: String,
    page: Arc<Mutex<String>>,
}

impl Server {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let page = Arc::new(Mutex::new(String::new()));
        let said = page.clone();
        std::thread::spawn(move || {
            for mut socket in listener.incoming().map_while(Result::ok) {
                let page = said.lock().unwrap().clone();
                let _ = socket.read(&mut [0; 4096]);
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", page.len());
                let _ = socket.write_all((head + &page).as_bytes());
            }
        });
        Self { url, page }
    }

    pub fn say(&self, page: impl Into<String>) {
        *self.page.lock().unwrap() = page.into();
    }
}

pub fn promising(url: &str) -> CreateTenant {
    let metric = "vllm:time_to_first_token_seconds".to_owned();
    let latency_from = Some(Source { url: url.into(), metric });
    CreateTenant { slo: Some("p95 < 200ms".into()), latency_from, ..wish("serve", 60) }
}

/// A page on which `fast` requests took less than 100 ms and `slow` ones up to 400 ms.
pub fn page(fast: u32, slow: u32) -> String {
    let bucket = |le: &str, count: u32| {
        format!("vllm:time_to_first_token_seconds_bucket{{le=\"{le}\",model_name=\"m\"}} {count}.0\n")
    };
    bucket("0.1", fast) + &bucket("0.4", fast + slow) + &bucket("+Inf", fast + slow)
}

#[test]
fn a_promise_is_judged_by_the_requests_of_late_and_told_when_it_is_missed() {
    let (stage, server) = (Stage::new(), Server::start());
    server.say(page(1_000, 0));
    let mut run = stage.client();
    run.create(promising(&server.url)).unwrap();
    let health = |wanted: Health| {
        move |t: Option<&weir_nodemgr::control::TenantStats>| {
            t.and_then(|t| t.latency.as_ref()).is_some_and(|latency| latency.health == wanted)
        }
    };
    stage.until("serve", "a first page", health(Health::Idle));
    server.say(page(1_000, 100));
    stage.until("serve", "slow requests", health(Health::Told));
    let recent = stage.tenant("serve").unwrap().latency.unwrap().recent_ns.unwrap();
    assert!(recent > 200_000_000, "all requests of late took 100 to 400 ms: {recent} ns");
    let events = stage.client().events(AskEvents::default()).unwrap().events;
    assert!(events.iter().any(|event| matches!(event.what, What::SloMissed { .. })), "{events:?}");
    assert_eq!(stage.tenant("serve").unwrap().budget.slo.unwrap().to_string(), "p95 < 200ms");
    // What is promised can be changed: what was missed is then kept.
    let slo = Some("p95 < 1s".to_owned());
    stage.client().set(SetBudget { tenant: "serve".into(), slo, ..SetBudget::default() }).unwrap();
    assert_eq!(stage.tenant("serve").unwrap().budget.slo.unwrap().to_string(), "p95 < 1s");
}

/// What a policy was told last of requests and late ones.
static COUNTED: Mutex<Option<Counted>> = Mutex::new(None);
static TOLD: Condvar = Condvar::new();

/// `static`, which says what it is told.
struct Tells(Box<dyn Policy>);

impl Policy for Tells {
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision] {
        *COUNTED.lock().unwrap() = seen.samples.iter().find_map(|sample| sample.slo?.counted);
        TOLD.notify_all();
        self.0.decide(seen)
    }
}

static TELLS: Row = Row {
    name: "tells",
    about: "static, which says what it is told",
    fillers_give_way: false,
    rests: |_| false,
    build: || Box::new(Tells((weir_policy::find("static").unwrap().build)())),
};

/// Waits until the policy has been told so.
fn until_counted(requests: u64, late: u64) {
    let wanted = Some(Counted { requests, late });
    let told = COUNTED.lock().unwrap();
    let (told, end) = TOLD.wait_timeout_while(told, DEADLINE, |told| *told != wanted).unwrap();
    assert!(!end.timed_out(), "{:?}, and not {wanted:?}", *told);
}

#[test]
fn how_many_requests_were_late_reaches_the_policy_and_begins_anew_with_each_manager() {
    let (mut stage, server) = (Stage::with(|options| options.policy = &TELLS), Server::start());
    server.say(page(1_000, 30));
    let mut run = stage.client();
    run.create(promising(&server.url)).unwrap();
    until_counted(0, 0);
    server.say(page(1_040, 60)); // of 30 from 100 to 400 ms two thirds took more than 200
    until_counted(70, 20);
    server.say(page(1_100, 90));
    until_counted(160, 40);
    stage.restart_with(|options| options.policy = &TELLS);
    until_counted(0, 0);
    server.say(page(1_101, 93));
    until_counted(4, 2);
}

#[test]
fn a_source_without_the_metric_and_one_that_does_not_answer_are_told_apart() {
    let (stage, server) = (Stage::new(), Server::start());
    server.say("up 1\n");
    let (mut one, mut two) = (stage.client(), stage.client());
    one.create(promising(&server.url)).unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // closed again
    let absent = CreateTenant {
        name: "absent".into(),
        request_permille: Some(100),
        ..promising(&format!("http://{nobody}/"))
    };
    two.create(absent).unwrap();
    let why = |name: &str| {
        stage.until(name, "a failure", |t| {
            t.and_then(|t| t.latency.as_ref()).is_some_and(|l| matches!(l.health, Health::Failing(_)))
        });
        let Health::Failing(why) = stage.tenant(name).unwrap().latency.unwrap().health else { panic!() };
        why
    };
    assert!(why("serve").contains("no histogram or summary"), "{}", why("serve"));
    assert!(why("absent").contains("refused"), "{}", why("absent"));
    assert_eq!(stage.tenant("serve").unwrap().latency.unwrap().recent_ns, None);
}

#[test]
fn the_strictest_signal_says_what_is_left_to_best_effort() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("carbon");
    std::fs::write(&path, "300\n").unwrap();
    let server = Server::start();
    server.say("0.9");
    let row = |from: &str, full, none| SignalRow { from: from.into(), full, none, every_s: Some(1) };
    let signals = vec![
        Signal { name: "carbon".into(), row: row(path.to_str().unwrap(), 200.0, 400.0) },
        Signal { name: "price".into(), row: row(&server.url, 1.0, 2.0) },
    ];
    let stage = Stage::with(|options| options.signals = signals);
    let mut client = stage.client();
    let mut after = 0;
    let mut left = Vec::new();
    while left.len() < 2 {
        let found = client.events(AskEvents { after, wait: true }).unwrap();
        after = found.last;
        for event in found.events {
            if let What::SignalsChanged { best_effort_permille } = event.what {
                left.push(best_effort_permille);
                std::fs::write(&path, "100\n").unwrap();
            }
        }
    }
    assert_eq!(left, [500, 1000]);
    let stats = stage.stats().signals;
    assert_eq!(
        stats.iter().map(|s| (s.name.as_str(), s.value)).collect::<Vec<_>>(),
        [("carbon", Some(100.0)), ("price", Some(0.9)),]
    );
}

#[test]
fn what_all_processes_tell_is_one_promise_and_stays_when_they_end_and_when_the_manager_does() {
    let mut stage = Stage::new();
    let mut run = stage.client();
    let source = Source { url: "hint".into(), metric: "request".into() };
    let wanted = CreateTenant { latency_from: Some(source), ..promising("") };
    let created = run.create(wanted).unwrap();
    let (mut one, mut two) = (Actor::ready(&created), Actor::ready(&created));
    let recent = |about_ms: u64| {
        move |t: Option<&weir_nodemgr::control::TenantStats>| {
            let ns = t.and_then(|t| t.latency.as_ref()).and_then(|latency| latency.recent_ns);
            ns.is_some_and(|ns| (ns / 1_000_000).abs_diff(about_ms) <= about_ms / 8)
        }
    };
    let idle = |t: Option<&weir_nodemgr::control::TenantStats>| {
        t.and_then(|t| t.latency.as_ref()).is_some_and(|latency| latency.health == Health::Idle)
    };
    stage.until("serve", "a first look", idle);
    assert_eq!(one.ask("tell 100 90"), "told");
    stage.until("serve", "fast requests", recent(100));
    assert_eq!(two.ask("tell 300 10"), "told");
    stage.until("serve", "one in ten is slow", recent(300));
    two.kill();
    stage.until("serve", "one process", |t| t.is_some_and(|t| t.pids.len() == 1));
    assert!(recent(300)(stage.tenant("serve").as_ref()), "what was served was served");
    stage.restart();
    stage.until("serve", "the next manager's first look", idle);
    assert_eq!(one.ask("tell 50 10"), "told");
    stage.until("serve", "only what came since", recent(50));
}
