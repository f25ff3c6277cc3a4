//! What a memory pool costs: what it *reserves*, not what it has handed out.
//!
//! Only the driver knows what a pool has reserved, and asking it for each allocation would cost more than all the rest of
//! the ledger. So a pool keeps its own count of what is in use, and the driver's last word on what is reserved:
//!
//! ```text
//!   in use + asked <= reserved (+ growth under way)     served from what is there: nothing is charged
//!   else                                                growth is predicted in the pool's steps, charged before the
//!                                                       call, and replaced by the driver's figure after it
//! ```
//!
//! A pool whose free pieces are too small grows although its sums say that it need not. That shows in the address: a piece
//! that the pool has handed out before costs nothing; after any other one the driver is asked.
//! The memory behind a device's graphs is kept by the driver in the same way, and is a pool here too; of it the driver counts
//! the use, so that growth is announced ([`Pool::announce`]) and not predicted.
//!
//! What a pool is charged is always `reserved + pending`; every change of it is handed to the caller, for the usage page.

use crate::lock::Lock;

/// A pool grows in multiples of this until it was seen to grow otherwise, in bytes: what drivers do.
pub const STEP: u64 = 32 << 20;

/// Steps are never smaller: the granularity of device memory, in bytes.
const LEAST_STEP: u64 = 2 << 20;

/// Nor larger, or one large piece would make every small one look dear.
const MOST_STEP: u64 = 1 << 30;

/// Pieces are handed out in multiples of this, in bytes.
const GRANULE: u64 = 512;

/// Freed pieces that are remembered.
const PIECES: usize = 64;

/// A change of what a pool is charged, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// To be charged.
    pub more: u64,
    /// To be given back.
    pub less: u64,
}

impl Change {
    const fn between(before: u64, after: u64) -> Self {
        Self { more: after.saturating_sub(before), less: before.saturating_sub(after) }
    }
}

/// One pool of this process.
#[derive(Debug)]
pub struct Pool {
    /// The driver's handle.
    pub handle: u64,
    /// On which GPU, as an index into the tenant's GPUs.
    pub gpu: usize,
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    used: u64,
    reserved: u64, // as the driver said last
    pending: u64,  // predicted growth of the calls under way
    step: u64,
    destroyed: bool,
    pieces: [(u64, u64); PIECES], // address, bytes; what was freed since the pool last shrank
}

