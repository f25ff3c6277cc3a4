//! One run of the control loop: what was seen on each GPU, what its policy decides, and what follows from it.
//!
//! ```text
//!   awake     observed and granted in each tick
//!   asleep    looked at in each tick, granted when it wakes or it is its turn; with all others when something has changed
//!   all       shown when it is their turn that there is a manager
//! ```
//!
//! Where all are asleep nothing can change but the time, so that the policy is asked no more often either.

use weir_policy::{Mode, Observation, Sample, Signals};
use weir_protocol::units::Nanos;

use super::cell::Cell;
use super::ruler::Ruler;
use super::sleeper::Sleeper;
use super::tenant::Tenant;

/// Everybody's turn comes once in about so long, as long as a tick is not longer. Ticks are longer when all are asleep, and
/// yet a tenant must not take the manager for dead, which it does after a second.
const TURN: Nanos = Nanos::from_millis(64);

/// In how many ticks of this length everybody has his turn.
pub(super) fn turns(tick: Nanos) -> u64 {
    (TURN.0 / tick.0.max(1)).clamp(1, TURN.0 / 1_000_000)
}

/// What holds for a GPU in one run.
#[derive(Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Nanos,
    pub(super) epoch: u64,
    /// In how many ticks everybody has his turn.
    pub(super) turns: u64,
    /// Whether tenants, budgets or policies have changed since the last one.
    pub(super) anew: bool,
    /// Whether nothing is enforced but memory.
    pub(super) off: bool,
    /// How tenants share the GPU.
    pub(super) mode: Mode,
    pub(super) signals: Signals,
}

/// A tenant's place among those of a GPU.
pub(super) struct Seat {
    tenant: usize,
    cell: usize,
    /// Whether it is a filler's.
    pub(super) gives_way: bool,
    sleeper: Option<Sleeper>,
    state: &'static str, // as its cell knows it
}

impl Seat {
    /// That of a tenant's cell.
    pub(super) fn of(tenant: usize, cell: usize, gives_way: bool) -> Self {
        Self { tenant, cell, gives_way, sleeper: None, state: "" }
    }

    /// The cell.
    pub(super) fn cell<'a>(&self, tenants: &'a mut [Tenant]) -> &'a mut Cell {
        &mut tenants[self.tenant].cells[self.cell]
    }

    /// Looks at the tenant as it is.
    fn observe(&mut self, tenants: &mut [Tenant], round: &Round) -> Sample {
        let tenant = &mut tenants[self.tenant];
        let sample = tenant.observe(self.cell, round.mode, round.now);
        let cell = &tenant.cells[self.cell];
        match &self.sleeper {
            Some(_) if cell.is_asleep() && !round.anew => {}
            _ => self.sleeper = cell.sleeper(&tenant.slots),
        }
        sample
    }
}

impl Ruler {
    /// Observes, decides and publishes; says whether anybody is awake.
    pub(super) fn run(&mut self, tenants: &mut [Tenant], round: &Round) -> bool {
        let was_awake = self.seats.iter().any(|seat| seat.sleeper.is_none());
        let all = round.anew || (!was_awake && round.epoch.is_multiple_of(round.turns));
        let due = |at: usize| all || (round.epoch + at as u64).is_multiple_of(round.turns);
        self.observe(tenants, round, due);
        let awake = self.seats.iter().any(|seat| seat.sleeper.is_none());
        if awake || was_awake || all {
            self.decide(tenants, round, due);
            self.arm_bells(tenants, round.anew);
        }
        awake
    }

    fn observe(&mut self, tenants: &mut [Tenant], round: &Round, due: impl Fn(usize) -> bool) {
        if self.samples.len() != self.seats.len() {
            self.samples.clear();
            self.samples.extend(self.seats.iter_mut().map(|seat| seat.observe(tenants, round)));
            return;
        }
        for (at, (seat, sample)) in self.seats.iter_mut().zip(&mut self.samples).enumerate() {
            match seat.sleeper.as_ref().and_then(|sleeper| sleeper.sleeps(round.now)) {
                Some(slept) if !due(at) => sample.idle_for = slept,
                _ => *sample = seat.observe(tenants, round),
            }
        }
    }

    fn decide(&mut self, tenants: &mut [Tenant], round: &Round, due: impl Fn(usize) -> bool) {
        let Round { now, mode, signals, .. } = *round;
        let seen = Observation { now, mode, signals, samples: &self.samples };
        for (at, (seat, decision)) in self.seats.iter_mut().zip(self.policy.decide(&seen)).enumerate() {
            let due = due(at);
            let granted = seat.sleeper.is_none() || due;
            if !granted && std::ptr::eq(seat.state, decision.state) {
                continue;
            }
            seat.state = decision.state;
            let tenant = &mut tenants[seat.tenant];
            let cell = &mut tenant.cells[seat.cell];
            cell.note_state(decision.state);
            if granted {
                cell.actuate(&decision.grant, &tenant.budget, round.off);
            }
            if due {
                cell.pages.grant.tick();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use weir_protocol::units::Bytes;

    use super::*;
    use crate::control::schema::{CreateTenant, SetBudget};
    use crate::gpus::{Device, Gpus, Source};
    use crate::registry::{Holder, Registry};

    const TICK: Nanos = Nanos::from_millis(1);

    /// Two tenants on one GPU, 60 % and 30 %, each with a process, in virtual time.
    struct Node {
        registry: Registry,
        now: Nanos,
    }

    impl Node {
        fn new() -> Self {
            let card = Device { uuid: [1; 16], name: "Test".into(), memory_total: Bytes::gib(10) };
            let gpus = Gpus::find(Source::Fixed(vec![card]), Vec::new()).unwrap();
            let mut registry = Registry::new(gpus, Some(Bytes(0)), weir_policy::find("static").unwrap());
            for (name, request) in [("a", 600), ("b", 300)] {
                let wanted = CreateTenant {
                    name: name.into(),
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

        fn works(&self, at: usize) {
            self.cell(at).pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
        }

        /// So many ticks, in each of which those in `at_work` do something; says whether anybody is awake then.
        fn tick(&mut self, ticks: u64, at_work: &[usize]) -> bool {
            let mut awake = true;
            for _ in 0..ticks {
                self.now.0 += TICK.0;
                at_work.iter().for_each(|at| self.works(*at));
                awake = self.registry.tick(self.now);
            }
            awake
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
        node.tick(1, &[1]);
        assert!(!node.cell(0).is_asleep());
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
    fn nobodys_turn_comes_so_late_that_the_manager_looks_dead() {
        // A tenant waits for a second; all asleep, a tick is four times as long.
        for tick_us in [100, 1_000, 7_000, 100_000] {
            let tick = Nanos::from_micros(tick_us);
            assert!(4 * tick.0 * turns(tick) <= 500_000_000, "{tick_us}");
        }
    }
}
