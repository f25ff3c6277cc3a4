//! Host memory into which the GPU writes how far it has come.

use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags};
use weir_abi::types::*;
use weir_core::flight::{Flight, Words};

use crate::driver;

/// A page: what drivers register at least.
const PAGE: usize = 4096;
const _: () = assert!(Words::BYTES <= PAGE);

/// Gives the context that is current on this thread its words, if the device can write them. Registering memory may wait
/// for the GPU, so this is done when a context is first seen and never later. The page stays: the driver lets go of it
/// with the context, and the GPU may write until then.
pub fn give(flight: &Flight) {
    let (mut device, mut able): (CUdevice, _) = (0, 0);
    let asked = driver::context_device(&raw mut device) == CUDA_SUCCESS
        && driver::device_attribute(&raw mut able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device)
            == CUDA_SUCCESS;
    if !asked || able == 0 {
        return;
    }
    let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
    let Ok(page) = (unsafe { rustix::mm::mmap_anonymous(null_mut(), PAGE, flags.0, flags.1) }) else {
        return;
    };
    let _relaxed = driver::Relaxed::enter();
    let mut address = 0;
    let seen = driver::host_register(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS
        && driver::host_address(&raw mut address, page, 0) == CUDA_SUCCESS;
    if seen {
        // SAFETY: a zeroed page of our own that is never unmapped; the GPU writes whole words.
        flight.set_words(Words::new(unsafe { &*page.cast() }, address));
    } else {
        // SAFETY: mapped above, seen by nobody.
        let _ = unsafe { rustix::mm::munmap(page, PAGE) };
    }
}