impl PartialEq for Pool {
    /// A pool is only ever the same as itself.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Pool {}

/// As the pool counts a piece.
const fn rounded(bytes: u64) -> u64 {
    match bytes.checked_next_multiple_of(GRANULE) {
        Some(rounded) => rounded,
        None => u64::MAX,
    }
}

/// Where a piece is remembered.
const fn place(address: u64) -> usize {
    ((address / GRANULE).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % PIECES
}

impl Pool {
    /// A pool from which nothing was seen to be taken.
    pub fn new(handle: u64, gpu: usize) -> Self {
        let pieces = [(0, 0); PIECES];
        let state = State { used: 0, reserved: 0, pending: 0, step: STEP, destroyed: false, pieces };
        Self { handle, gpu, state: Lock::new(state) }
    }

    /// Counts a piece in, and says by how many bytes the pool will probably grow for it; 0: it has room. The growth is to
    /// be charged, or [`Self::abandon`]ed.
    pub fn begin(&self, bytes: u64) -> u64 {
        let mut state = self.state.lock();
        let piece = rounded(bytes);
        let used = state.used.saturating_add(piece);
        let growth = if used <= state.reserved.saturating_add(state.pending) {
            0
        } else {
            piece.checked_next_multiple_of(state.step).unwrap_or(u64::MAX)
        };
        state.used = used;
        state.pending = state.pending.saturating_add(growth);
        growth
    }

    /// Growth that the caller has predicted and charged.
    pub fn announce(&self, growth: u64) {
        let mut state = self.state.lock();
        state.pending = state.pending.saturating_add(growth);
    }

    /// The piece of [`Self::begin`] is not to be had, and the growth that was said then is not charged.
    pub fn abandon(&self, bytes: u64, growth: u64) {
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(rounded(bytes));
        state.pending = state.pending.saturating_sub(growth);
    }

    /// Whether a piece that the driver has handed out is certain to lie in what the pool had reserved already.
    pub fn had(&self, address: u64, bytes: u64) -> bool {
        let (known, room) = self.state.lock().pieces[place(address)];
        known == address && room >= rounded(bytes)
    }

    /// Replaces the prediction `growth` of a call that was made for `asked` bytes (both 0: of none) by what the driver
    /// says is reserved. `ask` is called under the pool's lock, so that an older answer cannot overtake a younger one.
    pub fn settle(&self, asked: u64, growth: u64, ask: impl FnOnce() -> Option<u64>) -> Change {
        let mut state = self.state.lock();
        let before = state.reserved.saturating_add(state.pending);
        let reserved = if state.destroyed { None } else { ask() };
        let reserved = reserved.unwrap_or_else(|| state.reserved.saturating_add(growth));
        state.pending = state.pending.saturating_sub(growth);
        let grown = reserved.saturating_sub(state.reserved);
        if asked > 0 && grown > 0 {
            state.learn(rounded(asked), grown);
        }
        if reserved < state.reserved {
            state.pieces = [(0, 0); PIECES]; // what was freed may lie outside now
        }
        state.reserved = reserved;
        Change::between(before, state.reserved.saturating_add(state.pending))
    }

    /// A piece was freed, in stream order or at once. The pool keeps what it has reserved, until a wait; but one that was
    /// destroyed goes with its last piece.
    pub fn freed(&self, address: u64, bytes: u64) -> Change {
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(rounded(bytes));
        state.pieces[place(address)] = (address, rounded(bytes));
        state.go_if_over()
    }

    /// The driver did not free it after all.
    pub fn kept(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.used = state.used.saturating_add(rounded(bytes));
    }

    /// The program has destroyed the pool. Its pieces live on, and so does what it has reserved for them.
    pub fn destroy(&self) -> Change {
        let mut state = self.state.lock();
        state.destroyed = true;
        state.go_if_over()
    }

    /// Whether the pool could give something back: a step or more that nobody uses.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.reserved.saturating_sub(state.used) >= state.step
    }
}

impl State {
    /// Learns the step from a growth by `grown` for a piece of `asked` bytes, where nobody else's growth is in it.
    fn learn(&mut self, asked: u64, grown: u64) {
        if self.pending > 0 {
            return;
        }
        let divides = 1 << grown.trailing_zeros().min(63);
        if divides < self.step {
            self.step = divides.max(LEAST_STEP);
        } else if grown > asked.next_multiple_of(self.step) {
            self.step = grown.checked_next_power_of_two().unwrap_or(MOST_STEP).min(MOST_STEP);
        }
    }

