//! One kernel on several devices. Its parts wait for each other on the GPUs, so nothing may be held back between them: each is
//! charged where it runs, as debt where need be, shows on the board there, and the call goes out at once.

use std::ffi::c_uint;
use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::CUDA_LAUNCH_PARAMS;

use super::admit::{Admission, owe};
use super::{Work, shape};
use crate::driver::{self, Stream};
use crate::guard::guard;
use crate::link::{CAPTURES, Client};
use crate::thread::{self, Thread};

/// `cuLaunchCooperativeKernelMultiDevice`.
pub fn multi_device(
    counted: usize,
    list: *const CUDA_LAUNCH_PARAMS,
    devices: c_uint,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    guard(
        |client| {
            thread::with(|thread| {
                if let Some(current) = thread.find_current(client) {
                    current.counters.launched(counted, 0);
                }
                let parts = parts(list, devices).iter();
                Ok(parts.filter_map(|part| admit(client, thread, part)).collect::<Vec<_>>())
            })
        },
        call,
        |_, admitted, result| {
            thread::with(|thread| {
                admitted.iter().for_each(|(admission, stream)| admission.settle(thread, *stream, result));
            });
        },
    )
}

/// None where there is no list, or a longer one than there are devices: the driver says what is wrong with that, and does not
/// read it.
fn parts<'a>(list: *const CUDA_LAUNCH_PARAMS, devices: c_uint) -> &'a [CUDA_LAUNCH_PARAMS] {
    if list.is_null() || devices as usize > driver::devices() {
        return &[];
    }
    // SAFETY: the caller passes `devices` launches; the driver reads the same ones.
    unsafe { std::slice::from_raw_parts(list, devices as usize) }
}

/// Charges one part on the GPU of its stream.
fn admit(client: &'static Client, thread: &Thread, part: &CUDA_LAUNCH_PARAMS) -> Option<(Admission, Stream)> {
    let stream = Stream::legacy(part.stream);
    let current = thread.find_for(client, stream)?;
    if CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing() {
        return None;
    }
    let grid = [part.grid_dim_x, part.grid_dim_y, part.grid_dim_z];
    let block = [part.block_dim_x, part.block_dim_y, part.block_dim_z];
    let signature = shape(part.function, grid, block, part.shared_mem_bytes);
    let look_up = || Work::Kernel(signature).look_up(client);
    Some((owe(thread, &current, stream, signature, look_up), stream))
}
