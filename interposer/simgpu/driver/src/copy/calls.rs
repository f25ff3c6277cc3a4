//! The driver calls for copies.

use std::ffi::*;
use std::ptr;

use weir_abi::types::*;

use super::{Copy, Side};
use crate::api::Driver;
use crate::edge::{Answer, get};
use crate::stream::{self, Stream};

/// The default stream of a call without one.
fn default_stream() -> Answer<&'static Stream> {
    stream::of(ptr::null_mut())
}

impl Driver {
    pub fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer {
        Copy::unified(to, from, bytes)?.now(default_stream()?)
    }

    pub fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
        Copy::unified(to, from, bytes)?.later(stream)
    }

    pub fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) -> Answer {
        Copy::to_device(to, from, bytes)?.now(default_stream()?)
    }

    pub fn cuMemcpyHtoDAsync_v2(
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        Copy::to_device(to, from, bytes)?.later(stream)
    }

    pub fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> Answer {
        Copy::to_host(to, from, bytes)?.now(default_stream()?)
    }

    pub fn cuMemcpyDtoHAsync_v2(
        to: *mut c_void,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        Copy::to_host(to, from, bytes)?.later(stream)
    }

    pub fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer {
        // On one device this returns at once: only the host's own memory makes a copy wait.
        Copy::on_device(to, from, bytes)?.later(ptr::null_mut())
    }

    pub fn cuMemcpyDtoDAsync_v2(
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        Copy::on_device(to, from, bytes)?.later(stream)
    }

    pub fn cuMemcpyPeer(
        to: CUdeviceptr,
        _to_context: CUcontext,
        from: CUdeviceptr,
        _from_context: CUcontext,
        bytes: usize,
    ) -> Answer {
        Copy::on_device(to, from, bytes)?.now(default_stream()?)
    }

    pub fn cuMemcpyPeerAsync(
        to: CUdeviceptr,
        _to_context: CUcontext,
        from: CUdeviceptr,
        _from_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        Copy::on_device(to, from, bytes)?.later(stream)
    }

    pub fn cuMemcpyDtoA_v2(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize) -> Answer {
        Copy::flat(Copy::array_side(to, offset, bytes)?, Side::device(from, bytes)?, bytes)
            .now(default_stream()?)
    }

    pub fn cuMemcpyAtoD_v2(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize) -> Answer {
        Copy::flat(Side::device(to, bytes)?, Copy::array_side(from, offset, bytes)?, bytes)
            .now(default_stream()?)
    }

    pub fn cuMemcpyHtoA_v2(to: CUarray, offset: usize, from: *const c_void, bytes: usize) -> Answer {
        let from = Side::flat(from.expose_provenance() as u64, bytes)?;
        Copy::flat(Copy::array_side(to, offset, bytes)?, from, bytes).now(default_stream()?)
    }

    pub fn cuMemcpyAtoH_v2(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) -> Answer {
        let to = Side::flat(to.expose_provenance() as u64, bytes)?;
        Copy::flat(to, Copy::array_side(from, offset, bytes)?, bytes).now(default_stream()?)
    }

    pub fn cuMemcpyAtoA_v2(
        to: CUarray,
        to_offset: usize,
        from: CUarray,
        from_offset: usize,
        bytes: usize,
    ) -> Answer {
        let (to, from) =
            (Copy::array_side(to, to_offset, bytes)?, Copy::array_side(from, from_offset, bytes)?);
        Copy::flat(to, from, bytes).now(default_stream()?)
    }

    pub fn cuMemcpyHtoAAsync_v2(
        to: CUarray,
        offset: usize,
        from: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        let from = Side::flat(from.expose_provenance() as u64, bytes)?;
        Copy::flat(Copy::array_side(to, offset, bytes)?, from, bytes).later(stream)
    }

    pub fn cuMemcpyAtoHAsync_v2(
        to: *mut c_void,
        from: CUarray,
        offset: usize,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        let to = Side::flat(to.expose_provenance() as u64, bytes)?;
        Copy::flat(to, Copy::array_side(from, offset, bytes)?, bytes).later(stream)
    }

    pub fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) -> Answer {
        Copy::from_2d(&get(copy)?)?.now(default_stream()?)
    }

    pub fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) -> Answer {
        Self::cuMemcpy2D_v2(copy)
    }

    pub fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Answer {
        Copy::from_2d(&get(copy)?)?.later(stream)
    }

    pub fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D) -> Answer {
        Copy::from_3d(&get(copy)?)?.now(default_stream()?)
    }

    pub fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) -> Answer {
        Copy::from_3d(&get(copy)?)?.later(stream)
    }

    pub fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER) -> Answer {
        Copy::from_peer(copy)?.now(default_stream()?)
    }

    pub fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> Answer {
        Copy::from_peer(copy)?.later(stream)
    }
}
