use std::collections::BTreeMap;

use weir_protocol::units::{Bytes, SmShare};

use super::*;
use crate::control::model::{Budget, InstanceId, Service};
use crate::control::order::GpuSeen;
use crate::control::policies::tests::{profile, service};

/// Who is at work for most of his time alone.
const ALONE: Stalls = Stalls {
    compute: 0.5,
    communication: 0.0,
    copies: 0.1,
    neighbour: 0.0,
    gate: 0.0,
    host: 0.4,
    bubble: 0.5,
};

fn fleet() -> Fleet {
    let known = |name: &str| Service {
        profile: Some(crate::profile::Profile { stalls: ALONE, ..profile() }),
        ..service(name)
    };
    Fleet {
        cluster: "c".into(),
        services: vec![known("a"), known("b"), service("unknown")],
        nodes: Vec::new(),
        sites: Vec::new(),
        stale_after: Nanos::from_secs(10),
    }
}

/// Each instance: service, number, limit in percent, and ms at work, by itself and waiting for each second.
type Row = (&'static str, u64, u16, [u64; 3]);

fn report(fleet: &Fleet, second: u64, foreign: u16, rows: &[Row]) -> Report {
    let tenant = |(service, id, limit, ms): &Row| {
        let name = format!("{}.{service}.{}", fleet.cluster, InstanceId(*id));
        let [at_work, by_itself, waited] = ms.map(|ms| Nanos::from_millis(ms * second));
        let budget =
            Budget { request: SmShare::percent(10), limit: SmShare::percent(*limit), memory: Bytes::gib(1) };
        let spent = Spent { at_work, by_itself, waited };
        (name, Seen { budget, gpu: 0, runs: true, parked: false, spent })
    };
    let gpu = GpuSeen {
        name: "simulated".into(),
        memory: Bytes::gib(40),
        foreign_request: SmShare::percent(foreign),
        foreign_memory: Bytes(0),
        draw: None,
    };
    let tenants: BTreeMap<_, _> = rows.iter().map(tenant).collect();
    Report { node: "n".into(), asked_at: Nanos::from_secs(second), gpus: vec![gpu], tenants }
}

/// What a watch says of twenty seconds of this, second by second.
fn seen(foreign: u16, rows: &[Row]) -> Vec<Measured> {
    let (fleet, mut watch) = (fleet(), Watch::default());
    (1..=21).flat_map(|second| watch.look(&report(&fleet, second, foreign, rows), &fleet, |_| true)).collect()
}

const BUSY_A: Row = ("a", 1, 100, [300, 200, 500]);
const BUSY_B: Row = ("b", 2, 100, [480, 320, 200]);

#[test]
fn who_waits_half_of_his_time_is_twice_as_slow_beside_those_who_were_there() {
    let all = seen(0, &[BUSY_A, BUSY_B, ("b", 3, 100, [480, 320, 200])]);
    assert_eq!(all.len(), 2 * 3, "two windows: {all:?}");
    let of_a: Vec<_> = all.iter().filter(|measured| measured.victim == "a").collect();
    assert!(of_a.iter().all(|measured| measured.beside == ["b", "b"]), "{of_a:?}");
    assert!(of_a.iter().all(|measured| (measured.slowdown - 2.0).abs() < 1e-9), "{of_a:?}");
    let of_b = all.iter().filter(|measured| measured.victim == "b");
    assert!(of_b.clone().all(|measured| measured.beside == ["a", "b"]), "{all:?}");
    assert!(of_b.clone().all(|measured| (measured.slowdown - 1.25).abs() < 1e-9), "{all:?}");
}

#[test]
fn beside_idle_services_strangers_or_those_nobody_knows_nothing_is_measured() {
    assert_eq!(
        seen(0, &[BUSY_A, ("b", 2, 100, [300, 600, 100])]),
        [],
        "a third of its time is half of what it can"
    );
    assert_eq!(seen(5, &[BUSY_A, BUSY_B]), [], "a stranger is there");
    assert_eq!(seen(0, &[BUSY_A, ("unknown", 2, 100, [480, 320, 200])]), [], "no profile");
    assert_eq!(seen(0, &[BUSY_A]), [], "nobody is beside it");
    assert_eq!(seen(0, &[BUSY_A, ("b", 2, 100, [0, 0, 0])]), [], "it says nothing of its time");
}

#[test]
fn where_somebody_is_held_by_his_own_limit_nothing_is_measured() {
    assert_eq!(seen(0, &[("a", 1, 30, [300, 200, 500]), BUSY_B]), [], "it would have waited alone");
    let below = seen(0, &[("a", 1, 40, [300, 200, 500]), BUSY_B]);
    assert!(below.iter().any(|measured| measured.victim == "a"), "{below:?}");
}

#[test]
fn who_was_told_of_for_a_part_of_the_time_only_says_nothing() {
    let all = seen(0, &[BUSY_A, ("b", 2, 100, [120, 80, 0])]);
    assert_eq!(all, [], "it has waited for requests since, without a call");
}

#[test]
fn a_window_begins_anew_when_somebody_comes_or_a_budget_changes_or_a_program_begins_anew_or_nothing_was_heard()
 {
    let (fleet, mut watch) = (fleet(), Watch::default());
    let mut look = |second, rows: &[Row]| watch.look(&report(&fleet, second, 0, rows), &fleet, |_| true);
    assert_eq!(look(1, &[BUSY_A, BUSY_B]), []);
    assert_eq!(look(12, &[BUSY_A, BUSY_B, ("b", 3, 100, BUSY_B.3)]), [], "one came");
    assert_eq!(look(23, &[BUSY_A, BUSY_B]), [], "and went");
    assert_eq!(look(34, &[BUSY_A, ("b", 2, 90, BUSY_B.3)]), [], "another limit");
    assert!(!look(45, &[BUSY_A, ("b", 2, 90, BUSY_B.3)]).is_empty(), "nothing has changed");
    assert_eq!(look(56, &[("a", 1, 100, [1, 1, 1]), ("b", 2, 90, BUSY_B.3)]), [], "it began anew");
    assert_eq!(look(80, &[BUSY_A, ("b", 2, 90, BUSY_B.3)]), [], "a long silence");
    assert!(!look(91, &[BUSY_A, ("b", 2, 90, BUSY_B.3)]).is_empty());
}

#[test]
fn an_instance_that_is_not_ready_is_not_waited_beside() {
    let (fleet, mut watch) = (fleet(), Watch::default());
    let rows = [BUSY_A, BUSY_B];
    let not_b = |name: &str| !name.starts_with("c.b.");
    for second in [1, 12, 23] {
        assert_eq!(watch.look(&report(&fleet, second, 0, &rows), &fleet, not_b), [], "it loads its weights");
    }
    assert_eq!(watch.look(&report(&fleet, 24, 0, &rows), &fleet, |_| true), [], "only now it is");
    assert_eq!(watch.look(&report(&fleet, 35, 0, &rows), &fleet, |_| true).len(), 2);
}
