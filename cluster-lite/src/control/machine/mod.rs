//! The state machine. Reports, answers and traffic come in as they may: late, twice or never. Each turn gives what is to be
//! written, and then what is to be done.
//!
//! ```text
//!              placed            started           answers
//!            --------> Placing ----------> Starting -------> Ready <--+
//!                         |                   |  ^              |     | wanted again
//!            refused,     |                   |  | woken        v     |
//!            has ended    v                   v  |           Draining +
//!                      Stopping <-------------+  +-- Parked <---+
//!                         |                                     |
//!      forgotten <--------+ its node: ended, never starts again +--> Stopping
//!
//!   any but Stopping, node silent: Lost; heard again: Starting if it is there, else Stopping
//! ```

mod follow;
mod hand_on;
mod orders;
mod scale;
mod shift;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weir_protocol::units::Nanos;

use super::decide::{Placing, Scaling};
use super::measure::{Measured, Watch};
use super::model::{Batch, Decision, DecisionId, Fleet, Instance, InstanceId, Service, State};
use super::order::{Answer, Order, Outcome, Report, What};
use super::room::Room;
use super::route::{Table, Traffic};
use super::shift::Done;
use crate::sites::signals::Signals;

/// A change of what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// An instance as it is now.
    Instance(Box<Instance>),
    /// An instance that is no more.
    Forgotten(InstanceId),
    /// Nodes that get no instances.
    Drained(BTreeSet<String>),
    /// A decision, for people.
    Decision(Decision),
}

/// What a controller finds that starts after another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The instances.
    pub instances: Vec<Instance>,
    /// Nodes that get no instances.
    pub drained: BTreeSet<String>,
    /// The first instance number that was never used.
    pub next_instance: u64,
    /// The first decision number that was never used.
    pub next_decision: u64,
}

/// What follows from a turn: first the writes, all at once; then the rest, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// To be kept.
    pub writes: Vec<Write>,
    /// To be done.
    pub orders: Vec<Order>,
    /// To be routed by.
    pub table: Table,
}

/// What only a running controller knows of an instance.
#[derive(Clone, Debug, Default)]
struct Live {
    /// The order on its way.
    flying: Option<What>,
    /// No order before this.
    again_at: Nanos,
    /// When an order was last known to be carried out.
    done_at: Nanos,
    /// Whether it has been seen running since this controller started.
    seen: bool,
    /// The first table in which it accepts nothing.
    closed_in: Option<u64>,
}

/// A service whose instances do not come up waits longer each time.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    failures: u32,
    until: Nanos,
}

/// What a node said last.
#[derive(Clone, Debug)]
struct Heard {
    /// When it was asked.
    at: Nanos,
    /// Its answer; nothing before the first.
    report: Option<Report>,
}

/// How a service stands, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Instances wanted.
    pub wanted: u32,
    /// Why so many.
    pub why: String,
    /// Why there are fewer, where there are.
    pub lacks: Option<String>,
}

/// The controller.
pub struct Controller {
    fleet: Fleet,
    instances: BTreeMap<InstanceId, Instance>,
    drained: BTreeSet<String>,
    next_instance: u64,
    next_decision: u64,
    live: BTreeMap<InstanceId, Live>,
    heard: BTreeMap<String, Heard>,
    traffic: Traffic,
    backoff: BTreeMap<String, Backoff>,
    standing: BTreeMap<String, Standing>,
    table: Table,
    writes: Vec<Write>,
    watch: Watch,
    measured: Vec<Measured>,
    /// Whether a gateway has told of its traffic.
    is_told: bool,
    signals: Signals,
    /// By service: the hour, and what each site had of it.
    quotas: BTreeMap<String, (u64, BTreeMap<String, u32>)>,
    done: Done,
    /// The work of services that follow signals, also while they end.
    batches: BTreeMap<String, Batch>,
    /// Tenants with our names that nobody here knows, and when they were last told to end.
    strays: BTreeMap<String, Nanos>,
}

