//! One run of a scenario in virtual time: from event to event, on the simulated GPU's model.
//!
//! ```text
//!   programs --launch--> launcher (gate, purse, turns) --submit--> device (model)
//!                             ^ grant pages                           | completions
//!                        manager (the node manager's registry, one tick in 1 ms) <-- usage pages
//! ```
//!
//! Nothing here reads a clock: the same scenario gives the same run, to the nanosecond. Times that are not the model's
//! stand below by name, each with its source.

mod gaps;
mod gate;
mod rule;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_protocol::units::Nanos as Time;
use weir_simgpu_model::{Completion, Device, DeviceBooks, Mode, Nanos, StreamKind};

use self::gate::introduce;
use self::rule::spec;
pub use self::rule::{Reserved, Rule};
use super::launcher::Alarm;
use super::manager::Manager;
use super::measure::{Gap, Log, Window};
use super::random::Random;
use super::scenario::{Scenario, Tenant};
use super::seat::{Seat, State};
use super::workload::{Inference, Offline, Program, Step, Training, arrivals};
use crate::fault::Fault;

/// When runs begin: not at zero, which pages take for *never*.
pub const START: Nanos = 1_000_000_000;

/// SMs of the device, so that shares of it in percent are whole numbers.
pub const SMS: u32 = 1_000;

/// What a launch costs its thread (gpu-truths 3: 2-3 us).
const LAUNCH: Nanos = 2_500;

/// From submission to start (gpu-truths 3: 3-6 us).
const SUBMIT_TO_START: Nanos = 4_500;

/// From the end of the last kernel to the return of the call that waits for it.
const RETURN: Nanos = 2_000;

/// Commands that a driver queues before the next launch waits (gpu-truths 3).
const DEPTH: usize = 1_024;

/// From a wake-up to the thread's next instruction (design 5: the bell, measured on two cores, p99).
pub const WAKE: Nanos = 20_000;

/// The manager's tick.
pub const TICK: Nanos = 1_000_000;

/// After the window, at most, until requests which came in it have been served, so that it is known how long they took: an
/// answer of 200 tokens takes 12 s where each may take 60 ms.
const AFTERMATH: Nanos = 30_000_000_000;

/// What a run came to.
pub struct Run {
    /// The part that counts.
    pub window: Window,
    /// The device's time in it.
    pub device: DeviceBooks,
    /// One row per tenant, in the scenario's order.
    pub tenants: Vec<TenantRun>,
    /// Gaps in the work of those that are no fillers.
    pub gaps: Vec<Gap>,
    /// Simulated time in all, the warm-up with it.
    pub simulated: Nanos,
    /// Moments at which something was due or done.
    pub events: u64,
}

