//! Memory that crosses processes, by handles of `cuIpc` and by file descriptors.

use std::os::fd::IntoRawFd;
use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, number, size};

use crate::Client;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, n: impl Fn(usize) -> u64) -> Option<Done> {
    Some(match command {
        "ipc_get" => {
            let mut ticket = CUipcMemHandle { reserved: [0; 64] };
            let result = call!(client, cuIpcGetMemHandle(&raw mut ticket, n(0)));
            let words = ticket.reserved.chunks_exact(8).filter_map(|word| word.try_into().ok());
            (result, words.map(u64::from_le_bytes).collect())
        }
        "ipc_open" => {
            let (mut ticket, mut address) = (CUipcMemHandle { reserved: [0; 64] }, 0);
            for (at, word) in ticket.reserved.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&n(at).to_le_bytes());
            }
            (call!(client, cuIpcOpenMemHandle_v2(&raw mut address, ticket, 1)), vec![address])
        }
        "ipc_close" => (call!(client, cuIpcCloseMemHandle(n(0))), Vec::new()),
        "create" => create(client, n(0), ON_FIRST, 0),
        "create_at" => {
            let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            create(client, n(0), CUmemLocation { kind: small(n(1)), id: small(n(2)).cast_signed() }, 0)
        }
        "create_for_tiles" => create(client, n(0), ON_FIRST, CU_MEM_CREATE_USAGE_TILE_POOL),
        "export" => {
            let (mut file, kind) = (0i32, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
            let result = call!(client, cuMemExportToShareableHandle((&raw mut file).cast(), n(0), kind, 0));
            (result, vec![u64::from(file.unsigned_abs())])
        }
        "import" => import(client, n(0), n(1)),
        "hold" => match descriptor(n(0), n(1)) {
            Some(file) => (CUDA_SUCCESS, vec![file]),
            None => (CUDA_ERROR_FILE_NOT_FOUND, Vec::new()),
        },
        "external" => external(client, n(0)),
        "external_destroy" => (call!(client, cuDestroyExternalMemory(handle(n(0)))), Vec::new()),
        "map" => {
            let mut address = 0;
            call!(client, cuMemAddressReserve(&raw mut address, size(n(1)), 0, 0, 0));
            (call!(client, cuMemMap(address, size(n(1)), 0, n(0), 0)), vec![address])
        }
        "unmap" => (call!(client, cuMemUnmap(n(0), size(n(1)))), Vec::new()),
        "retain" => {
            let mut again = 0;
            (call!(client, cuMemRetainAllocationHandle(&raw mut again, handle(n(0)))), vec![again])
        }
        "release" => (call!(client, cuMemRelease(n(0))), Vec::new()),
        _ => return None,
    })
}

/// The first GPU's memory.
const ON_FIRST: CUmemLocation = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };

/// Physical memory that can be given out.
fn create(client: &Client, bytes: u64, location: CUmemLocation, usage: std::ffi::c_ushort) -> Done {
    let properties = CUmemAllocationProp {
        kind: CU_MEM_ALLOCATION_TYPE_PINNED,
        requested_handle_types: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location,
        win32_handle_meta_data: null_mut(),
        compression_type: 0,
        gpu_direct_rdma_capable: 0,
        usage,
        reserved: [0; 4],
    };
    let mut physical = 0;
    (call!(client, cuMemCreate(&raw mut physical, size(bytes), &raw const properties, 0)), vec![physical])
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`
#[repr(C)]
struct ExternalDesc {
    kind: std::ffi::c_uint,
    handle: [u64; 2],
    size: u64,
    rest: [std::ffi::c_uint; 17],
}

/// Imports a file's memory as another interface's.
fn external(client: &Client, bytes: u64) -> Done {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"external".as_ptr(), 0) };
    // SAFETY: the descriptor of the line above.
    unsafe { libc::ftruncate(file, i64::try_from(bytes).unwrap_or(0)) };
    let desc =
        ExternalDesc { kind: 1, handle: [u64::from(file.unsigned_abs()), 0], size: bytes, rest: [0; 17] };
    let mut memory = null_mut();
    (call!(client, cuImportExternalMemory(&raw mut memory, (&raw const desc).cast())), vec![number(memory)])
}

/// A descriptor of what a process has exported, which programs would send over a socket.
fn descriptor(pid: u64, file: u64) -> Option<u64> {
    let path = format!("/proc/{pid}/fd/{file}");
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(path);
    opened.ok().map(|file| u64::from(file.into_raw_fd().unsigned_abs()))
}

/// Imports what a process has exported.
fn import(client: &Client, pid: u64, file: u64) -> Done {
    let Some(file) = descriptor(pid, file) else { return (CUDA_ERROR_FILE_NOT_FOUND, Vec::new()) };
    let (mut physical, kind) = (0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    (call!(client, cuMemImportFromShareableHandle(&raw mut physical, handle(file), kind)), vec![physical])
}
