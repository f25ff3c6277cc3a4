//! A cluster of which nothing is real: nodes, messages, a gateway's book, and a controller that may be killed at each step.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::scenes;
use crate::control::decide::{BestFit, ByQueue, Load, Scaling, Wish};
use crate::control::gateway::{Book, Refusal, Sent, Ticket, Turned};
use crate::control::machine::{Controller, Kept, Write};
use crate::control::model::{Budget, Fleet, Instance, InstanceId, Service, State};
use crate::control::order::{Answer, GpuSeen, Order, Outcome, Report, Seen, Spent, What};

/// One step of the world.
const STEP: Nanos = Nanos::from_millis(100);
/// Things go wrong until then.
const CALM: Nanos = Nanos::from_secs(100);
/// Requests come until then.
const QUIET: Nanos = Nanos::from_secs(120);
/// All must have come to rest by then.
const END: Nanos = Nanos::from_secs(240);
/// After this time nobody waits for an order's answer any more.
const PATIENCE: Nanos = Nanos::from_secs(10);
const MEMORY: Bytes = Bytes::gib(16);

/// What happened, so that a test of nothing does not pass.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub kills: u64,
    pub reboots: u64,
    pub partitions: u64,
    pub doubled: u64,
    pub answered: u64,
    pub refused: u64,
    pub late_starts: u64,
    pub resized: u64,
    pub parked: u64,
}

impl Told {
    pub fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.reboots += other.reboots;
        self.partitions += other.partitions;
        self.doubled += other.doubled;
        self.answered += other.answered;
        self.refused += other.refused;
        self.late_starts += other.late_starts;
        self.resized += other.resized;
        self.parked += other.parked;
    }
}

/// A program on a node.
#[derive(Clone, Debug, PartialEq)]
struct Running {
    id: InstanceId,
    budget: Budget,
    gpu: usize,
    port: u16,
    ready_at: Nanos,
    parked: bool,
}

/// A node: its manager and its programs.
#[derive(Clone, Debug, Default, PartialEq)]
struct SimNode {
    down_until: Nanos,
    cut_until: Nanos,
    running: BTreeMap<String, Running>,
    ended: BTreeSet<String>,
}

enum Mail {
    Order(Order, u64),
    Answer(Answer, u64),
    Ask(String, u64),
    Report(Report, u64),
}

/// A request that an instance has.
struct Asked {
    ticket: Ticket,
    id: InstanceId,
    ends_at: Nanos,
    idempotent: bool,
}

/// What is wished of the service that sleeps, at each time: instances, and how many are kept parked.
pub type Script = fn(Nanos) -> [u32; 2];

/// Scales by the queue, and changes shares and how many are parked every few seconds.
#[derive(Default)]
struct Moody {
    queue: ByQueue,
    script: Option<Script>,
}

impl Scaling for Moody {
    fn wish(&mut self, now: Nanos, service: &Service, load: &Load) -> Wish {
        let wish = self.queue.wish(now, service, load);
        if let Some(script) = self.script.filter(|_| service.name == "idle") {
            let [instances, parked] = script(now);
            return Wish { instances, parked, ..wish };
        }
        let mood = now.0 / 7_000_000_000 % 3;
        let share =
            [service.budget.request, service.shares[0], service.shares[1]][usize::try_from(mood).unwrap()];
        Wish { share, parked: wish.parked.max(u32::try_from(mood).unwrap()), ..wish }
    }
}

