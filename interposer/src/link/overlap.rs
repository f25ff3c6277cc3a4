//! Whether tenants' kernels run at once on this GPU, and with whom this process shares it then.

use std::sync::atomic::{AtomicU8, Ordering};

use weir_abi::types::*;
use weir_core::admission::Launching;
use weir_core::lock::Lock;
use weir_core::overlap::{self, Beside, Presence, Weight};
use weir_protocol::units::Nanos;

use super::{Client, Gpu};
use crate::{clock, driver};

/// How tenants share the GPU, and those who were there at the last look.
#[derive(Default)]
pub struct Overlap {
    mode: AtomicU8, // `UNKNOWN`, ..
    around: Lock<Around>,
}

#[derive(Default)]
struct Around {
    siblings: Presence,
    present: Vec<Beside>, // kept for its room
}

const UNKNOWN: u8 = 0;
const TIME_SLICES: u8 = 1;
const AT_ONCE: u8 = 2;

/// Said when a process that should be a client of MPS is none: the driver does not say so.
static BESIDE_MPS: crate::say::Once = crate::say::Once::new();

impl Gpu {
    /// Learns from the driver, at the first context, how tenants share the GPU and how large it is.
    pub fn ask_mode(&self) {
        if self.overlap.mode.load(Ordering::Relaxed) != UNKNOWN {
            return;
        }
        let mut device: CUdevice = 0;
        let (mut mps, mut sms) = (0, 0);
        if driver::context_device(&raw mut device) != CUDA_SUCCESS {
            return;
        }
        // Drivers before CUDA 12.4 do not know the question; they are taken to slice, which only costs overlap.
        let asked = driver::device_attribute(&raw mut mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
        let at_once = asked == CUDA_SUCCESS && mps != 0;
        self.overlap.mode.store(if at_once { AT_ONCE } else { TIME_SLICES }, Ordering::Relaxed);
        if self.is_beside_mps() {
            BESIDE_MPS.say(|| {
                "this process is no client of MPS, by which tenants share the GPU: it has no partition and no priority there, and \
                 is held by its gate alone. help: leave CUDA_MPS_PIPE_DIRECTORY as `weir run` sets it, and see that the control \
                 daemon runs"
                    .into()
            });
        }
        let counted =
            driver::device_attribute(&raw mut sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
        if let (CUDA_SUCCESS, Some(client)) = (counted, Client::get()) {
            client.book.set_sms(u32::try_from(sms).unwrap_or(0));
        }
    }

    /// Whether tenants' kernels run at once (MPS).
    pub fn overlaps(&self) -> bool {
        self.overlap.mode.load(Ordering::Relaxed) == AT_ONCE
    }

    /// Whether somebody else's work may be told apart from this process's own by marks alone: a neighbour's, or a sibling's that runs
    /// at the same time. Until a mark is reached, neither hears for how long the other was there.
    pub fn is_divided(&self) -> bool {
        Launching::has_neighbours(&self) || self.overlaps() && self.has_siblings()
    }

    /// Whether this process should be a client of MPS and is none.
    pub fn is_beside_mps(&self) -> bool {
        self.by_mps && self.overlap.mode.load(Ordering::Relaxed) == TIME_SLICES
    }

    /// Looks who else is on the GPU.
    pub fn look_around(&self) {
        let mut around = self.overlap.around.lock();
        around.siblings.look(self.activity.occupancy(Some(self.slot_index())), clock::now);
        self.board.look(self.grant.board());
    }

    /// What weighed on the GPU beside this process from one moment to another.
    pub fn beside(&self, time: (Nanos, Nanos)) -> Weight {
        self.around(time, overlap::beside)
    }

    /// The part of that time that belongs to this process, whose kernels have this weight.
    pub fn part(&self, weight: Weight, time: (Nanos, Nanos)) -> f64 {
        self.around(time, |present| overlap::part(weight, present))
    }

    fn around<T>(&self, time: (Nanos, Nanos), tell: impl FnOnce(&[Beside]) -> T) -> T {
        let mut around = self.overlap.around.lock();
        let Around { siblings, present, .. } = &mut *around;
        present.clear();
        present.push(siblings.over(time));
        self.board.add_over(self.grant.board(), time, present);
        tell(present)
    }
}
