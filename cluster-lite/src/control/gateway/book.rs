//! Every request from its arrival to its one end: pure, so that the simulation and the gateway keep the same book.
//!
//! ```text
//!   arrive -> waiting -> sent to the instance with the least outstanding -> answered | refused with a reason
//!                ^                       |
//!                +------ again, if nothing was sent back and it may be asked twice
//! ```

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_protocol::units::Nanos;

use crate::control::model::InstanceId;
use crate::control::route::{BackendTraffic, Route, ServiceTraffic, Table, Traffic};

/// A request's number, since the gateway started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// No service of this name.
    NoService,
    /// Too many wait already.
    QueueFull,
    /// No instance was free in time.
    NoneInTime,
    /// The instance broke off, and the request may not be asked twice.
    BrokenOff,
    /// The instance did not answer in time.
    NoAnswer,
}

impl Refusal {
    /// The word in metrics and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoService => "no_service",
            Self::QueueFull => "queue_full",
            Self::NoneInTime => "none_in_time",
            Self::BrokenOff => "broken_off",
            Self::NoAnswer => "no_answer",
        }
    }
}

/// How sending a request to an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was answered, to the last byte.
    Answered,
    /// The instance took no connection: it has seen nothing of the request.
    NotConnected,
    /// It broke off; `again`: nothing was sent back, and the request may be asked twice.
    Broken {
        /// Whether another instance may be asked.
        again: bool,
    },
    /// It did not answer in time.
    TooLate,
    /// The client went away.
    Abandoned,
}

/// What becomes of a waiting request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Send it there.
    To(InstanceId, String),
    /// Refuse it.
    Refused(Refusal),
}

#[derive(Clone, Debug)]
struct Request {
    service: String,
    arrived: Nanos,
    work_ns: u64,
    at: Option<InstanceId>,
}

/// An instance that took no connection is left alone for so long.
const LEFT_ALONE: Nanos = Nanos::from_millis(500);

#[derive(Clone, Debug, Default)]
struct Line {
    waiting: VecDeque<Ticket>,
    outstanding: BTreeMap<InstanceId, u64>,
    ready: BTreeSet<InstanceId>,
    refused_at: BTreeMap<InstanceId, Nanos>,
    traffic: ServiceTraffic,
}

/// All requests that have not ended.
#[derive(Clone, Debug, Default)]
pub struct Book {
    table: Table,
    lines: BTreeMap<String, Line>,
    requests: BTreeMap<Ticket, Request>,
    next: u64,
}

impl Book {
    /// Routes by another table from now on.
    pub fn route(&mut self, table: Table) {
        for route in &table.services {
            let line = self.lines.entry(route.service.clone()).or_default();
            let known = |id: &InstanceId| route.backends.iter().any(|backend| backend.id == *id);
            line.ready.retain(known);
            line.refused_at.retain(|id, _| known(id));
        }
        self.table = table;
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// An instance answers whether it is ready, or does not.
    pub fn is_ready(&mut self, service: &str, id: InstanceId, ready: bool) {
        let Some(line) = self.lines.get_mut(service) else { return };
        if ready {
            line.ready.insert(id);
        } else {
            line.ready.remove(&id);
        }
    }

    /// Predicted work of a request with these headers, in nanoseconds of a GPU; 0 where the service's requests are not sized.
    pub fn work_ns<'a>(&self, service: &str, header: impl FnOnce(&str) -> Option<&'a str>) -> u64 {
        let sizes = route_of(&self.table, service).and_then(|route| route.sizes.as_ref());
        sizes.map_or(0, |sizes| sizes.work_ns(header))
    }

