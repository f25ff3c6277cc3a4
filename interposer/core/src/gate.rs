//! The gate: whether a launch may go to the driver now, or how long to wait before asking again.
//!
//! Asked only when a thread's [`Purse`](crate::purse::Purse) is empty or the grant has changed. Two things can
//! hold a launch back: the tenant's bucket (its rate) and the work it has queued already (its in-flight cap).
//! Source: design 5; the fallback of a silent manager: design 7.

mod copies;
mod standstill;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weir_protocol::pages::{BucketPage, Gate as GateWord, Grant, GrantPage, ProcessSlot, Rate, UsagePage};
use weir_protocol::units::{Nanos, Tokens};

use self::standstill::{Patient, Watch};

/// A manager whose epoch stands still this long is gone.
pub const SILENCE: Nanos = Nanos::from_secs(1);

/// Bounds of one sleep at the gate: not so short that waiting burns the processor, not so long that a missed
/// wake-up hurts.
const SLEEP: (Nanos, Nanos) = (Nanos::from_micros(50), Nanos::from_millis(20));

/// What a closed gate lets through at once: so much accrues before a launch goes, and no more is saved up. Less than a driver's
/// switch is long would be in vain.
const CLOSED_TURN: Tokens = Tokens(100_000);

/// The pages of one tenant on one GPU as the gate needs them.
#[derive(Clone, Copy)]
pub struct Pages<'a> {
    /// What the manager grants.
    pub grant: &'a GrantPage,
    /// The tenant's bucket.
    pub bucket: &'a BucketPage,
    /// Everybody's usage.
    pub usage: &'a UsagePage,
    /// This process's slot on the usage page.
    pub slot: &'a ProcessSlot,
}

/// What the gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go; the tokens are taken, the grant is of this generation.
    Admitted {
        /// The grant under which the launch was admitted.
        generation: u32,
        /// Tokens taken, at least the launch's price.
        tokens: Tokens,
    },
    /// Sleep, at most so long, unless the grant changes first.
    Wait(Wait),
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The grant that was read: sleep on the grant page's futex word while it shows this.
    pub generation: u32,
    /// Longest sleep before asking again.
    pub at_most: Nanos,
    /// What holds the launch back.
    pub cause: Cause,
}

/// What holds a launch back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The bucket is empty.
    Tokens,
    /// Enough work is queued on the GPU.
    InFlight,
    /// It is another tenant's turn.
    Turn,
    /// More bytes were copied than the budget of bandwidth allows.
    Copies,
}

/// What a launch asks of the gate.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The launch's price, less what the thread's purse still holds.
    pub price: Tokens,
    /// Tokens wanted, for this launch and the next ones.
    pub tokens: Tokens,
    /// How long to hold out.
    pub patience: Patience,
    /// The gate is closed: a tenant has work to which this one gives way.
    pub closed: bool,
}

/// At which balance a launch goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It has not waited yet: any balance above zero will do, else a turn.
    Fresh,
    /// It has waited: at a balance worth a turn.
    Turn,
    /// The grant changed while it waited: at any balance above zero, so that the change takes effect at once.
    None,
}

/// The gate of one process on one GPU: what it must remember between two questions.
#[derive(Debug, Default)]
pub struct Gate {
    epoch: AtomicU64,
    epoch_moved_at: AtomicU64,
    stale: AtomicU32,
    own: Watch,
    siblings: Watch,
}

impl Gate {
    /// Largest slice that one thread may draw: a quarter of the capacity spread over the threads, and an eighth
    /// of the in-flight cap, so that slices neither hoard the bucket nor hide queued work.
    pub fn slice_ceiling(grant: &Grant, threads: u32) -> i64 {
        let fair = grant.capacity.0 / (4 * i64::from(threads.max(1)));
        match i64::try_from(grant.in_flight_cap.0) {
            Ok(cap) if cap > 0 => fair.min(cap / 8),
            _ => fair,
        }
    }

