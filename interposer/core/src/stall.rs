//! Where a process's wall time goes on one GPU: each moment since its first context counts for exactly one [`Stall`].
//!
//! What is known of a moment comes late and out of order: a mark says when work ended long after it did, a wait at the gate
//! is known at once. So each kind of time is kept as spans of the process's clock until the *horizon*, the moment up to
//! which nothing more can come, has passed them. Then the time up to the horizon is dealt out by priority: what no span
//! covers is the host's. The sum is wall time by construction.
//!
//! ```text
//!   compute        ####      ###
//!   copies           ####                     spans, as they were heard of
//!   gate         ..............
//!                [gate][compute][co][g][c][host]   dealt out up to the horizon
//! ```

use std::sync::atomic::Ordering;

use weir_protocol::pages::{Stall, Stalls as Page};
use weir_protocol::units::Nanos;

/// Spans kept apart, of each kind. Beyond that the oldest two become one.
const SPANS: usize = 256;

/// Kinds that come as spans; the host's time is the rest.
const KINDS: usize = Stall::Host as usize;

/// A stretch of time, in nanoseconds of the process's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// What it went to.
    pub stall: Stall,
    /// When it began ...
    pub from: f64,
    /// ... and ended.
    pub to: f64,
}

/// Disjoint, ascending.
#[derive(Clone, Debug, Default)]
struct Spans(Vec<(u64, u64)>);

/// What a process knows of its time on one GPU.
#[derive(Debug, Default)]
pub struct Stalls {
    kinds: [Spans; KINDS],
    settled: u64, // 0: no context yet
    waiting: u32,
    waiting_since: u64,
    spare: [Spans; 3], // room, so that dealing out never allocates
}

impl Stalls {
    /// The first context is there: from now on time counts.
    pub fn begin(&mut self, now: Nanos) {
        if self.settled == 0 {
            self.settled = now.0;
            self.kinds.iter_mut().chain(&mut self.spare).for_each(|spans| spans.0.reserve(KINDS * SPANS));
        }
    }

    /// Something took this time, or may have taken it.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range saturates"
    )]
    pub fn add(&mut self, span: Span) {
        if let Some(spans) = self.kinds.get_mut(span.stall as usize) {
            spans.add((span.from as u64).max(self.settled), span.to as u64);
        }
    }

    /// A thread begins to wait at the gate.
    pub fn wait(&mut self, now: Nanos) {
        if self.waiting == 0 {
            self.waiting_since = now.0;
        }
        self.waiting += 1;
    }

    /// A thread waits no longer.
    pub fn waited(&mut self, now: Nanos) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            self.kinds[Stall::Gate as usize].add(self.waiting_since.max(self.settled), now.0);
        }
    }

    /// Deals out the time up to `horizon`.
    pub fn settle(&mut self, horizon: Nanos, page: &Page) {
        if self.settled == 0 || horizon.0 <= self.settled {
            return;
        }
        if self.waiting > 0 && self.waiting_since < horizon.0 {
            self.kinds[Stall::Gate as usize].add(self.waiting_since.max(self.settled), horizon.0);
        }
        let [left, rest, over] = &mut self.spare;
        left.0.clear();
        left.0.push((self.settled, horizon.0));
        for (kind, spans) in self.kinds.iter_mut().enumerate() {
            spans.take_before(horizon.0, over);
            left.without(over, rest);
            count(page, kind, left.length() - rest.length());
            std::mem::swap(left, rest);
        }
        count(page, Stall::Host as usize, left.length());
        self.settled = horizon.0;
    }

    /// Up to when time has been dealt out.
    pub fn settled(&self) -> Nanos {
        Nanos(self.settled)
    }
}

fn count(page: &Page, kind: usize, ns: u64) {
    if let Some(word) = page.parts_ns.get(kind).filter(|_| ns > 0) {
        word.fetch_add(ns, Ordering::Relaxed); // for people to read
    }
}

