//! Memory operations in streams: words that a stream writes or waits for.

use std::ffi::*;

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::{Answer, list};
use crate::stream::enqueue;
use crate::work::{MemoryOperation, Work};
use crate::{host_time, session};

fn memory_operation(stream: CUstream, operation: MemoryOperation) -> Answer {
    check_supported()?;
    let _takes = host_time::takes(|session| match operation {
        MemoryOperation::Write { .. } => session.config().marks.write_cpu_ns,
        MemoryOperation::Wait { .. } => session.config().marks.wait_cpu_ns,
    })?;
    enqueue(stream, Work::Memory(vec![operation]))
}

/// Whether the device has memory operations in streams at all.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub fn check_supported() -> Answer {
    if session::current()?.config().stream_waits { Ok(()) } else { Err(CUDA_ERROR_NOT_SUPPORTED) }
}

impl Driver {
    pub fn cuStreamWriteValue32(
        stream: CUstream,
        address: CUdeviceptr,
        value: c_uint,
        flags: c_uint,
    ) -> Answer {
        Self::cuStreamWriteValue32_v2(stream, address, value, flags)
    }

    pub fn cuStreamWriteValue32_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: c_uint,
        _flags: c_uint,
    ) -> Answer {
        memory_operation(stream, MemoryOperation::Write { address, value: value.into(), wide: false })
    }

    pub fn cuStreamWriteValue64(
        stream: CUstream,
        address: CUdeviceptr,
        value: c_ulonglong,
        flags: c_uint,
    ) -> Answer {
        Self::cuStreamWriteValue64_v2(stream, address, value, flags)
    }

    pub fn cuStreamWriteValue64_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: c_ulonglong,
        _flags: c_uint,
    ) -> Answer {
        memory_operation(stream, MemoryOperation::Write { address, value, wide: true })
    }

    pub fn cuStreamWaitValue32(
        stream: CUstream,
        address: CUdeviceptr,
        value: c_uint,
        flags: c_uint,
    ) -> Answer {
        Self::cuStreamWaitValue32_v2(stream, address, value, flags)
    }

    pub fn cuStreamWaitValue32_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: c_uint,
        flags: c_uint,
    ) -> Answer {
        memory_operation(stream, MemoryOperation::Wait { address, value: value.into(), flags, wide: false })
    }

    pub fn cuStreamWaitValue64(
        stream: CUstream,
        address: CUdeviceptr,
        value: c_ulonglong,
        flags: c_uint,
    ) -> Answer {
        Self::cuStreamWaitValue64_v2(stream, address, value, flags)
    }

    pub fn cuStreamWaitValue64_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: c_ulonglong,
        flags: c_uint,
    ) -> Answer {
        memory_operation(stream, MemoryOperation::Wait { address, value, flags, wide: true })
    }

    pub fn cuStreamBatchMemOp(
        stream: CUstream,
        count: c_uint,
        first: *mut CUstreamBatchMemOpParams,
        flags: c_uint,
    ) -> Answer {
        Self::cuStreamBatchMemOp_v2(stream, count, first, flags)
    }

    pub fn cuStreamBatchMemOp_v2(
        stream: CUstream,
        count: c_uint,
        first: *mut CUstreamBatchMemOpParams,
        _flags: c_uint,
    ) -> Answer {
        let operations = list(first.cast_const(), count as usize)?
            .iter()
            .filter_map(|op| MemoryOperation::from_batch(op).transpose());
        enqueue(stream, Work::Memory(operations.collect::<Answer<_>>()?))
    }
}
