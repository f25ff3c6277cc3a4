//! The gate: whether a launch may go to the driver now, or how long to wait before asking again.
//!
//! Asked only when a thread's [`Purse`](crate::purse::Purse) is empty or the grant has changed. Two things can
//! hold a launch back: the tenant's bucket (its rate) and the work it has queued already (its in-flight cap).
//! Source: design 5; the fallback of a silent manager: design 7.

mod copies;
mod standstill;

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use weir_protocol::pages::{BucketPage, Gate as GateWord, Grant, GrantPage, ProcessSlot, Rate, UsagePage};
use weir_protocol::units::{Nanos, Tokens};

use self::standstill::{Patient, Watch};

/// A manager whose epoch stands still this long is gone.
pub const SILENCE: Nanos = Nanos::from_secs(1);

/// Bounds of one sleep at the gate: not so short that waiting burns the processor, not so long that a missed
/// wake-up hurts.
const SLEEP: (Nanos, Nanos) = (Nanos::from_micros(50), Nanos::from_millis(20));

/// What a closed gate lets through at once: so much accrues before a launch goes, and no more is saved up before the manager
/// has closed the gate too. Each costs the better two switches of the driver's, a tenth of a millisecond each. So in its gaps
/// this is enough, and while it works a filler waits for what the manager grants it at once.
const CLOSED_TURN: Tokens = Tokens(500_000);

/// What a tenant had while its gate was open counts as its request of the time that follows, up to so much: of one that
/// requested nothing, for a second. So nobody starves, and who is well fed does not come in between.
const MOST_PAID: u64 = 10_000_000;

/// No queue is longer: more than an hour. A slot that says so was written by mistake, and its process would wait for ever.
const LONGEST_QUEUE: Nanos = Nanos(1 << 42);

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

impl Pages<'_> {
    /// Shows that somebody waits: the manager looks at a tenant that has slept only as often as it must.
    pub fn put_off(&self) {
        // A hint of activity, nothing is ordered by it. Odd: a launch waits. Of several threads the last one that says it is right.
        let before = self.slot.put_off.load(Ordering::Relaxed);
        self.slot.put_off.store((before | 1).wrapping_add(2), Ordering::Relaxed);
    }

    /// Whether a launch of any of the tenant's processes waits.
    pub fn waits(&self) -> bool {
        self.usage.slots.iter().any(ProcessSlot::waits)
    }

    /// Whether a launch of this process waits.
    pub fn waits_itself(&self) -> bool {
        self.slot.waits()
    }

    /// Shows that whoever waited has gone.
    pub fn let_in(&self) {
        let before = self.slot.put_off.load(Ordering::Relaxed);
        if before % 2 == 1 {
            self.slot.put_off.store(before.wrapping_add(1), Ordering::Relaxed);
        }
    }
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
    /// What is queued holds up nothing: it will be done in a moment, or no other tenant waits for it.
    pub runs_ahead: bool,
    /// It passes: its tenant is within its share, so that only what the operator allows at most holds it back.
    pub passes: bool,
    /// Most predicted work that may be queued beside those who go first; 0: what the grant says.
    pub piece: Nanos,
    /// In how long what is queued is predicted to be done, where the grant says when somebody is back.
    pub ahead: Nanos,
}

/// At which balance a launch goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It has not waited yet: any balance above zero will do, else a turn.
    Fresh,
    /// It has waited: at a balance worth a turn.
    Turn,
    /// The grant has changed since the last launch: at any balance above zero, so that the change takes effect at once; where the operator
    /// changed the budget, also with a debt of less than a launch.
    Regranted,
    /// At any balance above zero, in any tenant's turn: the other ranks of its gang go.
    None,
}

impl Patience {
    /// That of a launch that arrives under the grant `now`, where launches went out under another one, or none, `before`: 0.
    pub fn under(before: u32, now: u32) -> Self {
        if before == 0 || before == now { Self::Fresh } else { Self::Regranted }
    }
}

/// What the operator says of the rate: request and limit in one word.
fn budget(grant: &Grant) -> u64 {
    u64::from(grant.fallback_rate.as_ppm()) << 32 | u64::from(grant.limit.as_ppm())
}

/// Which way a launch asks to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through an open gate.
    Open = 0,
    /// Through a closed one, while nobody better works.
    InAGap = 1,
    /// Through a closed one, beside a better that works.
    Beside = 2,
}

impl Way {
    fn of(closed: bool, beside: bool) -> Self {
        match (closed, beside) {
            (false, _) => Self::Open,
            (true, false) => Self::InAGap,
            (true, true) => Self::Beside,
        }
    }
}

