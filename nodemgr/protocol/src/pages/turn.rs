//! Turns: who of the tenants on a GPU launches now.
//!
//! Under time-slicing the driver switches between contexts in the middle of their work; if the tenants take turns, it
//! switches where nothing runs (design 5, gpu-truths rule 2). The queue for the turn is a bakery: whoever wants one draws
//! a number above all that he sees, and goes when nobody holds the turn and nobody with a smaller number waits. Every
//! word is written by its own tenant alone, so a neighbour can be waited for, but never be changed.
//!
//! ```text
//!   Away --> Arrives --> Wants (or WantsSoon) <--> StepsUp --> Holds --> Away, or Wants
//!            draws a number                                   launches until it is drained, or its turn is used up
//! ```
//!
//! Somebody who takes precedence may come while another finds that nobody is in front of him, and find the same. So whoever
//! finds it steps up first, for all to see, and looks once more: of the two at least one sees the other.
//!
//! How long anybody waits for somebody who does not move is for the waiter to decide (`weir-core`, `turn`).

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use crate::units::Nanos;

/// How a tenant stands to the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stand {
    /// It has nothing to launch.
    Away = 0,
    /// It is drawing a number.
    Arrives = 1,
    /// It waits.
    Wants = 2,
    /// It waits, has had less than it may, and had nothing to launch as its last turn ended.
    WantsSoon = 3,
    /// It launches.
    Holds = 4,
    /// It found nobody in front of it, and looks once more.
    StepsUp = 5,
}

/// Which of two tenants that wait goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// The neighbour, by a head start.
    Theirs,
    /// Whoever came first.
    #[default]
    Nobodys,
    /// The tenant itself, by a head start.
    Ours,
}

/// Whoever takes precedence goes before those who came up to so many turns earlier. So everybody's turn comes: whoever
/// waits is passed until so many have drawn a number after it, and no longer.
const HEAD_START: u32 = 8;

/// A turn is not cut short before this, ns: each costs the driver a switch, about a tenth of a millisecond.
pub const SHORTEST: i64 = 1_000_000;

/// Bits of the word below the number.
const STAND_BITS: u32 = 3;

/// Numbers are drawn modulo this.
const NUMBERS: u32 = 1 << (32 - STAND_BITS);

/// A tenant's stand, its number, and what is left of its turn.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Turn {
    word: AtomicU32,    // number << STAND_BITS | stand; neighbours sleep on it
    drained: AtomicU32, // 1: its last turn ended because it had nothing to launch
    tenant: AtomicU64,
    left_ns: AtomicI64,
    length_ns: AtomicU64,
    asks_ns: AtomicU64,
    kept: AtomicU32, // turns that it went on with, since all who waited would have passed them on
    heard: AtomicU32, // sum of the neighbours' `kept` for which it was given turns
    over: AtomicU32, // 1: it holds a turn that is over, and a launch of its waits for the next one
    _reserved: [u32; 3],
}

impl Turn {
    /// Says whose word this is: of two tenants with one number the smaller one goes first. The manager, once.
    pub fn init(&self, tenant: u64) {
        self.tenant.store(tenant, Ordering::Relaxed);
    }

    /// How the tenant stands, and everything by which a neighbour can tell that it has moved.
    pub fn look(&self) -> (Stand, u32) {
        // SeqCst here and below: the bakery needs one order of all stores and of the looks that follow them.
        let word = self.word.load(Ordering::SeqCst);
        (stand(word), word)
    }

    /// Whose word this is.
    pub fn tenant(&self) -> u64 {
        self.tenant.load(Ordering::Relaxed)
    }

    /// The number that it drew last.
    pub fn number(&self) -> u32 {
        number(self.look().1)
    }

    /// The word to sleep on until the tenant moves.
    pub fn futex_word(&self) -> &AtomicU32 {
        &self.word
    }

