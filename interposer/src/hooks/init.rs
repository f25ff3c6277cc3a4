//! `cuInit`: the program's first word to the driver, and ours to the node manager.

use weir_abi::CUresult;
use weir_abi::types::CUDA_ERROR_NOT_PERMITTED;

use crate::guard::alone;
use crate::link;

/// Attaches, then initializes the driver. A strict tenant without a manager gets no GPU.
pub fn init(call: impl FnOnce() -> CUresult) -> CUresult {
    let attached = alone(link::attach).unwrap_or_else(link::fault);
    if attached { call() } else { CUDA_ERROR_NOT_PERMITTED }
}
