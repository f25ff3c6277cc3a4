//! Our definitions have the sizes, offsets and constants of NVIDIA's own, as cudarc's bindings have them.

use std::mem::{align_of, offset_of, size_of};

use cudarc::driver::sys;
use weir_abi::types as ours;

/// Compares size, alignment and the offsets of the fields given as `ours = theirs`.
macro_rules! same_layout {
    ($ours:ident is $theirs:ident { $($field:ident = $their_field:ident),* $(,)? }) => {
        assert_eq!(size_of::<ours::$ours>(), size_of::<sys::$theirs>(), stringify!($ours));
        assert_eq!(align_of::<ours::$ours>(), align_of::<sys::$theirs>(), stringify!($ours));
        $(assert_eq!(
            offset_of!(ours::$ours, $field), offset_of!(sys::$theirs, $their_field),
            concat!(stringify!($ours), "::", stringify!($field)));)*
    };
}

macro_rules! same_values {
    ($($theirs:ident { $($constant:ident),* $(,)? })*) => {
        $($(assert_eq!(ours::$constant, sys::$theirs::$constant as u32, stringify!($constant));)*)*
    };
}

#[test]
fn launch_structures_are_laid_out_as_the_driver_expects() {
    same_layout!(CUlaunchConfig is CUlaunchConfig_st {
        grid_dim_x = gridDimX, block_dim_x = blockDimX, shared_mem_bytes = sharedMemBytes,
        stream = hStream, attrs = attrs, num_attrs = numAttrs,
    });
    same_layout!(CUlaunchAttribute is CUlaunchAttribute_st { id = id, value = value });
    same_layout!(CUDA_LAUNCH_PARAMS is CUDA_LAUNCH_PARAMS_st {
        function = function, stream = hStream, kernel_params = kernelParams,
    });
    same_layout!(CUDA_KERNEL_NODE_PARAMS_v1 is CUDA_KERNEL_NODE_PARAMS_st {
        func = func, block_dim_z = blockDimZ, kernel_params = kernelParams, extra = extra,
    });
    same_layout!(CUDA_KERNEL_NODE_PARAMS is CUDA_KERNEL_NODE_PARAMS_v2_st {
        func = func, kernel_params = kernelParams, kern = kern, ctx = ctx,
    });
}

#[test]
fn memory_structures_are_laid_out_as_the_driver_expects() {
    same_layout!(CUmemLocation is CUmemLocation_st { id = id });
    same_layout!(CUmemAccessDesc is CUmemAccessDesc_st { location = location, flags = flags });
    same_layout!(CUmemAllocationProp is CUmemAllocationProp_st {
        requested_handle_types = requestedHandleTypes, location = location, compression_type = allocFlags,
    });
    same_layout!(CUmemPoolProps is CUmemPoolProps_st {
        handle_types = handleTypes, location = location, max_size = maxSize, usage = usage,
    });
    same_layout!(CUipcMemHandle is CUipcMemHandle_st {});
    same_layout!(CUipcEventHandle is CUipcEventHandle_st {});
    same_layout!(CUmulticastObjectProp is CUmulticastObjectProp_st { size = size, flags = flags });
    same_layout!(CUDA_MEM_ALLOC_NODE_PARAMS is CUDA_MEM_ALLOC_NODE_PARAMS_v1_st {
        pool_props = poolProps, access_descs = accessDescs, bytesize = bytesize, dptr = dptr,
    });
}

