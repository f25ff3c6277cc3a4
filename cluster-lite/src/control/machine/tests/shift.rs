//! Best-effort work at two sites, turn by turn.

use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use crate::control::Kept;
use crate::control::decide::{BestFit, ByQueue};
use crate::control::machine::Controller;
use crate::control::model::*;
use crate::control::order::{GpuSeen, Report, Seen, Spent};
use crate::sites::signals::{HOUR, Signals};

use super::scenes;

const ID: InstanceId = InstanceId(7);

/// Half past the first hour: three hours are left.
const BEGAN: Nanos = Nanos(HOUR.0 / 2);

fn signals(grams: [u32; 2]) -> Signals {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("signals.csv");
    let [north, south] = grams;
    let rows = format!("1970-01-01T00:00:00Z,north,{north},\n1970-01-01T00:00:00Z,south,{south},\n");
    std::fs::write(&path, format!("hour,site,grams_per_kwh,cap_watts\n{rows}")).unwrap();
    Signals::read(&path, &["north".into(), "south".into()]).unwrap()
}

/// A controller that goes on after another one, which had one instance of the work on node `a`, in the north.
fn goes_on() -> Controller {
    let batch = Batch { gpu_time: Nanos::from_secs(60), done_by: Nanos(4 * HOUR.0) };
    let budget = Budget { request: SmShare::ZERO, limit: SmShare::FULL, memory: Bytes::gib(1) };
    let work = Service {
        class: ClassName::Filler,
        ready: ReadyWhen::Runs,
        budget,
        shares: [SmShare::ZERO, SmShare::FULL],
        batch: Some(batch),
        ..scenes::service("work", 10, 0, WhenIdle::Stop)
    };
    let site = |name: &str| Site { name: name.into(), watts: [50.0, 400.0] };
    let node = |name: &str, site: &str| Node {
        name: name.into(),
        address: name.into(),
        ports: [20_000, 20_063],
        site: Some(site.into()),
    };
    let fleet = Fleet {
        services: vec![work],
        nodes: vec![node("a", "north"), node("b", "south")],
        sites: vec![site("north"), site("south")],
        stale_after: Nanos::from_secs(3_600),
        ..scenes::fleet()
    };
    let instance = Instance {
        id: ID,
        service: "work".into(),
        place: Place { node: "a".into(), gpu: 0 },
        port: 0,
        budget,
        held: budget,
        state: State::Ready,
        since: Nanos(0),
        decision: DecisionId(1),
    };
    let kept = Kept { instances: vec![instance], next_instance: 8, next_decision: 2, ..Kept::default() };
    let mut controller = Controller::new(fleet, kept, BEGAN);
    controller.follow_signals(signals([50, 400]));
    controller
}

/// What a node of one GPU says at so many seconds; `works` is how long the instance was at work there.
fn report(controller: &Controller, node: &str, second: u64, works: Option<u64>) -> Report {
    let gpu = GpuSeen {
        name: "A100".into(),
        memory: Bytes::gib(40),
        foreign_request: SmShare::ZERO,
        foreign_memory: Bytes(0),
        draw: None,
    };
    let instance = controller.instances().find(|instance| instance.id == ID).cloned();
    let seen = |instance: Instance, seconds| {
        let spent = Spent { at_work: Nanos::from_secs(seconds), ..Spent::default() };
        let seen = Seen { budget: instance.budget, gpu: 0, runs: true, parked: false, spent };
        (controller.fleet().tenant(&instance), seen)
    };
    let tenants = instance.zip(works).map(|(instance, seconds)| seen(instance, seconds));
    let asked_at = Nanos(BEGAN.0 + Nanos::from_secs(second).0);
    Report { node: node.into(), asked_at, gpus: vec![gpu], tenants: tenants.into_iter().collect() }
}

fn turn(controller: &mut Controller, second: u64) {
    let now = Nanos(BEGAN.0 + Nanos::from_secs(second).0);
    controller.turn(now, &mut BestFit, &mut ByQueue::default());
}

/// Nodes with instances that are there and are not about to go.
fn at(controller: &Controller) -> Vec<&str> {
    let stays = |i: &&Instance| i.state.serves();
    controller.instances().filter(stays).map(|instance| instance.place.node.as_str()).collect()
}

fn hear(controller: &mut Controller, second: u64, works: u64) {
    let reports =
        [("a", Some(works)), ("b", None)].map(|(node, works)| report(controller, node, second, works));
    reports.into_iter().for_each(|report| controller.hear(report));
    turn(controller, second);
}

#[test]
fn before_all_nodes_have_said_what_they_have_nobody_is_ended_or_started() {
    let mut controller = goes_on();
    turn(&mut controller, 1);
    assert_eq!(at(&controller), ["a"], "nothing is known of either");
    let first = report(&controller, "b", 2, None);
    controller.hear(first);
    turn(&mut controller, 2);
    assert_eq!(at(&controller), ["a"], "the other one may have it");
    hear(&mut controller, 3, 1);
    assert_eq!(at(&controller), ["a"]);
}

#[test]
fn work_moves_when_the_signals_change_and_leaves_a_node_that_is_drained_at_once() {
    let change = |change: fn(&mut Controller)| {
        let mut controller = goes_on();
        hear(&mut controller, 1, 1);
        change(&mut controller);
        hear(&mut controller, 2, 2);
        at(&controller).join(" ")
    };
    assert_eq!(change(|_| ()), "a");
    assert_eq!(change(|controller| controller.follow_signals(signals([400, 50]))), "b");
    assert_eq!(change(|controller| controller.drain("a", true)), "b", "the clean site has no GPU left");
}

#[test]
fn when_all_of_it_was_done_none_is_left_and_what_was_counted_goes_on_in_the_next_controller() {
    let mut controller = goes_on();
    hear(&mut controller, 1, 30);
    let mut next = goes_on();
    next.recall_done(controller.done().clone());
    hear(&mut next, 1, 40);
    assert_eq!(at(&next), ["a"], "40 of 60 s, and not 70");
    hear(&mut next, 2, 60);
    assert_eq!(at(&next), [""; 0]);
    assert_eq!(next.standing()["work"].why, "its work is done");
}