pub struct World {
    seed: u64,
    rng: ChaCha8Rng,
    now: Nanos,
    fleet: Fleet,
    kept: Kept,
    controller: Option<(Controller, Moody)>,
    epoch: u64,
    back_at: Nanos,
    nodes: BTreeMap<String, SimNode>,
    mail: BTreeMap<(Nanos, u64), Mail>,
    letters: u64,
    book: Book,
    asked: Vec<Asked>,
    ended: BTreeMap<Ticket, Result<(), Refusal>>,
    open: BTreeSet<Ticket>,
    /// Things go wrong until then.
    calm: Nanos,
    script: Option<Script>,
    pub told: Told,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let fleet = scenes::fleet();
        let nodes = fleet.nodes.iter().map(|node| (node.name.clone(), SimNode::default())).collect();
        Self {
            seed,
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: Nanos::from_secs(1),
            fleet,
            kept: Kept::default(),
            controller: None,
            epoch: 0,
            back_at: Nanos(0),
            nodes,
            mail: BTreeMap::new(),
            letters: 0,
            book: Book::default(),
            asked: Vec::new(),
            ended: BTreeMap::new(),
            open: BTreeSet::new(),
            calm: CALM,
            script: None,
            told: Told::default(),
        }
    }

    /// One in which nothing goes wrong, and the script is followed.
    pub fn calm(seed: u64, script: Script) -> Self {
        Self { calm: Nanos(0), script: Some(script), ..Self::new(seed) }
    }

    /// The same with another service in the place of the one that sleeps.
    pub fn with(mut self, change: impl FnMut(&mut Service)) -> Self {
        self.fleet.services.iter_mut().filter(|service| service.name == "idle").for_each(change);
        self
    }

    /// The memory of each program of a service, by GPU, in GiB and in order of size.
    pub fn memory(&self, service: &str) -> BTreeMap<(String, usize), Vec<u64>> {
        let mut held: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for (node, tenant, running) in self.programs() {
            if self.fleet.parse_tenant(tenant).is_some_and(|(name, _)| name == service) {
                held.entry((node.to_owned(), running.gpu)).or_default().push(running.budget.memory.0 >> 30);
            }
        }
        held.values_mut().for_each(|sizes| sizes.sort_unstable());
        held
    }

    fn programs(&self) -> impl Iterator<Item = (&str, &str, &Running)> {
        self.nodes.iter().flat_map(|(node, sim)| {
            sim.running.iter().map(move |(tenant, running)| (node.as_str(), tenant.as_str(), running))
        })
    }

    /// The largest program of a service ends by itself, of several the one with the most beside it.
    pub fn crash_largest(&mut self, service: &str) {
        let of = |tenant: &str| self.fleet.parse_tenant(tenant).is_some_and(|(name, _)| name == service);
        let programs = self.programs().filter(|(_, tenant, _)| of(tenant));
        let all = self.memory(service);
        let beside = |node: &str, gpu| all.get(&(node.to_owned(), gpu)).map_or(0, Vec::len);
        let largest = programs.max_by_key(|(node, _, one)| (one.budget.memory, beside(node, one.gpu)));
        let (node, tenant) = largest.map(|(node, tenant, _)| (node.to_owned(), tenant.to_owned())).unwrap();
        self.nodes.get_mut(&node).unwrap().running.remove(&tenant);
    }

    pub fn run(&mut self) {
        self.run_until(END);
        self.check_rest();
    }

    /// How many instances of a service serve, and how many are parked.
    pub fn count(&self, service: &str) -> (usize, usize) {
        let here = || self.kept.instances.iter().filter(|instance| instance.service == service);
        let serving = here().filter(|instance| instance.state.serves()).count();
        (serving, here().filter(|instance| instance.state == State::Parked).count())
    }

    pub fn run_until(&mut self, end: Nanos) {
        while self.now < end {
            self.now = Nanos(self.now.0 + STEP.0);
            if self.now < self.calm {
                self.go_wrong();
            }
            self.deliver();
            self.ask_and_answer();
            self.control();
            self.check();
        }
    }

    fn chance(&mut self, per_mille: f64) -> bool {
        self.rng.random_bool(per_mille / 1000.0)
    }

    fn go_wrong(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            let (dies, cut) = (self.chance(0.4), self.chance(1.0));
            let away = Nanos(self.rng.random_range(1..40) * 1_000_000_000);
            let until = Nanos(self.now.0 + away.0).min(self.calm);
            let node = self.nodes.get_mut(&name).unwrap();
            if dies {
                // What was on its way to it dies with its connections.
                *node = SimNode { down_until: until, ..SimNode::default() };
                let goes = |mail: &Mail| match mail {
                    Mail::Order(order, _) => order.place.node != name,
                    Mail::Ask(node, _) => *node != name,
                    Mail::Answer(..) | Mail::Report(..) => true,
                };
                self.mail.retain(|_, mail| goes(mail));
                self.told.reboots += 1;
            } else if cut {
                node.cut_until = until;
                self.told.partitions += 1;
            }
            let crashed = node.running.keys().next().cloned();
            if let Some(tenant) = crashed.filter(|_| self.rng.random_bool(0.001)) {
                self.nodes.get_mut(&name).unwrap().running.remove(&tenant);
            }
        }
        if self.chance(5.0) {
            self.kill();
        }
    }

    fn kill(&mut self) {
        if self.controller.take().is_some() {
            self.told.kills += 1;
            self.epoch += 1;
            self.back_at = Nanos(self.now.0 + self.rng.random_range(0..3_000_000_000));
        }
    }

    /// A message may be late, doubled or lost.
    fn post(&mut self, make: impl Fn() -> Mail) {
        let bad = self.now < self.calm;
        let copies = match self.rng.random_range(0..100) {
            0..4 if bad => 0,
            4..8 if bad => 2,
            _ => 1,
        };
        self.told.doubled += u64::from(copies == 2);
        for _ in 0..copies {
            let slow = bad && self.chance(20.0);
            let most = if slow { 40_000 } else { 300 };
            let at = Nanos(self.now.0 + self.rng.random_range(1..most) * 1_000_000);
            self.letters += 1;
            self.mail.insert((at, self.letters), make());
        }
    }

    fn deliver(&mut self) {
        let later = self.mail.split_off(&(Nanos(self.now.0 + 1), 0));
        for mail in std::mem::replace(&mut self.mail, later).into_values() {
            match mail {
                Mail::Order(order, epoch) => self.carry_out(order, epoch),
                Mail::Answer(answer, epoch) if epoch == self.epoch => {
                    let now = self.now;
                    if let Some((controller, _)) = &mut self.controller {
                        controller.answered(now, answer);
                    }
                }
                Mail::Ask(name, epoch) if self.reaches(&name) => {
                    let report = self.report(&name);
                    self.post(|| Mail::Report(report.clone(), epoch));
                }
                Mail::Report(report, epoch) if epoch == self.epoch && self.reaches(&report.node) => {
                    if let Some((controller, _)) = &mut self.controller {
                        controller.hear(report);
                    }
                }
                _ => {}
            }
        }
    }

    fn reaches(&self, name: &str) -> bool {
        let node = &self.nodes[name];
        self.now >= node.down_until && self.now >= node.cut_until
    }

    fn carry_out(&mut self, order: Order, epoch: u64) {
        let name = order.place.node.clone();
        if !self.reaches(&name) {
            return;
        }
        let outcome = self.apply(&order);
        let once = self.nodes[&name].clone();
        let again = self.apply(&order);
        assert_eq!(once, self.nodes[&name], "seed {}: {order:?} twice is not as once", self.seed);
        assert!(again == outcome || outcome != Outcome::Done, "seed {}: {order:?}", self.seed);
        self.post(|| Mail::Answer(Answer { order: order.clone(), outcome: outcome.clone() }, epoch));
    }

    /// What a node manager and the instance's lock do: the manager's own guard stands for resizes alone, so that it is the
    /// controller that is tested.
    fn apply(&mut self, order: &Order) -> Outcome {
        let ready_at = Nanos(self.now.0 + self.rng.random_range(1..4) * 1_000_000_000);
        let node = self.nodes.get_mut(&order.place.node).unwrap();
        let sum = |node: &SimNode, but: &str| {
            let there = node.running.iter().filter(|(name, r)| r.gpu == order.place.gpu && *name != but);
            there.map(|(_, r)| u32::from(r.budget.request.as_permille())).sum::<u32>()
        };
        let fits =
            |node: &SimNode, b: Budget| sum(node, &order.tenant) + u32::from(b.request.as_permille()) <= 1000;
        match order.what {
            What::Start { .. } if node.ended.contains(&order.tenant) => {
                self.told.late_starts += 1;
                Outcome::Refused("was ended before".into())
            }
            What::Start { .. } if node.running.contains_key(&order.tenant) => Outcome::Done,
            What::Start { port, budget } => {
                let raised = |(_, r): (&String, &Running)| {
                    let kept = self.kept.instances.iter().find(|i| i.id == r.id);
                    kept.is_none_or(|kept| r.budget.request > kept.reserves().request)
                };
                if !fits(node, budget) {
                    let late = node.running.iter().any(raised);
                    assert!(late, "seed {}: two owners of {}: {order:?} {node:?}", self.seed, order.place);
                    return Outcome::Refused("a budget was raised late".into());
                }
                assert!(node.running.values().all(|r| r.port != port), "seed {}: port twice", self.seed);
                let (id, gpu) = (order.instance, order.place.gpu);
                let running = Running { id, budget, gpu, port, ready_at, parked: false };
                node.running.insert(order.tenant.clone(), running);
                Outcome::Done
            }
            What::Stop => {
                let busy = self.asked.iter().filter(|asked| asked.id == order.instance).count();
                assert!(
                    busy == 0 || !node.running.contains_key(&order.tenant),
                    "seed {}: {order:?} has {busy} requests",
                    self.seed
                );
                node.running.remove(&order.tenant);
                node.ended.insert(order.tenant.clone());
                Outcome::Done
            }
            What::Resize(budget) => match fits(node, budget) {
                true => self.change(order, |running| running.budget = budget),
                false => Outcome::Refused("no room".into()),
            },
            What::Park => self.change(order, |running| running.parked = true),
            What::Unpark => self.change(order, |running| running.parked = false),
        }
    }

    fn change(&mut self, order: &Order, change: impl FnOnce(&mut Running)) -> Outcome {
        self.told.resized += u64::from(matches!(order.what, What::Resize(_)));
        self.told.parked += u64::from(order.what == What::Park);
        let node = self.nodes.get_mut(&order.place.node).unwrap();
        match node.running.get_mut(&order.tenant) {
            Some(running) => {
                change(running);
                Outcome::Done
            }
            None => Outcome::Refused("no such tenant".into()),
        }
    }

    fn report(&self, name: &str) -> Report {
        let seen = |r: &Running| Seen {
            budget: r.budget,
            gpu: r.gpu,
            runs: true,
            parked: r.parked,
            spent: Spent::default(),
        };
        let gpu = GpuSeen {
            name: "simulated".into(),
            memory: MEMORY,
            foreign_request: SmShare::ZERO,
            foreign_memory: Bytes(0),
            draw: None,
        };
        let tenants = self.nodes[name].running.iter().map(|(tenant, r)| (tenant.clone(), seen(r))).collect();
        // Asked when the question was answered: the real one is asked before.
        Report { node: name.into(), asked_at: Nanos(self.now.0 - 1), gpus: vec![gpu.clone(), gpu], tenants }
    }

    /// Requests: they come, wait, are sent, and end.
    fn ask_and_answer(&mut self) {
        for service in ["web", "llm", "idle"] {
            let busy = (self.now.0 / 20_000_000_000).is_multiple_of(2) || service == "web";
            let rate = if busy && self.now < QUIET { 400.0 } else { 0.0 };
            if self.chance(rate) {
                match self.book.arrive(self.now, service, 0) {
                    Ok(ticket) => assert!(self.open.insert(ticket)),
                    Err(_) => self.told.refused += 1,
                }
            }
        }
        self.end_requests();
        for (ticket, turned) in self.book.dispatch(self.now) {
            match turned {
                Turned::Refused(refusal) => self.end(ticket, Err(refusal)),
                Turned::To(id, _) => {
                    let ends_at = Nanos(self.now.0 + self.rng.random_range(50..900) * 1_000_000);
                    let idempotent = self.rng.random_bool(0.5);
                    self.asked.push(Asked { ticket, id, ends_at, idempotent });
                }
            }
        }
        let backends = self.book.table().services.clone();
        for (route, backend) in backends.iter().flat_map(|r| r.backends.iter().map(move |b| (r, b))) {
            let ready = self.running(backend.id).is_some_and(|r| self.now >= r.ready_at && !r.parked);
            self.book.is_ready(&route.service, backend.id, ready);
        }
    }

    fn running(&self, id: InstanceId) -> Option<&Running> {
        let reached = self.nodes.iter().filter(|(name, _)| self.reaches(name));
        reached.flat_map(|(_, node)| node.running.values()).find(|running| running.id == id)
    }

    fn end_requests(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            let there = self.running(asked.id).is_some_and(|r| self.now >= r.ready_at && !r.parked);
            let sent = match (there, asked.ends_at <= self.now) {
                (false, _) => Sent::Broken { again: asked.idempotent },
                (true, true) => Sent::Answered,
                (true, false) => {
                    self.asked.push(asked);
                    continue;
                }
            };
            match self.book.settle(self.now, asked.ticket, sent) {
                Ok(true) => {}
                Ok(false) => self.end(asked.ticket, Ok(())),
                Err(refusal) => self.end(asked.ticket, Err(refusal)),
            }
        }
    }

    fn end(&mut self, ticket: Ticket, how: Result<(), Refusal>) {
        assert!(self.open.remove(&ticket), "seed {}: {ticket:?} ends twice", self.seed);
        self.told.answered += u64::from(how.is_ok());
        self.told.refused += u64::from(how.is_err());
        self.ended.insert(ticket, how);
    }

    /// One turn of the controller, which may die before each step of it.
    fn control(&mut self) {
        let now = self.now;
        if self.controller.is_none() && now >= self.back_at {
            let controller = Controller::new(self.fleet.clone(), self.kept.clone(), now);
            let moody = Moody { script: self.script, ..Moody::default() };
            self.controller = Some((controller, moody));
        }
        let Some((controller, moody)) = &mut self.controller else { return };
        if now.0 % 500_000_000 < STEP.0 {
            let epoch = self.epoch;
            for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
                self.post(|| Mail::Ask(name.clone(), epoch));
            }
            return;
        }
        controller.serves(self.book.traffic());
        let turn = controller.turn(now, &mut BestFit, moody);
        let dies = |world: &mut Self| now < world.calm && !turn.orders.is_empty() && world.chance(30.0);
        if dies(self) {
            return self.kill();
        }
        turn.writes.iter().for_each(|write| self.kept.apply(write));
        if dies(self) {
            return self.kill();
        }
        self.book.route(turn.table.clone());
        for order in &turn.orders {
            if dies(self) {
                return self.kill();
            }
            let epoch = self.epoch;
            self.post(|| Mail::Order(order.clone(), epoch));
            let lost = Answer { order: order.clone(), outcome: Outcome::Unknown("no answer".into()) };
            self.letters += 1;
            self.mail.insert((Nanos(now.0 + PATIENCE.0), self.letters), Mail::Answer(lost, epoch));
        }
    }

    fn check(&self) {
        let mut reserved: BTreeMap<_, (u32, u64)> = BTreeMap::new();
        for instance in &self.kept.instances {
            let sum = reserved.entry(instance.place.clone()).or_default();
            sum.0 += u32::from(instance.reserves().request.as_permille());
            sum.1 += instance.reserves().memory.0;
        }
        for (place, (share, memory)) in reserved {
            assert!(share <= 1000 && memory <= MEMORY.0, "seed {}: {place} is promised twice", self.seed);
        }
        for tenant in self.nodes.values().flat_map(|node| node.running.keys()) {
            let known = self.kept.instances.iter().any(|instance| self.fleet.tenant(instance) == *tenant);
            assert!(known, "seed {}: {tenant} runs and nobody knows it", self.seed);
        }
    }

    fn check_rest(&self) {
        let seed = self.seed;
        assert!(self.open.is_empty() && self.book.open() == 0, "seed {seed}: {:?} never ended", self.open);
        let traffic = self.book.traffic();
        for (name, service) in &traffic.services {
            let ended = service.answered + service.abandoned + service.refused.values().sum::<u64>();
            assert_eq!(service.arrived, ended, "seed {seed}: requests of {name}");
        }
        let states: Vec<(&str, State)> =
            self.kept.instances.iter().map(|i: &Instance| (i.service.as_str(), i.state)).collect();
        let mut rest = states.clone();
        rest.sort_by_key(|(service, _)| *service);
        rest.retain(|(service, state)| (*service, *state) != ("idle", State::Parked));
        assert_eq!(rest, [("web", State::Ready)], "seed {seed}: at rest, in {states:?}");
        let running: usize = self.nodes.values().map(|node| node.running.len()).sum();
        assert_eq!(running, states.len(), "seed {seed}: {:?}", self.nodes);
    }
}

impl Kept {
    fn apply(&mut self, write: &Write) {
        match write {
            Write::Instance(instance) => {
                self.instances.retain(|known| known.id != instance.id);
                self.instances.push((**instance).clone());
                self.next_instance = self.next_instance.max(instance.id.0 + 1);
            }
            Write::Forgotten(id) => self.instances.retain(|known| known.id != *id),
            Write::Drained(nodes) => self.drained = nodes.clone(),
            Write::Decision(decision) => self.next_decision = self.next_decision.max(decision.id.0 + 1),
        }
    }
}
