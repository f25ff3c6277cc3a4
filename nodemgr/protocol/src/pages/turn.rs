//! Turns: who of the tenants on a GPU launches now.
//!
//! Under time-slicing the driver switches between contexts in the middle of their work; if the tenants take turns, it
//! switches where nothing runs (design 5, gpu-truths rule 2). The queue for the turn is a bakery: whoever wants one draws
//! a number above all that he sees, and goes when nobody holds the turn and nobody with a smaller number waits. Every
//! word is written by its own tenant alone, so a neighbour can be waited for, but never be changed.
//!
//! ```text
//!   Away --> Arrives --> Wants (or WantsSoon) --> Holds --> Away
//!            draws a number                       launches until its turn is used up, or it is drained
//! ```
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
    /// It waits, and has had less than it may.
    WantsSoon = 3,
    /// It launches.
    Holds = 4,
}

/// Bits of the word below the number.
const STAND_BITS: u32 = 3;

/// Numbers are drawn modulo this.
const NUMBERS: u32 = 1 << (32 - STAND_BITS);

/// A tenant's stand, its number, and what is left of its turn.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Turn {
    word: AtomicU32, // number << STAND_BITS | stand; neighbours sleep on it
    _reserved_0: u32,
    tenant: AtomicU64,
    left_ns: AtomicI64,
    length_ns: AtomicU64,
    asks_ns: AtomicU64,
    _reserved: [u64; 3],
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

    /// Queues up behind everybody who is there, unless the tenant has done so. Of several threads one does.
    pub fn want<'a>(&self, others: impl Iterator<Item = &'a Self>) {
        let away = self.word.load(Ordering::SeqCst);
        if stand(away) != Stand::Away || !self.becomes(away, Stand::Arrives, number(away)) {
            return;
        }
        let last = |a: u32, b: u32| if before(a, b) { b } else { a };
        let greatest = others.map(|other| number(other.word.load(Ordering::SeqCst))).fold(number(away), last);
        let arrives = self.word.load(Ordering::SeqCst);
        if stand(arrives) == Stand::Arrives {
            self.becomes(arrives, Stand::Wants, greatest.wrapping_add(1) % NUMBERS);
        }
    }

    /// Waits from now on as somebody who has had less than it may.
    pub fn want_soon(&self) {
        let word = self.word.load(Ordering::SeqCst);
        if stand(word) == Stand::Wants {
            self.becomes(word, Stand::WantsSoon, number(word));
        }
    }

    /// Whether a tenant that waits has to wait for `other`.
    pub fn is_behind(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.word.load(Ordering::SeqCst), other.word.load(Ordering::SeqCst));
        match stand(theirs) {
            Stand::Away => false,
            Stand::Arrives | Stand::Holds => true,
            Stand::Wants | Stand::WantsSoon if number(mine) == number(theirs) => {
                other.tenant() < self.tenant()
            }
            Stand::Wants | Stand::WantsSoon => before(number(theirs), number(mine)),
        }
    }

    /// Nobody is before it any more: the turn is the tenant's, `length` of predicted work.
    pub fn hold(&self, length: Nanos) {
        let word = self.word.load(Ordering::SeqCst);
        if matches!(stand(word), Stand::Wants | Stand::WantsSoon) {
            // Of the turn before: a unit longer than what was left, or what it was cut short by.
            let rest = self.left().min(i64::try_from(length.0).unwrap_or(i64::MAX));
            self.renew(length);
            self.ask_for(Nanos(0));
            self.left_ns.fetch_add(rest, Ordering::Relaxed);
            self.becomes(word, Stand::Holds, number(word));
        }
    }

    /// Another `length` of predicted work for the tenant that holds the turn: nobody waits for it.
    pub fn renew(&self, length: Nanos) {
        self.left_ns.store(i64::try_from(length.0).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.length_ns.store(length.0, Ordering::Relaxed);
    }

    /// The turn goes on; says whether the tenant held it. Whoever waits has to be woken.
    pub fn end(&self) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        stand(word) == Stand::Holds && self.becomes(word, Stand::Away, number(word))
    }

    /// What is left of the turn is not wanted: the tenant had nothing to launch, or nothing to launch it with.
    pub fn forfeit(&self) {
        self.left_ns.fetch_min(0, Ordering::Relaxed);
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
        _ => Stand::Away,
    }
}

