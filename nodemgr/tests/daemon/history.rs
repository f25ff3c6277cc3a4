//! What the manager tells of what has happened: events, and what a tenant waited for.

use weir_nodemgr::control::Client;
use weir_nodemgr::control::history::AskEvents;
use weir_nodemgr::control::policy::AskPolicy;
use weir_nodemgr::control::schema::SetBudget;
use weir_nodemgr::events::{Event, What};
use weir_nodemgr::{Manager, Options, Place};

use crate::stage::{Actor, Stage, options, wish};

fn all(stage: &Stage) -> Vec<Event> {
    stage.client().events(AskEvents::default()).unwrap().events
}

/// Waits for events after `after` until one is as it should be.
fn until(client: &mut Client, after: u64, is: impl Fn(&Event) -> bool) -> Event {
    let mut after = after;
    for _ in 0..100 {
        let found = client.events(AskEvents { after, wait: true }).unwrap();
        if let Some(event) = found.events.into_iter().find(|event| is(event)) {
            return event;
        }
        after = found.last;
    }
    panic!("it has not come");
}

#[test]
fn a_tenants_life_is_told_in_its_order() {
    let stage = Stage::new();
    let mut watch = stage.client();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    let pid = process.pid();
    process.kill();
    until(&mut watch, 0, |event| matches!(event.what, What::ProcessEnded { .. }));
    drop(run);
    until(&mut watch, 0, |event| event.what == What::TenantEnded);
    let events = all(&stage);
    assert!(events.is_sorted_by_key(|event| event.seq));
    let told: Vec<_> = events.into_iter().map(|event| (event.tenant, event.what)).collect();
    let train = || Some("train".to_owned());
    assert!(matches!(told[0], (None, What::ManagerStarted { gpus: 2, .. })), "{told:?}");
    assert!(matches!(&told[1], (name, What::TenantMade { .. }) if *name == train()), "{told:?}");
    assert_eq!(
        told[2..],
        [
            (train(), What::ProcessJoined { pid }),
            (train(), What::ProcessEnded { pid }),
            (train(), What::TenantEnded),
        ]
    );
}

#[test]
fn whoever_waits_for_events_is_answered_when_one_comes() {
    let stage = Stage::new();
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    let mut watch = stage.client();
    let last = watch.events(AskEvents::default()).unwrap().last;
    let waiting = std::thread::spawn(move || until(&mut watch, last, |_| true));
    let change = SetBudget { tenant: "train".into(), request_permille: Some(300), ..SetBudget::default() };
    stage.client().set(change).unwrap();
    let event = waiting.join().unwrap();
    let What::BudgetSet { old, new } = event.what else { panic!("{event:?}") };
    assert_eq!((old.request.as_permille(), new.request.as_permille()), (600, 300));
}

#[test]
fn a_second_question_while_the_first_one_waits_is_refused_and_the_first_stays() {
    use std::io::{BufRead, Write};
    let stage = Stage::new();
    let socket = std::os::unix::net::UnixStream::connect(stage.place.control()).unwrap();
    let last = stage.client().events(AskEvents::default()).unwrap().last;
    let line = format!("{{\"do\":\"events\",\"after\":{last},\"wait\":true}}\n");
    (&socket).write_all(line.repeat(2).as_bytes()).unwrap();
    let mut lines = std::io::BufReader::new(&socket).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("W0133"));
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    let answer = lines.next().unwrap();
    assert!(answer.contains("\"is\":\"events\"") && answer.contains("tenant_made"), "{answer}");
}

#[test]
fn forced_launches_are_told_with_their_number() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    assert_eq!(process.ask("force"), "forced");
    let event = until(&mut stage.client(), 0, |event| matches!(event.what, What::GateForced { .. }));
    assert_eq!((event.what, event.gpu), (What::GateForced { launches: 1 }, Some(0)));
}

#[test]
fn why_tells_what_the_time_went_to_and_beside_whom() {
    let stage = Stage::new();
    let (mut run, mut other) = (stage.client(), stage.client());
    let created = run.create(wish("train", 60)).unwrap();
    other.create(wish("serve", 40)).unwrap();
    let mut process = Actor::ready(&created);
    let start = std::time::Instant::now();
    let moment = loop {
        assert_eq!(process.ask("wait gate 5"), "waited");
        assert_eq!(process.ask("wait compute 3"), "waited");
        let why = stage.client().why("train").unwrap();
        assert_eq!((why.tenant.as_str(), why.gpus.len()), ("train", 1));
        if let Some(moment) = why.gpus[0].moments.last() {
            break moment.clone();
        }
        assert!(start.elapsed() < crate::stage::DEADLINE, "no moment has come");
    };
    let [compute, _, _, _, gate, host] = moment.stalls_ns;
    assert!(gate > compute && compute > 0 && host == 0, "{moment:?}");
    assert_eq!((moment.policy.as_str(), moment.state.is_empty()), ("weir", false));
}

#[test]
fn a_policy_that_was_switched_stays_until_another_one_is_configured() {
    let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
    let place = Place::at(&dir.path().join("node")).unwrap();
    let ask = |asked| Client::connect(&place).unwrap().policy(asked).unwrap().gpus;
    let policies = || ask(AskPolicy::default()).into_iter().map(|gpu| gpu.policy).collect::<Vec<_>>();
    let switch = |name: &str| ask(AskPolicy { gpus: vec!["1".into()], name: Some(name.into()) });
    let start = |configured: &str| {
        let policy = weir_policy::find(configured).unwrap();
        Manager::start(Options { policy, ..options(&place) }).unwrap()
    };
    for (configured, before, then) in [
        ("weir", ["weir", "weir"], "tgs"),
        ("weir", ["weir", "tgs"], "dilu"),
        ("weir", ["weir", "dilu"], "dilu"),
        ("static", ["static", "static"], "tgs"),
        ("static", ["static", "tgs"], "static"),
        ("static", ["static", "static"], "static"),
    ] {
        let manager = start(configured);
        assert_eq!(policies(), before, "{configured}");
        switch(then);
        drop(manager);
    }
}

#[test]
fn a_policy_is_switched_on_the_gpu_that_is_named() {
    let stage = Stage::new();
    let mut client = stage.client();
    let last = weir_policy::POLICIES.last().unwrap().name;
    let ask = |name: Option<&str>| AskPolicy { gpus: vec!["1".into()], name: name.map(str::to_owned) };
    let done = client.policy(ask(Some(last))).unwrap();
    let first = weir_policy::POLICIES[0].name;
    assert_eq!(
        (done.gpus[0].index, done.gpus[0].old.as_str(), done.gpus[0].policy.as_str()),
        (1, first, last)
    );
    assert_eq!(client.policy(ask(None)).unwrap().gpus[0].policy, last);
    let gpus = stage.stats().gpus;
    assert_eq!((gpus[0].policy.as_str(), gpus[1].policy.as_str()), (first, last));
    let switched = all(&stage).iter().filter(|e| matches!(e.what, What::PolicySwitched { .. })).count();
    assert_eq!(switched, usize::from(first != last), "staying is no switch");
}
