//! Each second: what a policy sees, and what it wishes done.

use weir_protocol::units::{Nanos, SmShare, Tokens};

use super::engine::Engine;
use super::instance::{Instance, State};
use crate::scale::{Action, Seen, Then, actions};

impl Engine<'_> {
    pub(super) fn tick(&mut self, service: usize) {
        let seen = self.seen(service);
        let running = &mut self.services[service];
        running.outcome.instances.push(seen.serving());
        running.outcome.most_instances = running.outcome.most_instances.max(seen.serving());
        (running.arrived, running.arrived_work) = (0, Tokens(0));
        let wish = running.policy.wish(&running.known, &seen);
        running.share = wish.share;
        for action in actions(&seen, &wish) {
            self.carry_out(service, action);
        }
        self.dispatch(service);
    }

    fn seen(&self, service: usize) -> Seen {
        let running = &self.services[service];
        let mine = || running.instances.iter().map(|index| &self.instances[*index]);
        let count = |is: fn(&State) -> bool| {
            u32::try_from(mine().filter(|instance| is(&instance.state)).count()).unwrap_or(u32::MAX)
        };
        let ready = || mine().filter(|instance| instance.state == State::Ready);
        Seen {
            now: self.now,
            arrived: running.arrived,
            arrived_work: Some(running.arrived_work),
            queued: running.queue.len() as u64,
            queued_work: Some(running.queued_work),
            running: mine().map(|instance| instance.load() as u64).sum(),
            ready: count(|state| *state == State::Ready),
            starting: count(|state| matches!(state, State::Starting(_))),
            draining: count(|state| matches!(state, State::Draining(_))),
            parked: count(|state| *state == State::Parked),
            share: ready().map(|instance| instance.share).min().unwrap_or(running.share),
            room: ready().map(|instance| self.room(instance)).min().unwrap_or(SmShare::FULL),
        }
    }

    /// What an instance could have: its share, and its part of what its GPU has free, divided among its siblings there.
    fn room(&self, instance: &Instance) -> SmShare {
        let siblings = self.services[instance.service].instances.iter().map(|index| &self.instances[*index]);
        let beside = siblings.filter(|other| other.gpu == instance.gpu && other.holds()).count();
        let part = usize::from(self.pool.free(instance.gpu).as_permille()) / beside.max(1);
        SmShare::permille(instance.share.as_permille() + u16::try_from(part).unwrap_or(0))
    }

    fn carry_out(&mut self, service: usize, action: Action) {
        match action {
            Action::Resize(share) => self.resize(service, share),
            Action::Keep(count) => self.keep(service, count),
            Action::Unpark(count) => self.unpark(service, count),
            Action::Start(count) => (0..count).for_each(|_| self.start(service)),
            Action::Drain(count, then) => self.drain(service, count, then),
            Action::Forget(count) => self.forget(service, count),
        }
    }

    /// This service's instances in such a state, newest first.
    fn newest(&self, service: usize, is: impl Fn(State) -> bool) -> Vec<usize> {
        let all = self.services[service].instances.iter().rev().copied();
        all.filter(|index| is(self.instances[*index].state)).collect()
    }

    fn resize(&mut self, service: usize, share: SmShare) {
        for index in self.newest(service, |state| matches!(state, State::Ready | State::Starting(_))) {
            let instance = &mut self.instances[index];
            let given = self.pool.resize((index, service), instance.gpu, share);
            instance.change(&self.services[service].known, self.now, given, instance.state);
            self.replan(index);
        }
    }

    fn keep(&mut self, service: usize, count: u32) {
        let draining = self.newest(service, |state| matches!(state, State::Draining(_)));
        for index in draining.into_iter().take(whole(count)) {
            self.instances[index].state = State::Ready;
        }
    }

    fn unpark(&mut self, service: usize, count: u32) {
        let after = self.services[service].known.unpark.unwrap_or_default();
        for index in self.newest(service, |state| state == State::Parked).into_iter().take(whole(count)) {
            let running = &mut self.services[service];
            let instance = &mut self.instances[index];
            // It comes back to its own GPU. Where that is full it ends, and another is started elsewhere.
            if self.pool.free(instance.gpu) < running.known.shares[0] {
                self.forget_one(service, index);
                self.start(service);
                continue;
            }
            match self.pool.take((index, service), instance.gpu, running.share) {
                Some(share) => {
                    running.outcome.unparks += 1;
                    instance.change(&running.known, self.now, share, State::Ready);
                    self.plan_start(index, after);
                }
                None => {
                    self.forget_one(service, index);
                    self.start(service);
                }
            }
        }
    }

    fn start(&mut self, service: usize) {
        let after = self.scenario.cold_start.draw(&mut self.random);
        let running = &mut self.services[service];
        let index = self.instances.len();
        let placed = self.pool.place((index, service), running.share, running.known.shares[0]);
        let Some((gpu, share)) = placed else {
            running.outcome.unplaced += 1;
            return;
        };
        running.outcome.cold_starts += 1;
        running.instances.push(index);
        self.instances.push(Instance::starting(service, gpu, share, self.now, Nanos(0)));
        self.plan_start(index, after);
    }

    /// Those that are starting first: nobody waits for them. What was not loaded cannot be parked.
    fn drain(&mut self, service: usize, count: u32, then: Then) {
        let starting = self.newest(service, |state| matches!(state, State::Starting(_)));
        let ready = self.newest(service, |state| state == State::Ready);
        let chosen =
            starting.iter().map(|index| (*index, Then::Stop)).chain(ready.iter().map(|index| (*index, then)));
        for (index, then) in chosen.take(whole(count)) {
            self.instances[index].state = State::Draining(then);
            self.settle(index);
        }
    }

    fn forget(&mut self, service: usize, count: u32) {
        for index in self.newest(service, |state| state == State::Parked).into_iter().take(whole(count)) {
            self.forget_one(service, index);
        }
    }

    fn forget_one(&mut self, service: usize, index: usize) {
        self.instances[index].state = State::Gone;
        self.services[service].instances.retain(|other| *other != index);
    }
}

fn whole(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
