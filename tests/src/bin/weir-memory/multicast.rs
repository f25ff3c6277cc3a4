//! Multicast objects.

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, size};

use crate::Client;

/// One command, if it is of this subject. A device that is not named is the first one.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    let device = |at: usize| i32::try_from(n(at)).unwrap_or(-1);
    Some(match command {
        "multicast" => create(client, n(0), 1, CU_MEM_HANDLE_TYPE_NONE),
        "multicast_to_share" => create(client, n(0), n(1), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "multicast_join" => (call!(client, cuMulticastAddDevice(n(0), device(1))), Vec::new()),
        "multicast_bind" => (call!(client, cuMulticastBindMem(n(0), 0, n(1), 0, size(n(2)), 0)), Vec::new()),
        "multicast_bind_at" => (call!(client, cuMulticastBindAddr(n(0), 0, n(1), size(n(2)), 0)), Vec::new()),
        "multicast_unbind" => (call!(client, cuMulticastUnbind(n(0), device(2), 0, size(n(1)))), Vec::new()),
        _ => return None,
    })
}

/// An object for so many devices.
fn create(client: &Client, bytes: u64, devices: u64, handle_types: CUmemAllocationHandleType) -> Done {
    let num_devices = u32::try_from(devices).unwrap_or(0);
    let (size, handle_types) = (size(bytes), handle_types.into());
    let prop = CUmulticastObjectProp { num_devices, size, handle_types, flags: 0 };
    let mut object = 0;
    (call!(client, cuMulticastCreate(&raw mut object, &raw const prop)), vec![object])
}
