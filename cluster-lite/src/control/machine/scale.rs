//! How many instances there are, where, and with which share.

use weir_protocol::units::{Nanos, SmShare};

use super::{Controller, Live};
use crate::control::decide::{Load, Placing, Scaling, Wish};
use crate::control::model::{Budget, Instance, InstanceId, ReadyWhen, Service, State, Then, WhenIdle};
use crate::control::room::Room;

impl Controller {
    pub(super) fn scale(&mut self, now: Nanos, placing: &mut dyn Placing, scaling: &mut dyn Scaling) {
        for service in self.fleet.services.clone() {
            let load = self.load(&service);
            let mut wish = scaling.wish(now, &service, &load);
            if load.serving < service.floor && wish.instances <= service.floor {
                wish.why = "always wanted".to_owned();
            }
            wish.instances = wish.instances.clamp(service.floor, service.ceiling);
            wish.share = wish.share.clamp(service.shares[0], service.shares[1]);
            wish.parked = if service.when_idle == WhenIdle::Park { wish.parked } else { 0 };
            let standing = self.standing.entry(service.name.clone()).or_default();
            (standing.wanted, standing.why) = (wish.instances, wish.why.clone());
            standing.lacks = None;
            self.resize(&service, wish.share, now);
            match &service.batch {
                Some(batch) => self.shift(&service, batch, &wish, now, placing),
                None => self.count(&service, &wish, None, now, placing),
            }
        }
        self.end_unwanted(now);
    }

    /// Whether a node may have what is only for this site, or for any.
    fn is_at(&self, node: &str, site: Option<&str>) -> bool {
        site.is_none() || self.fleet.site_of(node) == site
    }

    fn of_service<'a>(&'a self, service: &'a Service) -> impl Iterator<Item = &'a Instance> {
        self.instances.values().filter(|instance| instance.service == service.name)
    }

    fn load(&self, service: &Service) -> Load {
        let traffic = self.traffic.services.get(&service.name).cloned().unwrap_or_default();
        let serving: Vec<_> = self.of_service(service).filter(|i| i.state.serves()).collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let in_state =
            |is: fn(State) -> bool| count(self.of_service(service).filter(|i| is(i.state)).count());
        Load {
            arrived: traffic.arrived,
            arrived_work: service.work.as_ref().map(|_| traffic.arrived_work_ns),
            queued: traffic.queued,
            queued_work: service.work.as_ref().map(|_| traffic.queued_work_ns),
            outstanding: traffic.backends.values().map(|backend| backend.outstanding).sum(),
            ready: count(serving.iter().filter(|i| i.state == State::Ready).count()),
            serving: count(serving.len()),
            draining: in_state(|state| matches!(state, State::Draining(_))),
            parked: in_state(|state| state == State::Parked),
            untold: !self.is_told,
            room: serving.iter().map(|i| self.most(i)).min().unwrap_or(service.shares[1]),
            share: serving.iter().map(|i| i.budget.request).max().unwrap_or(service.budget.request),
        }
    }

    /// The most that an instance could have where it is.
    fn most(&self, instance: &Instance) -> SmShare {
        let room = self.rooms_of(&instance.place.node).into_iter().find(|room| room.place == instance.place);
        let free = room.map_or(SmShare::ZERO, |room| room.free_request());
        SmShare::permille(instance.budget.request.as_permille() + free.as_permille())
    }

    /// Vertical: each instance gets the share, where its GPU has room for it.
    fn resize(&mut self, service: &Service, share: SmShare, now: Nanos) {
        let others = |i: &&Instance| i.state.serves() && i.budget.request != share;
        let ids: Vec<_> = self.of_service(service).filter(others).map(|i| i.id).collect();
        for id in ids {
            let Some(instance) = self.instances.get(&id).cloned() else { continue };
            let limit = service.budget.limit.max(share);
            let budget = Budget { request: share, limit, ..instance.budget };
            let grows = Budget {
                request: grown(share, instance.reserves().request),
                limit: SmShare::ZERO,
                memory: weir_protocol::units::Bytes(0),
            };
            let room = self.rooms_of(&instance.place.node).into_iter().find(|r| r.place == instance.place);
            if room.is_some_and(|room| room.holds(&grows)) {
                let why = format!("request {} to {share}", instance.budget.request);
                let decision = self.decided(&instance, "resize", why, now);
                let held = instance.held.union(instance.budget).union(budget);
                self.keep(Instance { budget, held, decision, ..instance });
            }
        }
    }

