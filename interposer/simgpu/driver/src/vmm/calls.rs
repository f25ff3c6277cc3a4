//! The driver calls for address ranges and physical memory.

use std::ffi::*;
use std::os::fd::{AsRawFd, IntoRawFd};

use weir_abi::types::*;

use super::{
    GRANULARITY, MAPPED, Properties, RESERVED, allow, create, duplicate, import, map, physical, unmap,
};
use crate::api::Driver;
use crate::edge::{Answer, get, list, put};
use crate::{backing, locked};

impl Driver {
    pub fn cuMemAddressReserve(
        out: *mut CUdeviceptr,
        bytes: usize,
        alignment: usize,
        _wish: CUdeviceptr,
        _flags: c_ulonglong,
    ) -> Answer {
        if bytes == 0
            || !bytes.is_multiple_of(GRANULARITY)
            || (alignment != 0 && !alignment.is_power_of_two())
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let address = backing::reserve(bytes, alignment.max(GRANULARITY))?;
        locked(&RESERVED).insert(address, bytes);
        put(out, address)
    }

    pub fn cuMemAddressFree(address: CUdeviceptr, bytes: usize) -> Answer {
        let mut reserved = locked(&RESERVED);
        let mapped = locked(&MAPPED).range(address..address.saturating_add(bytes as u64)).next().is_some();
        if reserved.get(&address) != Some(&bytes) || mapped {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        reserved.remove(&address);
        backing::give_back(address, bytes);
        Ok(())
    }

    pub fn cuMemCreate(
        out: *mut CUmemGenericAllocationHandle,
        bytes: usize,
        properties: *const CUmemAllocationProp,
        _flags: c_ulonglong,
    ) -> Answer {
        put(out, create(bytes, &get(properties)?)?)
    }

    pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> Answer {
        let physical = physical(handle)?;
        let mut state = physical.held()?;
        state.handles -= 1;
        physical.settle(state)
    }

    pub fn cuMemMap(
        address: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        _flags: c_ulonglong,
    ) -> Answer {
        map(address, bytes, offset, handle)
    }

    pub fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> Answer {
        unmap(address, bytes)
    }

    pub fn cuMemSetAccess(
        address: CUdeviceptr,
        bytes: usize,
        access: *const CUmemAccessDesc,
        count: usize,
    ) -> Answer {
        list(access, count)?.iter().try_for_each(|access| allow(address, bytes, access))
    }

    pub fn cuMemGetAccess(
        out: *mut c_ulonglong,
        location: *const CUmemLocation,
        address: CUdeviceptr,
    ) -> Answer {
        get(location)?;
        let mapped = locked(&MAPPED);
        let (start, mapping) = mapped.range(..=address).next_back().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if address - start >= mapping.bytes as u64 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        put(out, mapping.access.into())
    }

    pub fn cuMemRetainAllocationHandle(
        out: *mut CUmemGenericAllocationHandle,
        address: *mut c_void,
    ) -> Answer {
        let address = address.addr() as u64;
        let mapping =
            locked(&MAPPED).range(..=address).next_back().map(|(start, mapping)| (*start, *mapping));
        let (start, mapping) = mapping.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if address - start >= mapping.bytes as u64 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        locked(&physical(mapping.physical)?.state).handles += 1;
        put(out, mapping.physical)
    }

    pub fn cuMemGetAllocationGranularity(
        out: *mut usize,
        properties: *const CUmemAllocationProp,
        _which: CUmemAllocationGranularity_flags,
    ) -> Answer {
        get(properties)?;
        put(out, GRANULARITY)
    }

    pub fn cuMemGetAllocationPropertiesFromHandle(
        out: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) -> Answer {
        let physical = physical(handle)?;
        if physical.team.is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE); // the reference is silent about multicast objects
        }
        let Properties { kind, handle_types, location, usage } = physical.properties;
        put(
            out,
            CUmemAllocationProp {
                kind,
                requested_handle_types: handle_types,
                location,
                win32_handle_meta_data: std::ptr::null_mut(),
                compression_type: 0,
                gpu_direct_rdma_capable: 0,
                usage,
                reserved: [0; 4],
            },
        )
    }

    pub fn cuMemExportToShareableHandle(
        out: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
        _flags: c_ulonglong,
    ) -> Answer {
        let physical = physical(handle)?;
        let mut state = physical.held()?;
        let offered = physical.properties.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || offered == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let file = state.file.as_ref().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let copy = duplicate(file.as_raw_fd())?;
        state.cross();
        put(out.cast::<c_int>(), copy.into_raw_fd())
    }

    pub fn cuMemImportFromShareableHandle(
        out: *mut CUmemGenericAllocationHandle,
        handle: *mut c_void,
        kind: CUmemAllocationHandleType,
    ) -> Answer {
        if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        put(out, import(c_int::try_from(handle.addr()).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)?)
    }
}
