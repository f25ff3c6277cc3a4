//! Kernels that exchange data with other GPUs, by their names: while one of them runs alone, its program waits for its
//! peers as much as it computes.

/// What such a name begins with: NCCL's and NVSHMEM's own kernels.
const BEGINNINGS: [&str; 2] = ["nccl", "nvshmem"];

/// What such a name has in it, wherever a compiler has put it: the all-reduces that vLLM, TensorRT-LLM, FlashInfer and
/// PyTorch bring themselves, and DeepEP's exchange of experts.
const PARTS: [&str; 13] = [
    "cross_device_reduce",
    "all_reduce",
    "allreduce",
    "allReduce",
    "AllReduce",
    "all_gather",
    "AllGather",
    "reduce_scatter",
    "ReduceScatter",
    "all_to_all",
    "AllToAll",
    "deep_ep",
    "multimem_",
];

/// Whether a kernel of this name does.
pub fn communicates(name: &str) -> bool {
    BEGINNINGS.iter().any(|start| name.starts_with(start)) || PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_known_by_their_names_mangled_or_not() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "_ZN4vllm26cross_device_reduce_1stageI6__halfLi2EEEvPNS_8RankDataE",
            "_ZN12tensorrt_llm7kernels23oneShotAllReduceKernelI6__halfEEv",
            "two_shot_all_reduce_kernel",
            "nvshmemi_transfer_rma",
            "_ZN7deep_ep9internode8dispatchILb1EEEv",
        ] {
            assert!(communicates(name), "{name}");
        }
        for name in ["ampere_sgemm_128x64_nn", "reduce_kernel", "flash_fwd_kernel", "", "my_nccl_free_gemm"] {
            assert!(!communicates(name), "{name}");
        }
    }
}
