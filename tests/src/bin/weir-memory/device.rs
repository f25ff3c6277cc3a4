//! Plain and managed memory, waits, and what is free.

use std::ptr::null_mut;

use weir_tests::call;
use weir_tests::obeying::{Done, size};

use crate::Client;

/// `CU_MEM_ATTACH_GLOBAL` of the driver's documentation: managed memory for every stream.
const ATTACH_GLOBAL: std::ffi::c_uint = 1;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    let mut pointer = 0;
    Some(match command {
        "info" => {
            let (mut free, mut total) = (0, 0);
            let result = call!(client, cuMemGetInfo_v2(&raw mut free, &raw mut total));
            (result, vec![free as u64, total as u64])
        }
        "total" => {
            let mut total = 0;
            (call!(client, cuDeviceTotalMem_v2(&raw mut total, 0)), vec![total as u64])
        }
        "allocate" => (call!(client, cuMemAlloc_v2(&raw mut pointer, size(n(0)))), vec![pointer]),
        "managed" => {
            (call!(client, cuMemAllocManaged(&raw mut pointer, size(n(0)), ATTACH_GLOBAL)), vec![pointer])
        }
        "rows" => {
            let mut pitch = 0;
            let result = call!(
                client,
                cuMemAllocPitch_v2(&raw mut pointer, &raw mut pitch, size(n(0)), size(n(1)), 4)
            );
            (result, vec![pointer, pitch as u64])
        }
        "free" => (call!(client, cuMemFree_v2(n(0))), Vec::new()),
        "wait" => (call!(client, cuCtxSynchronize()), Vec::new()),
        "wait_stream" => (call!(client, cuStreamSynchronize(client.stream)), Vec::new()),
        "wait_event" => {
            let mut event = null_mut();
            call!(client, cuEventCreate(&raw mut event, 0));
            call!(client, cuEventRecord(event, client.stream));
            (call!(client, cuEventSynchronize(event)), Vec::new())
        }
        _ => return None,
    })
}
