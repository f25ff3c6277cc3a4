//! The grant page: what the node manager currently gives a tenant on one GPU.
//!
//! ```text
//!   epoch    moves every few ticks; still = the manager is gone
//!   current  generation of the grant that holds; slot = generation % 2; the futex word that waiters sleep on
//!   board    number of the last change of who else is on the GPU
//!   slots    [ even generations ][ odd generations ]
//!   bell     what the tenant does for the manager when it begins work, or waits
//! ```
//!
//! The manager fills the slot that does not hold and then moves `current`: killed between the two it has changed
//! nothing. A reader that finds `current` moved while it copied a slot copies again.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use super::bell::Bell;
use super::header::{Header, PageKind};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::units::{Bandwidth, Bytes, Nanos, SmShare, Tokens};

/// At what rate a bucket fills: with tokens or with bytes.
pub trait Accrual: Copy {
    /// What accrues in `elapsed`, rounded down.
    fn over(self, elapsed: Nanos) -> u64;
    /// Time in which `amount` accrues, rounded up; `Nanos(u64::MAX)` if it never does.
    fn time_for(self, amount: u64) -> Nanos;
}

impl Accrual for Rate {
    fn over(self, elapsed: Nanos) -> u64 {
        Self::over(self, elapsed)
    }

    fn time_for(self, amount: u64) -> Nanos {
        Self::time_for(self, amount)
    }
}

impl Accrual for Bandwidth {
    fn over(self, elapsed: Nanos) -> u64 {
        u64::try_from(u128::from(elapsed.0) * u128::from(self.0) / 1_000_000_000).unwrap_or(u64::MAX)
    }

    fn time_for(self, amount: u64) -> Nanos {
        let ns = (u128::from(amount) * 1_000_000_000).div_ceil(u128::from(self.0.max(1)));
        if self.0 == 0 { Nanos(u64::MAX) } else { Nanos(u64::try_from(ns).unwrap_or(u64::MAX)) }
    }
}

/// Refill rate: tokens per second of wall time, in parts per million of the whole GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u32);

impl Rate {
    /// The whole GPU: nothing is held back.
    pub const FULL: Self = Self(1_000_000);

    /// `ppm` millionths of the GPU, cut at the whole.
    pub const fn ppm(ppm: u32) -> Self {
        if ppm > Self::FULL.0 { Self::FULL } else { Self(ppm) }
    }

    /// In millionths.
    pub const fn as_ppm(self) -> u32 {
        self.0
    }

    /// Tokens that accrue in `elapsed`, rounded down.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a rate is at most one, so the product is at most `elapsed`"
    )]
    pub const fn over(self, elapsed: Nanos) -> u64 {
        // Up to five hours the product fits into 64 bits, and is divided by a few instructions.
        match elapsed.0.checked_mul(self.0 as u64) {
            Some(product) => product / 1_000_000,
            None => (elapsed.0 as u128 * self.0 as u128 / 1_000_000) as u64,
        }
    }

    /// Time in which `tokens` accrue, rounded up; `Nanos(u64::MAX)` at rate zero.
    pub const fn time_for(self, tokens: u64) -> Nanos {
        if self.0 == 0 {
            return Nanos(u64::MAX);
        }
        // Two rounded steps stay within u64 as long as the answer does: 2^64 ns are 584 years.
        let per_million = tokens.saturating_mul(1_000_000);
        if per_million == u64::MAX { Nanos(u64::MAX) } else { Nanos(per_million.div_ceil(self.0 as u64)) }
    }
}

impl From<SmShare> for Rate {
    fn from(share: SmShare) -> Self {
        Self::ppm(u32::from(share.as_permille()) * 1000)
    }
}

/// The number of the board while the operator has switched the manager off. No notice ever has it, so neighbours count as
/// not known, and nobody takes turns.
pub const NO_BOARD: u32 = u32::MAX;

/// Whether a tenant may use more than its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// The granted rate holds.
    #[default]
    Open,
    /// The rate falls to the request.
    Closed,
    /// The granted rate holds, also while a tenant has work to which this one gives way otherwise.
    Lent,
    /// The tenant's memory is off the GPU, or about to go: its calls wait in the driver, so whoever makes one says so first
    /// ([`ProcessSlot::knock`](super::ProcessSlot::knock)). To launches it is an open gate.
    Parked,
}

impl Gate {
    fn word(self) -> u32 {
        match self {
            Self::Open => 0,
            Self::Closed => 1,
            Self::Lent => 2,
            Self::Parked => 3,
        }
    }

    /// From a word on a page; what nobody knows is closed.
    fn of_word(word: u32) -> Self {
        match word {
            0 => Self::Open,
            2 => Self::Lent,
            3 => Self::Parked,
            _ => Self::Closed,
        }
    }
}