#[test]
fn copies_and_arrays_are_laid_out_as_the_driver_expects() {
    same_layout!(CUDA_MEMCPY2D is CUDA_MEMCPY2D_st {
        src_host = srcHost, src_pitch = srcPitch, dst_x_in_bytes = dstXInBytes, dst_device = dstDevice,
        dst_pitch = dstPitch, width_in_bytes = WidthInBytes, height = Height,
    });
    same_layout!(CUDA_MEMCPY3D is CUDA_MEMCPY3D_st {
        src_lod = srcLOD, src_array = srcArray, src_height = srcHeight, dst_memory_type = dstMemoryType,
        dst_array = dstArray, dst_height = dstHeight, width_in_bytes = WidthInBytes, depth = Depth,
    });
    same_layout!(CUDA_MEMCPY3D_PEER is CUDA_MEMCPY3D_PEER_st {
        src_context = srcContext, dst_context = dstContext, dst_height = dstHeight, depth = Depth,
    });
    same_layout!(CUDA_ARRAY_DESCRIPTOR is CUDA_ARRAY_DESCRIPTOR_st { format = Format, num_channels = NumChannels });
    same_layout!(CUDA_ARRAY3D_DESCRIPTOR is CUDA_ARRAY3D_DESCRIPTOR_st { depth = Depth, format = Format, flags = Flags });
}

#[test]
fn mappings_of_sparse_arrays_are_laid_out_as_the_driver_expects() {
    same_layout!(CUarrayMapInfo is CUarrayMapInfo_st {
        resource_type = resourceType, resource = resource, subresource_type = subresourceType,
        subresource = subresource, mem_operation_type = memOperationType, mem_handle_type = memHandleType,
        mem_handle = memHandle, offset = offset, device_bit_mask = deviceBitMask, flags = flags,
    });
    type Level = sys::CUarrayMapInfo_st__bindgen_ty_2__bindgen_ty_1;
    type Tail = sys::CUarrayMapInfo_st__bindgen_ty_2__bindgen_ty_2;
    assert_eq!(size_of::<ours::CUarrayMapInfo_level>(), size_of::<Level>());
    assert_eq!(offset_of!(ours::CUarrayMapInfo_level, offset_x), offset_of!(Level, offsetX));
    assert_eq!(offset_of!(ours::CUarrayMapInfo_level, extent_depth), offset_of!(Level, extentDepth));
    assert_eq!(size_of::<ours::CUarrayMapInfo_miptail>(), size_of::<Tail>());
    assert_eq!(offset_of!(ours::CUarrayMapInfo_miptail, size), offset_of!(Tail, size));
    same_layout!(CUDA_ARRAY_SPARSE_PROPERTIES is CUDA_ARRAY_SPARSE_PROPERTIES_st {
        tile_width = tileExtent, miptail_first_level = miptailFirstLevel, miptail_size = miptailSize,
        flags = flags, reserved = reserved,
    });
}

#[test]
fn graph_structures_are_laid_out_as_the_driver_expects() {
    same_layout!(CUDA_MEMSET_NODE_PARAMS is CUDA_MEMSET_NODE_PARAMS_st {
        pitch = pitch, value = value, element_size = elementSize, width = width, height = height,
    });
    same_layout!(CUDA_MEMSET_NODE_PARAMS_v2 is CUDA_MEMSET_NODE_PARAMS_v2_st { ctx = ctx });
    same_layout!(CUDA_HOST_NODE_PARAMS is CUDA_HOST_NODE_PARAMS_st { user_data = userData });
    same_layout!(CUDA_MEMCPY_NODE_PARAMS is CUDA_MEMCPY_NODE_PARAMS_st { copy_ctx = copyCtx, copy_params = copyParams });
    same_layout!(CUgraphNodeParams is CUgraphNodeParams_st { kind = type_, reserved2 = reserved2 });
    same_layout!(CUDA_CONDITIONAL_NODE_PARAMS is CUDA_CONDITIONAL_NODE_PARAMS {
        handle = handle, kind = type_, size = size, bodies = phGraph_out, ctx = ctx,
    });
    same_layout!(CUgraphEdgeData is CUgraphEdgeData_st { to_port = to_port, kind = type_ });
    same_layout!(CUDA_GRAPH_INSTANTIATE_PARAMS is CUDA_GRAPH_INSTANTIATE_PARAMS_st {
        upload_stream = hUploadStream, err_node_out = hErrNode_out, result_out = result_out,
    });
    same_layout!(CUgraphExecUpdateResultInfo is CUgraphExecUpdateResultInfo_st {
        error_node = errorNode, error_from_node = errorFromNode,
    });
    assert_eq!(size_of::<ours::CUstreamBatchMemOpParams>(), size_of::<sys::CUstreamBatchMemOpParams>());
    type Wait = sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st;
    assert_eq!(offset_of!(ours::CUstreamBatchMemOpParams, address), offset_of!(Wait, address));
    assert_eq!(offset_of!(ours::CUstreamBatchMemOpParams, flags), offset_of!(Wait, flags));
    assert_eq!(offset_of!(ours::CUstreamBatchMemOpParams, alias), offset_of!(Wait, alias));
}

