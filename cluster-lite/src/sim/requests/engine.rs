//! The events: a request comes, a batch's next request ends, a start ends, a second passes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use weir_protocol::units::{Nanos, SmShare, Tokens};

use super::instance::{Instance, State};
use super::outcome::{Outcome, Quantiles, ServiceOutcome};
use super::pool::Pool;
use super::{Hosted, Scenario, float, nanos};
use crate::fault::Fault;
use crate::scale::{Row, Scaler, Service, Then};

/// How long it goes on after the last request.
const TAIL: Nanos = Nanos::from_secs(120);

/// Something that happens; of equal times the one that was planned first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { service: usize },
    End { instance: usize, plan: u64 },
    Started { instance: usize },
    Second,
}

/// A request as the engine knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    at: Nanos,
    pub alone: f64, // ns alone on a whole GPU
    pub predicted: Tokens,
}

/// One service while it runs.
pub(super) struct Running {
    pub hosted: Hosted,
    pub known: Service,
    pub policy: Box<dyn Scaler>,
    pub requests: Vec<Asked>,
    pub queue: VecDeque<usize>,
    pub queued_work: Tokens,
    pub arrived: u64,
    pub arrived_work: Tokens,
    pub share: SmShare,
    pub instances: Vec<usize>, // those that are not gone, oldest first
    pub outcome: ServiceOutcome,
    next: usize,
    latencies_ms: Vec<f64>,
}

/// A simulation on its way.
pub(super) struct Engine<'a> {
    pub scenario: &'a Scenario,
    pub now: Nanos,
    pub services: Vec<Running>,
    pub instances: Vec<Instance>,
    pub pool: Pool,
    pub random: ChaCha8Rng,
    policy: &'static str,
    seed: u64,
    end: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    planned: u64,
}

impl<'a> Engine<'a> {
    pub(super) fn new(scenario: &'a Scenario, policy: &Row, seed: u64) -> Result<Self, Fault> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let services: Vec<_> = scenario
            .services
            .iter()
            .map(|hosted| Running::new(scenario, hosted, policy, &mut random))
            .collect();
        let last = scenario.services.iter().map(|hosted| hosted.trace.length()).max().unwrap_or_default();
        let deployed = services.iter().map(|running| (running.known.request, running.hosted.model.memory));
        let pool = Pool::new(scenario.gpus, scenario.gpu_memory, deployed, &scenario.place, seed)?;
        let mut engine = Self {
            scenario,
            now: Nanos(0),
            services,
            instances: Vec::new(),
            pool,
            random,
            policy: policy.name,
            seed,
            end: Nanos(last.0 + TAIL.0),
            events: BinaryHeap::new(),
            planned: 0,
        };
        engine.plan(Nanos(0), Event::Second);
        (0..engine.services.len()).for_each(|service| engine.plan_arrival(service));
        Ok(engine)
    }

