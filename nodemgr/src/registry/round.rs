//! One run of the control loop: what was seen on each GPU, what its policy decides, and what follows from it.
//!
//! ```text
//!   awake     observed and granted in each tick
//!   asleep    looked at when it says that it has stirred, granted when it wakes or it is its turn; with all others when
//!             something has changed
//!   all       shown when it is their turn that there is a manager
//! ```
//!
//! Where all are asleep nothing can change but the time, so that the policy is asked no more often either. Nor is one that
//! looks at nothing but who is busy, until that changes: then a tick looks only whether those who are busy go on.

use weir_policy::{Mode, Observation, Signals};
use weir_protocol::units::Nanos;

use super::ruler::Ruler;
use super::seat::{Seat, Sleep};
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

/// Whose turn it is: that of every so many seats, in their order.
struct Due {
    all: bool,
    next: usize,
    turns: usize,
}

impl Due {
    fn of(round: &Round, all: bool) -> Self {
        let turns = round.turns.max(1);
        let first = (turns - round.epoch % turns) % turns;
        let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self { all, next: whole(first), turns: whole(turns) }
    }

    /// Whether it is the turn of the seat `at`; asked of seats in their order.
    fn has(&mut self, at: usize) -> bool {
        while self.next < at {
            self.next += self.turns;
        }
        self.all || at == self.next
    }

    /// Those whose turn it is, where it is not all of them.
    fn seats(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        (self.next..count.max(self.next)).step_by(self.turns)
    }
}

impl Ruler {
    /// Observes, decides and publishes; says whether anybody is awake. `stirred`: the tenants that say so.
    pub(super) fn run(&mut self, tenants: &mut [Tenant], round: &Round, stirred: &[usize]) -> bool {
        let was_awake = self.awake;
        let new = round.anew || self.samples.len() != self.seats.len();
        let all = new || (!was_awake && round.epoch.is_multiple_of(round.turns));
        let due = Due::of(round, all);
        let news =
            if all { self.observe_all(tenants, round) } else { self.observe(tenants, round, &due, stirred) };
        if !(self.awake || was_awake || all) {
            return false;
        }
        if news || !self.rests || self.signals != round.signals {
            self.decide(tenants, round, due);
            self.arm_bells(tenants, round.anew);
        } else {
            due.seats(self.seats.len()).for_each(|at| self.grant(tenants, round, at, true));
        }
        self.awake
    }

    fn observe_all(&mut self, tenants: &mut [Tenant], round: &Round) -> bool {
        self.samples.clear();
        self.samples.extend(self.seats.iter_mut().map(|seat| seat.observe(tenants, round)));
        self.regroup();
        true
    }

    /// Looks at those of whom there may be something to see; says whether there is anything new for a policy that looks at
    /// nothing but who is busy.
    fn observe(&mut self, tenants: &mut [Tenant], round: &Round, due: &Due, stirred: &[usize]) -> bool {
        if !stirred.is_empty() {
            let theirs = self.seats.iter_mut().filter(|seat| stirred.contains(&seat.tenant));
            theirs.for_each(Seat::disturb);
            self.regroup();
        }
        let seats = &mut self.seats;
        let mut looks = std::mem::take(&mut self.looks);
        looks.clear();
        let missed = due.seats(seats.len()).filter(|at| seats[*at].has_stirred_unheard());
        looks.extend(missed);
        let mut due = Due { ..*due };
        for at in &self.watched {
            if seats[*at].has_news(round.now, self.rests) || due.has(*at) {
                looks.push(*at);
            }
        }
        let mut news = false;
        for at in &looks {
            news |= self.look(tenants, round, *at);
        }
        self.looks = looks;
        news
    }

    /// Looks at one in full; says whether that one is busy and was not, or the other way round.
    fn look(&mut self, tenants: &mut [Tenant], round: &Round, at: usize) -> bool {
        let seat = &mut self.seats[at];
        let (sleep, was_busy) = (seat.sleep, seat.busy);
        let sample = seat.observe(tenants, round);
        let news = seat.busy != was_busy || sample.limit != self.samples[at].limit;
        self.samples[at] = sample;
        if seat.sleep != sleep {
            self.regroup();
        }
        news
    }

    /// Whom to look at in each tick.
    fn regroup(&mut self) {
        self.awake = self.seats.iter().any(|seat| seat.sleep == Sleep::Awake);
        self.watched.clear();
        let watched = self.seats.iter().enumerate().filter(|(_, seat)| seat.sleep != Sleep::Sound);
        self.watched.extend(watched.map(|(at, _)| at));
    }