    /// Horizontal: as many as wanted, on nodes that may have some, of one site or all.
    pub(super) fn count(
        &mut self,
        service: &Service,
        wish: &Wish,
        site: Option<&str>,
        now: Nanos,
        placing: &mut dyn Placing,
    ) {
        let (mut here, mut leaving) = (Vec::new(), Vec::new());
        let at_site = |i: &&Instance| i.state.serves() && self.is_at(&i.place.node, site);
        for instance in self.of_service(service).filter(at_site) {
            let side = if self.drained.contains(&instance.place.node) { &mut leaving } else { &mut here };
            side.push(instance.id);
        }
        let wanted = wish.instances as usize;
        if here.len() < wanted {
            self.more(service, wanted - here.len(), (&wish.why, site), now, placing);
        } else if here.len() > wanted {
            let excess = here.len() - wanted;
            self.fewer(service, here, excess, wish.parked, &wish.why, now);
        }
        let usable = |i: &Instance| !self.drained.contains(&i.place.node) && self.is_at(&i.place.node, site);
        let ready = |i: &Instance| i.state == State::Ready && usable(i);
        // Nobody waits for best-effort work until it has moved.
        let replaced = site.is_some() || self.of_service(service).filter(|i| ready(i)).count() >= wanted;
        if replaced && !leaving.is_empty() {
            let all = leaving.len();
            self.fewer(service, leaving, all, wish.parked, "its node is being drained", now);
        }
        self.end_asleep(service, wish.parked, now);
    }

    /// First those that are not gone yet, then those that sleep, then new ones; where, if it is said.
    fn more(
        &mut self,
        service: &Service,
        lacking: usize,
        (why, site): (&str, Option<&str>),
        now: Nanos,
        placing: &mut dyn Placing,
    ) {
        let usable = |i: &&Instance| !self.drained.contains(&i.place.node) && self.is_at(&i.place.node, site);
        let mut back: Vec<_> = self.of_service(service).filter(usable).cloned().collect();
        back.retain(|i| matches!(i.state, State::Draining(_) | State::Parked));
        back.sort_by_key(|i| (i.state == State::Parked, i.id));
        let found = back.len().min(lacking);
        for instance in back.into_iter().take(lacking) {
            let answers = self.backend(&instance).is_some_and(|backend| backend.ready);
            let asleep = instance.state == State::Parked || !answers;
            let state = if asleep { State::Starting } else { State::Ready };
            self.turn_to(&instance, state, now, format!("is wanted again: {why}"));
        }
        for _ in found..lacking {
            let waits = self.backoff.get(&service.name).is_some_and(|backoff| now < backoff.until);
            let placed = match waits {
                true => Err("its last instances did not come up; waiting before the next".into()),
                false => self.place(service, (why, site), now, placing),
            };
            if let Err(lacks) = placed {
                self.standing.entry(service.name.clone()).or_default().lacks = Some(lacks);
                return;
            }
        }
    }

    fn place(
        &mut self,
        service: &Service,
        (why, site): (&str, Option<&str>),
        now: Nanos,
        placing: &mut dyn Placing,
    ) -> Result<(), String> {
        let nodes = self.fleet.nodes.iter().map(|node| node.name.clone());
        let nodes = nodes.filter(|node| self.is_at(node, site));
        let open = nodes.filter(|node| !self.drained.contains(node) && !self.is_stale(node, now));
        let taken = |room: &Room| room.residents.iter().any(|(_, name, _)| *name == service.name);
        let rooms = open.flat_map(|node| self.rooms_of(&node));
        let rooms: Vec<Room> = rooms.filter(|room| service.batch.is_none() || !taken(room)).collect();
        let (place, reason) = placing.place(service, &rooms)?;
        // The library proposes; what does not fit is never reserved, whoever proposed it.
        let there = rooms.iter().find(|room| room.place == place);
        let Some(budget) =
            there.map(|room| room.need(service)).filter(|need| there.is_some_and(|room| room.holds(need)))
        else {
            return Err(format!("{place} was proposed and has no room"));
        };
        let port = match service.ready {
            ReadyWhen::Runs => 0,
            _ => self.free_port(&place.node).ok_or_else(|| format!("{} has no port left", place.node))?,
        };
        let id = InstanceId(self.next_instance);
        self.next_instance += 1;
        let instance = Instance {
            id,
            service: service.name.clone(),
            place,
            port,
            budget,
            held: budget,
            state: State::Placing,
            since: now,
            decision: super::DecisionId(0),
        };
        self.live.insert(id, Live::default());
        self.turn_to(&instance, State::Placing, now, format!("{why}; {}: {reason}", instance.place));
        Ok(())
    }

