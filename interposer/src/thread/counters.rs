//! A thread's counter lane on one GPU.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_protocol::pages::Lane;

use crate::link::{Gpu, SHARED_LANE};

/// The lane, and how it is written.
#[derive(Clone, Copy)]
pub struct Counters {
    lane: &'static Lane,
    index: u32,
    shared: u32, // 0 or 1; a `bool` would make "none" anything but zero, and every thread's storage a copy
}

fn lane(gpu: &'static Gpu, index: usize) -> &'static Lane {
    let lanes = &gpu.slot().lanes;
    lanes.get(index).unwrap_or(&lanes[SHARED_LANE])
}

impl Counters {
    /// Of a lane that no other thread has, as long as there are any; further threads share the last one.
    pub fn of_new_thread(gpu: &'static Gpu) -> Self {
        let index = gpu.next_lane();
        Self {
            lane: lane(gpu, index),
            index: u32::try_from(index).unwrap_or(0),
            shared: u32::from(index == SHARED_LANE),
        }
    }

    /// The same on the process's slot of now, which is another one once a manager has let it in.
    pub fn on_slot_of(self, gpu: &'static Gpu) -> Self {
        Self { lane: lane(gpu, self.index()), ..self }
    }

    /// The lane's number.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// Whether other threads count there, too.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared != 0
    }

    /// Counts one call of a launch symbol and what it was charged.
    #[inline]
    pub fn launched(&self, call: usize, charged_ns: u64) {
        if let Some(calls) = self.lane.calls.get(call) {
            self.add(calls, 1);
        }
        self.add(&self.lane.charged_ns, charged_ns);
    }

    /// Takes back what a launch was charged that the driver refused.
    pub fn uncharge(&self, ns: u64) {
        self.add(&self.lane.charged_ns, ns.wrapping_neg());
    }

    /// Adds to one of the lane's counters.
    #[inline]
    pub fn add(&self, counter: &AtomicU64, amount: u64) {
        // Counters are for people and for the manager's sums. A lane of one's own needs no locked instruction: nobody else
        // writes it. Release: whoever finds what was charged finds the run that it belongs to (`Run::book`).
        if self.shared != 0 {
            counter.fetch_add(amount, Ordering::Relaxed);
        } else {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Release);
        }
    }

    /// The lane itself.
    pub fn lane(&self) -> &'static Lane {
        self.lane
    }
}
