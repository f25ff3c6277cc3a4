use std::sync::atomic::Ordering;

use weir_protocol::units::{Bytes, Tokens};

use super::*;
use crate::control::schema::{ClassName, CreateTenant, SetBudget};
use crate::gpus::{Device, Gpus, Source};
use crate::registry::{Cell, Holder, Registry};

const TICK: Nanos = Nanos::from_millis(1);

/// Two tenants on one GPU, 60 % and 30 %, each with a process, in virtual time.
struct Node {
    registry: Registry,
    now: Nanos,
}

impl Node {
    fn new() -> Self {
        Self::ruled_by("static", ClassName::Primary)
    }

    /// The second tenant is of this class.
    fn ruled_by(policy: &str, class: ClassName) -> Self {
        let card = Device { uuid: [1; 16], name: "Test".into(), memory_total: Bytes::gib(10) };
        let gpus = Gpus::find(Source::Fixed(vec![card]), Vec::new()).unwrap();
        let mut registry = Registry::new(gpus, Some(Bytes(0)), weir_policy::find(policy).unwrap());
        for (name, request, class) in [("a", 600, ClassName::Primary), ("b", 300, class)] {
            let wanted = CreateTenant {
                name: name.into(),
                class,
                request_permille: Some(request),
                memory_bytes: Some(1 << 30),
                ..CreateTenant::default()
            };
            let holder = Holder { id: 1, pid: 1, birth: 1 };
            let (id, _) = registry.create(&wanted, 0, holder, Nanos(1)).unwrap();
            registry.register(id, (1, 1), String::new(), String::new()).unwrap();
        }
        Self { registry, now: Nanos::from_secs(1) }
    }

    fn cell(&self, at: usize) -> &Cell {
        &self.registry.tenants()[at].cells[0]
    }

    /// Its process launches, and says so as one does.
    fn works(&self, at: usize) {
        let pages = &self.cell(at).pages;
        pages.activity.begin(0, || self.now);
        self.tells(at);
        pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
        pages.activity.end(0);
    }

    fn tells(&self, at: usize) {
        let pages = &self.cell(at).pages;
        if pages.grant.bell.wants().stir {
            pages.usage.stir();
        }
    }

    /// So many ticks, in each of which those in `at_work` do something; says whether anybody is awake then.
    fn tick(&mut self, ticks: u64, at_work: &[usize]) -> bool {
        for _ in 0..ticks {
            self.step(at_work);
            self.registry.tick(self.now);
        }
        self.registry.rulers.iter().any(|ruler| ruler.awake)
    }

    /// A tick's time passes.
    fn step(&mut self, at_work: &[usize]) {
        self.now.0 += TICK.0;
        at_work.iter().for_each(|at| self.works(*at));
    }

    /// As the control loop does it: so many times that ticks are due, with rests in between. How long the rests were.
    fn rest(&mut self, runs: u64, at_work: &[usize]) -> Vec<u64> {
        let run = |node: &mut Self| {
            (0..node.registry.pace()).for_each(|_| node.step(at_work));
            node.registry.tick(node.now);
            node.registry.settle_pace(node.now)
        };
        (0..runs).map(|_| run(self)).collect()
    }

    fn rate_percent(&self, at: usize) -> u32 {
        self.cell(at).pages.grant.read().rate.as_ppm() / 10_000
    }
}

#[test]
fn what_a_sleeper_has_lent_is_taken_back_in_the_tick_in_which_it_stirs() {
    let mut node = Node::new();
    node.tick(2_000, &[1]);
    assert!(node.cell(0).is_asleep());
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (60, 100));
    node.tick(1, &[0, 1]);
    assert!(!node.cell(0).is_asleep());
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
}

#[test]
fn a_sleeper_whose_launch_waits_at_its_gate_is_awake_in_the_next_tick() {
    let mut node = Node::new();
    node.tick(2_000, &[1]);
    assert!(node.cell(0).is_asleep());
    node.cell(0).pages.usage.slots[0].put_off.fetch_add(1, Ordering::Relaxed);
    node.tells(0);
    node.tick(1, &[1]);
    assert!(!node.cell(0).is_asleep());
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
}