    pub(super) fn run(mut self) -> Outcome {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > self.end {
                break;
            }
            self.now = at;
            match event {
                Event::Arrival { service } => self.arrive(service),
                Event::End { instance, plan } if self.instances[instance].plan == plan => {
                    self.end_batch(instance)
                }
                Event::End { .. } => {}
                Event::Started { instance } => self.started(instance),
                Event::Second => {
                    (0..self.services.len()).for_each(|service| self.tick(service));
                    self.plan(Nanos(self.now.0 + 1_000_000_000), Event::Second);
                }
            }
        }
        self.finish()
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((at, self.planned, event)));
    }

    fn plan_arrival(&mut self, service: usize) {
        let running = &self.services[service];
        if let Some(request) = running.requests.get(running.next) {
            self.plan(request.at, Event::Arrival { service });
        }
    }

    fn arrive(&mut self, service: usize) {
        let running = &mut self.services[service];
        let request = running.next;
        let predicted = running.requests[request].predicted;
        running.next += 1;
        running.outcome.arrived += 1;
        running.arrived += 1;
        running.arrived_work.0 += predicted.0;
        if running.queue.len() < self.scenario.queue {
            running.queue.push_back(request);
            running.queued_work.0 += predicted.0;
        } else {
            running.outcome.refused += 1;
            running.outcome.violations += 1;
        }
        self.plan_arrival(service);
        self.dispatch(service);
    }

    /// Gives what waits to those that have room in their batch: the one with least first.
    pub(super) fn dispatch(&mut self, service: usize) {
        while let Some(&request) = self.services[service].queue.front() {
            let running = &self.services[service];
            let batch = usize::try_from(running.known.batch).unwrap_or(usize::MAX);
            let open = |index: &&usize| {
                let instance = &self.instances[**index];
                instance.state == State::Ready && instance.load() < batch
            };
            let least =
                running.instances.iter().filter(open).min_by_key(|index| self.instances[**index].load());
            let Some(&chosen) = least else { return };
            let running = &mut self.services[service];
            running.queue.pop_front();
            let asked = running.requests[request];
            running.queued_work.0 -= asked.predicted.0;
            self.instances[chosen].join(&running.known, self.now, request, asked.alone);
            self.replan(chosen);
        }
    }

    /// Plans an instance's next end anew: after anything that changes its pace.
    pub(super) fn replan(&mut self, index: usize) {
        let instance = &mut self.instances[index];
        let next = instance.next_end(&self.services[instance.service].known);
        let plan = instance.plan;
        if let Some(at) = next {
            self.plan(at, Event::End { instance: index, plan });
        }
    }

    fn end_batch(&mut self, index: usize) {
        let instance = &mut self.instances[index];
        let service = instance.service;
        let running = &mut self.services[service];
        let (known, now) = (&running.known, self.now);
        let mut ended = Vec::new();
        instance.leave(known, now, |request| ended.push(request));
        for request in ended {
            running.answered(request, now);
        }
        self.dispatch(service);
        self.replan(index);
        self.settle(index);
    }

    /// Ends or parks an instance that has drained.
    pub(super) fn settle(&mut self, index: usize) {
        let instance = &mut self.instances[index];
        let State::Draining(then) = instance.state else { return };
        if instance.load() > 0 {
            return;
        }
        let running = &mut self.services[instance.service];
        self.pool.give(index);
        let state = if then == Then::Park { State::Parked } else { State::Gone };
        instance.change(&running.known, self.now, SmShare::ZERO, state);
        if state == State::Gone {
            running.instances.retain(|other| *other != index);
        }
    }

    fn started(&mut self, index: usize) {
        let now = self.now;
        let instance = &mut self.instances[index];
        if instance.state != State::Starting(now) {
            return; // it was ended meanwhile
        }
        let service = instance.service;
        instance.change(&self.services[service].known, now, instance.share, State::Ready);
        self.dispatch(service);
    }

    /// An instance answers `after` so long.
    pub(super) fn plan_start(&mut self, index: usize, after: Nanos) {
        let ready = Nanos(self.now.0 + after.0);
        self.instances[index].state = State::Starting(ready);
        self.plan(ready, Event::Started { instance: index });
    }

    fn finish(mut self) -> Outcome {
        for instance in &mut self.instances {
            self.services[instance.service].outcome.gpu_seconds += instance.gpu_seconds(self.end);
        }
        let mut services = Vec::new();
        for running in self.services {
            let mut outcome = running.outcome;
            outcome.waiting = outcome.arrived - outcome.served - outcome.refused;
            outcome.violations += outcome.waiting;
            outcome.latency = Quantiles::of(running.latencies_ms);
            services.push(outcome);
        }
        Outcome {
            policy: self.policy,
            seed: self.seed,
            simulated: true,
            seconds: float(self.end) / 1e9,
            services,
        }
    }
}

impl Running {
    fn new(scenario: &Scenario, hosted: &Hosted, policy: &Row, random: &mut ChaCha8Rng) -> Self {
        let model = hosted.model;
        let sigma = scenario.prediction_sigma.max(0.0);
        let error = LogNormal::new(-sigma * sigma / 2.0, sigma); // right on average
        let mut asked = |request: &crate::trace::requests::Request| {
            let alone = model.alone_ms(request.size) * 1e6;
            let missed: f64 = error.as_ref().map_or(1.0, |error| error.sample(random));
            Asked { at: request.at, alone, predicted: tokens(alone * model.cost_of_alone() * missed) }
        };
        let requests: Vec<_> = hosted.trace.requests.iter().map(&mut asked).collect();
        #[allow(clippy::cast_precision_loss, reason = "some million requests")]
        let mean = requests.iter().map(|asked| asked.alone).sum::<f64>() / requests.len().max(1) as f64;
        let known = Service {
            floor: hosted.floor,
            ceiling: hosted.ceiling,
            cold_start: scenario.cold_start.median,
            unpark: scenario.unpark,
            ..model.service(tokens(mean * model.cost_of_alone()))
        };
        Self {
            policy: (policy.build)(&scenario.rules),
            queue: VecDeque::new(),
            queued_work: Tokens(0),
            arrived: 0,
            arrived_work: Tokens(0),
            share: known.request,
            instances: Vec::new(),
            outcome: ServiceOutcome {
                name: format!("{} on {}", model.name, hosted.trace.name),
                ..ServiceOutcome::default()
            },
            next: 0,
            latencies_ms: Vec::new(),
            hosted: hosted.clone(),
            known,
            requests,
        }
    }

    fn answered(&mut self, request: usize, now: Nanos) {
        let asked = self.requests[request];
        let took = now.since(asked.at);
        // Its own time: with a full batch at the profiled share.
        let own =
            asked.alone * self.known.stretch(self.known.batch) / self.known.capacity(self.known.request);
        self.outcome.served += 1;
        self.outcome.violations +=
            u64::from(float(Nanos(took.0)) > own * (1.0 + 1e-6) + float(self.known.patience));
        self.latencies_ms.push(float(Nanos(took.0)) / 1e6);
    }
}

fn tokens(nanoseconds: f64) -> Tokens {
    Tokens(i64::try_from(nanos(nanoseconds).0).unwrap_or(i64::MAX))
}
