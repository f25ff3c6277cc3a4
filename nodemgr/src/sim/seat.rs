//! A tenant in a run: its program, its thread, and its account.

use std::collections::VecDeque;

use weir_protocol::pages::{Gate, Stall};
use weir_protocol::units::Nanos as Time;
use weir_simgpu_model::{ContextId, Device, Kernel, Nanos, StreamId};

use super::engine::{SMS, TICK, TenantRun};
use super::launcher::{Alarm, Launcher, Said, add};
use super::measure::{LONG_RUN, Log, LongRuns, Window};
use super::scenario::{Metric, Promise, Tenant};
use super::workload::{Program, Step};
use crate::control::schema::ClassName;
use crate::registry::Rank;

/// What the thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Goes on as soon as it is woken.
    Runs,
    /// Waits at the gate with this launch.
    AtGate(Kernel, Alarm),
    /// The driver's queue takes no more: waits with this launch.
    Full(Kernel),
    /// Waits until its work is done.
    Synchronises,
    /// Sleeps.
    Rests,
    /// Has ended.
    Over,
}

/// What stalls had been settled up to.
#[derive(Clone, Copy, Debug, Default)]
struct Settled {
    at: Nanos,
    alone: Nanos,
    queued: Nanos,
}

/// A tenant in a run.
pub struct Seat {
    /// On what its standing depends.
    pub rank: Rank,
    /// Whether fillers give way to it.
    pub better: bool,
    /// Its context.
    pub context: ContextId,
    /// How it launches; without one nothing is in its way.
    pub launcher: Option<Launcher>,
    /// What its thread does.
    pub state: State,
    /// Number of its wake-up that holds.
    pub wakes: u64,
    /// Since when it has had something to do.
    pub busy_since: Option<Nanos>,
    /// What it promises, and of which latency.
    pub promise: Option<(Promise, Metric)>,
    /// What its program tells.
    pub log: Log,
    /// States that the policy gave it, and for how many ticks.
    pub states: Vec<(&'static str, u64)>,
    program: Box<dyn Program>,
    stream: StreamId,
    partition: Option<u32>, // SMs, where kernels run at once
    sequence: u64,
    queued: VecDeque<Nanos>,
    work: Nanos,
    at_gate_since: Option<Nanos>,
    gate_time: Nanos,
    settled: Settled,
    used: [Nanos; 2], // at both ends of the window
    long_runs: LongRuns,
}

impl Seat {
    /// A tenant that has done nothing yet.
    pub fn new(
        tenant: &Tenant,
        program: Box<dyn Program>,
        log: Log,
        (context, stream): (ContextId, StreamId),
        launcher: Option<Launcher>,
        partition: Option<u32>,
    ) -> Self {
        Self {
            rank: (tenant.class, tenant.promise().map(|promise| promise.target)),
            better: tenant.class != ClassName::Filler,
            context,
            launcher,
            state: State::Runs,
            wakes: 0,
            busy_since: None,
            promise: tenant.promise().map(|promise| (promise, tenant.slo_on)),
            log,
            states: Vec::new(),
            program,
            stream,
            partition,
            sequence: 0,
            queued: VecDeque::new(),
            work: 0,
            at_gate_since: None,
            gate_time: 0,
            settled: Settled { at: super::engine::START, ..Settled::default() },
            used: [0; 2],
            long_runs: LongRuns::default(),
        }
    }

    /// The program's next step.
    pub fn next(&mut self, now: Nanos) -> Step {
        self.state = State::Runs;
        self.program.next(now, &mut self.log)
    }

    /// The program has nothing to do.
    pub fn rests(&mut self, state: State) {
        self.state = state;
        self.long_runs.rests();
    }

    /// Launches under way.
    pub fn depth(&self) -> usize {
        self.queued.len()
    }

    /// Whether nothing is under way.
    pub fn is_drained(&self) -> bool {
        self.queued.is_empty()
    }

    /// The grant that holds.
    pub fn generation(&self) -> Option<u32> {
        Some(self.launcher.as_ref()?.pages().grant.generation())
    }

    /// Whether it may launch also while a better one works.
    pub fn is_lent(&self) -> bool {
        self.launcher.as_ref().is_some_and(|launcher| launcher.pages().grant.read().gate == Gate::Lent)
    }

    /// What a kernel is charged: the whole GPU's time in turns, its part of it where tenants overlap (gpu-truths, rule 12).
    fn price(&self, kernel: Kernel) -> u64 {
        let weight = (kernel.blocks * 1_000 / SMS).max(kernel.bandwidth_permille).min(1_000);
        if self.partition.is_some() { kernel.solo * u64::from(weight) / 1_000 } else { kernel.solo }
    }