/// What a tenant may do on one GPU, as plain values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Which grant this is; 0 before the first.
    pub generation: u32,
    /// Refill rate of the bucket. [`Rate::FULL`] means that no launch waits for tokens.
    pub rate: Rate,
    /// The request (for a request of zero: a floor): holds while the gate is closed or the manager is gone.
    pub fallback_rate: Rate,
    /// What the operator allows at most, whoever else works; zero: `rate` says that, too.
    pub limit: Rate,
    /// Whether `rate` or `fallback_rate` holds.
    pub gate: Gate,
    /// Most tokens that the bucket may hold.
    pub capacity: Tokens,
    /// Balance at which a launch that had to wait goes on. A low value means many short turns on the GPU, each
    /// of which costs the driver a context switch. To a microsecond.
    pub resume_at: Tokens,
    /// How long the tenant's turns are at least, where others wait for one; else what it resumes at. To a microsecond.
    pub turn: Nanos,
    /// Most predicted work that may be queued on the GPU; 0 = no cap. To a microsecond.
    pub in_flight_cap: Nanos,
    /// Memory that the tenant may hold.
    pub memory_limit: Bytes,
    /// Bytes that the tenant may copy between host and device.
    pub copy_limit: Bandwidth,
    /// How long a burst of the tenant may be held back, so that fillers have the time; 0 = not at all. To a microsecond.
    pub hold: Nanos,
    /// When somebody is expected back, on the monotonic clock, to whom the tenant gives way: what is launched has to be done by
    /// then, or goes as if the gate was closed; 0 = not known.
    pub back_at: Nanos,
}

#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
struct GrantSlot {
    rate_ppm: AtomicU32,
    fallback_ppm: AtomicU32,
    gate: AtomicU32,
    turn_us: AtomicU32,
    capacity_ns: AtomicU64,
    resume_at_us: AtomicU32,
    in_flight_cap_us: AtomicU32,
    memory_limit_bytes: AtomicU64,
    copy_bytes_per_s: AtomicU64, // 0: unlimited
    hold_us: AtomicU32,
    limit_ppm: AtomicU32,
    back_at_ns: AtomicU64,
}

/// Written by the node manager alone; the tenant maps it read-only.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct GrantPage {
    header: Header,
    epoch: AtomicU64,
    current: AtomicU32,
    board: AtomicU32,
    slots: [GrantSlot; 2],
    /// What the tenant does for the manager when it begins work, or waits.
    pub bell: Bell,
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(offset_of!(GrantPage, epoch) == 16 && offset_of!(GrantPage, slots) == 32);
    assert!(offset_of!(GrantPage, bell) == 32 + 2 * 64 && size_of::<GrantPage>() == 32 + 3 * 64);
};

/// Where a process's own page begins to count: a manager that published in every tick would come there after a month.
const OWN: u32 = 1 << 31;

/// Reads before a reader settles for what it has; a manager publishes at most once per tick.
const READ_TRIES: usize = 64;

impl GrantPage {
    /// Marks a zeroed page as ready, with `first` as its grant.
    pub fn init(&self, first: &Grant) {
        self.publish(first);
        self.header.publish(PageKind::Grant, size_of::<Self>());
    }

    /// The same for a page that a process makes for itself, for want of a manager: its generation is none that a manager comes
    /// to, so that everybody finds the grant changed when a manager's page takes its place.
    pub fn init_own(&self, only: &Grant) {
        self.current.store(OWN, Ordering::Relaxed); // published below
        self.init(only);
    }

    /// The header, to be checked when the page is opened.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Makes `grant` the one that holds and returns its generation. One thread of the manager calls this.
    pub fn publish(&self, grant: &Grant) -> u32 {
        // Relaxed: this thread is the only writer of `current`.
        let generation = self.current.load(Ordering::Relaxed).wrapping_add(1);
        // A reader of the generation before last may still copy this slot. The fence orders the last move of
        // `current` before the stores below: whoever sees one of them also sees that `current` has moved.
        fence(Ordering::Release);
        self.slots[generation as usize % 2].store(grant);
        // Release: whoever sees the new generation sees the whole slot.
        self.current.store(generation, Ordering::Release);
        generation
    }

    /// The generation that holds: what the launch path compares with the one it knows.
    #[inline]
    pub fn generation(&self) -> u32 {
        // Relaxed: only a hint that `read` is due; `read` orders for itself.
        self.current.load(Ordering::Relaxed)
    }

    /// Whether the tenant is parked, or about to be. A new grant says so, so the launch path learns of it by its generation.
    pub fn is_parked(&self) -> bool {
        // Acquire: pairs with the release store of `publish`. A grant published meanwhile is seen by the next call.
        let current = self.current.load(Ordering::Acquire);
        let gate = self.slots[current as usize % 2].gate.load(Ordering::Relaxed);
        gate == Gate::Parked.word()
    }

    /// The word to sleep on until the next [`Self::publish`].
    pub fn futex_word(&self) -> &AtomicU32 {
        &self.current
    }

