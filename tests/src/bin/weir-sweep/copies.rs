//! Every way to copy and to set memory, each with another number of bytes.

use std::ffi::c_void;
use std::ptr::null_mut;

use weir_abi::types::*;

use crate::{Sweep, call};

/// Bytes of each buffer, and of the array.
const BUFFER: usize = 1 << 16;

/// What the calls work on.
#[derive(Clone, Copy)]
struct Places {
    stream: CUstream,
    context: CUcontext,
    to: CUdeviceptr,
    from: CUdeviceptr,
    host: *mut c_void,
    array: CUarray,
}

/// Makes a call, and notes what it copied: a hundred bytes more than the one before.
macro_rules! copy {
    ($sweep:expr, $way:literal, |$bytes:ident| $function:ident($($argument:expr),* $(,)?)) => {{
        $sweep.next += 100;
        let $bytes = $sweep.next;
        let result = call!($sweep, $function($($argument),*));
        assert!(result == CUDA_SUCCESS, "{}: {result:?}", stringify!($function));
        note($sweep, $way, $bytes);
    }};
}

fn note(sweep: &mut Sweep, way: &'static str, bytes: usize) {
    let copied = sweep.made.copied.entry(way).or_default();
    (copied.calls, copied.bytes) = (copied.calls + 1, copied.bytes + bytes as u64);
}

/// Copies and sets in each way.
pub fn all(sweep: &mut Sweep) {
    let mut places = Places {
        stream: sweep.stream,
        context: null_mut(),
        to: 0,
        from: 0,
        host: null_mut(),
        array: null_mut(),
    };
    call!(sweep, cuCtxGetCurrent(&raw mut places.context));
    call!(sweep, cuMemAlloc_v2(&raw mut places.to, BUFFER));
    call!(sweep, cuMemAlloc_v2(&raw mut places.from, BUFFER));
    call!(sweep, cuMemHostAlloc(&raw mut places.host, BUFFER, 0));
    let format = CU_AD_FORMAT_UNSIGNED_INT8;
    let shape = CUDA_ARRAY_DESCRIPTOR { width: BUFFER, height: 1, format, num_channels: 1 };
    call!(sweep, cuArrayCreate_v2(&raw mut places.array, &raw const shape));
    between_host_and_device(sweep, places);
    within_and_between_devices(sweep, places);
    of_arrays(sweep, places);
    of_unknown_places(sweep, places);
    rectangles(sweep, places);
    boxes(sweep, places);
    batches(sweep, places);
    lists_of_boxes(sweep, places);
    sets(sweep, places);
    set_rows(sweep, places);
    call!(sweep, cuArrayDestroy(places.array));
    call!(sweep, cuMemFreeHost(places.host));
    call!(sweep, cuMemFree_v2(places.to));
    call!(sweep, cuMemFree_v2(places.from));
}

fn between_host_and_device(sweep: &mut Sweep, places: Places) {
    let Places { stream, to, from, host, .. } = places;
    copy!(sweep, "host_to_device", |n| cuMemcpyHtoD_v2(to, host, n));
    copy!(sweep, "host_to_device", |n| cuMemcpyHtoD_v2_ptds(to, host, n));
    copy!(sweep, "host_to_device", |n| cuMemcpyHtoDAsync_v2(to, host, n, stream));
    copy!(sweep, "host_to_device", |n| cuMemcpyHtoDAsync_v2_ptsz(to, host, n, null_mut()));
    copy!(sweep, "device_to_host", |n| cuMemcpyDtoH_v2(host, from, n));
    copy!(sweep, "device_to_host", |n| cuMemcpyDtoH_v2_ptds(host, from, n));
    copy!(sweep, "device_to_host", |n| cuMemcpyDtoHAsync_v2(host, from, n, stream));
    copy!(sweep, "device_to_host", |n| cuMemcpyDtoHAsync_v2_ptsz(host, from, n, null_mut()));
}

