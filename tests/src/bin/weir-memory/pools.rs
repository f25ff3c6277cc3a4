//! Memory pools. The pool 0 is the device's own.

use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::Client;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    let mut pointer = 0;
    Some(match command {
        "pool_create" => create(client, n(0), CU_MEM_HANDLE_TYPE_NONE),
        "pool_create_shareable" => create(client, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "pool_export" => {
            let mut data = [0u64; 8];
            (call!(client, cuMemPoolExportPointer(data.as_mut_ptr().cast(), n(0))), data.to_vec())
        }
        "pool_import" => {
            let (mut pool, kind) = (null_mut(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
            let result =
                call!(client, cuMemPoolImportFromShareableHandle(&raw mut pool, handle(n(0)), kind, 0));
            (result, vec![number(pool)])
        }
        "pool_open" => {
            let mut data: [u64; 8] = std::array::from_fn(|at| n(at + 1));
            let data = data.as_mut_ptr().cast();
            (call!(client, cuMemPoolImportPointer(&raw mut pointer, handle(n(0)), data)), vec![pointer])
        }
        "pool_set" => (call!(client, cuDeviceSetMemPool(0, of(client, n(0)))), Vec::new()),
        "pool_destroy" => (call!(client, cuMemPoolDestroy(handle(n(0)))), Vec::new()),
        "pool_allocate" if n(1) == 0 => {
            (call!(client, cuMemAllocAsync(&raw mut pointer, size(n(0)), client.stream)), vec![pointer])
        }
        "pool_allocate" => {
            let pool = handle(n(1));
            let result =
                call!(client, cuMemAllocFromPoolAsync(&raw mut pointer, size(n(0)), pool, client.stream));
            (result, vec![pointer])
        }
        "pool_allocate_of_thread" if n(1) == 0 => {
            (call!(client, cuMemAllocAsync_ptsz(&raw mut pointer, size(n(0)), null_mut())), vec![pointer])
        }
        "pool_allocate_of_thread" => {
            let (bytes, pool) = (size(n(0)), handle(n(1)));
            let result =
                call!(client, cuMemAllocFromPoolAsync_ptsz(&raw mut pointer, bytes, pool, null_mut()));
            (result, vec![pointer])
        }
        "pool_free_of_thread" => (call!(client, cuMemFreeAsync_ptsz(n(0), null_mut())), Vec::new()),
        "pool_free" => (call!(client, cuMemFreeAsync(n(0), client.stream)), Vec::new()),
        "pool_trim" => {
            let pool = of(client, n(0));
            (call!(client, cuMemPoolTrimTo(pool, size(n(1)))), Vec::new())
        }
        "pool_keep" => {
            let (pool, mut bytes) = (of(client, n(0)), n(1));
            let which = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            (call!(client, cuMemPoolSetAttribute(pool, which, (&raw mut bytes).cast())), Vec::new())
        }
        "pool_reserved" => {
            let (pool, mut bytes) = (of(client, n(0)), 0u64);
            let which = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
            (call!(client, cuMemPoolGetAttribute(pool, which, (&raw mut bytes).cast())), vec![bytes])
        }
        _ => return None,
    })
}

fn of(client: &Client, number: u64) -> CUmemoryPool {
    let mut pool = handle(number);
    if number == 0 {
        call!(client, cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    }
    pool
}

/// A pool on this device.
fn create(client: &Client, device: u64, handle_types: CUmemAllocationHandleType) -> Done {
    let properties = CUmemPoolProps {
        alloc_type: CU_MEM_ALLOCATION_TYPE_PINNED,
        handle_types,
        location: CUmemLocation {
            kind: CU_MEM_LOCATION_TYPE_DEVICE,
            id: i32::try_from(device).unwrap_or(-1),
        },
        win32_security_attributes: null_mut(),
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    };
    let mut pool = null_mut();
    let result = call!(client, cuMemPoolCreate(&raw mut pool, &raw const properties));
    (result, vec![number(pool)])
}
