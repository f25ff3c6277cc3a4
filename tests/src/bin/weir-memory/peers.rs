//! Memory of one GPU that another may use.

use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::Client;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    Some(match command {
        "peer" => {
            let mut context = null_mut();
            let made = call!(client, cuDevicePrimaryCtxRetain(&raw mut context, device(n(0))));
            (made, vec![number(context)])
        }
        "peer_enable" => (call!(client, cuCtxEnablePeerAccess(handle(n(0)), 0)), Vec::new()),
        "access" => {
            let by = by(n(2));
            (call!(client, cuMemSetAccess(n(0), size(n(1)), &raw const by, 1)), Vec::new())
        }
        "pool_access" => {
            let by = by(n(1));
            (call!(client, cuMemPoolSetAccess(handle(n(0)), &raw const by, 1)), Vec::new())
        }
        _ => return None,
    })
}

fn device(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(-1)
}

/// Everything, by this device.
fn by(number: u64) -> CUmemAccessDesc {
    let location = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device(number) };
    CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE }
}