impl Spans {
    fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (mut from, mut to) = (from, to);
        let first = self.0.partition_point(|(_, end)| *end < from);
        let mut last = first;
        while let Some(&(start, end)) = self.0.get(last)
            && start <= to
        {
            (from, to) = (from.min(start), to.max(end));
            last += 1;
        }
        self.0.splice(first..last, [(from, to)]);
        if self.0.len() > SPANS {
            self.0[1].0 = self.0[0].0;
            self.0.remove(0);
        }
    }

    /// Takes out what lies before `end`, and cuts what goes beyond it.
    fn take_before(&mut self, end: u64, taken: &mut Self) {
        let whole = self.0.partition_point(|(_, to)| *to <= end);
        taken.0.clear();
        taken.0.extend(self.0.drain(..whole));
        if let Some(first) = self.0.first_mut().filter(|first| first.0 < end) {
            taken.0.push((first.0, end));
            first.0 = end;
        }
    }

    fn length(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// What `others` do not cover of it.
    fn without(&self, others: &Self, left: &mut Self) {
        left.0.clear();
        for &(from, to) in &self.0 {
            let mut at = from;
            let first = others.0.partition_point(|(_, end)| *end <= from);
            for &(start, end) in others.0.iter().skip(first).take_while(|(start, _)| *start < to) {
                if start > at {
                    left.0.push((at, start));
                }
                at = at.max(end);
            }
            if at < to {
                left.0.push((at, to));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page() -> Box<Page> {
        Box::new(zerocopy::FromZeros::new_zeroed())
    }

    fn parts(page: &Page) -> [u64; 6] {
        std::array::from_fn(|kind| page.parts_ns[kind].load(Ordering::Relaxed))
    }

    fn begun() -> Stalls {
        let mut stalls = Stalls::default();
        stalls.begin(Nanos(1_000));
        stalls
    }

    fn span(stall: Stall, from: u64, to: u64) -> Span {
        Span { stall, from: from as f64, to: to as f64 }
    }

    #[test]
    fn where_two_things_go_on_the_first_one_counts_and_the_rest_is_the_hosts() {
        let (mut stalls, page) = (begun(), page());
        stalls.add(span(Stall::Copies, 1_400, 1_700));
        stalls.add(span(Stall::Compute, 1_200, 1_500));
        stalls.add(span(Stall::Gate, 1_000, 1_800));
        stalls.settle(Nanos(2_000), &page);
        assert_eq!(parts(&page), [300, 0, 200, 0, 300, 200]);
    }

    #[test]
    fn what_goes_beyond_the_horizon_is_dealt_out_later() {
        let (mut stalls, page) = (begun(), page());
        stalls.add(span(Stall::Compute, 1_500, 2_500));
        stalls.settle(Nanos(2_000), &page);
        assert_eq!(parts(&page), [500, 0, 0, 0, 0, 500]);
        stalls.settle(Nanos(1_700), &page);
        stalls.settle(Nanos(3_000), &page);
        assert_eq!(parts(&page), [1_000, 0, 0, 0, 0, 1_000]);
    }

    #[test]
    fn a_wait_that_has_not_ended_counts_so_far_and_two_waits_at_once_count_once() {
        let (mut stalls, page) = (begun(), page());
        stalls.wait(Nanos(1_100));
        stalls.wait(Nanos(1_200));
        stalls.settle(Nanos(1_500), &page);
        assert_eq!(parts(&page)[4], 400);
        stalls.waited(Nanos(1_600));
        stalls.waited(Nanos(1_900));
        stalls.settle(Nanos(2_000), &page);
        assert_eq!(parts(&page)[4..], [800, 200]);
    }

    #[test]
    fn before_the_first_context_nothing_counts() {
        let (mut stalls, page) = (Stalls::default(), page());
        stalls.settle(Nanos(5_000), &page);
        assert_eq!(parts(&page), [0; 6]);
        stalls.begin(Nanos(5_000));
        stalls.begin(Nanos(6_000));
        stalls.settle(Nanos(7_000), &page);
        assert_eq!(parts(&page)[5], 2_000);
    }

    proptest! {
        #[test]
        fn the_parts_are_wall_time_and_each_moment_is_its_first_kinds(
            spans in prop::collection::vec((0usize..5, 0usize..900, 1usize..200), 0..60),
            cuts in prop::collection::vec(0u64..1_200, 0..6),
        ) {
            let page = page();
            let (mut stalls, mut known) = (Stalls::default(), vec![5usize; 1_200]);
            stalls.begin(Nanos(1)); // moment n of `known` is nanosecond n + 1
            for &(kind, from, length) in &spans {
                stalls.add(span(Stall::ALL[kind], from as u64 + 1, (from + length) as u64 + 1));
                for moment in &mut known[from..from + length] {
                    *moment = kind.min(*moment);
                }
            }
            // Whatever the horizons on the way, as long as nothing comes behind them.
            let mut cuts = cuts;
            cuts.sort_unstable();
            cuts.push(1_200);
            cuts.iter().for_each(|cut| stalls.settle(Nanos(cut + 1), &page));
            let wanted: [u64; 6] = std::array::from_fn(|kind| known.iter().filter(|k| **k == kind).count() as u64);
            prop_assert_eq!(parts(&page), wanted);
        }
    }
}
