//! Prices: what a launch costs, in tokens, before it runs.
//!
//! A *signature* is what tells two launches of different cost apart: function, blocks, threads per block, shared
//! memory (a graph is its own signature). Each has one [`Estimate`] that lives as long as the process:
//!
//! 1. at first from the operator's price table, if that names the kernel, or a guess from the grid;
//! 2. then from measured stretches of work ([`Parts::learn`]; `flight` says what is a stretch).
//!
//! [`Cache`] is the thread-local way to an estimate, [`Book`] the process's.

mod book;
mod bounds;
mod cache;
mod estimate;
mod kernels;
mod learn;

pub use book::Book;
pub use cache::{Cache, Hit};
pub(crate) use estimate::whole;
pub use estimate::{Bound, Estimate, Known};
pub use kernels::Kernels;
pub use learn::{PARTS, Parts, Took};

/// What tells launches of different cost apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signature {
    /// The function's or the executable graph's handle; stable within a process.
    pub handle: u64,
    /// Blocks in the grid. A product of three 32-bit numbers does not fit 32 bits.
    pub blocks: u64,
    /// Threads in a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Signature {
    /// Of nothing.
    pub const NONE: Self = Self { handle: 0, blocks: 0, threads: 0, shared_bytes: 0 };

    /// Of a kernel launch.
    #[inline]
    pub fn of_kernel(function: u64, grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Self {
        let blocks = u64::from(grid[0]).wrapping_mul(u64::from(grid[1])).wrapping_mul(u64::from(grid[2]));
        let threads = block[0].wrapping_mul(block[1]).wrapping_mul(block[2]);
        Self { handle: function, blocks, threads, shared_bytes }
    }

    /// Of a graph launch.
    #[inline]
    pub fn of_graph(exec: u64) -> Self {
        Self { handle: exec, ..Self::default() }
    }

    /// A few well-mixed bits for the thread's cache.
    #[inline]
    fn hash(&self) -> u64 {
        let shape = self.blocks ^ (u64::from(self.threads) << 40) ^ (u64::from(self.shared_bytes) << 20);
        (self.handle ^ shape.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }
}