    /// The kernel as it runs in the tenant's partition: on fewer SMs for longer, and with as much less of the bandwidth.
    pub fn confined(&self, kernel: Kernel) -> Kernel {
        let Some(most) = self.partition.filter(|most| *most < kernel.blocks) else { return kernel };
        Kernel {
            solo: kernel.solo * u64::from(kernel.blocks) / u64::from(most),
            blocks: most,
            bandwidth_permille: kernel.bandwidth_permille * most / kernel.blocks,
            ..kernel
        }
    }

    /// Whether the launch may go.
    pub fn ask(&mut self, kernel: Kernel, now: Nanos, closed_by: Option<usize>) -> Said {
        let price = self.price(kernel).cast_signed();
        match &mut self.launcher {
            None => Said::Goes,
            Some(launcher) => {
                launcher.look(Time(now));
                launcher.ask(price, Time(now), closed_by)
            }
        }
    }

    /// The launch goes to the driver: its number, and where.
    pub fn submit(&mut self, kernel: Kernel) -> (u64, StreamId) {
        let price = self.price(kernel);
        if let Some(launcher) = &mut self.launcher {
            launcher.submitted(price);
        }
        self.state = State::Runs;
        self.queued.push_back(kernel.solo);
        self.sequence += 1;
        (self.sequence, self.stream)
    }

    /// The oldest launch is done.
    pub fn completed(&mut self, now: Nanos, window: &Window) {
        let solo = self.queued.pop_front().unwrap_or(0);
        if (window.from..window.to).contains(&now) {
            self.work += solo;
        }
        if let Some(launcher) = &mut self.launcher {
            launcher.completed();
        }
    }

    /// The launch waits at the gate.
    pub fn wait_at_gate(&mut self, kernel: Kernel, alarm: Alarm, now: Nanos) {
        self.state = State::AtGate(kernel, alarm);
        self.at_gate_since.get_or_insert(now);
    }

    /// It waits no longer.
    pub fn leave_gate(&mut self, now: Nanos) {
        if let Some(since) = self.at_gate_since.take() {
            self.gate_time += now - since.max(self.settled.at);
        }
    }

    /// Writes where the time went since the last tick, as the interposer does.
    pub fn settle_stalls(&mut self, now: Nanos, device: &Device) {
        let Some(books) = device.context_books(self.context) else { return };
        let before = std::mem::replace(
            &mut self.settled,
            Settled { at: now, alone: books.alone, queued: books.queued_time },
        );
        let waits = self.at_gate_since.map_or(0, |since| now - since.max(before.at));
        let gate = std::mem::take(&mut self.gate_time) + waits;
        let compute = books.alone - before.alone;
        let neighbour = (books.queued_time - before.queued).saturating_sub(compute);
        let rest = (now - before.at).saturating_sub(compute + neighbour);
        let gate = gate.min(rest);
        let Some(launcher) = &self.launcher else { return };
        let parts = &launcher.slot().stalls.parts_ns;
        for (stall, ns) in [
            (Stall::Compute, compute),
            (Stall::Neighbour, neighbour),
            (Stall::Gate, gate),
            (Stall::Host, rest - gate),
        ] {
            add(&parts[stall as usize], ns);
        }
    }

    /// Looks at what it has had, once a tick.
    pub fn note_use(&mut self, device: &Device) {
        if !matches!(self.state, State::Rests | State::Over)
            && let Some(books) = device.context_books(self.context)
        {
            self.long_runs.note(books.true_use, (LONG_RUN / TICK) as usize);
        }
    }

    /// Counts a tick in the state that the policy gave it.
    pub fn note_state(&mut self, state: &'static str) {
        match self.states.iter_mut().find(|(name, _)| *name == state) {
            Some((_, ticks)) => *ticks += 1,
            None => self.states.push((state, 1)),
        }
    }

    /// One end of the window.
    pub fn mark(&mut self, edge: usize, device: &Device) {
        let books = device.context_books(self.context).unwrap_or_default();
        self.used[edge] = books.true_use;
    }

    /// What it came to.
    pub fn finish(self) -> TenantRun {
        let [from, to] = self.used;
        TenantRun {
            log: self.log,
            work: self.work,
            used: to - from,
            least_of_long_run: self.long_runs.least(),
            states: self.states,
        }
    }
}