fn within_and_between_devices(sweep: &mut Sweep, places: Places) {
    let Places { stream, context, to, from, .. } = places;
    copy!(sweep, "device_to_device", |n| cuMemcpyDtoD_v2(to, from, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyDtoD_v2_ptds(to, from, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyDtoDAsync_v2(to, from, n, stream));
    copy!(sweep, "device_to_device", |n| cuMemcpyDtoDAsync_v2_ptsz(to, from, n, null_mut()));
    // Between contexts, here of one device.
    copy!(sweep, "device_to_device", |n| cuMemcpyPeer(to, context, from, context, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyPeer_ptds(to, context, from, context, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyPeerAsync(to, context, from, context, n, stream));
    copy!(sweep, "device_to_device", |n| cuMemcpyPeerAsync_ptsz(to, context, from, context, n, null_mut()));
}

fn of_arrays(sweep: &mut Sweep, places: Places) {
    let Places { stream, to, from, host, array, .. } = places;
    copy!(sweep, "device_to_device", |n| cuMemcpyDtoA_v2(array, 0, from, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyDtoA_v2_ptds(array, 0, from, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyAtoD_v2(to, array, 0, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyAtoD_v2_ptds(to, array, 0, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyAtoA_v2(array, 0, array, BUFFER / 2, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyAtoA_v2_ptds(array, 0, array, BUFFER / 2, n));
    copy!(sweep, "host_to_device", |n| cuMemcpyHtoA_v2(array, 0, host, n));
    copy!(sweep, "host_to_device", |n| cuMemcpyHtoA_v2_ptds(array, 0, host, n));
    copy!(sweep, "host_to_device", |n| cuMemcpyHtoAAsync_v2(array, 0, host, n, stream));
    copy!(sweep, "host_to_device", |n| cuMemcpyHtoAAsync_v2_ptsz(array, 0, host, n, null_mut()));
    copy!(sweep, "device_to_host", |n| cuMemcpyAtoH_v2(host, array, 0, n));
    copy!(sweep, "device_to_host", |n| cuMemcpyAtoH_v2_ptds(host, array, 0, n));
    copy!(sweep, "device_to_host", |n| cuMemcpyAtoHAsync_v2(host, array, 0, n, stream));
    copy!(sweep, "device_to_host", |n| cuMemcpyAtoHAsync_v2_ptsz(host, array, 0, n, null_mut()));
}

/// Which way they go, only the driver can tell.
fn of_unknown_places(sweep: &mut Sweep, places: Places) {
    let Places { stream, to, from, host, .. } = places;
    let host = host.expose_provenance() as u64;
    let mut pageable = vec![0u8; BUFFER];
    let unknown = pageable.as_mut_ptr().expose_provenance() as u64;
    copy!(sweep, "host_to_device", |n| cuMemcpy(to, host, n));
    copy!(sweep, "host_to_device", |n| cuMemcpy(to, unknown, n));
    copy!(sweep, "device_to_host", |n| cuMemcpy_ptds(host, from, n));
    copy!(sweep, "device_to_device", |n| cuMemcpyAsync(to, from, n, stream));
    copy!(sweep, "device_to_host", |n| cuMemcpyAsync_ptsz(host, from, n, null_mut()));
    // From host to host: no copy of the GPU's.
    call!(sweep, cuMemcpy(host, unknown, 64));
    call!(sweep, cuCtxSynchronize());
}

fn rectangles(sweep: &mut Sweep, places: Places) {
    let Places { stream, to, from, host, .. } = places;
    // SAFETY: a plain description, for which zeroes are valid.
    let mut shape: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    (shape.src_memory_type, shape.src_device, shape.src_pitch) = (CU_MEMORYTYPE_DEVICE, from, 4096);
    (shape.dst_memory_type, shape.dst_host, shape.dst_pitch) = (CU_MEMORYTYPE_HOST, host, 4096);
    (shape.height, shape.width_in_bytes) = (3, 1000);
    let mut rows = |sweep: &mut Sweep| {
        shape.width_in_bytes += 8;
        note(sweep, "device_to_host", shape.width_in_bytes * 3);
        shape
    };
    let one = rows(sweep);
    call!(sweep, cuMemcpy2D_v2(&raw const one));
    let one = rows(sweep);
    call!(sweep, cuMemcpy2D_v2_ptds(&raw const one));
    let one = rows(sweep);
    call!(sweep, cuMemcpy2DUnaligned_v2(&raw const one));
    let one = rows(sweep);
    call!(sweep, cuMemcpy2DUnaligned_v2_ptds(&raw const one));
    let one = rows(sweep);
    call!(sweep, cuMemcpy2DAsync_v2(&raw const one, stream));
    (shape.src_memory_type, shape.src_host) = (CU_MEMORYTYPE_HOST, host);
    (shape.dst_memory_type, shape.dst_device) = (CU_MEMORYTYPE_UNIFIED, to);
    call!(sweep, cuMemcpy2DAsync_v2_ptsz(&raw const shape, null_mut()));
    note(sweep, "host_to_device", shape.width_in_bytes * 3);
}

fn boxes(sweep: &mut Sweep, places: Places) {
    let Places { stream, context, to, from, host, .. } = places;
    // SAFETY: as above.
    let mut shape: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (shape.src_memory_type, shape.src_host) = (CU_MEMORYTYPE_HOST, host);
    (shape.dst_memory_type, shape.dst_device) = (CU_MEMORYTYPE_DEVICE, to);
    (shape.width_in_bytes, shape.height, shape.depth) = (100, 5, 7);
    for _ in 0..4 {
        note(sweep, "host_to_device", 100 * 5 * 7);
    }
    call!(sweep, cuMemcpy3D_v2(&raw const shape));
    call!(sweep, cuMemcpy3D_v2_ptds(&raw const shape));
    call!(sweep, cuMemcpy3DAsync_v2(&raw const shape, stream));
    call!(sweep, cuMemcpy3DAsync_v2_ptsz(&raw const shape, null_mut()));
    // SAFETY: as above.
    let mut peer: CUDA_MEMCPY3D_PEER = unsafe { std::mem::zeroed() };
    (peer.src_memory_type, peer.src_device, peer.src_context) = (CU_MEMORYTYPE_DEVICE, from, context);
    (peer.dst_memory_type, peer.dst_device, peer.dst_context) = (CU_MEMORYTYPE_DEVICE, to, context);
    (peer.width_in_bytes, peer.height, peer.depth) = (90, 5, 7);
    for _ in 0..4 {
        note(sweep, "device_to_device", 90 * 5 * 7);
    }
    call!(sweep, cuMemcpy3DPeer(&raw const peer));
    call!(sweep, cuMemcpy3DPeer_ptds(&raw const peer));
    call!(sweep, cuMemcpy3DPeerAsync(&raw const peer, stream));
    call!(sweep, cuMemcpy3DPeerAsync_ptsz(&raw const peer, null_mut()));
}

/// `CUmemcpyAttributes` of the driver's documentation: source in stream order, no hints.
#[repr(C)]
struct Attributes([u32; 6]);

fn batches(sweep: &mut Sweep, places: Places) {
    let Places { stream, to, from, host, .. } = places;
    let host = host.expose_provenance() as u64;
    let (mut to, mut from) = ([to, host, to], [host, from, from]);
    let mut bytes = [700usize, 800, 900];
    let (mut attributes, mut first_of, mut failed) = (Attributes([3, 0, 0, 0, 0, 0]), [0usize], 0);
    let attributes = (&raw mut attributes).cast();
    for _ in 0..4 {
        note(sweep, "host_to_device", 700);
        note(sweep, "device_to_host", 800);
        note(sweep, "device_to_device", 900);
    }
    let (to, from, bytes, first_of) =
        (to.as_mut_ptr(), from.as_mut_ptr(), bytes.as_mut_ptr(), first_of.as_mut_ptr());
    let failed = &raw mut failed;
    call!(sweep, cuMemcpyBatchAsync(to, from, bytes, 3, attributes, first_of, 1, failed, stream));
    call!(sweep, cuMemcpyBatchAsync_ptsz(to, from, bytes, 3, attributes, first_of, 1, failed, stream));
    call!(sweep, cuMemcpyBatchAsync_v2(to, from, bytes, 3, attributes, first_of, 1, stream));
    call!(sweep, cuMemcpyBatchAsync_v2_ptsz(to, from, bytes, 3, attributes, first_of, 1, stream));
}

/// `CUmemcpy3DOperand`: a pointer (1) or an array (2).
#[repr(C)]
struct Operand {
    kind: u32,
    place: u64,
    words: [u64; 3],
}

/// `CUDA_MEMCPY3D_BATCH_OP`: an extent in elements.
#[repr(C)]
struct Solid {
    from: Operand,
    to: Operand,
    extent: [usize; 3],
    order_and_flags: [u32; 2],
}

fn lists_of_boxes(sweep: &mut Sweep, places: Places) {
    let Places { stream, to, host, .. } = places;
    let mut wide = null_mut();
    let format = CU_AD_FORMAT_UNSIGNED_INT32; // four bytes an element
    let shape = CUDA_ARRAY_DESCRIPTOR { width: 1_024, height: 8, format, num_channels: 1 };
    call!(sweep, cuArrayCreate_v2(&raw mut wide, &raw const shape));
    let pointer = |place| Operand { kind: 1, place, words: [0; 3] };
    let (host, array) = (host.expose_provenance() as u64, wide.expose_provenance() as u64);
    let array = || Operand { kind: 2, place: array, words: [16, 2, 0] };
    let solid = |from, to, extent| Solid { from, to, extent, order_and_flags: [3, 0] };
    let mut list = [
        solid(pointer(host), pointer(to), [60, 5, 2]),
        solid(pointer(to), pointer(host), [70, 5, 2]),
        solid(pointer(host), array(), [100, 3, 1]),
    ];
    for _ in 0..4 {
        note(sweep, "host_to_device", 600);
        note(sweep, "device_to_host", 700);
        note(sweep, "host_to_device", 1_200);
    }
    let (list, mut failed) = (list.as_mut_ptr().cast(), 0);
    let failed = &raw mut failed;
    let results = [
        call!(sweep, cuMemcpy3DBatchAsync(3, list, failed, 0, stream)),
        call!(sweep, cuMemcpy3DBatchAsync_ptsz(3, list, failed, 0, stream)),
        call!(sweep, cuMemcpy3DBatchAsync_v2(3, list, 0, stream)),
        call!(sweep, cuMemcpy3DBatchAsync_v2_ptsz(3, list, 0, stream)),
    ];
    assert!(results.iter().all(|result| *result == CUDA_SUCCESS), "{results:?}");
    call!(sweep, cuStreamSynchronize(stream));
    call!(sweep, cuArrayDestroy(wide));
}

fn sets(sweep: &mut Sweep, places: Places) {
    let Places { stream, to, .. } = places;
    copy!(sweep, "fill", |n| cuMemsetD8_v2(to, 1, n));
    copy!(sweep, "fill", |n| cuMemsetD8_v2_ptds(to, 1, n));
    copy!(sweep, "fill", |n| cuMemsetD8Async(to, 1, n, stream));
    copy!(sweep, "fill", |n| cuMemsetD8Async_ptsz(to, 1, n, null_mut()));
    copy!(sweep, "fill", |n| cuMemsetD16_v2(to, 1, n / 2));
    copy!(sweep, "fill", |n| cuMemsetD16_v2_ptds(to, 1, n / 2));
    copy!(sweep, "fill", |n| cuMemsetD16Async(to, 1, n / 2, stream));
    copy!(sweep, "fill", |n| cuMemsetD16Async_ptsz(to, 1, n / 2, null_mut()));
    copy!(sweep, "fill", |n| cuMemsetD32_v2(to, 1, n / 4));
    copy!(sweep, "fill", |n| cuMemsetD32_v2_ptds(to, 1, n / 4));
    copy!(sweep, "fill", |n| cuMemsetD32Async(to, 1, n / 4, stream));
    copy!(sweep, "fill", |n| cuMemsetD32Async_ptsz(to, 1, n / 4, null_mut()));
}

fn set_rows(sweep: &mut Sweep, places: Places) {
    let Places { stream, to, .. } = places;
    let pitch = BUFFER / 4;
    copy!(sweep, "fill", |n| cuMemsetD2D8_v2(to, pitch, 1, n / 2, 2));
    copy!(sweep, "fill", |n| cuMemsetD2D8_v2_ptds(to, pitch, 1, n / 2, 2));
    copy!(sweep, "fill", |n| cuMemsetD2D8Async(to, pitch, 1, n / 2, 2, stream));
    copy!(sweep, "fill", |n| cuMemsetD2D8Async_ptsz(to, pitch, 1, n / 2, 2, null_mut()));
    copy!(sweep, "fill", |n| cuMemsetD2D16_v2(to, pitch, 1, n / 4, 2));
    copy!(sweep, "fill", |n| cuMemsetD2D16_v2_ptds(to, pitch, 1, n / 4, 2));
    copy!(sweep, "fill", |n| cuMemsetD2D16Async(to, pitch, 1, n / 4, 2, stream));
    copy!(sweep, "fill", |n| cuMemsetD2D16Async_ptsz(to, pitch, 1, n / 4, 2, null_mut()));
    copy!(sweep, "fill", |n| cuMemsetD2D32_v2(to, pitch, 1, n / 4, 1));
    copy!(sweep, "fill", |n| cuMemsetD2D32_v2_ptds(to, pitch, 1, n / 4, 1));
    copy!(sweep, "fill", |n| cuMemsetD2D32Async(to, pitch, 1, n / 4, 1, stream));
    copy!(sweep, "fill", |n| cuMemsetD2D32Async_ptsz(to, pitch, 1, n / 4, 1, null_mut()));
}