    /// Decides about one launch.
    pub fn ask(&self, pages: Pages<'_>, now: Nanos, request: Request) -> Verdict {
        let grant = pages.grant.read();
        let rate = self.rate(&grant, pages.grant.epoch(), now);
        let closed = request.closed || grant.gate == GateWord::Closed;
        let (rate, capacity) = match closed {
            true => (rate.min(grant.fallback_rate), grant.capacity.min(CLOSED_TURN)),
            false => (rate, grant.capacity),
        };
        if let Some(wait) = self.in_flight_wait(pages, &grant) {
            return Verdict::Wait(wait);
        }
        let admitted = |tokens| Verdict::Admitted { generation: grant.generation, tokens };
        if rate == Rate::FULL {
            return admitted(request.tokens); // the whole GPU: nothing to meter against
        }
        pages.bucket.refill(now, rate, capacity);
        let balance = pages.bucket.balance().0;
        let turn = grant.resume_at.0.min(capacity.0).max(1);
        let enough = if request.patience == Patience::Turn { turn } else { 1 };
        let taken = if balance >= enough { pages.bucket.take(request.price, request.tokens) } else { None };
        if let Some(tokens) = taken {
            return admitted(tokens);
        }
        let goal = if request.patience == Patience::None { 1 } else { turn };
        let missing = u64::try_from(goal.saturating_sub(balance)).unwrap_or(1);
        let at_most = rate.time_for(missing).clamp(SLEEP.0, SLEEP.1);
        Verdict::Wait(Wait { generation: grant.generation, at_most, cause: Cause::Tokens })
    }

    /// The gate closes now: what was saved up for better times is not spent.
    pub fn close(&self, pages: Pages<'_>) {
        let saved = pages.bucket.balance().0;
        if saved > 0 {
            pages.bucket.charge(Tokens(saved));
        }
    }

    /// Whether more than three quarters of what the tenant may save up are in its bucket: it has had less than it may.
    pub fn has_saved(&self, pages: Pages<'_>, grant: &Grant, now: Nanos) -> bool {
        let rate = self.rate(grant, pages.grant.epoch(), now);
        pages.bucket.refill(now, rate, grant.capacity);
        rate != Rate::FULL && pages.bucket.balance().0 > grant.capacity.0 / 4 * 3
    }

    /// How long the tenant is in debt here; `None`: it is not.
    pub fn debt(&self, pages: Pages<'_>, now: Nanos) -> Option<Nanos> {
        let grant = pages.grant.read();
        let rate = self.rate(&grant, pages.grant.epoch(), now);
        if rate == Rate::FULL {
            return None;
        }
        pages.bucket.refill(now, rate, grant.capacity);
        let missing = 1u64.checked_add_signed(pages.bucket.balance().0.saturating_neg())?;
        (missing > 0).then(|| rate.time_for(missing))
    }

    /// Whether a launch that waits should pass as debt, because work is queued and nothing has moved for
    /// max(5 ms, 3 x what is predicted to be outstanding): a kernel may be spinning for what the gate holds back
    /// (gpu-truths, rule 8). At most one per standstill.
    /// Only time since the launch `arrived` counts: before, nobody looked.
    /// `elsewhere`: the tenant's work on other GPUs, submitted and completed.
    pub fn stands_still(&self, pages: Pages<'_>, elsewhere: (u64, u64), arrived: Nanos, now: Nanos) -> bool {
        let own = self.own.stands(work(pages.slot), Patient::Always, arrived, now);
        // A kernel of another process may spin for this launch just as well (collectives, IPC). But that process may also
        // be blocked, stopped or idle, so that nobody sees its work complete: each time it matters less.
        let others = pages.usage.slots.iter().filter(|slot| !std::ptr::eq(*slot, pages.slot)).map(work);
        let sum = others.fold(elsewhere, |(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)));
        let siblings = self.siblings.stands(sum, Patient::EverMore, arrived, now);
        own || siblings
    }

    /// Whether the manager was silent when the gate last looked.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed) != 0
    }

    /// The rate that holds: the granted one, or the fallback if the gate is closed or the manager is gone.
    fn rate(&self, grant: &Grant, epoch: u64, now: Nanos) -> Rate {
        if self.manager_is_gone(epoch, now) || grant.gate == GateWord::Closed {
            return grant.fallback_rate.min(grant.rate);
        }
        grant.rate
    }

    fn manager_is_gone(&self, epoch: u64, now: Nanos) -> bool {
        // The stamp before the epoch, and read behind it (Release, Acquire): whoever finds the epoch known finds the
        // stamp that belongs to it, not one from before an idle hour.
        let known = self.epoch.load(Ordering::Acquire) == epoch;
        let moved_at = Nanos(self.epoch_moved_at.load(Ordering::Relaxed));
        let first = moved_at == Nanos(0); // a page that is younger than its first tick is not stale
        if !known || first {
            self.epoch_moved_at.store(now.0, Ordering::Relaxed);
            self.epoch.store(epoch, Ordering::Release);
            self.stale.store(0, Ordering::Relaxed);
            return false;
        }
        let gone = now.since(moved_at) > SILENCE;
        self.stale.store(u32::from(gone), Ordering::Relaxed);
        gone
    }

    fn in_flight_wait(&self, pages: Pages<'_>, grant: &Grant) -> Option<Wait> {
        if grant.in_flight_cap == Nanos(0) {
            return None;
        }
        // Of this process alone: what another one has queued it must see complete itself, and it may be blocked in a
        // call, or stopped.
        let queued = in_flight(pages.slot).0;
        // An empty queue always takes one more: never less than one unit.
        let over = queued.checked_sub(grant.in_flight_cap.0).filter(|_| queued > 0)?;
        let at_most = Nanos(over).clamp(SLEEP.0, Nanos::from_millis(1));
        Some(Wait { generation: grant.generation, at_most, cause: Cause::InFlight })
    }
}

