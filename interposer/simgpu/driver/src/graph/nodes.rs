//! From the driver's descriptions of nodes to work, and back.

use std::ffi::{c_uint, c_void};

use weir_abi::types::*;

use super::check::is_exclusive;
use super::{Conditional, Graph};
use crate::copy::Copy;
use crate::edge::{Answer, get, list};
use crate::fill::Fill;
use crate::launch::Launch;
use crate::work::{MemoryOperation, Work};
use crate::{context, event, function, graph_memory, memory};

/// A kernel node as CUDA 12 describes it.
pub fn kernel(node: &CUDA_KERNEL_NODE_PARAMS) -> Answer<Work> {
    let function = if node.func.is_null() { node.kern } else { node.func };
    let launch = Launch {
        function: function::of(function)?,
        grid: [node.grid_dim_x, node.grid_dim_y, node.grid_dim_z],
        block: [node.block_dim_x, node.block_dim_y, node.block_dim_z],
        shared_bytes: node.shared_mem_bytes,
        params: [node.kernel_params, node.extra],
    };
    launch.check()?;
    launch.work()
}

/// A kernel node as CUDA 10 and 11 describe it.
pub fn older_kernel(node: &CUDA_KERNEL_NODE_PARAMS_v1) -> Answer<Work> {
    kernel(&CUDA_KERNEL_NODE_PARAMS {
        func: node.func,
        grid_dim_x: node.grid_dim_x,
        grid_dim_y: node.grid_dim_y,
        grid_dim_z: node.grid_dim_z,
        block_dim_x: node.block_dim_x,
        block_dim_y: node.block_dim_y,
        block_dim_z: node.block_dim_z,
        shared_mem_bytes: node.shared_mem_bytes,
        kernel_params: node.kernel_params,
        extra: node.extra,
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    })
}

/// The description of a kernel node.
pub fn describe_kernel(work: &Work) -> Option<CUDA_KERNEL_NODE_PARAMS> {
    let (Work::Kernel(launch) | Work::Spin(launch, _) | Work::Switch(launch, _)) = work else { return None };
    let ([grid_dim_x, grid_dim_y, grid_dim_z], [block_dim_x, block_dim_y, block_dim_z]) =
        (launch.grid, launch.block);
    let [kernel_params, extra] = launch.params;
    Some(CUDA_KERNEL_NODE_PARAMS {
        func: launch.function.handle.raw(),
        grid_dim_x,
        grid_dim_y,
        grid_dim_z,
        block_dim_x,
        block_dim_y,
        block_dim_z,
        shared_mem_bytes: launch.shared_bytes,
        kernel_params,
        extra,
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    })
}

/// A copy node.
pub fn copy(node: &CUDA_MEMCPY3D) -> Answer<Work> {
    Copy::from_3d(node).map(Work::Copy)
}

/// The description of a copy node.
pub fn describe_copy(work: &Work) -> Option<CUDA_MEMCPY3D> {
    if let Work::Copy(copy) = work { Some(copy.to_3d()) } else { None }
}

/// A memset node.
pub fn fill(node: &CUDA_MEMSET_NODE_PARAMS) -> Answer<Work> {
    Fill::from_node(node).map(Work::Fill)
}

/// The description of a memset node.
pub fn describe_fill(work: &Work) -> Option<CUDA_MEMSET_NODE_PARAMS> {
    if let Work::Fill(fill) = work { Some(fill.to_node()) } else { None }
}

/// A host node.
pub fn host(node: &CUDA_HOST_NODE_PARAMS) -> Answer<Work> {
    Ok(Work::Host { function: node.func.ok_or(CUDA_ERROR_INVALID_VALUE)?, data: node.user_data })
}

/// The description of a host node.
pub fn describe_host(work: &Work) -> Option<CUDA_HOST_NODE_PARAMS> {
    let Work::Host { function, data } = work else { return None };
    Some(CUDA_HOST_NODE_PARAMS { func: Some(*function), user_data: *data })
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`
#[derive(Clone, Copy)]
#[repr(C)]
struct Batch {
    context: CUcontext,
    count: c_uint,
    operations: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
}

/// A node of waits and writes of memory words.
pub fn batch(node: *const c_void) -> Answer<Work> {
    let Batch { count, operations, .. } = get(node.cast())?;
    let operations = list(operations.cast_const(), count as usize)?.iter();
    let operations = operations.filter_map(|operation| MemoryOperation::from_batch(operation).transpose());
    Ok(Work::Memory(operations.collect::<Answer<_>>()?))
}

/// A graph as a node: as it is now, later changes do not reach it; its copy in the node can be changed.
pub fn child(graph: &'static Graph) -> Answer<Work> {
    if graph.holds(is_exclusive) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    graph.duplicate().map(Work::Child)
}

/// An allocation node; its address is known from now on.
pub fn alloc(node: &mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Answer<Work> {
    node.dptr = graph_memory::plan(context::current()?, node.bytesize)?;
    Ok(Work::Alloc { address: node.dptr })
}

/// The description of an allocation node.
pub fn describe_alloc(work: &Work) -> Option<CUDA_MEM_ALLOC_NODE_PARAMS> {
    let Work::Alloc { address } = work else { return None };
    let allocation = memory::find(*address)?;
    let pool_props = CUmemPoolProps {
        alloc_type: CU_MEM_ALLOCATION_TYPE_PINNED,
        handle_types: CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: allocation.context.device },
        win32_security_attributes: std::ptr::null_mut(),
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    };
    Some(CUDA_MEM_ALLOC_NODE_PARAMS {
        pool_props,
        access_descs: std::ptr::null(),
        access_desc_count: 0,
        bytesize: allocation.bytes,
        dptr: *address,
    })
}

/// A node of the generic calls.
pub fn any(node: &mut CUgraphNodeParams) -> Answer<Work> {
    // SAFETY: for every arm: the kind says which member of the union the caller has set.
    unsafe {
        match node.kind {
            CU_GRAPH_NODE_TYPE_KERNEL => kernel(&node.node.kernel),
            CU_GRAPH_NODE_TYPE_MEMCPY => copy(&node.node.memcpy.copy_params),
            CU_GRAPH_NODE_TYPE_MEMSET => fill(&node.node.memset.memset),
            CU_GRAPH_NODE_TYPE_HOST => host(&node.node.host),
            CU_GRAPH_NODE_TYPE_GRAPH => child(super::of(node.node.graph)?),
            CU_GRAPH_NODE_TYPE_EMPTY => Ok(Work::Empty),
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => Ok(Work::Wait(event::of(node.node.event)?)),
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => Ok(Work::Record(event::of(node.node.event)?)),
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => alloc(&mut node.node.alloc),
            CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                Conditional::new(&mut node.node.conditional).map(Work::Conditional)
            }
            CU_GRAPH_NODE_TYPE_MEM_FREE => Ok(Work::Free { address: node.node.free }),
            _ => Err(CUDA_ERROR_NOT_SUPPORTED),
        }
    }
}