/// What it does not use while it waits for its turn is not the others' to have.
#[test]
fn whose_launch_waits_for_a_turn_lends_nothing() {
    let mut node = Node::new();
    node.tick(2, &[0, 1]);
    node.cell(0).pages.usage.slots[0].put_off.fetch_add(1, Ordering::Relaxed);
    node.tick(50, &[1]);
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
    node.cell(0).pages.usage.slots[0].put_off.fetch_add(1, Ordering::Relaxed);
    node.tick(50, &[1]);
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (60, 100), "it has gone");
}

#[test]
fn a_launch_long_after_its_process_began_to_work_is_seen_in_the_next_tick() {
    let mut node = Node::new();
    node.cell(0).pages.activity.begin(0, || Nanos(1)); // a kernel of seconds
    node.tick(2_000, &[1]);
    assert!(node.cell(0).is_asleep());
    node.cell(0).pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
    node.tick(1, &[1]);
    assert!(!node.cell(0).is_asleep());
}

#[test]
fn a_sleeper_that_stirs_before_it_launches_is_looked_at_until_it_does() {
    let mut node = Node::new();
    node.tick(2_000, &[1]);
    node.cell(0).pages.activity.begin(0, || Nanos(1));
    node.tells(0);
    node.tick(30, &[1]);
    assert!(node.cell(0).is_asleep());
    node.cell(0).pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
    node.tick(1, &[1]);
    assert!(!node.cell(0).is_asleep());
}

#[test]
fn a_sleeper_that_says_nothing_is_found_when_it_is_its_turn() {
    let mut node = Node::new();
    node.tick(2_000, &[1]);
    node.cell(0).pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
    node.tick(turns(TICK), &[1]);
    assert!(!node.cell(0).is_asleep());
}

#[test]
fn who_falls_idle_lends_its_share_as_soon_as_where_the_policy_is_asked_in_each_tick() {
    let mut node = Node::new();
    node.cell(0).pages.bucket.charge(Tokens(-1)); // it owes nothing
    node.tick(100, &[0, 1]);
    node.tick(4, &[1]);
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
    node.tick(1, &[1]);
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (60, 100));
    node.tick(1, &[0, 1]);
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
}

#[test]
fn everybody_sees_that_there_is_a_manager_whoever_is_asleep() {
    let mut node = Node::new();
    for at_work in [&[0, 1][..], &[1], &[]] {
        node.tick(2_000, at_work);
        let epochs = |node: &Node| [0, 1].map(|at| node.cell(at).pages.grant.epoch());
        let before = epochs(&node);
        node.tick(turns(TICK), at_work);
        assert!(before.iter().zip(epochs(&node)).all(|(before, after)| *before < after), "{at_work:?}");
    }
}

#[test]
fn what_an_operator_sets_holds_for_sleepers_at_once() {
    let mut node = Node::new();
    assert!(node.tick(500, &[]));
    assert!(!node.tick(1_000, &[]), "all are asleep");
    let change = SetBudget { tenant: "a".into(), memory_bytes: Some(1 << 20), ..SetBudget::default() };
    let (id, _, budget) = node.registry.consider(&change).unwrap();
    assert_eq!(node.registry.apply(id, budget, node.now).len(), 1, "its grant is published");
    assert_eq!(node.cell(0).pages.grant.read().memory_limit, Bytes(1 << 20));
}

#[test]
fn the_loop_rests_while_all_who_are_awake_work_on_and_longer_the_longer_they_have() {
    let mut node = Node::new();
    node.tick(2_000, &[1]);
    assert_eq!(node.rest(40, &[1]), [4; 40], "one works, the other sleeps");
    node.registry.end_rest();
    let rests = node.rest(200, &[1]);
    assert_eq!(rests[..60], [1; 60], "something was said to have changed");
    assert!(rests.is_sorted() && rests.contains(&2) && rests[199] == 4, "{rests:?}");
}