impl Controller {
    /// A controller that goes on from what is kept. Nodes count as heard of now: they get the time to answer.
    pub fn new(fleet: Fleet, kept: Kept, now: Nanos) -> Self {
        let heard = |name: &String| (name.clone(), Heard { at: now, report: None });
        let batch = |service: &Service| Some((service.name.clone(), service.batch?));
        let batches = fleet.services.iter().filter_map(batch).collect();
        Self {
            heard: fleet.nodes.iter().map(|node| heard(&node.name)).collect(),
            fleet,
            instances: kept.instances.into_iter().map(|instance| (instance.id, instance)).collect(),
            drained: kept.drained,
            next_instance: kept.next_instance,
            next_decision: kept.next_decision,
            live: BTreeMap::new(),
            traffic: Traffic::default(),
            backoff: BTreeMap::new(),
            standing: BTreeMap::new(),
            table: Table::default(),
            writes: Vec::new(),
            watch: Watch::default(),
            measured: Vec::new(),
            is_told: false,
            signals: Signals::default(),
            quotas: BTreeMap::new(),
            done: Done::default(),
            batches,
            strays: BTreeMap::new(),
        }
    }

    /// What it was told at its start.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The instances.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    /// How each service stands.
    pub fn standing(&self) -> &BTreeMap<String, Standing> {
        &self.standing
    }

    /// How long ago each node was heard of, and whether it gets instances.
    pub fn nodes(&self, now: Nanos) -> Vec<(String, Nanos, bool)> {
        let row = |(name, heard): (&String, &Heard)| {
            (name.clone(), now.since(heard.at), !self.drained.contains(name))
        };
        self.heard.iter().map(row).collect()
    }

    /// A node has answered. An older answer than the last is passed over.
    pub fn hear(&mut self, report: Report) {
        let Some(heard) = self.heard.get_mut(&report.node) else { return };
        if heard.report.is_some() && report.asked_at <= heard.at {
            return;
        }
        let is_ready = |name: &str| {
            let id = self.fleet.parse_tenant(name).map(|(_, id)| id);
            id.and_then(|id| self.instances.get(&id)).is_some_and(|instance| instance.state == State::Ready)
        };
        let measured = self.watch.look(&report, &self.fleet, is_ready);
        self.measured.extend(measured);
        let (fleet, instances, batches) = (&self.fleet, &self.instances, &self.batches);
        self.done.look(&report, |name| {
            let (service, _) = fleet.parse_tenant(name).filter(|(_, id)| instances.contains_key(id))?;
            Some((service.to_owned(), *batches.get(service)?))
        });
        *heard = Heard { at: report.asked_at, report: Some(report) };
    }

    /// What is known of sites by the hour from now on.
    pub fn follow_signals(&mut self, signals: Signals) {
        self.signals = signals;
        self.quotas.clear();
    }

    /// What has been done of work that follows them, for a controller that goes on after this one.
    pub fn done(&self) -> &Done {
        &self.done
    }

    /// Goes on from what another one has counted.
    pub fn recall_done(&mut self, done: Done) {
        self.done = done;
    }

    /// An order has ended.
    pub fn answered(&mut self, now: Nanos, answer: Answer) {
        let Answer { order, outcome } = answer;
        let Some(instance) = self.instances.get(&order.instance).cloned() else { return };
        let live = self.live.entry(order.instance).or_default();
        if live.flying == Some(order.what) {
            live.flying = None;
        }
        match (outcome, order.what) {
            (Outcome::Done, What::Stop) => {
                if instance.state == State::Stopping {
                    self.forget(&instance, now);
                }
                return;
            }
            (Outcome::Done, _) => {
                live.done_at = now;
                // A stale report may still show it as it was.
                live.again_at = Nanos(now.0 + orders::SETTLE.0);
            }
            (Outcome::Refused(why), What::Start { .. }) => {
                if instance.state.serves() {
                    self.failed(&instance.service, now);
                    self.turn_to(&instance, State::Stopping, now, format!("was refused: {why}"));
                }
                return;
            }
            (Outcome::Refused(_) | Outcome::Unknown(_), _) => {
                live.again_at = Nanos(now.0 + orders::AGAIN.0);
            }
        }
        if matches!(order.what, What::Start { .. }) && instance.state == State::Placing && live.done_at == now
        {
            self.turn_to(&instance, State::Starting, now, "was started".into());
        }
    }

