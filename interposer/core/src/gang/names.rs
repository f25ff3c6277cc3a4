//! Kernels that wait for other ranks, by name.

/// What the names of such kernels contain, as they are compiled (mangled) or not, and where that stands. All of these run
/// until the other ranks have launched theirs. Names of NCCL before 2.19 lack the `DevKernel`.
const NAMES: [&str; 14] = [
    "ncclDevKernel_",          // NVIDIA/nccl since 2.19, src/device/common.h
    "ncclSymDevKernel_",       // NVIDIA/nccl 2.27, src/device/symmetric/generate.py
    "ncclSymkDevKernel_",      // NVIDIA/nccl since 2.28, the same
    "ncclKernel_",             // NVIDIA/nccl 2.12 to 2.18, src/collectives/device/common.h
    "RingLLKernel_",           // NVIDIA/nccl before: `ncclAllReduceRingLLKernel_sum_f32`
    "TreeLLKernel_",           // the same
    "cross_device_reduce_",    // vllm-project/vllm, csrc/custom_all_reduce.cuh; sgl-project/sglang has it too
    "shot_all_reduce_kernel",  // pytorch/pytorch, torch/csrc/distributed/c10d/CUDASymmetricMemoryOps.cu
    "multimem_all_",           // the same
    "shotAllReduceKernel",     // NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/customAllReduceKernels.cu
    "shotAllreduceKernel",     // the same, mnnvlTwoShotAllreduceKernels.cu; flashinfer-ai/flashinfer
    "allreduce_fusion_kernel", // flashinfer-ai/flashinfer, include/flashinfer/comm/trtllm_allreduce_fusion.cuh
    "_on_stream_kernel",       // NVSHMEM: `barrier_on_stream_kernel_threadgroup`, src/host/stream/coll
    "deep_ep", // deepseek-ai/DeepEP, csrc/kernels: a namespace of nothing but dispatch and combine
];

/// Whether the kernel of this name runs until other ranks have launched theirs.
pub fn is_collective(kernel: &str) -> bool {
    NAMES.iter().any(|part| kernel.contains(part))
}

#[cfg(test)]
mod tests {
    use super::is_collective;

    #[test]
    fn collectives_are_known_by_name_as_compiled_and_as_written() {
        for name in [
            "_Z37ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
            "ncclSymkDevKernel_ReduceScatter_LL_sum_f8e4m3",
            "ncclKernel_AllReduce_RING_LL_Sum_float",
            "ncclAllReduceRingLLKernel_sum_f32",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
            "two_shot_all_reduce_kernel_inplace",
            "_ZN7deep_ep11internode_ll7combineE",
            "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
        ] {
            assert!(is_collective(name), "{name}");
        }
    }

    #[test]
    fn ordinary_kernels_are_no_collectives() {
        for name in
            ["gemm_128x64_tn", "reduce_kernel", "all_reduce_input_norm", "_ZN4vllm15rms_norm_kernelE", ""]
        {
            assert!(!is_collective(name), "{name}");
        }
    }
}
