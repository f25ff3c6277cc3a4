//! Changes to executable graphs.

use std::ptr::null_mut;

use weir_abi::types::*;
use weir_tests::call;
use weir_tests::obeying::{Done, handle};

use crate::Client;
use crate::build::kernel_node;

/// One command, if it is of this subject.
pub fn obey(client: &mut Client, command: &str, numbers: &[u64]) -> Option<Done> {
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let result = match command {
        "set_kernel" => {
            let params = kernel_node(client.function(n(2)), null_mut());
            call!(client, cuGraphExecKernelNodeSetParams_v2(handle(n(0)), handle(n(1)), &raw const params))
        }
        "set_any" => {
            // SAFETY: all-zero is a valid value of this plain structure.
            let mut params: CUgraphNodeParams = unsafe { std::mem::zeroed() };
            params.kind = CU_GRAPH_NODE_TYPE_KERNEL;
            params.node.kernel = kernel_node(client.function(n(2)), null_mut());
            call!(client, cuGraphExecNodeSetParams(handle(n(0)), handle(n(1)), &raw mut params))
        }
        "set_child" => {
            call!(client, cuGraphExecChildGraphNodeSetParams(handle(n(0)), handle(n(1)), handle(n(2))))
        }
        "update" => {
            let mut info = CUgraphExecUpdateResultInfo {
                result: 0,
                error_node: null_mut(),
                error_from_node: null_mut(),
            };
            call!(client, cuGraphExecUpdate_v2(handle(n(0)), handle(n(1)), &raw mut info))
        }
        "enable" => {
            call!(client, cuGraphNodeSetEnabled(handle(n(0)), handle(n(1)), u32::from(n(2) != 0)))
        }
        _ => return None,
    };
    Some((result, Vec::new()))
}
