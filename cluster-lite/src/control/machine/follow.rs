//! What reports and traffic make of each instance.

use weir_protocol::units::Nanos;

use super::Controller;
use crate::control::model::{Instance, InstanceId, ReadyWhen, State, Then};
use crate::control::order::{Report, Seen};

/// An instance that was started is in a report within this time, or has ended.
const SHOWS_WITHIN: Nanos = Nanos::from_secs(3);

/// An instance that is not ready after this many of its cold starts is given up; never before [`SHORTEST_START`].
const COLD_STARTS: u64 = 4;

/// See there.
const SHORTEST_START: Nanos = Nanos::from_secs(60);

/// Best-effort work that ran for so long did not fail to start.
const LASTING: Nanos = Nanos::from_secs(60);

impl Controller {
    pub(super) fn follow(&mut self, now: Nanos) {
        let ids: Vec<InstanceId> = self.instances.keys().copied().collect();
        for id in ids {
            let Some(instance) = self.instances.get(&id).cloned() else { continue };
            if self.is_stale(&instance.place.node, now) {
                if !matches!(instance.state, State::Stopping | State::Lost) {
                    self.turn_to(&instance, State::Lost, now, "its node is silent".into());
                }
                continue;
            }
            self.follow_one(&instance, now);
        }
    }

    fn follow_one(&mut self, instance: &Instance, now: Nanos) {
        let Some(report) = self.heard.get(&instance.place.node).and_then(|heard| heard.report.clone()) else {
            return;
        };
        let seen = report.tenants.get(&self.fleet.tenant(instance)).copied();
        let instance = &self.hold(instance, seen, &report);
        match seen {
            Some(seen) => {
                self.live.entry(instance.id).or_default().seen = true;
                self.follow_seen(instance, seen, now);
            }
            None => self.follow_absent(instance, &report, now),
        }
    }

    /// What may be in force is reserved until a report that is younger than the last order shows something else.
    fn hold(&mut self, instance: &Instance, seen: Option<Seen>, report: &Report) -> Instance {
        let Some(seen) = seen else { return instance.clone() };
        let live = self.live.get(&instance.id).cloned().unwrap_or_default();
        let settled = live.flying.is_none() && report.asked_at > live.done_at;
        if !settled || seen.budget != instance.budget || instance.held == instance.budget {
            return instance.clone();
        }
        let changed = Instance { held: instance.budget, ..instance.clone() };
        self.keep(changed.clone());
        changed
    }

    fn follow_seen(&mut self, instance: &Instance, seen: Seen, now: Nanos) {
        match instance.state {
            State::Placing => self.turn_to(instance, State::Starting, now, "is seen on its node".into()),
            State::Starting if self.answers(instance, seen) => {
                if !self.batches.contains_key(&instance.service) {
                    self.backoff.remove(&instance.service);
                }
                self.turn_to(instance, State::Ready, now, "answers".into());
            }
            State::Starting if now.since(instance.since) > self.longest_start(instance) => {
                self.failed(&instance.service, now);
                self.turn_to(instance, State::Stopping, now, "does not become ready".into());
            }
            State::Lost if seen.parked => {
                self.turn_to(instance, State::Parked, now, "its node is back".into());
            }
            State::Lost => self.turn_to(instance, State::Starting, now, "its node is back".into()),
            State::Draining(then) if self.is_drained(instance.id) => {
                let state = if then == Then::Park { State::Parked } else { State::Stopping };
                self.turn_to(instance, state, now, "has answered its last request".into());
            }
            _ => {}
        }
    }

    fn follow_absent(&mut self, instance: &Instance, report: &Report, now: Nanos) {
        let live = self.live.get(&instance.id).cloned().unwrap_or_default();
        // An older report than the start, or than this controller's knowledge of it, says nothing.
        let known_since = live.done_at.max(instance.since);
        let ended = report.asked_at.0 > known_since.0 + SHOWS_WITHIN.0 && live.flying.is_none();
        match instance.state {
            State::Lost => {
                self.turn_to(instance, State::Stopping, now, "its node is back without it".into());
            }
            State::Starting if ended => {
                self.failed(&instance.service, now);
                self.turn_to(instance, State::Stopping, now, "has ended before it answered".into());
            }
            State::Ready | State::Draining(_) | State::Parked if ended => {
                // Best-effort work that ends by itself has not done what was asked for: it is not to be started all the time.
                if self.batches.contains_key(&instance.service) {
                    if now.since(instance.since) > LASTING {
                        self.backoff.remove(&instance.service);
                    }
                    self.failed(&instance.service, now);
                }
                self.turn_to(instance, State::Stopping, now, "has ended".into());
            }
            _ => {}
        }
    }

    fn answers(&self, instance: &Instance, seen: Seen) -> bool {
        if seen.parked {
            return false;
        }
        match self.fleet.service(&instance.service).map(|service| &service.ready) {
            Some(ReadyWhen::Runs) | None => seen.runs,
            Some(_) => self.backend(instance).is_some_and(|backend| backend.ready),
        }
    }

    fn longest_start(&self, instance: &Instance) -> Nanos {
        let cold = self.fleet.service(&instance.service).map_or(0, |service| service.cold_start.0);
        SHORTEST_START.max(Nanos(cold.saturating_mul(COLD_STARTS)))
    }

    pub(super) fn backend(&self, instance: &Instance) -> Option<crate::control::route::BackendTraffic> {
        self.traffic.services.get(&instance.service)?.backends.get(&instance.id).copied()
    }

    /// Whether the gateway routes by a table in which it accepts nothing, and has nothing of it under way.
    fn is_drained(&self, id: InstanceId) -> bool {
        let Some(instance) = self.instances.get(&id) else { return false };
        if self.has_no_port(instance) {
            return true;
        }
        let closed_in = self.live.get(&id).and_then(|live| live.closed_in);
        closed_in.is_some_and(|version| self.traffic.version >= version)
            && self.backend(instance).is_none_or(|backend| backend.outstanding == 0)
    }

    pub(super) fn has_no_port(&self, instance: &Instance) -> bool {
        instance.port == 0
    }
}