/// Predicted work of all of a tenant's processes on one GPU: all that was queued, and what of it is known to be done.
pub fn work_of_all(usage: &UsagePage) -> (u64, u64) {
    usage.slots.iter().map(work).fold((0, 0), |(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)))
}

/// Predicted work of one process: all that was queued, and what of it is known to be done.
fn work(slot: &ProcessSlot) -> (u64, u64) {
    let completed = slot.completed_ns.load(Ordering::Relaxed); // first, as in `in_flight`
    (slot.submitted_ns.load(Ordering::Relaxed), completed)
}

/// Predicted work of one process that is queued and not known to be done.
pub fn in_flight(slot: &ProcessSlot) -> Nanos {
    // Completed first: work that completes in between makes the answer too large, never negative.
    let completed = slot.completed_ns.load(Ordering::Relaxed);
    Nanos(slot.submitted_ns.load(Ordering::Relaxed).saturating_sub(completed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::units::Bytes;

    struct Tenant {
        grant: Box<GrantPage>,
        bucket: Box<BucketPage>,
        usage: Box<UsagePage>,
        gate: Gate,
    }

    fn zeroed<P: zerocopy::FromZeros>() -> Box<P> {
        Box::new(P::new_zeroed())
    }

    fn grant(rate_percent: u32) -> Grant {
        Grant {
            rate: Rate::ppm(rate_percent * 10_000),
            fallback_rate: Rate::ppm(100_000),
            capacity: Tokens(2_000_000),
            resume_at: Tokens(1_000_000),
            memory_limit: Bytes::gib(1),
            ..Grant::default()
        }
    }

    impl Tenant {
        fn new(first: &Grant) -> Self {
            let tenant = Self { grant: zeroed(), bucket: zeroed(), usage: zeroed(), gate: Gate::default() };
            tenant.grant.init(first);
            tenant.bucket.init();
            tenant.ask(0, 1, false);
            tenant
        }

        fn pages(&self) -> Pages<'_> {
            Pages { grant: &self.grant, bucket: &self.bucket, usage: &self.usage, slot: &self.usage.slots[0] }
        }

        fn ask(&self, now_us: u64, tokens: i64, waited: bool) -> Verdict {
            self.ask_where(now_us, tokens, waited, false)
        }

        /// As `ask`, perhaps while a better has work.
        fn ask_where(&self, now_us: u64, tokens: i64, waited: bool, closed: bool) -> Verdict {
            let patience = if waited { Patience::Turn } else { Patience::Fresh };
            let now = Nanos(1 + now_us * 1_000);
            self.gate.ask(
                self.pages(),
                now,
                Request { price: Tokens(tokens), tokens: Tokens(tokens), patience, closed },
            )
        }

        /// Launches units of `price` in virtual time until `end_us`; returns the tokens admitted.
        fn run(&self, from_us: u64, end_us: u64, price: i64) -> i64 {
            let (mut now, mut spent, mut waited) = (from_us, 0i64, false);
            while now < end_us {
                match self.ask(now, price, waited) {
                    Verdict::Admitted { .. } => {
                        spent += price;
                        waited = false;
                    }
                    Verdict::Wait(wait) => {
                        now += wait.at_most.0.div_ceil(1_000);
                        waited = true;
                    }
                }
            }
            spent
        }
    }

    #[test]
    fn a_backlogged_tenant_gets_its_rate_whatever_its_kernels_cost() {
        for price in [5_000, 100_000, 5_000_000] {
            let tenant = Tenant::new(&grant(30));
            let spent = tenant.run(0, 900_000, price); // the manager is not silent yet
            let share = spent as f64 / 0.9e9;
            assert!((share - 0.30).abs() < 0.01, "{price} ns kernels got {share}");
        }
    }

    /// Design 2: a closed gate means that the rate falls to the request.
    #[test]
    fn behind_a_closed_gate_the_request_is_left_and_nothing_that_was_saved() {
        let tenant = Tenant::new(&grant(90));
        tenant.ask(50_000, 1, false);
        assert!(tenant.pages().bucket.balance() > Tokens(1_500_000), "saved up");
        tenant.gate.close(tenant.pages());
        let (mut spent, mut longest, mut waited) = (0, 0, false);
        for now in (50_100..850_100).step_by(50) {
            let mut at_once = 0;
            while let Verdict::Admitted { tokens, .. } = tenant.ask_where(now, 20_000, waited, true) {
                (at_once, waited) = (at_once + tokens.0, false);
            }
            (spent, longest, waited) = (spent + at_once, longest.max(at_once), true);
        }
        let share = spent as f64 / 0.8e9;
        assert!((share - 0.10).abs() < 0.002, "{share}");
        assert!(longest <= CLOSED_TURN.0 + 20_000, "{longest} ns at once");
        let open = tenant.run(850_100, 950_100, 20_000) / 1_000_000;
        assert!((85..=91).contains(&open), "open again: {open} ms of 100");
    }

    #[test]
    fn a_throttled_tenant_comes_in_turns() {
        let tenant = Tenant::new(&grant(10));
        while matches!(tenant.ask(100, 100_000, false), Verdict::Admitted { .. }) {}
        let early = tenant.ask(5_000, 100_000, true);
        assert!(matches!(early, Verdict::Wait(Wait { cause: Cause::Tokens, .. })), "{early:?}");
        assert!(matches!(tenant.ask(12_000, 100_000, true), Verdict::Admitted { .. }), "a turn has accrued");
    }

    #[test]
    fn a_changed_grant_takes_effect_at_any_balance_above_zero() {
        let tenant = Tenant::new(&grant(10));
        while matches!(tenant.ask(100, 100_000, false), Verdict::Admitted { .. }) {}
        let ask = |now_us: u64| {
            let request =
                Request { price: Tokens(1), tokens: Tokens(1), patience: Patience::None, closed: false };
            tenant.gate.ask(tenant.pages(), Nanos(1 + now_us * 1_000), request)
        };
        let Verdict::Wait(wait) = ask(101) else { panic!("the bucket is in debt") };
        assert!(wait.at_most < Nanos::from_millis(2), "only until the debt is paid: {wait:?}");
        assert!(matches!(ask(101 + wait.at_most.0 / 1_000 + 1), Verdict::Admitted { .. }));
    }

    #[test]
    fn the_whole_gpu_is_not_metered() {
        let tenant = Tenant::new(&grant(100));
        assert!((0..1_000).all(|_| matches!(tenant.ask(1, i64::MAX / 2, false), Verdict::Admitted { .. })));
    }

    #[test]
    fn a_silent_manager_leaves_the_tenant_its_request() {
        let tenant = Tenant::new(&grant(60));
        tenant.grant.tick();
        let lent = tenant.run(0, 900_000, 100_000) as f64 / 0.9e9;
        let alone = tenant.run(2_000_000, 4_000_000, 100_000) as f64 / 2e9;
        assert!((lent - 0.60).abs() < 0.01 && (alone - 0.10).abs() < 0.01, "{lent} then {alone}");
        assert!(tenant.gate.is_stale());
        tenant.grant.tick();
        tenant.ask(4_000_001, 1, false);
        assert!(!tenant.gate.is_stale(), "the manager is back");
    }

    #[test]
    fn a_manager_that_has_not_ticked_yet_is_not_silent() {
        let tenant = Tenant::new(&grant(60));
        tenant.ask(5_000_000, 1, false);
        let late = Gate::default();
        let request =
            Request { price: Tokens(1), tokens: Tokens(1), patience: Patience::Fresh, closed: false };
        late.ask(tenant.pages(), Nanos::from_secs(77), request);
        assert!(!late.is_stale());
    }

    #[test]
    fn queued_work_beyond_the_cap_waits_and_an_empty_queue_never_does() {
        let tenant = Tenant::new(&Grant { in_flight_cap: Nanos::from_millis(2), ..grant(100) });
        assert!(matches!(tenant.ask(1, 50_000_000, false), Verdict::Admitted { .. }), "one unit of any size");
        let slot = tenant.pages().slot;
        slot.submitted_ns.store(3_000_000, Ordering::Relaxed);
        assert!(matches!(tenant.ask(2, 1, false), Verdict::Wait(Wait { cause: Cause::InFlight, .. })));
        slot.completed_ns.store(2_000_000, Ordering::Relaxed);
        assert!(matches!(tenant.ask(3, 1, false), Verdict::Admitted { .. }));
    }

    #[test]
    fn a_standstill_lets_one_launch_pass() {
        let tenant = Tenant::new(&grant(10));
        let stands = |now_us: u64| {
            tenant.gate.stands_still(tenant.pages(), (0, 0), Nanos(1), Nanos(1 + now_us * 1_000))
        };
        assert!(!stands(0) && !stands(60_000), "nothing is queued: nobody spins for us");
        tenant.pages().slot.submitted_ns.store(1_000_000, Ordering::Relaxed);
        assert!(!stands(60_001) && !stands(64_000));
        assert!(stands(66_000));
        assert!(!stands(66_001), "one launch, not a flood");
        tenant.pages().slot.completed_ns.store(500_000, Ordering::Relaxed);
        assert!(!stands(90_000), "work moves");
    }

    #[test]
    fn work_that_stood_still_is_not_waited_for_again() {
        let tenant = Tenant::new(&grant(10));
        let stands = |now_us: u64| {
            tenant.gate.stands_still(tenant.pages(), (0, 0), Nanos(1), Nanos(1 + now_us * 1_000))
        };
        let queued = &tenant.pages().slot.submitted_ns;
        queued.store(40_000_000, Ordering::Relaxed);
        assert!(!stands(0) && !stands(119_000) && stands(121_000), "three times what is outstanding");
        queued.store(41_000_000, Ordering::Relaxed);
        assert!(!stands(126_000) && stands(127_000), "one launch later: 5 ms, not 123");
        queued.store(61_000_000, Ordering::Relaxed);
        assert!(!stands(180_000) && stands(188_000), "what came since might take its time");
    }

    #[test]
    fn work_that_stands_still_on_another_gpu_lets_a_launch_pass() {
        let tenant = Tenant::new(&grant(10));
        let stands = |now_us: u64, elsewhere: (u64, u64)| {
            tenant.gate.stands_still(tenant.pages(), elsewhere, Nanos(1), Nanos(1 + now_us * 1_000))
        };
        let spins = (1_000_000, 0);
        assert!(!stands(0, spins) && !stands(4_000, spins) && stands(6_000, spins));
        assert!(!stands(30_000, (1_000_000, 1_000_000)), "it has moved");
    }

    #[test]
    fn a_sibling_that_stands_still_lets_a_launch_pass_and_matters_less_each_time() {
        let tenant = Tenant::new(&grant(10));
        let sibling = &tenant.usage.slots[3];
        let mut now_us = 1;
        let mut next = |most_us: u64| {
            let from = now_us;
            while !tenant.gate.stands_still(tenant.pages(), (0, 0), Nanos(1), Nanos(now_us * 1_000)) {
                now_us += 1_000;
                assert!(now_us - from <= most_us, "nothing passed for {most_us} us");
            }
            now_us - from
        };
        sibling.submitted_ns.store(1_000_000, Ordering::Relaxed);
        assert!(next(10_000) >= 5_000, "a collective of the sibling spins for this process");
        let waits: Vec<u64> = (0..10).map(|_| next(3_000_000)).collect();
        assert!(waits.is_sorted() && waits[9] > 1_000_000, "a sibling that nobody looks after: {waits:?}");
        sibling.completed_ns.store(500_000, Ordering::Relaxed);
        assert!(next(20_000) >= 5_000, "it goes on: from the beginning");
    }
}