    /// A port that no instance of the node has, the ones used longest ago first.
    fn free_port(&self, node: &str) -> Option<u16> {
        let [first, last] = self.fleet.nodes.iter().find(|known| known.name == node)?.ports;
        let count = u64::from(last - first) + 1;
        let taken = |port| self.instances.values().any(|i| i.place.node == node && i.port == port);
        let nth = |n: u64| first + u16::try_from((self.next_instance + n) % count).unwrap_or(0);
        (0..count).map(nth).find(|port| !taken(*port))
    }

    /// Those that do not answer yet first, then those with the least to do, then the newest. So many of those that answered are
    /// parked that with those that sleep already there are `parked`.
    fn fewer(
        &mut self,
        service: &Service,
        mut from: Vec<InstanceId>,
        excess: usize,
        parked: u32,
        why: &str,
        now: Nanos,
    ) {
        let rank = |id: &InstanceId| {
            let instance = self.instances.get(id);
            let busy = instance.and_then(|i| self.backend(i)).map_or(0, |backend| backend.outstanding);
            (instance.is_some_and(|i| i.state == State::Ready), busy, std::cmp::Reverse(*id))
        };
        from.sort_by_key(rank);
        let asleep = |i: &&Instance| matches!(i.state, State::Parked | State::Draining(Then::Park));
        let mut lacking = (parked as usize).saturating_sub(self.of_service(service).filter(asleep).count());
        for id in from.into_iter().take(excess) {
            let Some(instance) = self.instances.get(&id).cloned() else { continue };
            let stays = !self.drained.contains(&instance.place.node) && instance.state == State::Ready;
            let then = if stays && lacking > 0 { Then::Park } else { Then::Stop };
            lacking -= usize::from(then == Then::Park);
            let state = self.leaving(&instance, then);
            self.turn_to(&instance, state, now, why.to_owned());
        }
    }

    /// Of those that sleep no more than `parked` are kept, the oldest.
    fn end_asleep(&mut self, service: &Service, parked: u32, now: Nanos) {
        let asleep = self.of_service(service).filter(|i| i.state == State::Parked).cloned();
        let surplus: Vec<_> = asleep.skip(parked as usize).collect();
        for instance in surplus {
            self.turn_to(&instance, State::Stopping, now, "more sleep than are to be kept".into());
        }
    }

    /// Whoever may have requests finishes them first.
    fn leaving(&self, instance: &Instance, then: Then) -> State {
        let busy = self.backend(instance).is_some_and(|backend| backend.outstanding > 0);
        let asked = instance.state == State::Ready || busy;
        if asked { State::Draining(then) } else { State::Stopping }
    }

    /// Instances of services that are configured no more, and those that sleep on a node that is being drained.
    fn end_unwanted(&mut self, now: Nanos) {
        let unwanted = |i: &&Instance| {
            let known = self.fleet.service(&i.service).is_some();
            !known && i.state.serves() || i.state == State::Parked && self.is_unwanted_asleep(i, known)
        };
        let all: Vec<_> = self.instances.values().filter(unwanted).cloned().collect();
        for instance in all {
            let state = self.leaving(&instance, Then::Stop);
            self.turn_to(&instance, state, now, "is configured no more, or not here".into());
        }
    }

    fn is_unwanted_asleep(&self, instance: &Instance, known: bool) -> bool {
        !known || self.drained.contains(&instance.place.node)
    }
}

/// What `new` is more than `old`.
fn grown(new: SmShare, old: SmShare) -> SmShare {
    SmShare::permille(new.as_permille().saturating_sub(old.as_permille()))
}