#[test]
fn the_loop_rests_while_nobody_is_awake() {
    let mut node = Node::new();
    assert!(!node.tick(2_000, &[]));
    assert_eq!(node.rest(500, &[]), [4; 500]);
}

#[test]
fn who_falls_idle_after_long_work_lends_its_share_three_ticks_later_than_otherwise_at_most() {
    for at_work in 0..8 {
        let mut node = Node::new();
        node.cell(0).pages.bucket.charge(Tokens(-1)); // it owes nothing
        node.tick(2_000, &[0, 1]);
        node.rest(20, &[0, 1]);
        let mut left = node.registry.pace();
        let mut late = None;
        for ms in 0..20 {
            node.step(if ms < at_work { &[0, 1] } else { &[1] });
            left -= 1;
            if left == 0 {
                node.registry.tick(node.now);
                left = node.registry.settle_pace(node.now);
                late = late.or((node.rate_percent(1) == 100).then_some(ms));
            }
        }
        let late = late.expect("it is lent") - (at_work + 4); // seen in its last tick at work, and five later
        assert!(late <= 3, "{late} ticks");
    }
}

#[test]
fn the_loop_does_not_rest_while_somebody_awake_does_nothing() {
    let mut node = Node::new();
    node.tick(500, &[0, 1]);
    node.tick(500, &[1]);
    assert!(!node.cell(0).is_asleep());
    assert_eq!(node.rest(100, &[1]), [1; 100]);
    node.tick(1_000, &[1]);
    node.rest(1, &[1]);
    assert_eq!(node.rest(100, &[1]), [4; 100], "it is asleep, and rings when it wakes");
}

#[test]
fn the_loop_does_not_rest_beside_a_sleeper_that_would_not_ring() {
    let mut node = Node::new();
    node.cell(0).pages.activity.begin(0, || Nanos(1)); // a kernel of seconds: more launches begin nothing
    node.tick(2_000, &[1]);
    assert!(node.cell(0).is_asleep());
    assert_eq!(node.rest(100, &[1]), [1; 100]);
}

#[test]
fn the_loop_does_not_rest_where_a_policy_is_asked_in_each_tick() {
    let mut node = Node::ruled_by("weir", ClassName::Filler);
    node.tick(2_000, &[0, 1]);
    assert_eq!(node.rest(100, &[0, 1]), [1; 100]);
}

#[test]
fn a_sleeper_that_rings_ends_the_rest_no_sooner_than_a_tick_after_the_last_run() {
    let mut node = Node::new();
    node.tick(2_000, &[1]);
    node.rest(20, &[1]);
    let last = node.now;
    node.step(&[0, 1]);
    assert!(node.cell(0).pages.grant.bell.wants().ring);
    assert_eq!(node.registry.end_rest(), Some(Nanos(last.0 + TICK.0)));
    assert_eq!(node.registry.end_rest(), None, "it is over already");
    node.registry.tick(node.now);
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
    assert_eq!(node.registry.settle_pace(node.now), 1);
}

#[test]
fn a_sleeper_that_cannot_ring_is_seen_when_the_rest_is_over() {
    let mut node = Node::new();
    node.tick(2_000, &[1]);
    assert_eq!(node.rest(20, &[1]), [4; 20]);
    assert_eq!(node.rest(1, &[0, 1]), [1]);
    assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
}

#[test]
fn a_sleeper_that_rings_closes_no_gate_to_which_nobody_has_armed_its_bell() {
    let mut node = Node::ruled_by("static", ClassName::Filler);
    node.tick(2_000, &[1]);
    node.cell(0).pages.activity.begin(0, || Nanos(1));
    let id = node.registry.tenants()[0].id;
    node.registry.hear_bell(id);
    assert!(node.cell(1).is_open());
}

#[test]
fn nobodys_turn_comes_so_late_that_the_manager_looks_dead() {
    // A tenant waits for a second; all asleep, a tick is four times as long.
    for tick_us in [100, 1_000, 7_000, 100_000] {
        let tick = Nanos::from_micros(tick_us);
        assert!(4 * tick.0 * turns(tick) <= 500_000_000, "{tick_us}");
    }
}
