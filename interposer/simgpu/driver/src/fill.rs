//! Memsets: rows of one repeated element.

use std::ffi::*;
use std::ptr;

use weir_abi::types::*;

use crate::api::Driver;
use crate::edge::Answer;
use crate::memory;
use crate::stream;
use crate::work::Work;

/// A memset, checked and ready. `width` counts elements.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    address: CUdeviceptr,
    pitch: usize,
    value: u32,
    element_bytes: usize,
    width: usize,
    height: usize,
}

impl Fill {
    /// From the description of a graph's memset node.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for elements of another size than 1, 2 and 4 bytes, or outside of memory.
    pub fn from_node(node: &CUDA_MEMSET_NODE_PARAMS) -> Answer<Fill> {
        let CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, element_size, width, height } = *node;
        let element_bytes = element_size as usize;
        if ![1, 2, 4].contains(&element_bytes) || !dst.is_multiple_of(u64::from(element_size)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let row = width.checked_mul(element_bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let pitch = if height > 1 { pitch } else { row };
        let span = height.saturating_sub(1).checked_mul(pitch).and_then(|rows| rows.checked_add(row));
        memory::require(dst, span.ok_or(CUDA_ERROR_INVALID_VALUE)?)?;
        Ok(Fill { address: dst, pitch, value, element_bytes, width, height })
    }

    /// The same, as a graph's node is described.
    pub fn to_node(self) -> CUDA_MEMSET_NODE_PARAMS {
        let element_size = c_uint::try_from(self.element_bytes).unwrap_or(0);
        let Fill { address: dst, pitch, value, width, height, .. } = self;
        CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, element_size, width, height }
    }

    /// How much it writes.
    pub fn bytes(&self) -> u64 {
        (self.width * self.element_bytes) as u64 * self.height as u64
    }

    /// Writes it.
    pub fn perform(&self) {
        let pattern = self.value.to_ne_bytes();
        let uniform = pattern[..self.element_bytes].iter().all(|byte| *byte == pattern[0]);
        for y in 0..self.height {
            let row = memory::pointer(self.address + (y * self.pitch) as u64).cast::<u8>();
            let bytes = self.width * self.element_bytes;
            if uniform {
                // SAFETY: the whole span was checked against the books when this was made.
                unsafe { ptr::write_bytes(row, pattern[0], bytes) };
                continue;
            }
            for x in (0..bytes).step_by(self.element_bytes) {
                // SAFETY: as above; `x` and the element end inside of the row.
                unsafe { ptr::copy_nonoverlapping(pattern.as_ptr(), row.add(x), self.element_bytes) };
            }
        }
    }
}

fn fill(dst: CUdeviceptr, value: u32, element_size: c_uint, width: usize, stream: CUstream) -> Answer {
    fill_rows([dst, 0], value, element_size, [width, 1], stream)
}

fn fill_rows(
    [dst, pitch]: [u64; 2],
    value: u32,
    element_size: c_uint,
    shape: [usize; 2],
    stream: CUstream,
) -> Answer {
    let pitch = usize::try_from(pitch).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let [width, height] = shape;
    let node = CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, element_size, width, height };
    stream::enqueue(stream, Work::Fill(Fill::from_node(&node)?))
}

/// The null stream: what the calls without a stream use. Like a driver's they return before the memory is set.
const DEFAULT: CUstream = ptr::null_mut();

impl Driver {
    pub fn cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize) -> Answer {
        fill(to, value.into(), 1, count, DEFAULT)
    }

    pub fn cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize) -> Answer {
        fill(to, value.into(), 2, count, DEFAULT)
    }

    pub fn cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) -> Answer {
        fill(to, value, 4, count, DEFAULT)
    }

    pub fn cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) -> Answer {
        fill(to, value.into(), 1, count, stream)
    }

    pub fn cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) -> Answer {
        fill(to, value.into(), 2, count, stream)
    }

    pub fn cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) -> Answer {
        fill(to, value, 4, count, stream)
    }

    pub fn cuMemsetD2D8_v2(
        to: CUdeviceptr,
        pitch: usize,
        value: c_uchar,
        width: usize,
        height: usize,
    ) -> Answer {
        fill_rows([to, pitch as u64], value.into(), 1, [width, height], DEFAULT)
    }

    pub fn cuMemsetD2D16_v2(
        to: CUdeviceptr,
        pitch: usize,
        value: c_ushort,
        width: usize,
        height: usize,
    ) -> Answer {
        fill_rows([to, pitch as u64], value.into(), 2, [width, height], DEFAULT)
    }

    pub fn cuMemsetD2D32_v2(
        to: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
    ) -> Answer {
        fill_rows([to, pitch as u64], value, 4, [width, height], DEFAULT)
    }

    pub fn cuMemsetD2D8Async(
        to: CUdeviceptr,
        pitch: usize,
        value: c_uchar,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> Answer {
        fill_rows([to, pitch as u64], value.into(), 1, [width, height], stream)
    }

    pub fn cuMemsetD2D16Async(
        to: CUdeviceptr,
        pitch: usize,
        value: c_ushort,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> Answer {
        fill_rows([to, pitch as u64], value.into(), 2, [width, height], stream)
    }

    pub fn cuMemsetD2D32Async(
        to: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
        stream: CUstream,
    ) -> Answer {
        fill_rows([to, pitch as u64], value, 4, [width, height], stream)
    }
}