/// What a tenant did.
pub struct TenantRun {
    /// What its program told.
    pub log: Log,
    /// Work done, as long as it takes alone.
    pub work: Nanos,
    /// SM time that it had, by the device's books.
    pub used: Nanos,
    /// The least of it in a long run in which it had work throughout; none if there was none, or nobody ruled.
    pub least_of_long_run: Option<Nanos>,
    /// The states that the policy gave it, and for how many ticks.
    pub states: Vec<(&'static str, u64)>,
}

/// A wake-up that is due: when, its number, and whose.
type Due = Reverse<(Nanos, u64, usize)>;

struct Engine {
    now: Nanos,
    window: Window,
    device: Device,
    seats: Vec<Seat>,
    due: BinaryHeap<Due>,
    order: u64,
    events: u64,
    manager: Option<Manager>,
    next_tick: Nanos, // never, without a manager
    marked: usize,    // ends of the window that have been reached
    fillers_give_way: bool,
    done: Vec<Completion>,       // a buffer
    gap: Option<(Nanos, Nanos)>, // since when nobody better works, what fillers had had by then
    gaps: Vec<Gap>,
    books: [DeviceBooks; 2], // at both ends of the window
}

/// Runs the tenants of `scenario` in `seated`, a choice of its positions, by this rule.
///
/// # Errors
/// The budgets do not fit on one GPU.
pub fn run(scenario: &Scenario, seated: &[usize], rule: Rule) -> Result<Run, Fault> {
    let mut engine = Engine::new(scenario, seated, rule)?;
    let end = engine.window.to + AFTERMATH;
    while !engine.is_over() && engine.pass(end) {
        engine.run_due();
        engine.tick_if_due();
        engine.mark_window();
    }
    Ok(engine.finish())
}

/// What the tenant at this place runs.
pub(super) fn program(scenario: &Scenario, at: usize, tenant: &Tenant) -> Box<dyn Program> {
    let mut random = Random::new(scenario.seed, at as u64);
    let shape = tenant.kernel;
    match (&tenant.inference, &tenant.training, &tenant.offline) {
        (Some(spec), ..) => {
            let moments = arrivals(&spec.arrivals, &mut random, START, scenario.window().to);
            Box::new(Inference::new(spec, moments, random, shape))
        }
        (_, Some(spec), _) => Box::new(Training::new(spec, random, shape)),
        (.., spec) => Box::new(Offline::new(&spec.clone().unwrap_or_default(), shape)),
    }
}

impl Engine {
    fn new(scenario: &Scenario, seated: &[usize], rule: Rule) -> Result<Self, Fault> {
        let spec = spec(scenario, rule);
        let overlaps = spec.mode == Mode::Mps;
        let mut device = Device::new(spec, START);
        let tenants: Vec<&Tenant> = seated.iter().filter_map(|at| scenario.tenant.get(*at)).collect();
        let mut manager = match rule {
            Rule::Policy(row) => Some(Manager::new(row, &tenants, overlaps, scenario.switch())?),
            Rule::Driver(_) | Rule::Partitions(_) => None,
        };
        let mut seats = Vec::new();
        for (seat, (at, tenant)) in seated.iter().zip(&tenants).enumerate() {
            let context = device.create_context();
            let priority = if overlaps { rule.priority(tenant) } else { 0 };
            let stream = device.open_stream(context, StreamKind::Blocking, priority, seat as u64);
            let Some(stream) = stream else { continue };
            let launcher = manager.as_mut().map(|manager| manager.seat(seat)).transpose()?;
            let log = Log::new(scenario.window());
            let partition = overlaps.then(|| rule.partition(tenant)).transpose()?;
            seats.push(Seat::new(
                tenant,
                program(scenario, *at, tenant),
                log,
                (context, stream),
                launcher,
                partition,
            ));
        }
        if let Some(manager) = &manager {
            let gives_way = matches!(rule, Rule::Policy(row) if row.fillers_give_way);
            introduce(&mut seats, manager, gives_way);
        }
        let mut engine = Self {
            now: START,
            window: scenario.window(),
            device,
            seats,
            due: BinaryHeap::new(),
            order: 0,
            events: 0,
            next_tick: if manager.is_some() { START + TICK } else { Nanos::MAX },
            marked: 0,
            manager,
            fillers_give_way: matches!(rule, Rule::Policy(row) if row.fillers_give_way),
            done: Vec::new(),
            gap: Some((START, 0)),
            gaps: Vec::new(),
            books: [DeviceBooks::default(); 2],
        };
        (0..engine.seats.len()).for_each(|seat| engine.wake(seat, START));
        Ok(engine)
    }

    /// When something is due that is not the device's.
    fn next_moment(&self) -> Nanos {
        let due = self.due.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
        due.min(self.next_tick).min(self.next_edge())
    }

    /// Time passes until something is due, or is seen to be done; says whether anything is before the end.
    fn pass(&mut self, end: Nanos) -> bool {
        let next = self.next_moment();
        let to = self.device.advance_until_done(next.min(end).max(self.now));
        let mut done = std::mem::take(&mut self.done);
        self.device.swap_completions(&mut done);
        let goes_on = next <= end || !done.is_empty();
        if goes_on {
            self.now = to;
            self.events += 1;
        }
        for completion in done.drain(..) {
            if let Completion::Done { tag, .. } = completion
                && let Ok(seat) = usize::try_from(tag)
            {
                self.completed(seat);
            }
        }
        self.done = done; // the buffer serves again
        goes_on
    }

