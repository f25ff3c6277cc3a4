//! A thread's purse: the token slice that it spends without looking at anything shared.
//!
//! The purse is the launch path. It compares the grant's generation with the one it knows, subtracts the price,
//! and is done; everything else happens when it runs empty. A launch is paid *before* it happens, so a thread
//! that ends leaves no debt behind; slices start small and double, so that it leaves few tokens behind either.

use std::cell::Cell;

/// Doublings of a full-grown slice: it pays for 256 launches.
const GROWN: u32 = 8;

/// One thread's tokens on one GPU.
#[derive(Debug, Default)]
pub struct Purse {
    left: Cell<i64>,
    generation: Cell<u32>,
    grown: Cell<u32>, // doublings; zero at first, so that a thread's storage is all zeroes and costs nothing unused
}

impl Purse {
    /// An empty purse.
    pub const fn new() -> Self {
        Self { left: Cell::new(0), generation: Cell::new(0), grown: Cell::new(0) }
    }

    /// Pays `price` out of the slice if it suffices and was drawn under the grant that still holds.
    #[inline]
    pub fn pay(&self, price: i64, generation: u32) -> bool {
        let left = self.left.get() - price;
        let paid = left >= 0 && self.generation.get() == generation;
        if paid {
            self.left.set(left);
        }
        paid
    }

    /// What the purse lacks for one launch at `price`.
    pub fn lacks(&self, price: i64) -> i64 {
        (price - self.left.get()).max(0)
    }

    /// How many tokens to ask for, so that `price` and a fair number of launches like it are paid: at most
    /// `256 x price`, and at most `ceiling` unless the price alone is more.
    pub fn ask(&self, price: i64, ceiling: i64) -> i64 {
        let slice = price.saturating_mul(1 << self.grown.get()).min(ceiling).max(price);
        (slice - self.left.get()).max(0)
    }

    /// Fills the purse with what was drawn, between [`Self::lacks`] and [`Self::ask`], and pays `price`.
    pub fn fill(&self, drawn: i64, price: i64, generation: u32) {
        self.left.set(self.left.get() + drawn - price);
        self.generation.set(generation);
        self.grown.set((self.grown.get() + 1).min(GROWN));
    }

    /// The grant under which the slice was drawn.
    pub fn generation(&self) -> u32 {
        self.generation.get()
    }

    /// Puts back what a launch paid that the driver refused.
    pub fn refund(&self, price: i64) {
        self.left.set(self.left.get().saturating_add(price));
    }

    /// Takes out what is left: a new grant may have made it too much.
    pub fn empty(&self) -> i64 {
        self.left.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_paid_before_it_happens() {
        let purse = Purse::new();
        assert!(!purse.pay(5, 1));
        purse.fill(purse.ask(5, 1_000), 5, 1);
        assert_eq!(purse.empty(), 0, "the first slice pays for one launch");
    }

    #[test]
    fn slices_double_up_to_256_launches_and_respect_the_ceiling() {
        let purse = Purse::new();
        let mut slices = Vec::new();
        for _ in 0..10 {
            purse.empty();
            let ask = purse.ask(10, 10_000);
            slices.push(ask);
            purse.fill(ask, 10, 1);
        }
        assert_eq!(slices, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 2_560]);
        purse.empty();
        assert_eq!(purse.ask(10, 500), 500);
        assert_eq!(purse.ask(9_000, 500), 9_000, "a launch dearer than the ceiling is paid whole");
    }

    #[test]
    fn a_slice_drawn_under_an_older_grant_pays_nothing() {
        let purse = Purse::new();
        purse.fill(100, 10, 1);
        assert!(purse.pay(10, 1));
        assert!(!purse.pay(10, 2));
        assert_eq!(purse.empty(), 80);
    }
}
