//! How time passes on a device: from event to event, each nanosecond booked once.

use super::{Arrival, Device, StreamId, lookup};
use crate::Nanos;
use crate::concurrency::{FULL, Resident, set_rates};
use crate::run_list::Turn;
use crate::stream::Stream;

impl Device {
    /// Lets time pass until `to`.
    pub fn advance(&mut self, to: Nanos) {
        while let Some(next) = self.next_event().filter(|next| *next <= to) {
            self.pass(next);
            self.step();
        }
        self.pass(to);
        self.take_in(to.saturating_add(1));
    }

    /// The same, but no further than until something is done or stamped: says until when.
    pub fn advance_until_done(&mut self, to: Nanos) -> Nanos {
        while let Some(next) = self.next_event().filter(|next| *next <= to) {
            self.pass(next);
            self.step();
            if !self.completions.is_empty() {
                self.advance(next); // all else that happens at that moment
                return next;
            }
        }
        self.pass(to);
        self.take_in(to.saturating_add(1));
        to
    }

    /// When something last happened.
    pub fn last_event(&self) -> Nanos {
        self.stepped_at
    }

    /// When something happens next if nothing is submitted.
    pub fn next_event(&mut self) -> Option<Nanos> {
        let next = match self.next {
            Some(known) => known,
            None => self.look_ahead(),
        };
        (next != Nanos::MAX).then_some(next)
    }

    fn look_ahead(&mut self) -> Nanos {
        self.refresh();
        let or_never = |at: Option<Nanos>| at.unwrap_or(Nanos::MAX);
        let copies = self.engines.iter().map(|engine| or_never(engine.next())).fold(Nanos::MAX, Nanos::min);
        let births = or_never(self.births.peek().map(|step| step.0.0));
        let commands = or_never(self.next_arrival()).min(births).min(copies);
        let next = commands.min(self.next_end).min(or_never(self.turn.ends()));
        self.next = Some(next);
        next
    }

    /// When a command arrives that makes a difference. Behind another one of its stream it makes none until that one is done:
    /// it is taken in then. Where several contexts share the time each arrival counts, as books are rounded there.
    fn next_arrival(&self) -> Option<Nanos> {
        self.arrivals.iter().find(|arrival| self.counts(arrival)).map(|arrival| arrival.at)
    }

    fn counts(&self, arrival: &Arrival) -> bool {
        self.shares.len() > 1 || lookup(&self.streams, arrival.stream).is_none_or(Stream::is_empty)
    }

    /// A command is on its way, behind all others.
    pub(crate) fn expect(&mut self, arrival: Arrival) {
        if let Some(next) = self.next.filter(|_| self.counts(&arrival)) {
            self.next = Some(next.min(arrival.at));
        }
        self.arrivals.push_back(arrival);
    }

    /// Takes in what has arrived before `now` behind another command of its stream.
    pub(crate) fn take_in(&mut self, now: Nanos) {
        while self.arrivals.front().is_some_and(|arrival| arrival.at < now)
            && let Some(arrival) = self.arrivals.pop_front()
        {
            self.stepped_at = self.stepped_at.max(arrival.at);
            if let Some(stream) = self.stream_mut(arrival.stream) {
                stream.arriving -= 1;
                stream.queue.push_back(arrival.queued);
            }
        }
    }

    /// Time passes without an event in between.
    fn pass(&mut self, to: Nanos) {
        let passed = to.saturating_sub(self.now);
        if passed == 0 {
            return;
        }
        self.refresh();
        self.book(passed);
        for kernel in self.resident.iter_mut().filter(|kernel| !kernel.spins) {
            kernel.left = kernel.left.saturating_sub(passed * kernel.rate);
        }
        self.now = to;
    }

    /// Books `passed` ns; each goes to one account, so the sums are exact.
    fn book(&mut self, passed: Nanos) {
        if self.shares.is_empty() {
            let switching = matches!(self.turn, Turn::Switching { .. });
            *(if switching { &mut self.books.switch } else { &mut self.books.idle }) += passed;
            return;
        }
        self.books.busy += passed;
        if let [Share { context, .. }] = self.shares[..] {
            if let Some(owner) = self.contexts[context].as_mut() {
                owner.true_use += passed;
                owner.alone += passed; // it slows itself down at most
            }
            return;
        }
        let mut weights: u64 = self.shares.iter().map(|share| share.weight).sum();
        let mut rest = passed;
        for &Share { context, weight, rate } in &self.shares {
            // The last one takes what rounding left over.
            let part = part(rest, weight, weights);
            weights -= weight;
            rest -= part;
            if let Some(owner) = self.contexts[context].as_mut() {
                owner.true_use += part;
                owner.alone += passed * rate / FULL;
            }
        }
    }

    /// Sets rates, shares and the next end after residents came or went.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        set_rates(&mut self.resident, u64::from(self.spec.knee_permille));
        self.shares.clear();
        for kernel in self.resident.iter().filter(|kernel| !kernel.is_mark) {
            let rate = if kernel.spins { FULL } else { kernel.rate };
            match self.shares.iter_mut().find(|share| share.context == kernel.context) {
                Some(share) => {
                    share.weight += kernel.weight();
                    share.rate = share.rate.max(rate);
                }
                None => {
                    self.shares.push(Share { context: kernel.context, weight: kernel.weight(), rate });
                }
            }
        }
        let first = self.resident.iter().filter_map(Resident::ends_in).min();
        self.next_end = first.map_or(Nanos::MAX, |first| self.now + first);
    }

    /// Earliest moment at which a stream can be complete up to `sequence`: when to look again.
    pub fn earliest(&self, id: StreamId, sequence: u64) -> Nanos {
        let Some(stream) = lookup(&self.streams, id) else { return self.now };
        let head = self.resident.iter().find(|kernel| kernel.stream == id);
        let before = stream.solo_before(sequence);
        let first = stream.queue.front().map_or(0, |queued| queued.solo_sum.saturating_sub(stream.solo_done));
        let progress = head.map_or(0, |kernel| first.saturating_sub(kernel.left / FULL));
        self.now + before.saturating_sub(progress)
    }
}

/// A context's part of the time, while nobody comes or goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub context: usize,
    pub weight: u64,
    pub rate: u64, // of its fastest kernel
}

/// So much of `whole` as `weight` is of `weights`, rounded down.
fn part(whole: Nanos, weight: u64, weights: u64) -> Nanos {
    match whole.checked_mul(weight) {
        Some(product) => product / weights.max(1),
        None => u64::try_from(u128::from(whole) * u128::from(weight) / u128::from(weights.max(1)))
            .unwrap_or(whole),
    }
}