    /// What is left of the turn, in predicted work; negative: it took more.
    pub fn left(&self) -> i64 {
        // Relaxed: a sum of the tenant's own threads, which decides when it stops a little too early or late.
        self.left_ns.load(Ordering::Relaxed)
    }

    /// How long the turn is that the tenant holds, or held last.
    pub fn length(&self) -> Nanos {
        Nanos(self.length_ns.load(Ordering::Relaxed))
    }

    /// For how long whoever holds the turn asks to be waited for, however short the turn.
    pub fn asks(&self) -> Nanos {
        Nanos(self.asks_ns.load(Ordering::Relaxed))
    }

    /// Asks to be waited for in this turn.
    pub fn ask_for(&self, time: Nanos) {
        self.asks_ns.store(time.0, Ordering::Relaxed);
    }

    /// Takes launched work out of what is left.
    pub fn spend(&self, ns: i64) {
        self.left_ns.fetch_sub(ns, Ordering::Relaxed);
    }

    /// Whether the tenant waits for a turn.
    pub fn waits(&self) -> bool {
        matches!(self.look().0, Stand::Wants | Stand::WantsSoon)
    }

    /// Says of the turn that the tenant holds whether it is over, and a launch waits for the next one.
    pub fn set_over(&self, is_over: bool) {
        self.over.store(u32::from(is_over), Ordering::Relaxed); // a hint, as `left`
    }