    fn decide(&mut self, tenants: &mut [Tenant], round: &Round, mut due: Due) {
        let Round { now, mode, signals, .. } = *round;
        for (seat, sample) in self.seats.iter_mut().zip(&mut self.samples) {
            match seat.sleep {
                // Of these no more was looked at than whether they are busy.
                Sleep::Awake if self.rests => *sample = seat.observe(tenants, round),
                Sleep::Awake => {}
                Sleep::Watched | Sleep::Sound => sample.idle_for = seat.still(now),
            }
        }
        let decisions = self.policy.decide(&Observation { now, mode, signals, samples: &self.samples });
        self.decisions.clear();
        self.decisions.extend_from_slice(decisions);
        for at in 0..self.decisions.len().min(self.seats.len()) {
            let is_due = due.has(at);
            if is_due || self.seats[at].sleep == Sleep::Awake {
                self.grant(tenants, round, at, is_due);
            } else {
                self.seats[at].note_state(tenants, self.decisions[at].state);
            }
        }
        (self.rests, self.signals) = ((self.row.rests)(&self.samples), signals);
    }

    /// Grants what was decided; in the tenant's turn with a sign of life.
    fn grant(&mut self, tenants: &mut [Tenant], round: &Round, at: usize, is_due: bool) {
        let (Some(seat), Some(decision)) = (self.seats.get_mut(at), self.decisions.get(at)) else { return };
        seat.note_state(tenants, decision.state);
        let budget = tenants[seat.tenant].budget;
        let cell = seat.cell(tenants);
        cell.actuate(&decision.grant, &budget, round.off);
        if is_due {
            cell.pages.grant.tick();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use weir_protocol::units::{Bytes, Tokens};

    use super::*;
    use crate::control::schema::{CreateTenant, SetBudget};
    use crate::gpus::{Device, Gpus, Source};
    use crate::registry::{Cell, Holder, Registry};

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

        /// Its process launches, and says so as one does.
        fn works(&self, at: usize) {
            let pages = &self.cell(at).pages;
            pages.activity.begin(0, || self.now);
            self.tells(at);
            pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
            pages.activity.end(0);
        }

        fn tells(&self, at: usize) {
            let pages = &self.cell(at).pages;
            if pages.grant.bell.wants().stir {
                pages.usage.stir();
            }
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
        node.tells(0);
        node.tick(1, &[1]);
        assert!(!node.cell(0).is_asleep());
        assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
    }

    #[test]
    fn a_launch_long_after_its_process_began_to_work_is_seen_in_the_next_tick() {
        let mut node = Node::new();
        node.cell(0).pages.activity.begin(0, || Nanos(1)); // a kernel of seconds
        node.tick(2_000, &[1]);
        assert!(node.cell(0).is_asleep());
        node.cell(0).pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
        node.tick(1, &[1]);
        assert!(!node.cell(0).is_asleep());
    }

    #[test]
    fn a_sleeper_that_stirs_before_it_launches_is_looked_at_until_it_does() {
        let mut node = Node::new();
        node.tick(2_000, &[1]);
        node.cell(0).pages.activity.begin(0, || Nanos(1));
        node.tells(0);
        node.tick(30, &[1]);
        assert!(node.cell(0).is_asleep());
        node.cell(0).pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
        node.tick(1, &[1]);
        assert!(!node.cell(0).is_asleep());
    }

    #[test]
    fn a_sleeper_that_says_nothing_is_found_when_it_is_its_turn() {
        let mut node = Node::new();
        node.tick(2_000, &[1]);
        node.cell(0).pages.usage.slots[0].submitted_ns.fetch_add(1, Ordering::Relaxed);
        node.tick(turns(TICK), &[1]);
        assert!(!node.cell(0).is_asleep());
    }

    #[test]
    fn who_falls_idle_lends_its_share_as_soon_as_where_the_policy_is_asked_in_each_tick() {
        let mut node = Node::new();
        node.cell(0).pages.bucket.charge(Tokens(-1)); // it owes nothing
        node.tick(100, &[0, 1]);
        node.tick(4, &[1]);
        assert_eq!((node.rate_percent(0), node.rate_percent(1)), (66, 33));
        node.tick(1, &[1]);
        assert_eq!((node.rate_percent(0), node.rate_percent(1)), (60, 100));
        node.tick(1, &[0, 1]);
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