    /// The gateway has answered.
    pub fn serves(&mut self, traffic: Traffic) {
        (self.traffic, self.is_told) = (traffic, true);
    }

    /// Takes instances away from a node, or lets it have some again.
    pub fn drain(&mut self, node: &str, drained: bool) {
        let changed = if drained { self.drained.insert(node.to_owned()) } else { self.drained.remove(node) };
        if changed {
            self.writes.push(Write::Drained(self.drained.clone()));
        }
    }

    /// Nothing is wanted any more.
    pub fn end(&mut self) {
        self.fleet.services.clear();
        self.standing.clear();
    }

    /// An operator knows that a silent node is dead: what was lost there is forgotten, and its slices with it.
    pub fn forget_node(&mut self, node: &str, now: Nanos) -> usize {
        let there = |i: &&Instance| i.place.node == node && matches!(i.state, State::Lost | State::Stopping);
        let gone: Vec<_> = self.instances.values().filter(there).cloned().collect();
        gone.iter().for_each(|instance| self.forget(instance, now));
        gone.len()
    }

    /// Everything that follows from what is known now.
    pub fn turn(&mut self, now: Nanos, placing: &mut dyn Placing, scaling: &mut dyn Scaling) -> Turn {
        placing.learn(now, &std::mem::take(&mut self.measured));
        self.follow(now);
        self.hand_on(now);
        self.scale(now, placing, scaling);
        self.route();
        let orders = self.orders(now);
        Turn { writes: std::mem::take(&mut self.writes), orders, table: self.table.clone() }
    }

    fn is_stale(&self, node: &str, now: Nanos) -> bool {
        self.heard.get(node).is_none_or(|heard| now.since(heard.at) > self.fleet.stale_after)
    }

    /// The GPUs of a node, with what is reserved there, or was raised there by an order that came late.
    fn rooms_of(&self, node: &str) -> Vec<Room> {
        let Some(report) = self.heard.get(node).and_then(|heard| heard.report.as_ref()) else {
            return Vec::new();
        };
        let here = self.instances.values().filter(|instance| instance.place.node == node);
        let as_seen = |instance: &Instance| {
            let seen = report.tenants.get(&self.fleet.tenant(instance));
            let held = seen.map_or(instance.held, |seen| instance.held.union(seen.budget));
            Instance { held, ..instance.clone() }
        };
        let here: Vec<_> = here.map(as_seen).collect();
        let place = |gpu| super::model::Place { node: node.to_owned(), gpu };
        let gpus = report.gpus.iter().enumerate();
        gpus.map(|(gpu, seen)| Room::of(place(gpu), seen, here.iter(), &self.fleet)).collect()
    }

    fn decided(&mut self, instance: &Instance, what: &str, why: String, now: Nanos) -> DecisionId {
        let id = DecisionId(self.next_decision);
        self.next_decision += 1;
        let (service, instance) = (instance.service.clone(), instance.id);
        self.writes.push(Write::Decision(Decision {
            id,
            at: now,
            service,
            instance,
            what: what.into(),
            why,
        }));
        id
    }

    /// Every change of an instance goes through here.
    fn keep(&mut self, instance: Instance) {
        self.writes.push(Write::Instance(Box::new(instance.clone())));
        self.instances.insert(instance.id, instance);
    }

    fn turn_to(&mut self, instance: &Instance, state: State, now: Nanos, why: String) {
        let decision = self.decided(instance, state.name(), why, now);
        self.live.entry(instance.id).or_default().closed_in = None;
        self.keep(Instance { state, since: now, decision, ..instance.clone() });
    }

    fn forget(&mut self, instance: &Instance, now: Nanos) {
        self.decided(instance, "forgotten", "has ended for good".into(), now);
        self.writes.push(Write::Forgotten(instance.id));
        self.done.forget(&self.fleet.tenant(instance));
        self.instances.remove(&instance.id);
        self.live.remove(&instance.id);
    }

    fn failed(&mut self, service: &str, now: Nanos) {
        let backoff = self.backoff.entry(service.to_owned()).or_default();
        backoff.failures += 1;
        let wait = Nanos::from_secs(1 << backoff.failures.min(6).saturating_sub(1));
        backoff.until = Nanos(now.0 + wait.0);
    }
}
