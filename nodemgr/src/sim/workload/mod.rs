//! What tenants run: programs that launch kernels, wait for them, and rest.
//!
//! A program knows nothing of gates and neighbours; it says what it does next, and is asked again when that is done.

mod arrivals;
mod inference;
mod offline;
mod training;

use weir_simgpu_model::{Kernel, Nanos};

pub use self::arrivals::{Arrival, arrivals};
pub use self::inference::Inference;
pub use self::offline::Offline;
pub use self::training::{Training, work};
use super::measure::Log;
use super::scenario::KernelShape;

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Launches a kernel, and goes on.
    Launch(Kernel),
    /// Waits until all that it launched is done.
    Synchronise,
    /// Does nothing on the GPU until then.
    Rest(Nanos),
    /// Is over.
    End,
}

/// A program with one thread and one stream.
pub trait Program {
    /// The next step; the one before is done. What there is to tell goes into the log.
    fn next(&mut self, now: Nanos, log: &mut Log) -> Step;
}

/// Work of a known length, cut into kernels.
#[derive(Clone, Debug)]
pub struct Work {
    left: Nanos,
    unit: Nanos,
    shape: KernelShape,
}

impl Work {
    /// Nothing yet, in kernels of at most `unit`.
    pub fn new(unit: Nanos, shape: KernelShape) -> Self {
        Self { left: 0, unit: unit.max(1), shape }
    }

    /// Adds `length` of work on the whole GPU.
    pub fn add(&mut self, length: Nanos) {
        self.left += length;
    }

    /// The next kernel, if there is work left: all of one length, as near to the unit as goes.
    pub fn next(&mut self) -> Option<Kernel> {
        let pieces = self.left.div_ceil(self.unit);
        let solo = self.left.checked_div(pieces)?;
        self.left -= solo;
        Some(kernel(solo, self.shape))
    }
}

/// A kernel of this length alone.
pub fn kernel(solo: Nanos, shape: KernelShape) -> Kernel {
    // In thousandths of the SMs: the device of the simulator has a thousand, so that shares of it are whole numbers.
    let blocks = u32::from(shape.sm_percent) * super::engine::SMS / 100;
    Kernel { solo, blocks, bandwidth_permille: u32::from(shape.bandwidth_percent) * 10, spins: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_cut_into_kernels_of_at_most_one_unit_and_none_of_it_is_lost() {
        let mut work = Work::new(300, KernelShape::default());
        work.add(1_000);
        let kernels: Vec<Nanos> = std::iter::from_fn(|| work.next()).map(|kernel| kernel.solo).collect();
        assert_eq!(kernels, [250, 250, 250, 250]);
    }
}
