//! The default: shares first, instances lazily, both by work, queue and forecast.
//!
//! ```text
//! speed an instance needs = (what arrives / utilisation + what waits / time to clear it) / instances
//! share   = the least that has it, and at which the batch at hand is no slower than a full one at the profiled share;
//!           raised at once, lowered to the most of the last seconds
//! out     = when the profiled share no longer suffices in 20 of 40 s; or, since a start takes long, at once when what
//!           waits would take longer than that even at the largest share, or when the forecast says so
//! in      = when one instance fewer would have sufficed in 30 of 40 s and the forecast does not want it back
//! to zero = after idle seconds, unless work is forecast within the time to come back; parked where that can be
//! back    = with the first request, or ahead of it by forecast
//! ```
//!
//! Why the profiled share decides on instances and not the largest: beyond it a share buys less and less speed
//! (papers.md 1.3), so that two instances there do more than one with both shares.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use weir_protocol::units::{Nanos, SmShare};

use super::demand::{Demand, Need};
use super::forecast::Forecaster;
use super::horizontal::ceil;
use super::lately::Lately;
use super::{Policy, Rules, Scaler, Seen, Service, Wish};

pub(super) fn boxed(rules: &Rules) -> Box<dyn Scaler> {
    Box::new(Weir::new(rules, true))
}

pub(super) fn by_count(rules: &Rules) -> Box<dyn Scaler> {
    Box::new(Weir::new(rules, false))
}

/// By what is at hand alone, for whoever wants to know what forecasts are worth.
pub(super) fn unforeseen(rules: &Rules) -> Box<dyn Scaler> {
    Box::new(Weir { forecaster: None, ..Weir::new(rules, true) })
}

#[derive(Serialize, Deserialize)]
struct Weir {
    rules: Rules,
    demand: Demand,
    forecaster: Option<Forecaster>,
    above: Lately,
    below: Lately,
    shares: VecDeque<SmShare>,
    idle_since: Option<Nanos>,
}

impl Weir {
    fn new(rules: &Rules, by_work: bool) -> Self {
        Self {
            demand: Demand::new(rules, by_work),
            forecaster: Some(Forecaster::new(rules)),
            above: Lately::new(rules.history_s),
            below: Lately::new(rules.history_s),
            shares: VecDeque::new(),
            idle_since: None,
            rules: rules.clone(),
        }
    }

    /// Speed that all instances together need, in GPUs.
    fn speed(&self, service: &Service, need: &Need) -> f64 {
        // The next look is a second away: a queue cannot be cleared in less.
        let clear_s = (seconds(service.patience) * self.rules.queue_patience).max(1.0);
        // A rush is believed at once, and forgotten as slowly as the average forgets.
        need.arriving.max(need.rush) / self.rules.utilisation + need.queued_s / clear_s
    }

    /// The share of each instance.
    fn share(&mut self, service: &Service, seen: &Seen, need: &Need, speed: f64) -> SmShare {
        let ready = f64::from(seen.ready.max(1));
        let profiled = service.capacity(service.request);
        let full = service.stretch(service.batch);
        // Requests at hand at the same time if each took its own time (Little's law), and what chance adds.
        let together = need.arriving * f64::from(service.batch) / full / profiled;
        let batch = ceil((together + 2.0 * together.sqrt() + 1.0) / ready);
        let unhurried = profiled * service.stretch(batch) / full;
        let needed = service.speed.least_share((speed / ready).max(unhurried));
        // Who may wait for longer than until the next look needs no more than the profiled share before a queue shows.
        let calm = seen.queued == 0 && seconds(service.patience) >= 1.0;
        let needed = if calm { needed.min(service.request) } else { needed };
        if self.shares.len() >= self.rules.lower_s.max(1) {
            self.shares.pop_front();
        }
        self.shares.push_back(service.share_within(needed).min(self.most_share(service)));
        let most = self.shares.iter().copied().max().unwrap_or(service.request);
        if seen.ready > 0 { most.min(seen.room).max(service.shares[0]) } else { most }
    }

