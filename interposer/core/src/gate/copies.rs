//! The budget of bandwidth: whether a copy between host and device may be submitted, or how long to wait.
//!
//! A bucket of bytes, which carries debt as the one of tokens does: a balance above zero admits a copy of any size, the
//! debt delays the next one.

use weir_protocol::units::{Bandwidth, Bytes, Nanos};

use super::{Cause, Gate, Pages, SLEEP, Wait};

/// The bucket holds what accrues in this time: longer than a waiter oversleeps, short beside the second over which an
/// operator looks at a bandwidth.
const HOARD: Nanos = Nanos::from_millis(20);

impl Gate {
    /// How long a copy has to wait before it asks again; `None`: it may go.
    pub fn copy_wait(pages: Pages<'_>, now: Nanos) -> Option<Wait> {
        let grant = pages.grant.read();
        let limit = grant.copy_limit;
        if !limit.is_limited() {
            return None;
        }
        pages.bucket.refill_copies(now, limit, capacity(limit));
        let balance = pages.bucket.copies();
        if balance > 0 {
            return None;
        }
        pages.put_off();
        let missing = balance.unsigned_abs() + 1;
        let at_most = weir_protocol::pages::Accrual::time_for(limit, missing).clamp(SLEEP.0, SLEEP.1);
        Some(Wait { generation: grant.generation, at_most, cause: Cause::Copies })
    }
}

fn capacity(limit: Bandwidth) -> Bytes {
    Bytes(weir_protocol::pages::Accrual::over(limit, HOARD).max(1))
}

#[cfg(test)]
mod tests {
    use weir_protocol::pages::{BucketPage, Grant, GrantPage, UsagePage};

    use super::*;

    /// Copies pieces of `bytes` as fast as the gate lets them for a second; returns what was copied.
    fn copied_in_a_second(limit: Bandwidth, bytes: u64) -> u64 {
        let grant: Box<GrantPage> = Box::new(zerocopy::FromZeros::new_zeroed());
        grant.init(&Grant { copy_limit: limit, ..Grant::default() });
        let bucket: Box<BucketPage> = Box::new(zerocopy::FromZeros::new_zeroed());
        let usage: Box<UsagePage> = Box::new(zerocopy::FromZeros::new_zeroed());
        let pages = Pages { grant: &grant, bucket: &bucket, usage: &usage, slot: &usage.slots[0] };
        let (mut now, mut copied) = (1_000, 0);
        while now < 1_000_000_000 {
            match Gate::copy_wait(pages, Nanos(now)) {
                Some(wait) => now += wait.at_most.0 + 300_000, // it oversleeps
                None => {
                    bucket.charge_copy(Bytes(bytes));
                    copied += bytes;
                    now += 2_000;
                }
            }
        }
        copied
    }

    #[test]
    fn a_backlogged_tenant_copies_at_its_limit_whatever_the_size_of_its_copies() {
        for bytes in [4 << 10, 1 << 20, 16 << 20] {
            let copied = copied_in_a_second(Bandwidth(1 << 30), bytes) as f64 / f64::from(1 << 30);
            assert!((copied - 1.0).abs() < 0.03, "{bytes}: {copied}");
        }
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        assert!(copied_in_a_second(Bandwidth::UNLIMITED, 1 << 20) > 400 << 30);
    }
}