fn number(word: u32) -> u32 {
    word >> STAND_BITS
}

/// Whether number `a` was drawn before `b`. Numbers wrap, but are never far from each other.
fn before(a: u32, b: u32) -> bool {
    let distance = b.wrapping_sub(a) % NUMBERS;
    distance != 0 && distance < NUMBERS / 2
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn tenants() -> [Box<Turn>; 3] {
        std::array::from_fn(|n| {
            let turn: Box<Turn> = Box::new(zerocopy::FromZeros::new_zeroed());
            turn.init(n as u64 + 1);
            turn
        })
    }

    fn want(turns: &[Box<Turn>; 3], who: usize) {
        turns[who].want(turns.iter().map(|turn| &**turn));
    }

    fn goes(turns: &[Box<Turn>; 3], who: usize) -> bool {
        (0..3).filter(|other| *other != who).all(|other| !turns[who].is_behind(&turns[other]))
    }

    #[test]
    fn turns_come_in_the_order_in_which_they_were_wanted() {
        let turns = tenants();
        [2, 0, 1].into_iter().for_each(|who| want(&turns, who));
        for who in [2, 0, 1] {
            let mut waiting = (0..3).filter(|other| turns[*other].waits());
            assert!(waiting.all(|other| goes(&turns, other) == (other == who)), "it is {who}'s turn");
            turns[who].hold(Nanos(100));
            assert!((0..3).all(|other| other == who || !goes(&turns, other)));
            assert!(turns[who].end() && !turns[who].end());
        }
    }

    #[test]
    fn who_comes_back_stands_behind_those_who_wait_and_who_is_away_is_not_waited_for() {
        let turns = tenants();
        [0, 1].into_iter().for_each(|who| want(&turns, who));
        turns[0].hold(Nanos(100));
        turns[0].end();
        want(&turns, 0);
        assert!(goes(&turns, 1) && !goes(&turns, 0));
        turns[1].reset();
        assert!(goes(&turns, 0));
    }

    #[test]
    fn numbers_that_wrap_keep_their_order() {
        assert!(before(NUMBERS - 1, 0) && !before(0, NUMBERS - 1) && !before(7, 7));
        let turns = tenants();
        turns[0].word.store((NUMBERS - 1) << STAND_BITS, Ordering::SeqCst);
        want(&turns, 1);
        want(&turns, 2);
        assert!(goes(&turns, 1) && !goes(&turns, 2));
    }

    #[test]
    fn what_is_launched_comes_out_of_what_is_left() {
        let turns = tenants();
        want(&turns, 0);
        turns[0].hold(Nanos(100));
        turns[0].spend(130);
        assert_eq!((turns[0].left(), turns[0].length()), (-30, Nanos(100)));
        turns[0].end();
        want(&turns, 0);
        turns[0].hold(Nanos(100));
        assert_eq!(turns[0].left(), 70, "what one turn took too much comes out of the next");
        turns[0].end();
        want(&turns, 0);
        turns[0].hold(Nanos(100));
        assert_eq!(turns[0].left(), 170, "and what it was cut short by is added");
        turns[0].forfeit();
        assert_eq!(turns[0].left(), 0);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::relax;
    use loom::sync::Arc;

    #[test]
    fn two_tenants_never_both_hold_the_turn() {
        loom::model(|| {
            let turns = Arc::new([Turn::default(), Turn::default()]);
            turns.iter().zip(1..).for_each(|(turn, tenant)| turn.init(tenant));
            let holders = Arc::new(AtomicU32::new(0));
            let take = |me: usize, turns: &[Turn; 2], holders: &AtomicU32| {
                let (own, other) = (&turns[me], &turns[1 - me]);
                own.want(std::iter::once(other));
                while own.is_behind(other) {
                    relax();
                }
                own.hold(Nanos(1));
                assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0, "both hold the turn");
                holders.fetch_sub(1, Ordering::Relaxed);
                own.end();
            };
            let thread = {
                let (turns, holders) = (turns.clone(), holders.clone());
                loom::thread::spawn(move || take(1, &turns, &holders))
            };
            take(0, &turns, &holders);
            thread.join().unwrap();
        });
    }
}