    fn completed(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        seat.completed(self.now, &self.window);
        match seat.state {
            State::Synchronises if seat.is_drained() => {
                self.looks(at);
                self.wake(at, self.now + RETURN);
            }
            State::Full(_) => self.wake(at, self.now),
            _ => {}
        }
    }

    /// A thread has come to where it looks what of its work is done.
    fn looks(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        if let Some(launcher) = &mut seat.launcher {
            launcher.look(Time(self.now));
        }
        if seat.is_drained() && !matches!(seat.state, State::AtGate(..)) {
            self.quiets(at);
        }
        self.pass_turn_on(at);
    }

    /// Wakes the thread in this seat then, and not as it was to be woken before.
    fn wake(&mut self, at: usize, then: Nanos) {
        self.order += 1;
        self.seats[at].wakes = self.order;
        self.due.push(Reverse((then, self.order, at)));
    }

    fn run_due(&mut self) {
        while let Some(Reverse((at, order, seat))) = self.due.peek().copied()
            && at <= self.now
        {
            self.due.pop();
            if self.seats[seat].wakes == order {
                self.step(seat);
            }
        }
    }

    /// The thread in this seat goes on.
    fn step(&mut self, at: usize) {
        let step = match self.seats[at].state {
            State::AtGate(kernel, _) | State::Full(kernel) => Step::Launch(kernel),
            _ => self.seats[at].next(self.now),
        };
        match step {
            Step::Launch(kernel) => self.launch(at, kernel),
            Step::Synchronise => {
                self.seats[at].state = State::Synchronises;
                if self.seats[at].is_drained() {
                    self.looks(at);
                    self.wake(at, self.now + RETURN);
                }
            }
            Step::Rest(until) => {
                self.seats[at].rests(State::Rests);
                self.wake(at, until.max(self.now + 1));
            }
            Step::End => self.seats[at].rests(State::Over),
        }
    }

    fn tick_if_due(&mut self) {
        if self.now < self.next_tick {
            return;
        }
        let Some(manager) = &mut self.manager else { return };
        for seat in &mut self.seats {
            seat.settle_stalls(self.now, &self.device);
            seat.note_use(&self.device);
        }
        manager.tick(Time(self.now), &mut self.seats);
        self.next_tick += TICK;
        for seat in 0..self.seats.len() {
            if let State::AtGate(kernel, Alarm::Set(generation, _)) = self.seats[seat].state
                && self.seats[seat].generation() != Some(generation)
            {
                self.seats[seat].state = State::AtGate(kernel, Alarm::Off);
                self.wake(seat, self.now + WAKE);
            }
        }
    }

    /// The window is over, and whoever came in it has been served.
    fn is_over(&self) -> bool {
        self.marked == self.books.len() && self.seats.iter().all(|seat| seat.log.open() == 0)
    }

    fn next_edge(&self) -> Nanos {
        match self.marked {
            0 => self.window.from,
            1 => self.window.to,
            _ => Nanos::MAX,
        }
    }

    fn mark_window(&mut self) {
        if self.now >= self.next_edge() {
            self.books[self.marked] = self.device.books();
            self.seats.iter_mut().for_each(|seat| seat.mark(self.marked, &self.device));
            self.marked += 1;
        }
    }

    fn finish(self) -> Run {
        let [from, to] = self.books;
        let device = DeviceBooks {
            busy: to.busy - from.busy,
            switch: to.switch - from.switch,
            idle: to.idle - from.idle,
        };
        let simulated = self.now.max(self.device.last_event()) - START;
        let tenants = self.seats.into_iter().map(Seat::finish).collect();
        Run { window: self.window, device, tenants, gaps: self.gaps, simulated, events: self.events }
    }
}