#[test]
fn device_and_context_structures_are_laid_out_as_the_driver_expects() {
    same_layout!(CUuuid is CUuuid_st {});
    same_layout!(CUctxCreateParams is CUctxCreateParams_st { cig_params = cigParams });
    // Since CUDA 13.1 a pointer stands in the last word, so the alignment is not the same in all headers.
    assert_eq!(size_of::<ours::CUdevResource>(), size_of::<sys::CUdevResource>());
    assert_eq!(offset_of!(ours::CUdevResource, sm), offset_of!(sys::CUdevResource, __bindgen_anon_1));
    same_layout!(CUexecAffinityParam is CUexecAffinityParam_st { sm_count = param });
    same_layout!(CUdevprop is CUdevprop_st { simd_width = SIMDWidth, texture_align = textureAlign });
}

#[test]
fn constants_have_the_drivers_values() {
    same_values! {
        CUstreamCaptureMode { CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED }
        CUstreamCaptureStatus { CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_INVALIDATED }
        CUfunction_attribute { CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT }
        CUpointer_attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,
        }
        CUgraphNodeType { CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEM_FREE, CU_GRAPH_NODE_TYPE_CONDITIONAL }
        CUmemLocationType { CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT }
        CUmemAccess_flags { CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE }
        CUmemPool_attribute { CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_USED_MEM_HIGH }
        CUgraphMem_attribute { CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH }
        CUmemorytype { CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED }
        CUarray_format { CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_HALF, CU_AD_FORMAT_FLOAT }
        CUresourcetype { CU_RESOURCE_TYPE_ARRAY, CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, CU_RESOURCE_TYPE_PITCH2D }
        CUarraySparseSubresourceType {
            CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL, CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL,
        }
        CUmemOperationType { CU_MEM_OPERATION_TYPE_MAP, CU_MEM_OPERATION_TYPE_UNMAP }
        CUmemHandleType { CU_MEM_HANDLE_TYPE_GENERIC }
        CUlaunchAttributeID { CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT }
        CUstreamBatchMemOpType { CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_MEM_OP_WRITE_VALUE_64, CU_STREAM_MEM_OP_BARRIER }
        CUgraphExecUpdateResult { CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED }
    }
    assert_eq!(ours::CUDA_ARRAY3D_SPARSE, sys::CUDA_ARRAY3D_SPARSE);
    assert_eq!(ours::CUDA_ARRAY3D_DEFERRED_MAPPING, sys::CUDA_ARRAY3D_DEFERRED_MAPPING);
    assert_eq!(u32::from(ours::CU_MEM_CREATE_USAGE_TILE_POOL), sys::CU_MEM_CREATE_USAGE_TILE_POOL);
}

#[test]
fn results_are_named_as_in_the_header() {
    use sys::cudaError_enum as theirs;
    for (ours, theirs) in [
        (ours::CUDA_ERROR_OUT_OF_MEMORY, theirs::CUDA_ERROR_OUT_OF_MEMORY),
        (ours::CUDA_ERROR_NOT_FOUND, theirs::CUDA_ERROR_NOT_FOUND),
        (ours::CUDA_ERROR_NOT_PERMITTED, theirs::CUDA_ERROR_NOT_PERMITTED),
        (ours::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, theirs::CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
        (ours::CUDA_ERROR_UNKNOWN, theirs::CUDA_ERROR_UNKNOWN),
    ] {
        assert_eq!(ours.0, theirs as u32);
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }
    assert_eq!(ours::CUresult(123_456).name(), None, "a code of a newer driver");
}
