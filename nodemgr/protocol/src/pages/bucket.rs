//! The bucket page: one debt-carrying token bucket per tenant and GPU.
//!
//! Refill is computed by the tenant's own processes from the grant, so a dead manager stops no one; processes
//! draw in token slices, so that they seldom meet on the line. A balance above zero admits a launch of any
//! price: the debt delays the *next* one, so a kernel dearer than the whole capacity still runs.
//!
//! A second bucket beside it holds bytes: what the tenant may copy between host and device.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use super::grant::{Accrual, Rate};
use super::header::{Header, PageKind};
use crate::sync::{AtomicI64, AtomicU64, Ordering};
use crate::units::{Bandwidth, Bytes, Nanos, Tokens};

/// Read and written by all of the tenant's processes; the manager only looks.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct BucketPage {
    header: Header,
    _line_0: [u64; 6],
    tokens: Bucket,
    copies: Bucket,
}

/// One bucket, of tokens or of bytes.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
struct Bucket {
    balance: AtomicI64,
    _line_1: [u64; 7],
    refilled_at_ns: AtomicU64, // on the tenant's clock; a line of its own: it moves seldom, the balance often
    _line_2: [u64; 7],
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(BucketPage, tokens) == 64 && offset_of!(BucketPage, copies) == 192);
    assert!(offset_of!(Bucket, refilled_at_ns) == 64);
};

/// Attempts before a contended taker goes the waiting way.
const TRIES: usize = 16;

/// Shortest time worth a refill. A stamp is exact to a nanosecond, so this bounds what rounding can cost to one
/// part in ten thousand.
const GRAIN: Nanos = Nanos::from_micros(10);

/// A stamp this far in the future is not a clock's doing (two CPUs differ by less than a microsecond) but a
/// wild write or another time namespace: the refill starts afresh.
const FUTURE: Nanos = Nanos::from_millis(100);

/// No debt is deeper, in nanoseconds or bytes: more than an hour of the whole GPU, more than any GPU holds. Below that stands what a
/// wild write left, for which its tenant would wait for ever.
const DEEPEST: i64 = -(1 << 42);

impl BucketPage {
    /// Marks a zeroed page as ready. The first refill sets the clock.
    pub fn init(&self) {
        self.header.publish(PageKind::Bucket, size_of::<Self>());
    }

    /// The header, to be checked when the page is opened.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Tokens in the bucket; negative: the debt.
    pub fn balance(&self) -> Tokens {
        // Relaxed here and below: the balance publishes no other memory, only its own value matters.
        Tokens(self.tokens.balance.load(Ordering::Relaxed))
    }

    /// Takes up to `want` if the balance is above zero, and at least `price`: the debt that is left behind is never
    /// more than one launch's. Returns what was taken; never waits. One load and one compare-exchange when nobody
    /// else draws.
    pub fn take(&self, price: Tokens, want: Tokens) -> Option<Tokens> {
        let mut have = self.tokens.balance.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            if have <= 0 {
                return None;
            }
            let taken = have.min(want.0).max(price.0);
            let left = have.saturating_sub(taken);
            let balance = &self.tokens.balance;
            match balance.compare_exchange_weak(have, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Tokens(taken)),
                Err(now) => have = now,
            }
        }
        None
    }

    /// Takes `amount` whatever the balance: a forced launch, or a correction after the fact (negative: given back).
    pub fn charge(&self, amount: Tokens) {
        self.tokens.balance.fetch_sub(amount.0, Ordering::Relaxed);
    }

    /// Adds what accrued at `rate` since the last refill, up to `capacity`. Any process may call it at any time;
    /// each nanosecond is credited to the tenant once.
    pub fn refill(&self, now: Nanos, rate: Rate, capacity: Tokens) {
        self.tokens.refill(now, rate, capacity.0);
    }

    /// Bytes that may be copied; negative: the debt.
    pub fn copies(&self) -> i64 {
        self.copies.balance.load(Ordering::Relaxed)
    }

    /// Takes `amount` of bytes whatever the balance.
    pub fn charge_copy(&self, amount: Bytes) {
        self.copies.balance.fetch_sub(signed(amount), Ordering::Relaxed);
    }

    /// Gives back what a copy was charged that the driver refused.
    pub fn refund_copy(&self, amount: Bytes) {
        self.copies.balance.fetch_add(signed(amount), Ordering::Relaxed);
    }

    /// As [`Self::refill`], of the bytes that may be copied.
    pub fn refill_copies(&self, now: Nanos, limit: Bandwidth, capacity: Bytes) {
        self.copies.refill(now, limit, signed(capacity));
    }
}

