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
//! looks at nothing but who is busy, until that changes: then a tick looks only whether those who are busy go on, and comes
//! less often ([`pace`](super::pace)). One that is asked in each tick may leave those out who rest
//! ([`Policy::follow`](weir_policy::Policy::follow)).

use weir_policy::{Mode, Observation, Signals};
use weir_protocol::units::Nanos;

use super::ruler::Ruler;
use super::seat::Sleep;
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
    /// Observes, decides and publishes; says whether it has found anything new. `stirred`: the tenants that say so; `renewed`:
    /// those that have other processes than before.
    pub(super) fn run(
        &mut self,
        tenants: &mut [Tenant],
        round: &Round,
        stirred: &[usize],
        renewed: &[usize],
    ) -> bool {
        let was_awake = self.awake;
        let new = round.anew || self.samples.len() != self.seats.len();
        let all = new || (!was_awake && round.epoch.is_multiple_of(round.turns));
        let due = Due::of(round, all);
        if !(stirred.is_empty() && renewed.is_empty()) {
            self.disturb(stirred, renewed);
        }
        let news = if all { self.observe_all(tenants, round) } else { self.observe(tenants, round, &due) };
        if !(self.awake || was_awake || all) {
            return false;
        }
        let asks = news || !self.rests || self.signals != round.signals;
        if asks && self.decide(tenants, round, all) {
            self.grant_all(tenants, round, due);
            self.arm_bells(tenants, round.anew);
        } else {
            self.grant_the_rest(tenants, round, &due);
        }
        new || (news && !all) || (self.awake && !was_awake)
    }

    /// When it has to run again, if nobody says anything until then.
    pub(super) fn due(&self, now: Nanos) -> Nanos {
        match (self.awake, self.rests) {
            (false, _) => Nanos(u64::MAX),
            (true, false) => now,
            (true, true) => self.watched.iter().map(|at| self.seats[*at].due(now)).min().unwrap_or(now),
        }
    }

    fn observe_all(&mut self, tenants: &mut [Tenant], round: &Round) -> bool {
        self.samples.clear();
        self.samples.extend(self.seats.iter_mut().map(|seat| seat.observe(tenants, round)));
        self.regroup();
        true
    }

    /// Looks at those of whom there may be something to see; says whether there is anything new for a policy that looks at
    /// nothing but who is busy.
    fn observe(&mut self, tenants: &mut [Tenant], round: &Round, due: &Due) -> bool {
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

    /// Whose sleep is over, or whose processes are others.
    fn disturb(&mut self, stirred: &[usize], renewed: &[usize]) {
        for seat in &mut self.seats {
            if stirred.contains(&seat.tenant) {
                seat.disturb();
            }
            if renewed.contains(&seat.tenant) {
                seat.renew();
            }
        }
        self.regroup();
    }

    /// Whom to look at in each tick.
    fn regroup(&mut self) {
        self.awake = self.seats.iter().any(|seat| seat.sleep == Sleep::Awake);
        self.watched.clear();
        let watched = self.seats.iter().enumerate().filter(|(_, seat)| seat.sleep != Sleep::Sound);
        self.watched.extend(watched.map(|(at, _)| at));
    }

    /// Asks the policy; says whether its decisions may be others than the last ones. `all` have been looked at.
    fn decide(&mut self, tenants: &mut [Tenant], round: &Round, all: bool) -> bool {
        let Self { seats, samples, policy, decisions, .. } = self;
        let Round { now, mode, signals, .. } = *round;
        self.signals = signals;
        if !(all || self.rests)
            && let Some(awake) = policy.awake(now, mode)
        {
            for at in awake {
                if seats[*at].sleep != Sleep::Awake {
                    samples[*at].idle_for = seats[*at].still(now);
                }
            }
            let seen = Observation { now, mode, signals, samples };
            let Some(others) = policy.follow(&seen, &self.looks) else { return false };
            decisions.clear();
            decisions.extend_from_slice(others);
            return true;
        }
        for (seat, sample) in seats.iter_mut().zip(samples.iter_mut()) {
            match seat.sleep {
                // Of these no more was looked at than whether they are busy.
                Sleep::Awake if self.rests => *sample = seat.observe(tenants, round),
                Sleep::Awake => {}
                Sleep::Watched | Sleep::Sound => sample.idle_for = seat.still(now),
            }
        }
        decisions.clear();
        decisions.extend_from_slice(policy.decide(&Observation { now, mode, signals, samples }));
        self.rests = (self.row.rests)(samples);
        true
    }

    /// Grants all that was decided to those who are awake, and to the others in their turns.
    fn grant_all(&mut self, tenants: &mut [Tenant], round: &Round, mut due: Due) {
        self.seats.iter_mut().for_each(|seat| seat.granted = false);
        for at in 0..self.decisions.len().min(self.seats.len()) {
            let is_due = due.has(at);
            if is_due || self.seats[at].sleep == Sleep::Awake {
                self.grant(tenants, round, at, is_due);
            } else {
                self.seats[at].note_state(tenants, self.decisions[at].state);
            }
        }
    }

    /// What was decided before holds: it is granted to those who do not have it, since their turn comes only now, or a bell
    /// has closed their gates.
    fn grant_the_rest(&mut self, tenants: &mut [Tenant], round: &Round, due: &Due) {
        let mut granted = false;
        let watched = if self.rests { 0 } else { self.watched.len() };
        for n in 0..watched {
            let at = self.watched[n];
            if self.seats[at].sleep == Sleep::Awake && !self.seats[at].granted {
                self.grant(tenants, round, at, false);
                granted = true;
            }
        }
        for at in due.seats(self.seats.len()) {
            match self.seats.get(at) {
                Some(seat) if seat.granted => seat.tick(),
                _ => {
                    self.grant(tenants, round, at, true);
                    granted = true;
                }
            }
        }
        if granted {
            self.arm_bells(tenants, false);
        }
    }

    /// Grants what was decided; in the tenant's turn with a sign of life.
    fn grant(&mut self, tenants: &mut [Tenant], round: &Round, at: usize, is_due: bool) {
        let (Some(seat), Some(decision)) = (self.seats.get_mut(at), self.decisions.get(at)) else { return };
        seat.granted = true;
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
mod tests;