/// The gate of one process on one GPU: what it must remember between two questions.
#[derive(Debug, Default)]
pub struct Gate {
    epoch: AtomicU64,
    epoch_moved_at: AtomicU64,
    stale: AtomicU32,
    closed: AtomicU32,
    had: AtomicU64,     // by the tenant, when the gate was closed last
    imposed: AtomicI64, // debt of tokens that is given back when it opens
    goes_on: AtomicU32, // where launches behind the closed gate go on without having to save up again
    budget: AtomicU64,  // under which a launch went last
    own: Watch,
    siblings: Watch,
}

impl Gate {
    /// Largest slice that one thread may draw for launches at `price`: a quarter of the capacity spread over the threads, so that
    /// slices do not hoard the bucket; an eighth of the in-flight cap, so that they do not hide queued work; 64 launches, so that
    /// turns are told of them soon. Where nobody is there who could wait for it, half of the cap.
    pub fn slice_ceiling(grant: &Grant, threads: u32, price: i64, alone: bool) -> i64 {
        let fair = grant.capacity.0 / (4 * i64::from(threads.max(1)));
        let queued = match i64::try_from(grant.in_flight_cap.0) {
            Ok(cap) if cap > 0 => cap / if alone { 2 } else { 8 },
            _ => i64::MAX,
        };
        fair.min(queued).min(if alone { i64::MAX } else { price.saturating_mul(64) })
    }

    /// Whether so much is queued, as far as is known, that the next launch would have to wait for it.
    pub fn is_full(pages: Pages<'_>, grant: &Grant) -> bool {
        in_flight_wait(pages, grant).is_some()
    }

    /// Decides about one launch.
    pub fn ask(&self, pages: Pages<'_>, now: Nanos, request: Request) -> Verdict {
        let grant = capped(pages.grant.read(), request.piece);
        let rate = self.rate(&grant, pages.grant.epoch(), now);
        // Without a manager lent time goes back, also where nobody else seems to want it.
        let passes = request.passes && !self.is_stale() && grant.limit > Rate::default();
        let rate = if passes { grant.limit } else { rate };
        let room = room(&grant, request.ahead, now);
        let must_wait = request.closed || grant.gate == GateWord::Closed || request.price > room;
        let closed = !request.passes && must_wait;
        self.turn_to(pages, closed);
        let (rate, capacity) = match closed {
            true if grant.gate == GateWord::Closed => (rate.min(grant.fallback_rate), grant.capacity),
            true => (rate.min(grant.fallback_rate), grant.capacity.min(CLOSED_TURN)),
            false => (rate, grant.capacity),
        };
        if let Some(wait) = in_flight_wait(pages, &grant)
            && !request.runs_ahead
        {
            return Verdict::Wait(wait);
        }
        let wanted = request.tokens.min(room.max(request.price)); // this launch at least
        let admitted = |tokens| {
            self.budget.store(budget(&grant), Ordering::Relaxed);
            Verdict::Admitted { generation: grant.generation, tokens }
        };
        if rate == Rate::FULL {
            return admitted(wanted); // the whole GPU: nothing to meter against
        }
        pages.bucket.refill(now, rate, capacity);
        let balance = pages.bucket.balance().0;
        let turn = grant.resume_at.0.min(capacity.0).max(1);
        let way = Way::of(closed, request.closed);
        let goes_on = way != Way::Open && self.goes_on.load(Ordering::Relaxed) >= way as u32;
        let (enough, goal) = match (way, request.patience) {
            (Way::Open, Patience::Regranted | Patience::None) => (1, 1),
            (Way::Open, Patience::Fresh) => (1, turn),
            _ if goes_on => (1, turn),
            (Way::InAGap, _) => (turn.min(CLOSED_TURN.0), turn.min(CLOSED_TURN.0)),
            (Way::Open | Way::Beside, _) => (turn, turn),
        };
        let is_new =
            way == Way::Open && request.patience == Patience::Regranted && self.has_new_budget(&grant);
        let mut taken = if balance >= enough { pages.bucket.take(request.price, wanted) } else { None };
        if taken.is_none() && is_new && balance > -request.price.0 {
            pages.bucket.charge(request.price); // as debt; who owes a launch already pays first
            taken = Some(request.price);
        }
        if let Some(tokens) = taken {
            self.goes_on.fetch_max(way as u32, Ordering::Relaxed);
            return admitted(tokens);
        }
        self.goes_on.store(0, Ordering::Relaxed);
        let missing = u64::try_from(goal.saturating_sub(balance)).unwrap_or(1);
        let at_most = rate.time_for(missing).clamp(SLEEP.0, SLEEP.1);
        Verdict::Wait(Wait { generation: grant.generation, at_most, cause: Cause::Tokens })
    }