/// Cut at a pebibyte, which no copy comes near: sums of a few thousand of them stay within 64 bits.
fn signed(bytes: Bytes) -> i64 {
    bytes.0.min(1 << 50).cast_signed()
}

impl Bucket {
    fn refill(&self, now: Nanos, rate: impl Accrual, capacity: i64) {
        let last = Nanos(self.refilled_at_ns.load(Ordering::Relaxed));
        if last == Nanos(0) || last.since(now) > FUTURE {
            // First use, or a nonsensical stamp: one process sets the clock, nobody is credited.
            let _ = self.refilled_at_ns.compare_exchange(last.0, now.0, Ordering::Relaxed, Ordering::Relaxed);
            return;
        }
        if now.since(last) < GRAIN {
            return;
        }
        let accrued = rate.over(now.since(last));
        let full = accrued >= capacity.max(0) as u64;
        // The stamp moves by the time that the whole tokens took, so the fraction of a token is not lost.
        let stamp = if full { now.0 } else { last.0.saturating_add(rate.time_for(accrued).0) };
        // Whoever moves the stamp credits the time. Killed right here, the tenant loses one refill and goes on.
        if self.refilled_at_ns.compare_exchange(last.0, stamp, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.credit(accrued, capacity);
        }
    }

    /// Sets the balance back to `at_most` where it is above: a smaller capacity binds at once.
    fn credit(&self, accrued: u64, capacity: i64) {
        let accrued = i64::try_from(accrued).unwrap_or(i64::MAX);
        let mut have = self.balance.load(Ordering::Relaxed);
        loop {
            // A balance already over the capacity (it was lowered) is cut, a debt is paid off first.
            let believed = if have < DEEPEST { 0 } else { have };
            let next = believed.saturating_add(accrued).min(capacity);
            match self.balance.compare_exchange_weak(have, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => have = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bucket() -> BucketPage {
        let page = BucketPage::new_zeroed_for_test();
        page.init();
        page.refill(Nanos(1), Rate::FULL, Tokens(1_000));
        page
    }

    impl BucketPage {
        fn new_zeroed_for_test() -> Self {
            zerocopy::FromZeros::new_zeroed()
        }
    }

    #[test]
    fn a_debt_that_nobody_can_have_is_forgiven_and_any_other_is_paid() {
        for (debt, after) in [(DEEPEST - 1_000, 1_000), (i64::MIN, 1_000), (DEEPEST, DEEPEST + 100_000)] {
            let page = bucket();
            page.tokens.balance.store(debt, Ordering::Relaxed);
            page.refill(Nanos(100_001), Rate::FULL, Tokens(1_000));
            assert_eq!(page.balance().0, after, "{debt}");
        }
    }

    #[test]
    fn a_balance_above_zero_admits_any_price_and_the_debt_delays_the_next() {
        let page = bucket();
        page.refill(Nanos(20_001), Rate::FULL, Tokens(100_000));
        assert_eq!(page.take(Tokens(1_000_000), Tokens(1_000_000)), Some(Tokens(1_000_000)));
        assert_eq!(page.balance(), Tokens(20_000 - 1_000_000));
        assert_eq!(page.take(Tokens(1), Tokens(1)), None);
        page.refill(Nanos(20_001 + 1_000_000), Rate::FULL, Tokens(2_000_000));
        assert!(page.take(Tokens(1), Tokens(1)).is_some());
    }

    #[test]
    fn a_slice_takes_what_is_there_and_leaves_no_debt_of_its_own() {
        let page = bucket();
        page.charge(Tokens(-100));
        assert_eq!(page.take(Tokens(10), Tokens(640)), Some(Tokens(100)));
        assert_eq!(page.balance(), Tokens(0));
    }

    #[test]
    fn how_often_it_is_refilled_changes_what_accrues_by_less_than_one_part_in_ten_thousand() {
        let (often, once) = (bucket(), bucket());
        let rate = Rate::ppm(333_333);
        let end = 100_000_019;
        for now in (1..=end).step_by(7) {
            often.refill(Nanos(now), rate, Tokens(i64::MAX));
        }
        once.refill(Nanos(end), rate, Tokens(i64::MAX));
        let (often, once) = (often.balance().0, once.balance().0);
        assert!((once - often).abs() <= once / 10_000 + 10_000 / 3, "{once} at once, {often} in small steps");
    }

    #[test]
    fn an_idle_tenant_hoards_no_more_than_the_capacity() {
        let page = bucket();
        page.refill(Nanos::from_secs(60), Rate::FULL, Tokens(5_000));
        assert_eq!(page.balance(), Tokens(5_000));
    }

    #[test]
    fn bytes_accrue_at_the_limit_however_often_it_is_looked_at() {
        let page = bucket();
        let limit = Bandwidth(4_294_967_296);
        let capacity = Bytes(limit.0 / 50);
        for now in (1..=1_000_000_000).step_by(10_007) {
            page.refill_copies(Nanos(now), limit, capacity);
            if page.copies() > 0 {
                page.charge_copy(Bytes(1 << 20));
            }
        }
        let copied = page.copies.refilled_at_ns.load(Ordering::Relaxed); // all that accrued was spent but the last piece
        assert!(copied > 999_000_000 && page.copies() > -(2 << 20), "{copied}, {}", page.copies());
        page.charge_copy(Bytes(u64::MAX));
        page.charge_copy(Bytes(u64::MAX));
        assert!(page.copies() < -(1 << 50), "no wild copy wraps the debt");
        assert!(page.balance().0 >= 0, "tokens are another bucket's");
    }

    #[test]
    fn a_stamp_from_the_future_is_put_right_and_credits_nothing() {
        let page = bucket();
        page.refill(Nanos::from_secs(9), Rate::FULL, Tokens(100));
        let held = page.balance();
        page.refill(Nanos::from_secs(3), Rate::FULL, Tokens(100));
        assert_eq!(page.balance(), held);
        page.charge(Tokens(200));
        page.refill(Nanos::from_secs(3 + 1), Rate::FULL, Tokens(100));
        assert_eq!(page.balance(), Tokens(100), "time counts again from the corrected stamp");
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    #[test]
    fn two_threads_never_both_spend_the_last_token() {
        loom::model(|| {
            let page = loom::sync::Arc::new(BucketPage::default());
            page.charge(Tokens(-1));
            let other = {
                let page = page.clone();
                loom::thread::spawn(move || page.take(Tokens(1), Tokens(1)).is_some())
            };
            let mine = page.take(Tokens(1), Tokens(1)).is_some();
            let theirs = other.join().unwrap();
            assert!(!(mine && theirs), "one token, two launches");
            assert!(page.balance().0 >= 0);
        });
    }

    #[test]
    fn the_same_time_is_never_credited_twice() {
        loom::model(|| {
            let page = loom::sync::Arc::new(BucketPage::default());
            page.refill(Nanos(1), Rate::FULL, Tokens(100));
            let other = {
                let page = page.clone();
                loom::thread::spawn(move || page.refill(Nanos(11_001), Rate::FULL, Tokens(20_000)))
            };
            page.refill(Nanos(11_001), Rate::FULL, Tokens(20_000));
            other.join().unwrap();
            assert_eq!(page.balance(), Tokens(11_000));
        });
    }
}