    /// A request of this predicted work has come.
    ///
    /// # Errors
    /// It is refused at once.
    pub fn arrive(&mut self, now: Nanos, service: &str, work_ns: u64) -> Result<Ticket, Refusal> {
        let route = route_of(&self.table, service).ok_or(Refusal::NoService)?;
        let line = self.lines.entry(service.to_owned()).or_default();
        line.traffic.arrived += 1;
        line.traffic.arrived_work_ns = line.traffic.arrived_work_ns.saturating_add(work_ns);
        let spare = spare(route, line, now);
        if line.waiting.len() as u64 >= u64::from(route.queue) + spare {
            refuse(&mut line.traffic, Refusal::QueueFull);
            return Err(Refusal::QueueFull);
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        line.waiting.push_back(ticket);
        let request = Request { service: service.to_owned(), arrived: now, work_ns, at: None };
        self.requests.insert(ticket, request);
        Ok(ticket)
    }

    /// Sends those that wait where there is room, first come first served, and refuses those that waited too long.
    pub fn dispatch(&mut self, now: Nanos) -> Vec<(Ticket, Turned)> {
        let mut turned = Vec::new();
        for (service, line) in &mut self.lines {
            let route = route_of(&self.table, service);
            let patience = route.map_or(0, |route| route.queue_deadline_ms);
            while let Some(&ticket) = line.waiting.front() {
                let Some(request) = self.requests.get_mut(&ticket) else {
                    line.waiting.pop_front();
                    continue;
                };
                if let Some((id, address)) = route.and_then(|route| least(route, line, now)) {
                    *line.outstanding.entry(id).or_default() += 1;
                    request.at = Some(id);
                    turned.push((ticket, Turned::To(id, address)));
                } else if now.since(request.arrived) > Nanos::from_millis(patience) {
                    refuse(&mut line.traffic, Refusal::NoneInTime);
                    self.requests.remove(&ticket);
                    turned.push((ticket, Turned::Refused(Refusal::NoneInTime)));
                } else {
                    break;
                }
                line.waiting.pop_front();
            }
        }
        turned
    }

    /// How sending it ended; whether it waits again. A request that has ended already stays so.
    pub fn settle(&mut self, now: Nanos, ticket: Ticket, sent: Sent) -> Result<bool, Refusal> {
        let Some(request) = self.requests.get_mut(&ticket) else { return Ok(false) };
        let Some(line) = self.lines.get_mut(&request.service) else { return Ok(false) };
        if let Some(id) = request.at.take() {
            let outstanding = line.outstanding.entry(id).or_default();
            *outstanding = outstanding.saturating_sub(1);
            if *outstanding == 0 {
                line.outstanding.remove(&id);
            }
            if matches!(sent, Sent::NotConnected | Sent::Broken { .. }) {
                line.refused_at.insert(id, now);
            }
        }
        let refusal = match sent {
            Sent::NotConnected | Sent::Broken { again: true } => {
                line.traffic.retried += 1;
                line.waiting.push_front(ticket); // it has waited longest
                return Ok(true);
            }
            Sent::Answered => {
                line.traffic.answered += 1;
                None
            }
            Sent::Abandoned => {
                line.traffic.abandoned += 1;
                line.waiting.retain(|waiting| *waiting != ticket);
                None
            }
            Sent::Broken { again: false } => Some(Refusal::BrokenOff),
            Sent::TooLate => Some(Refusal::NoAnswer),
        };
        self.requests.remove(&ticket);
        refusal.map_or(Ok(false), |refusal| {
            refuse(&mut line.traffic, refusal);
            Err(refusal)
        })
    }

    /// What the controller is told.
    pub fn traffic(&self) -> Traffic {
        let row = |(service, line): (&String, &Line)| {
            let known = route_of(&self.table, service).into_iter().flat_map(|route| &route.backends);
            let ids: BTreeSet<_> = known.map(|b| b.id).chain(line.outstanding.keys().copied()).collect();
            let backend = |id: InstanceId| {
                let outstanding = line.outstanding.get(&id).copied().unwrap_or(0);
                (id, BackendTraffic { outstanding, ready: line.ready.contains(&id) })
            };
            let queued = line.waiting.len() as u64;
            let backends = ids.into_iter().map(backend).collect();
            // Summed anew each time: a queue is short, and a sum that is kept up may drift.
            let works = line.waiting.iter().filter_map(|ticket| Some(self.requests.get(ticket)?.work_ns));
            let queued_work_ns = works.fold(0, u64::saturating_add);
            (service.clone(), ServiceTraffic { queued, queued_work_ns, backends, ..line.traffic.clone() })
        };
        Traffic { version: self.table.version, services: self.lines.iter().map(row).collect() }
    }

    /// Requests that have not ended.
    pub fn open(&self) -> usize {
        self.requests.len()
    }
}

fn route_of<'a>(table: &'a Table, service: &str) -> Option<&'a Route> {
    table.services.iter().find(|route| route.service == service)
}

fn refuse(traffic: &mut ServiceTraffic, refusal: Refusal) {
    *traffic.refused.entry(refusal.name().to_owned()).or_default() += 1;
}

/// Requests that the instances could be given now.
fn spare(route: &Route, line: &Line, now: Nanos) -> u64 {
    let of =
        |id| u64::from(route.concurrency).saturating_sub(line.outstanding.get(&id).copied().unwrap_or(0));
    open(route, line, now).map(|backend| of(backend.id)).sum()
}

/// Instances that accept requests and have not just refused a connection.
fn open<'a>(
    route: &'a Route,
    line: &'a Line,
    now: Nanos,
) -> impl Iterator<Item = &'a crate::control::route::Backend> {
    let left_alone = move |id| line.refused_at.get(&id).is_some_and(|at| now.since(*at) < LEFT_ALONE);
    route.backends.iter().filter(move |backend| backend.accepts && !left_alone(backend.id))
}

fn least(route: &Route, line: &Line, now: Nanos) -> Option<(InstanceId, String)> {
    let outstanding = |id| line.outstanding.get(&id).copied().unwrap_or(0);
    let free = open(route, line, now).filter(|b| outstanding(b.id) < u64::from(route.concurrency));
    free.min_by_key(|b| (outstanding(b.id), b.id)).map(|b| (b.id, b.address.clone()))
}