    fn go_if_over(&mut self) -> Change {
        if !self.destroyed || self.used > 0 {
            return Change::default();
        }
        Change { more: 0, less: std::mem::take(&mut self.reserved) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn grown(pool: &Pool, bytes: u64, reserved: u64) -> Change {
        let growth = pool.begin(bytes);
        assert!(growth > 0, "it has no room for {bytes}");
        pool.settle(bytes, growth, || Some(reserved))
    }

    #[test]
    fn only_growth_is_charged_and_the_drivers_word_replaces_the_prediction() {
        let pool = Pool::new(1, 0);
        assert_eq!(pool.begin(MIB), STEP);
        assert_eq!(pool.settle(MIB, STEP, || Some(STEP)), Change::default(), "as predicted");
        assert_eq!(pool.begin(30 * MIB), 0, "32 MiB have room for 31");
        assert_eq!(pool.begin(2 * MIB), STEP);
        assert_eq!(
            pool.settle(2 * MIB, STEP, || Some(STEP + 2 * MIB)),
            Change { more: 0, less: STEP - 2 * MIB }
        );
        assert_eq!(pool.begin(2 * MIB), 2 * MIB, "it was seen to grow in smaller steps");
    }

    #[test]
    fn two_threads_that_need_one_step_are_charged_one() {
        let pool = Pool::new(1, 0);
        let first = pool.begin(MIB);
        assert_eq!((first, pool.begin(MIB)), (STEP, 0), "the second will find room in what the first brings");
        assert_eq!(pool.settle(MIB, first, || Some(STEP)), Change::default());
    }

    /// The driver's side of a pool: it grows by whole steps when the sum does not suffice.
    #[derive(Default)]
    struct Driver {
        used: u64,
        reserved: u64,
    }

    #[test]
    fn threads_that_race_for_one_pool_charge_what_the_driver_has_reserved_in_the_end() {
        use std::sync::Mutex;
        use std::sync::atomic::{AtomicU64, Ordering};

        let (pool, driver, charged) = (Pool::new(1, 0), Mutex::new(Driver::default()), AtomicU64::new(0));
        let apply = |change: Change| {
            charged.fetch_add(change.more, Ordering::Relaxed);
            charged.fetch_sub(change.less, Ordering::Relaxed);
        };
        let ask = || Some(driver.lock().unwrap().reserved);
        let work = |thread: u64| {
            for n in 1..500 {
                let bytes = (thread * 7 + n * 3) % 11 * MIB + MIB;
                let growth = pool.begin(bytes);
                charged.fetch_add(growth, Ordering::Relaxed);
                {
                    let mut driver = driver.lock().unwrap();
                    driver.used += bytes;
                    driver.reserved = driver.reserved.max(driver.used.next_multiple_of(STEP));
                }
                let address = (thread << 40) | (n * MIB);
                if growth > 0 || !pool.had(address, bytes) {
                    apply(pool.settle(bytes, growth, ask));
                }
                driver.lock().unwrap().used -= bytes;
                apply(pool.freed(address, bytes));
            }
        };
        std::thread::scope(|scope| {
            let work = &work;
            (1..=4).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        assert_eq!(charged.load(Ordering::Relaxed), driver.lock().unwrap().reserved);
    }

    #[test]
    fn a_piece_that_was_freed_is_known_until_the_pool_shrinks() {
        let pool = Pool::new(1, 0);
        grown(&pool, MIB, STEP);
        assert!(!pool.had(0x7000_0000, MIB));
        pool.freed(0x7000_0000, MIB);
        assert!(pool.had(0x7000_0000, MIB) && !pool.had(0x7000_0000, 2 * MIB) && !pool.had(0x7000_0200, MIB));
        assert_eq!(pool.settle(0, 0, || Some(0)), Change { more: 0, less: STEP });
        assert!(!pool.had(0x7000_0000, MIB));
    }

    #[test]
    fn a_refused_request_leaves_no_trace() {
        let pool = Pool::new(1, 0);
        let growth = pool.begin(MIB);
        pool.abandon(MIB, growth);
        assert_eq!(pool.settle(0, 0, || Some(0)), Change::default());
        assert_eq!(pool.begin(STEP), STEP);
    }

    #[test]
    fn a_destroyed_pool_is_charged_until_its_last_piece_is_freed() {
        let pool = Pool::new(1, 0);
        grown(&pool, MIB, STEP);
        assert_eq!(pool.destroy(), Change::default());
        assert_eq!(pool.settle(0, 0, || panic!("the handle is gone")), Change::default());
        assert_eq!(pool.freed(1, MIB), Change { more: 0, less: STEP });
    }

    #[test]
    fn a_request_that_overflows_is_larger_than_any_limit() {
        assert_eq!(Pool::new(1, 0).begin(u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn what_was_charged_in_all_is_what_the_driver_reserves(
            steps in prop::collection::vec((0u64..64 * MIB, 0u64..4), 0..60)
        ) {
            let (pool, mut charged, mut reserved) = (Pool::new(1, 0), 0u64, 0u64);
            for (bytes, grows) in steps {
                let growth = pool.begin(bytes);
                charged += growth;
                reserved += grows * 2 * MIB;
                let change = pool.settle(bytes, growth, || Some(reserved));
                charged = charged + change.more - change.less;
                prop_assert_eq!(charged, reserved);
            }
        }
    }
}
