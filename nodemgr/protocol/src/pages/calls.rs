//! The calls that a process counts, each in a word of its own.

/// The launch calls that a lane counts, by exported symbol. An index into this table is an index into
/// [`Lane::calls`](super::Lane::calls).
pub const COUNTED_LAUNCHES: [&str; 15] = [
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel_ptsz",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
    "cuLaunch",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
    "",
    "",
    "",
];

/// The memory calls that a process counts, by exported symbol. An index into this table is an index into
/// [`ProcessSlot::memory_calls`](super::ProcessSlot::memory_calls).
pub const COUNTED_MEMORY_CALLS: [&str; 22] = [
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuMemFreeAsync",
    "cuMemFreeAsync_ptsz",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemMap",
    "cuMemUnmap",
    "cuArrayCreate_v2",
    "cuArray3DCreate_v2",
    "cuArrayDestroy",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuMemGetInfo_v2",
    "cuDeviceTotalMem_v2",
];
