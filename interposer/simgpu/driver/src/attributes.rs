//! What a simulated device says of itself: the attributes of an A100 with 40 GB (compute capability 8.0),
//! as its data sheet and `deviceQuery` give them. What depends on the configuration is filled in by
//! `device.rs`; an attribute that stands in neither is 0, and beyond the last one there is none.

/// Attributes that no configuration changes: (number in `cuda.h`, value).
pub const FIXED: &[(u32, i32)] = &[
    (1, 1024),         // threads per block
    (2, 1024),         // block x
    (3, 1024),         // block y
    (4, 64),           // block z
    (5, i32::MAX),     // grid x
    (6, 65_535),       // grid y
    (7, 65_535),       // grid z
    (8, 48 << 10),     // shared memory per block, bytes
    (9, 64 << 10),     // constant memory, bytes
    (10, 32),          // warp
    (11, i32::MAX),    // pitch, bytes
    (12, 65_536),      // registers per block
    (13, 1_410_000),   // SM clock, kHz
    (14, 512),         // texture alignment, bytes
    (15, 1),           // copies overlap kernels
    (19, 1),           // host memory can be mapped
    (21, 131_072),     // texture 1D width
    (22, 131_072),     // texture 2D width
    (23, 65_536),      // texture 2D height
    (24, 16_384),      // texture 3D width
    (25, 16_384),      // texture 3D height
    (26, 16_384),      // texture 3D depth
    (27, 32_768),      // layered 2D texture width
    (28, 32_768),      // layered 2D texture height
    (29, 2_048),       // layers
    (30, 512),         // surface alignment, bytes
    (31, 1),           // kernels overlap
    (32, 1),           // ECC
    (36, 1_215_000),   // memory clock, kHz
    (37, 5_120),       // memory bus, bits
    (38, 40 << 20),    // L2, bytes
    (39, 2_048),       // threads per SM
    (40, 3),           // copy engines
    (41, 1),           // unified addressing
    (42, 32_768),      // layered 1D texture width
    (43, 2_048),       // layers
    (51, 32),          // texture pitch alignment, bytes
    (52, 32_768),      // cube map width
    (53, 32_768),      // layered cube map width
    (54, 2_046),       // layers
    (55, 32_768),      // surface 1D width
    (56, 131_072),     // surface 2D width
    (57, 65_536),      // surface 2D height
    (58, 16_384),      // surface 3D width
    (59, 16_384),      // surface 3D height
    (60, 16_384),      // surface 3D depth
    (61, 32_768),      // layered surface 1D width
    (62, 2_048),       // layers
    (63, 32_768),      // layered surface 2D width
    (64, 32_768),      // layered surface 2D height
    (65, 2_048),       // layers
    (66, 32_768),      // surface cube map width
    (67, 32_768),      // layered surface cube map width
    (68, 2_046),       // layers
    (69, 268_435_456), // linear texture 1D width
    (70, 131_072),     // linear texture 2D width
    (71, 65_000),      // linear texture 2D height
    (72, 2_097_120),   // linear texture 2D pitch, bytes
    (73, 32_768),      // mipmapped texture 2D width
    (74, 32_768),      // mipmapped texture 2D height
    (75, 8),           // compute capability, major
    (76, 0),           // compute capability, minor
    (77, 32_768),      // mipmapped texture 1D width
    (78, 1),           // stream priorities
    (79, 1),           // L1 caches globals
    (80, 1),           // L1 caches locals
    (81, 164 << 10),   // shared memory per SM, bytes
    (82, 65_536),      // registers per SM
    (83, 1),           // managed memory
    (87, 2),           // single to double precision speed
    (89, 1),           // managed memory used at once by host and device
    (90, 1),           // compute preemption
    (91, 1),           // registered host memory keeps its pointer
    (95, 1),           // cooperative launch
    (97, 163 << 10),   // shared memory per block on request, bytes
    (98, 1),           // remote writes can be flushed
    (99, 1),           // host memory can be registered
    (102, 1),          // virtual memory management
    (103, 1),          // memory goes to other processes by file descriptor
    (106, 32),         // blocks per SM
    (108, 30 << 20),   // persisting L2, bytes
    (109, 128 << 20),  // access policy window, bytes
    (111, 1 << 10),    // shared memory that the driver keeps per block, bytes
    (112, 1),          // sparse arrays
    (113, 1),          // read-only host registration
    (114, 1),          // timeline semaphores
    (115, 1),          // memory pools
    (119, 1),          // pools go to other processes by file descriptor
    (121, 1),          // deferred mapping of arrays
    (122, 1),          // 64-bit memory operations in streams
    (123, 1),          // "nor" waits in streams
    (126, 1),          // memory synchronization domains
    (129, 1),          // unified function pointers
    (131, -1),         // NUMA node of the device's memory: none
];

/// The last attribute that there is. Source: `CU_DEVICE_ATTRIBUTE_MAX` of CUDA 13.0.
pub const LAST: u32 = 147;
/// Those that say what streams can do with words of memory: 64-bit ones, and the "nor" wait.
pub const STREAM_MEMORY: [u32; 2] = [122, 123];
/// Multiprocessors.
pub const MULTIPROCESSORS: u32 = 16;
/// Whether contexts are shared by MPS.
pub const MPS_ENABLED: u32 = 133;
/// PCI bus of the device.
pub const PCI_BUS: u32 = 33;
/// Most threads on one SM, and the same for blocks: what occupancy is computed from.
pub const THREADS_PER_SM: u32 = 2_048;
/// Blocks that fit on one SM at most.
pub const BLOCKS_PER_SM: u32 = 32;
/// Registers of one SM.
pub const REGISTERS_PER_SM: u32 = 65_536;
/// Shared memory of one SM, bytes.
pub const SHARED_PER_SM: u32 = 164 << 10;
/// Shared memory that the driver keeps for itself in each block, bytes.
pub const SHARED_KEPT: u32 = 1 << 10;
/// Shared memory that one block can ask for, bytes.
pub const SHARED_PER_BLOCK: u32 = 163 << 10;
/// Threads of one block at most.
pub const THREADS_PER_BLOCK: u32 = 1_024;
/// Registers that a kernel is said to use: the compiler's figure is inside the image, which is never read.
pub const REGISTERS_PER_THREAD: u32 = 32;