    /// Whether the tenant holds a turn that is over, and a launch of its waits for the next one.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) != 0 && self.look().0 == Stand::Holds
    }

    /// Whether the tenant waits for a turn, holds one, or is about to.
    pub fn is_there(&self) -> bool {
        self.look().0 != Stand::Away
    }

    /// Queues up behind everybody who is there, unless the tenant has done so. Of several threads one does.
    pub fn want<'a>(&self, others: impl Iterator<Item = &'a Self>) {
        let away = self.word.load(Ordering::SeqCst);
        if stand(away) != Stand::Away || !self.becomes(away, Stand::Arrives, number(away)) {
            return;
        }
        let next = above(number(away), others);
        let arrives = self.word.load(Ordering::SeqCst);
        if stand(arrives) == Stand::Arrives {
            self.becomes(arrives, Stand::Wants, next);
        }
    }

    /// The turn goes on, and the tenant queues up behind everybody who is there: whoever is let in finds it waiting. Says whether the
    /// tenant held it; whoever waits has to be woken.
    pub fn requeue<'a>(&self, others: impl Iterator<Item = &'a Self>) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        // Others wait for who holds the turn as for who draws a number.
        stand(word) == Stand::Holds && self.becomes(word, Stand::Wants, above(number(word), others))
    }

    /// Waits from now on as somebody who has had less than it may.
    pub fn want_soon(&self) {
        let word = self.word.load(Ordering::SeqCst);
        if stand(word) == Stand::Wants {
            self.becomes(word, Stand::WantsSoon, number(word));
        }
    }

    /// Whether a tenant that waits has to wait for `other`.
    pub fn is_behind(&self, other: &Self, precedence: Precedence) -> bool {
        let (mine, theirs) = (self.word.load(Ordering::SeqCst), other.word.load(Ordering::SeqCst));
        let ahead = |word: u32| number(word).wrapping_sub(HEAD_START) % NUMBERS;
        let (first, second) = match precedence {
            Precedence::Theirs => (ahead(theirs), number(mine)),
            Precedence::Nobodys => (number(theirs), number(mine)),
            Precedence::Ours => (number(theirs), ahead(mine)),
        };
        match stand(theirs) {
            Stand::Away => false,
            Stand::Arrives | Stand::Holds | Stand::StepsUp => true,
            Stand::Wants | Stand::WantsSoon if first == second => other.tenant() < self.tenant(),
            Stand::Wants | Stand::WantsSoon => before(first, second),
        }
    }

    /// Nobody is before it: it steps up, unless another thread does. Then it has to look whether it is behind anybody once
    /// more, and [`Self::hold`] or step back.
    pub fn step_up(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        matches!(stand(word), Stand::Wants | Stand::WantsSoon)
            && self.becomes(word, Stand::StepsUp, number(word))
    }

    /// Somebody came in between: it waits as before.
    pub fn step_back(&self) {
        let word = self.word.load(Ordering::SeqCst);
        if stand(word) == Stand::StepsUp {
            self.becomes(word, Stand::Wants, number(word));
        }
    }

    /// Nobody is before it any more: the turn is the tenant's, `length` of predicted work.
    pub fn hold(&self, length: Nanos) {
        let word = self.word.load(Ordering::SeqCst);
        if matches!(stand(word), Stand::Wants | Stand::WantsSoon | Stand::StepsUp) {
            // Of the turn before: a unit longer than what was left, or what it was cut short by, or drained before.
            let rest = self.left().min(times(length, 1));
            self.left_ns.store(times(length, 1).saturating_add(rest), Ordering::Relaxed);
            self.length_ns.store(length.0, Ordering::Relaxed);
            self.ask_for(Nanos(0));
            self.drained.store(0, Ordering::Relaxed);
            self.set_over(false);
            self.becomes(word, Stand::Holds, number(word));
        }
    }

    /// Another `length` of predicted work for the tenant that holds the turn: nobody waits for it. What it takes beyond its turn counts
    /// all the same, up to a turn: whoever is away may be so for an instant.
    pub fn renew(&self, length: Nanos) {
        self.left_ns.fetch_max(-times(length, 1), Ordering::Relaxed);
        self.length_ns.store(length.0, Ordering::Relaxed);
    }

    /// Another `length` for the tenant that holds the turn, whatever it took too much of the last one: all who wait owe a turn, and
    /// would pass it on at once. Each of them counts one for itself ([`Self::hear`]).
    pub fn keep(&self, length: Nanos) {
        self.left_ns.fetch_add(times(length, 1), Ordering::Relaxed);
        self.length_ns.store(length.0, Ordering::Relaxed);
        self.set_over(false);
        // Release: whoever counts it finds that the turn is longer.
        self.kept.fetch_add(1, Ordering::Release);
    }

    /// The tenant waits while others keep turns that were its own: each counts as one that it has had, of `length`. Of the
    /// tenant's processes one counts it.
    pub fn hear<'a>(&self, others: impl Iterator<Item = &'a Self>, length: Nanos) {
        let before = self.heard.load(Ordering::Relaxed);
        let kept = kept_by(others);
        let heard = self.heard.compare_exchange(before, kept, Ordering::Relaxed, Ordering::Relaxed);
        if heard.is_ok() && self.waits() {
            self.left_ns.fetch_add(times(length, unheard(kept, before)), Ordering::Relaxed);
        }
    }

    /// What is worth a switch, of a turn of that length, ns: with less left a tenant passes it on at once.
    pub fn worth(length: Nanos) -> i64 {
        SHORTEST.min(i64::try_from(length.0 / 2).unwrap_or(i64::MAX))
    }

    /// Whether a tenant that waits would pass the turn on at once, if it were let in. So many turns were kept by all.
    pub fn owes(&self, kept_by_all: u32) -> bool {
        let length = self.length();
        let kept = kept_by_all.wrapping_sub(self.kept.load(Ordering::Relaxed));
        let has_had = times(length, unheard(kept, self.heard.load(Ordering::Relaxed)) + 1);
        self.left().saturating_add(has_had) < Self::worth(length)
    }

    /// Moves, for whoever waits: the tenant that holds the turn draws another number. It stands for nothing until the next time.
    pub fn draw_again(&self) {
        let word = self.word.load(Ordering::SeqCst);
        if stand(word) == Stand::Holds {
            self.becomes(word, Stand::Holds, number(word).wrapping_add(1) % NUMBERS);
        }
    }

    /// The turn goes on; says whether the tenant held it. Whoever waits has to be woken.
    pub fn end(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        stand(word) == Stand::Holds && self.becomes(word, Stand::Away, number(word))
    }

    /// What is left of the turn that the tenant holds is not wanted: it has nothing to launch it with. Whoever waits may have been
    /// cut short: that counts for the next turn.
    pub fn forfeit(&self) {
        if self.look().0 == Stand::Holds {
            self.left_ns.fetch_min(0, Ordering::Relaxed);
            self.set_over(false); // what waits, waits for tokens
        }
    }

    /// The tenant has nothing on the GPU. If it holds the turn, that goes on: what is left counts for the next one, as what it was
    /// cut short by does, since a step that is longer than a turn ends in the middle of one. If it stands in the queue although none of
    /// its launches `waits`, it leaves that: the one for which it queued up went out of turn. Says whether it moved; whoever waits has to
    /// be woken.
    pub fn drain(&self, waits: impl Fn() -> bool) -> bool {
        match self.look() {
            (Stand::Holds, _) => {
                self.drained.store(1, Ordering::Relaxed); // a hint, as `left`
                self.end()
            }
            (Stand::Wants | Stand::WantsSoon, word) if !waits() => {
                self.becomes(word, Stand::Away, number(word))
            }
            _ => false,
        }
    }

    /// Whether the last turn ended as there was nothing to launch.
    pub fn was_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed) != 0
    }

    /// As it was before anybody wrote it, but for whose word it is.
    pub fn clear(&self) {
        self.reset();
        [&self.length_ns, &self.asks_ns].into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        [&self.drained, &self.kept, &self.heard, &self.over]
            .into_iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        self.left_ns.store(0, Ordering::Relaxed);
    }

    /// Whatever a dead process was about to do, the tenant is away now.
    pub fn reset(&self) {
        let word = self.word.load(Ordering::SeqCst);
        self.becomes(word, Stand::Away, number(word));
    }

    fn becomes(&self, from: u32, to: Stand, number: u32) -> bool {
        let to = number << STAND_BITS | to as u32;
        let done = self.word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        // What follows are looks at the others: not before this is theirs to see.
        fence(Ordering::SeqCst);
        done
    }
}