    /// Whether the operator has changed the budget since a launch went last: one goes at once then, in any tenant's turn, as debt if need be.
    /// What policies lend in the meantime is no such change: it comes and goes with the neighbours' pauses.
    pub fn has_new_budget(&self, grant: &Grant) -> bool {
        let before = self.budget.load(Ordering::Relaxed);
        before != 0 && before != budget(grant)
    }

    /// Closes or opens, if it was not so. What was saved up for better times is not spent behind a closed gate, and what was had
    /// in them is paid for by the request.
    fn turn_to(&self, pages: Pages<'_>, closed: bool) {
        // Relaxed: of two threads that find it changed one acts, and the other asks a moment too early or late.
        if self.closed.load(Ordering::Relaxed) == u32::from(closed)
            || self.closed.swap(closed.into(), Ordering::Relaxed) == u32::from(closed)
        {
            return;
        }
        let balance = pages.bucket.balance().0;
        self.goes_on.store(0, Ordering::Relaxed);
        if closed {
            let had = work_of_all(pages.usage).0;
            let since = had.saturating_sub(self.had.swap(had, Ordering::Relaxed));
            let paid = since.min(MOST_PAID).cast_signed();
            let imposed = (balance + paid).max(0);
            self.imposed.store(imposed, Ordering::Relaxed);
            pages.bucket.charge(Tokens(imposed));
        } else {
            let imposed = self.imposed.swap(0, Ordering::Relaxed);
            pages.bucket.charge(Tokens(-imposed.min(-balance).max(0)));
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
    /// `elsewhere`: the tenant's work on other GPUs, submitted and completed. `least`: so long neighbours may have the GPU at once.
    pub fn stands_still(
        &self,
        pages: Pages<'_>,
        elsewhere: (u64, u64),
        least: Nanos,
        arrived: Nanos,
        now: Nanos,
    ) -> bool {
        let own = self.own.stands(work(pages.slot), Patient::Always, least, arrived, now);
        // A kernel of another process may spin for this launch just as well (collectives, IPC). But that process may also
        // be blocked, stopped or idle, so that nobody sees its work complete: each time it matters less.
        let others = pages.usage.slots.iter().filter(|slot| !std::ptr::eq(*slot, pages.slot)).map(work);
        let sum = others.fold(elsewhere, |(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)));
        let siblings = self.siblings.stands(sum, Patient::EverMore, least, arrived, now);
        own || siblings
    }

    /// The same by the work of this process alone: all that there is of a tenant of one process on one GPU.
    pub fn stands_still_itself(&self, pages: Pages<'_>, arrived: Nanos, now: Nanos) -> bool {
        self.own.stands(work(pages.slot), Patient::Always, Nanos(0), arrived, now)
    }

    /// Whether the manager is silent now.
    pub fn is_left_alone(&self, pages: Pages<'_>, now: Nanos) -> bool {
        self.manager_is_gone(pages.grant.epoch(), now)
    }

    /// For how long the manager has been silent; nothing while it counts as there.
    pub fn silence(&self, pages: Pages<'_>, now: Nanos) -> Nanos {
        let gone = self.manager_is_gone(pages.grant.epoch(), now);
        if gone { now.since(Nanos(self.epoch_moved_at.load(Ordering::Relaxed))) } else { Nanos(0) }
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
}

/// The grant, with no more in flight than a `piece` where that is anything.
pub fn capped(grant: Grant, piece: Nanos) -> Grant {
    let cap = grant.in_flight_cap;
    let in_flight_cap = if piece == Nanos(0) || cap == Nanos(0) { cap } else { cap.min(piece) };
    Grant { in_flight_cap, ..grant }
}

/// How much may be launched behind what is `ahead` until somebody is expected back to whom the tenant gives way.
fn room(grant: &Grant, ahead: Nanos, now: Nanos) -> Tokens {
    let left = grant.back_at.since(now).since(ahead);
    let known = grant.back_at > Nanos(0);
    Tokens(if known { i64::try_from(left.0).unwrap_or(i64::MAX) } else { i64::MAX })
}

/// How long to wait until less is in flight; `None`: there is room.
fn in_flight_wait(pages: Pages<'_>, grant: &Grant) -> Option<Wait> {
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
    let queued = Nanos(slot.submitted_ns.load(Ordering::Relaxed).saturating_sub(completed));
    if queued > LONGEST_QUEUE { Nanos(0) } else { queued }
}

#[cfg(test)]
mod tests;
