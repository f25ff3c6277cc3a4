//! What is to be done so that each node is as decided, and which instances get requests. An order is given again until a
//! report shows that it was carried out; there is at most one of an instance on its way.

use weir_protocol::units::Nanos;

use super::Controller;
use crate::control::model::{DecisionId, Instance, InstanceId, ReadyWhen, State};
use crate::control::order::{Order, Report, Seen, What};
use crate::control::route::{Backend, Route};
use crate::control::work::Sizes;

/// After an order that was refused, or of which nothing was heard.
pub(super) const AGAIN: Nanos = Nanos::from_secs(2);

/// After an order that was carried out, until reports show it.
pub(super) const SETTLE: Nanos = Nanos::from_secs(1);

impl Controller {
    pub(super) fn orders(&mut self, now: Nanos) -> Vec<Order> {
        let mut orders = Vec::new();
        for instance in self.instances.values() {
            let live = self.live.entry(instance.id).or_default();
            if live.flying.is_some() || now < live.again_at {
                continue;
            }
            let report = self.heard.get(&instance.place.node).and_then(|heard| heard.report.as_ref());
            let seen = report.and_then(|report| report.tenants.get(&self.fleet.tenant(instance)));
            let Some(what) = wanted(instance, report, seen, live.done_at) else { continue };
            live.flying = Some(what);
            orders.push(Order {
                decision: instance.decision,
                instance: instance.id,
                tenant: self.fleet.tenant(instance),
                service: instance.service.clone(),
                place: instance.place.clone(),
                what,
            });
        }
        orders.extend(self.end_strays(now));
        orders
    }

    /// Tenants with our names that are not among the instances: a store was lost, or a node was forgotten and is back.
    fn end_strays(&mut self, now: Nanos) -> Vec<Order> {
        let mut orders = Vec::new();
        let reports = self.heard.values().filter_map(|heard| heard.report.as_ref());
        for (report, tenant, seen) in reports.flat_map(|r| r.tenants.iter().map(move |(t, s)| (r, t, s))) {
            let Some((service, instance)) = self.fleet.parse_tenant(tenant) else { continue };
            let told = self.strays.get(tenant).is_some_and(|at| now.since(*at) < AGAIN);
            if told || self.instances.get(&instance).is_some_and(|known| self.fleet.tenant(known) == *tenant)
            {
                continue;
            }
            self.strays.insert(tenant.clone(), now);
            orders.push(Order {
                decision: DecisionId(0),
                instance,
                tenant: tenant.clone(),
                service: service.to_owned(),
                place: crate::control::model::Place { node: report.node.clone(), gpu: seen.gpu },
                what: What::Stop,
            });
        }
        self.strays.retain(|_, at| now.since(*at) < Nanos::from_secs(60));
        orders
    }

    /// Brings the table up to date, with a new version if it has changed.
    pub(super) fn route(&mut self) {
        let asked = self.fleet.services.iter().filter(|service| service.ready != ReadyWhen::Runs);
        let routes: Vec<Route> = asked
            .map(|service| Route {
                service: service.name.clone(),
                concurrency: service.concurrency,
                queue: service.queue,
                queue_deadline_ms: service.queue_deadline.0 / 1_000_000,
                answer_deadline_ms: service.answer_deadline.0 / 1_000_000,
                ready: service.ready.clone(),
                sizes: Sizes::of(service),
                backends: self.instances.values().filter_map(|i| self.backend_of(&service.name, i)).collect(),
            })
            .collect();
        if routes != self.table.services {
            self.table.version += 1;
            self.table.services = routes;
        }
        let version = self.table.version;
        for instance in self.instances.values().filter(|i| matches!(i.state, State::Draining(_))) {
            let live: &mut super::Live = self.live.entry(instance.id).or_default();
            live.closed_in.get_or_insert(version);
        }
    }

    fn backend_of(&self, service: &str, instance: &Instance) -> Option<Backend> {
        let known = !matches!(instance.state, State::Placing | State::Stopping);
        if instance.service != service || !known {
            return None;
        }
        let node = self.fleet.nodes.iter().find(|node| node.name == instance.place.node)?;
        let accepts = instance.state == State::Ready;
        Some(Backend { id: instance.id, address: format!("{}:{}", node.address, instance.port), accepts })
    }

    /// The instance of this number, for a command that names it.
    pub fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(&id)
    }
}

/// What an instance lacks of being as decided.
fn wanted(instance: &Instance, report: Option<&Report>, seen: Option<&Seen>, done_at: Nanos) -> Option<What> {
    match (instance.state, seen) {
        // Started before, perhaps, by a controller that was killed: the node knows, and starts nothing twice.
        (State::Placing, None) => Some(What::Start { port: instance.port, budget: instance.budget }),
        (State::Stopping, _) => Some(What::Stop),
        (State::Starting, Some(seen)) if seen.parked => Some(What::Unpark),
        (State::Parked, Some(seen)) if !seen.parked => Some(What::Park),
        (State::Starting | State::Ready, Some(seen)) => {
            // A report from before the last order does not show what that has done.
            let is_new = report.is_some_and(|report| report.asked_at > done_at);
            (is_new && seen.budget != instance.budget).then_some(What::Resize(instance.budget))
        }
        _ => None,
    }
}