    /// A whole grant: never the halves of two.
    pub fn read(&self) -> Grant {
        // Acquire: pairs with the release store of `publish`.
        let mut before = self.current.load(Ordering::Acquire);
        let mut grant = Grant::default();
        for _ in 0..READ_TRIES {
            grant = self.slots[before as usize % 2].load(before);
            // Acquire fence: if a load above saw a store of a later `publish`, the load below sees the move of
            // `current` that came before that store.
            fence(Ordering::Acquire);
            let after = self.current.load(Ordering::Relaxed);
            if after == before {
                return grant;
            }
            before = self.current.load(Ordering::Acquire);
        }
        grant
    }

    /// Says that the tenants on the GPU have changed for the `board`th time; a notice with that number is on its way.
    pub fn set_board(&self, board: u32) {
        // Release: whoever sees the number does not see the neighbours of the one before.
        self.board.store(board, Ordering::Release);
    }

    /// How often the tenants on the GPU have changed.
    pub fn board(&self) -> u32 {
        self.board.load(Ordering::Acquire)
    }

    /// Moves the epoch: there is a manager. One thread of the manager calls this.
    pub fn tick(&self) {
        // Relaxed: the epoch carries no other data, only that it moves; and nobody else writes it, so that no atomic
        // addition is needed.
        self.epoch.store(self.epoch.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// How often it has moved.
    pub fn epoch(&self) -> u64 {
        // Relaxed: see `tick`.
        self.epoch.load(Ordering::Relaxed)
    }
}

impl GrantSlot {
    // Relaxed in both: `publish` and `read` order whole slots.
    fn store(&self, grant: &Grant) {
        self.rate_ppm.store(grant.rate.as_ppm(), Ordering::Relaxed);
        self.fallback_ppm.store(grant.fallback_rate.as_ppm(), Ordering::Relaxed);
        self.gate.store(grant.gate.word(), Ordering::Relaxed);
        self.capacity_ns.store(grant.capacity.0.max(0) as u64, Ordering::Relaxed);
        self.memory_limit_bytes.store(grant.memory_limit.0, Ordering::Relaxed);
        self.copy_bytes_per_s.store(grant.copy_limit.0, Ordering::Relaxed);
        self.limit_ppm.store(grant.limit.as_ppm(), Ordering::Relaxed);
        let micros = |time: Nanos| u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX);
        self.resume_at_us.store(micros(Nanos(grant.resume_at.0.max(0).unsigned_abs())), Ordering::Relaxed);
        self.in_flight_cap_us.store(micros(grant.in_flight_cap), Ordering::Relaxed);
        self.hold_us.store(micros(grant.hold), Ordering::Relaxed);
        self.back_at_ns.store(grant.back_at.0, Ordering::Relaxed);
        self.turn_us.store(micros(grant.turn), Ordering::Relaxed);
    }

    fn load(&self, generation: u32) -> Grant {
        let tokens =
            |word: &AtomicU64| Tokens(i64::try_from(word.load(Ordering::Relaxed)).unwrap_or(i64::MAX));
        let micros = |word: &AtomicU32| Nanos::from_micros(word.load(Ordering::Relaxed).into());
        Grant {
            generation,
            rate: Rate::ppm(self.rate_ppm.load(Ordering::Relaxed)),
            fallback_rate: Rate::ppm(self.fallback_ppm.load(Ordering::Relaxed)),
            limit: Rate::ppm(self.limit_ppm.load(Ordering::Relaxed)),
            gate: Gate::of_word(self.gate.load(Ordering::Relaxed)),
            capacity: tokens(&self.capacity_ns),
            resume_at: Tokens(micros(&self.resume_at_us).0.cast_signed()),
            turn: micros(&self.turn_us),
            in_flight_cap: micros(&self.in_flight_cap_us),
            memory_limit: Bytes(self.memory_limit_bytes.load(Ordering::Relaxed)),
            copy_limit: Bandwidth(self.copy_bytes_per_s.load(Ordering::Relaxed)),
            hold: micros(&self.hold_us),
            back_at: Nanos(self.back_at_ns.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    #[test]
    fn a_reader_never_sees_the_halves_of_two_grants() {
        loom::model(|| {
            let page = loom::sync::Arc::new(GrantPage::default());
            let grant =
                |n: u32| Grant { rate: Rate::ppm(n), memory_limit: Bytes(u64::from(n)), ..Grant::default() };
            page.publish(&grant(1));
            let manager = {
                let page = page.clone();
                loom::thread::spawn(move || {
                    page.publish(&grant(2));
                    page.publish(&grant(3));
                })
            };
            let seen = page.read();
            assert_eq!(seen.generation, seen.rate.as_ppm(), "the slot of generation {}", seen.generation);
            assert_eq!(seen.memory_limit.0, u64::from(seen.generation));
            manager.join().unwrap();
        });
    }
}