/// From a word that a neighbour may have written: unknown values read as [`Stand::Away`].
fn stand(word: u32) -> Stand {
    match word % (1 << STAND_BITS) {
        1 => Stand::Arrives,
        2 => Stand::Wants,
        3 => Stand::WantsSoon,
        4 => Stand::Holds,
        5 => Stand::StepsUp,
        _ => Stand::Away,
    }
}

fn number(word: u32) -> u32 {
    word >> STAND_BITS
}

/// How many turns these have kept.
pub fn kept_by<'a>(turns: impl Iterator<Item = &'a Turn>) -> u32 {
    // Acquire: with each of them its turn has become longer.
    turns.fold(0, |sum, turn| sum.wrapping_add(turn.kept.load(Ordering::Acquire)))
}

/// How many of the turns that others have kept somebody has not counted as its own.
fn unheard(kept: u32, heard: u32) -> u32 {
    const MOST: u32 = 16; // beyond that somebody has come or gone, or lies
    let unheard = kept.wrapping_sub(heard);
    if unheard <= MOST { unheard } else { 0 }
}

/// So many turns, ns.
fn times(length: Nanos, turns: u32) -> i64 {
    i64::try_from(length.0.saturating_mul(turns.into())).unwrap_or(i64::MAX)
}

/// A number above all of these.
fn above<'a>(own: u32, others: impl Iterator<Item = &'a Turn>) -> u32 {
    let last = |a: u32, b: u32| if before(a, b) { b } else { a };
    let greatest = others.map(|other| number(other.word.load(Ordering::SeqCst))).fold(own, last);
    greatest.wrapping_add(1) % NUMBERS
}

/// Whether number `a` was drawn before `b`. Numbers wrap, but are never far from each other.
fn before(a: u32, b: u32) -> bool {
    let distance = b.wrapping_sub(a) % NUMBERS;
    distance != 0 && distance < NUMBERS / 2
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
