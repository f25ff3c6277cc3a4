//! Host memory into which the GPU writes how far it has come.

use std::ptr::null_mut;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};
use weir_abi::types::*;
use weir_core::flight::{Flight, Words};

use crate::driver::{self, Stream};

/// A stream that does not wait has gone on within a moment, and one that waited goes on within so many.
const MOMENT: Duration = Duration::from_micros(100);
const MOMENTS: u32 = 1_000;

/// A page: what drivers register at least.
const PAGE: usize = 4096;
const _: () = assert!(Words::BYTES <= PAGE);

/// Gives the context that is current on this thread its words, if the device can write them. Registering memory may wait
/// for the GPU, so this is done when a context is first seen and never later. The page stays: the driver lets go of it
/// with the context, and the GPU may write until then.
pub fn give(flight: &Flight, in_stream: bool) {
    let (mut device, mut able): (CUdevice, _) = (0, 0);
    let asked = driver::context_device(&raw mut device) == CUDA_SUCCESS
        && driver::device_attribute(&raw mut able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device)
            == CUDA_SUCCESS;
    if !asked || able == 0 {
        return;
    }
    // Shared: of a private page a fork would leave the GPU one copy and the process, which writes there, another.
    let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
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
        let words = Words::new(unsafe { &*page.cast() }, address);
        let can_wait = in_stream && can_wait(&words);
        flight.set_words(words);
        flight.set_can_wait(can_wait);
    } else {
        // SAFETY: mapped above, seen by nobody.
        let _ = unsafe { rustix::mm::munmap(page, PAGE) };
    }
}

/// Whether a stream waits for a word and goes on when it is there: what the driver answers says that it knows the call.
fn can_wait(words: &Words) -> bool {
    let mut stream: CUstream = null_mut();
    if driver::stream_create(&raw mut stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS {
        return false;
    }
    let own = Stream::legacy(stream);
    let put = |opens, passed| own.wait_for_word(opens, 1) && own.write(passed, 1);
    let mut moments = 0..MOMENTS;
    let patience = || {
        std::thread::sleep(MOMENT);
        moments.next().is_some()
    };
    let works = words.hold(put, || std::thread::sleep(MOMENT), patience);
    driver::stream_destroy(stream);
    works
}