    /// Instances, and why.
    fn instances(&mut self, service: &Service, seen: &Seen, need: &Need) -> (u32, &'static str) {
        let serving = seen.serving();
        let idle = self.idle_for(seen);
        let wait =
            if seen.parked > 0 { service.unpark.unwrap_or(service.cold_start) } else { service.cold_start };
        let forecast = self.forecaster.as_ref().and_then(|forecaster| forecaster.until(wait));
        let coming = forecast.map_or(0.0, |forecast| forecast.upper);
        let capacity = service.capacity(service.request);
        let ahead = ceil(coming / self.rules.utilisation / capacity);
        if serving == 0 {
            return match () {
                () if !seen.is_idle() => {
                    (1.max(ceil(need.arriving / self.rules.utilisation / capacity)), "the first request")
                }
                () if coming >= once_in(wait, service) => (1.max(ahead), "forecast"),
                () => (0, "nobody asks"),
            };
        }
        // Instances come too late for what waits now: they are for what arrives, and what will still wait then.
        // What has gathered during the very first start is for shares to clear.
        let waiting_s = if seen.ready == 0 { 0.0 } else { need.queued_s };
        let lasting = need.arriving + waiting_s / seconds(service.cold_start).max(1.0);
        // A large request fills one place of a batch for long, and not many of them: more places than requests serve nobody.
        let filled = self.filled(service, seen);
        let enough = ceil(lasting / self.rules.utilisation / capacity).min(filled);
        let with_room = ceil(lasting / self.rules.utilisation / capacity * self.rules.in_room).min(filled);
        let above = self.above.push(enough.max(ahead) > serving);
        let below = self.below.push(with_room.max(ahead) < serving);
        let exhausted =
            enough > serving && lasting > f64::from(serving) * service.capacity(self.most_share(service));
        let late = seen.starting == 0 && filled > serving && self.is_late(service, seen, need, wait);
        match () {
            () if late && seen.parked > 0 => (serving + 1, "the queue outlasts a return from the host"),
            () if late => (enough.max(serving + 1), "the queue outlasts a start"),
            () if exhausted => (enough, "no share suffices"),
            () if above >= self.rules.out_s => (serving + 1, "too much for long enough"),
            () if serving == 1 && self.may_sleep(service, idle, coming) => (0, "nobody asks"),
            () if serving > 1 && below >= self.rules.in_s => (serving - 1, "too little for long enough"),
            () => (serving, "shares suffice"),
        }
    }

    /// Instances whose batches the requests at hand fill: with so many each keeps its own time.
    fn filled(&self, service: &Service, seen: &Seen) -> u32 {
        let at_hand = f64::from(u32::try_from(seen.running + seen.queued).unwrap_or(u32::MAX));
        ceil(at_hand / f64::from(service.batch.max(1)) / self.rules.utilisation).max(1)
    }

    /// Whether what waits would take longer than it takes to bring another instance, and than it may.
    fn is_late(&self, service: &Service, seen: &Seen, need: &Need, wait: Nanos) -> bool {
        let most = self.most_share(service).min(seen.room.max(service.request));
        let together = f64::from(seen.ready.max(1)) * service.capacity(most);
        need.queued_s > together * seconds(wait).max(seconds(service.patience) * self.rules.queue_patience)
    }

    /// The largest share worth having.
    fn most_share(&self, service: &Service) -> SmShare {
        service.share_within(service.speed.worthwhile(service.request, self.rules.worthwhile))
    }

    /// How long there has been nothing to do.
    fn idle_for(&mut self, seen: &Seen) -> Nanos {
        if !seen.is_idle() {
            self.idle_since = None;
            return Nanos(0);
        }
        seen.now.since(*self.idle_since.get_or_insert(seen.now))
    }

    /// Whether the last instance may go.
    fn may_sleep(&self, service: &Service, idle: Nanos, coming: f64) -> bool {
        let after = if service.unpark.is_some() { self.rules.idle_park_s } else { self.rules.idle_s };
        idle >= Nanos::from_secs(after) && coming < once_in(idle, service)
    }
}

impl Policy for Weir {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn decide(&mut self, service: &Service, seen: &Seen) -> Wish {
        let need = self.demand.see(service, seen);
        self.forecaster.iter_mut().for_each(|forecaster| forecaster.see(seen.now, need.arrived));
        let speed = self.speed(service, &need);
        let (wanted, why) = self.instances(service, seen, &need);
        let instances = service.within(wanted);
        if instances != seen.serving() {
            self.above.clear();
            self.below.clear();
        }
        let forgotten = self
            .idle_since
            .is_some_and(|since| seen.now.since(since) >= Nanos::from_secs(self.rules.forget_parked_s));
        let keep = if service.unpark.is_some() && !forgotten { self.rules.keep_parked } else { 0 };
        Wish { instances, parked: keep, share: self.share(service, seen, &need, speed), why }
    }
}

/// A mean request once in this time, in GPUs.
fn once_in(time: Nanos, service: &Service) -> f64 {
    super::gpus(service.mean_work, time)
}

#[allow(clippy::cast_precision_loss, reason = "times of this kind are far below 2^53 ns")]
fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}
