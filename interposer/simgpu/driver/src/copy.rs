//! Copies of one, two and three dimensions, between host, device and arrays.

mod batch;
mod calls;

use std::ffi::*;
use std::ptr;

use weir_abi::types::*;

use crate::edge::{Answer, get};
use crate::memory::{self, Allocation, Kind};
use crate::session::Direction;
use crate::stream::{self, Stream};
use crate::work::Work;
use crate::{array, capture, session};

/// One side of a copy: where it begins, and how far apart its rows and slices are, bytes.
#[derive(Clone, Copy, Debug)]
struct Side {
    address: u64,
    row: usize,
    slice: usize,
    /// Whose memory it is; `None` for the host's.
    device: Option<CUdevice>,
}

/// A copy, checked and ready.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    to: Side,
    from: Side,
    width: usize,
    height: usize,
    depth: usize,
}

impl Side {
    /// A straight run of memory; whether it is device memory is looked up.
    fn flat(address: u64, bytes: usize) -> Answer<Side> {
        let device = match memory::find(address) {
            None => None,
            Some(_) => match memory::require(address, bytes)? {
                Allocation { kind: Kind::Host(_) | Kind::Registered(_), .. } => None,
                allocation => Some(allocation.context.device),
            },
        };
        Ok(Side { address, row: bytes, slice: bytes, device })
    }

    /// A straight run that must be memory of the driver's.
    fn device(address: u64, bytes: usize) -> Answer<Side> {
        memory::require(address, bytes)?;
        Self::flat(address, bytes)
    }
}

impl Copy {
    fn flat(to: Side, from: Side, bytes: usize) -> Copy {
        Copy { to, from, width: bytes, height: 1, depth: 1 }
    }

    /// How much it moves.
    pub fn bytes(&self) -> u64 {
        (self.width as u64).saturating_mul(self.height as u64).saturating_mul(self.depth as u64)
    }

    /// Which way it goes, which is which engine and bandwidth it uses.
    pub fn direction(&self) -> Direction {
        match (self.from.device, self.to.device) {
            (None, Some(_)) => Direction::HostToDevice,
            (Some(_), None) => Direction::DeviceToHost,
            (Some(from), Some(to)) if from != to => Direction::Peer,
            (Some(_), Some(_)) => Direction::DeviceToDevice,
            (None, None) => Direction::HostToHost,
        }
    }

    /// Moves the bytes.
    pub fn perform(&self) {
        for z in 0..self.depth {
            for y in 0..self.height {
                let to = self.to.address + (z * self.to.slice + y * self.to.row) as u64;
                let from = self.from.address + (z * self.from.slice + y * self.from.row) as u64;
                // SAFETY: device ranges were checked against the books; for host ranges the caller vouches, as
                // with any driver. The two may overlap, which `copy` allows.
                unsafe {
                    ptr::copy(memory::pointer(from).cast::<u8>(), memory::pointer(to).cast(), self.width)
                };
            }
        }
    }

    /// Does it now, and waits: what was given to the stream before comes first.
    fn now(self, stream: &'static Stream) -> Answer {
        capture::forbid_in(stream)?;
        capture::forbid_unsafe()?;
        stream.synchronize()?;
        session::current()?.copy(stream, self.direction(), self.bytes())?;
        self.perform(); // while the engine is at it: the call takes as long as the slower of the two
        stream.synchronize()
    }

    /// Gives it to a stream.
    fn later(self, stream: CUstream) -> Answer {
        stream::enqueue(stream, Work::Copy(self))
    }

    fn to_device(to: CUdeviceptr, from: *const c_void, bytes: usize) -> Answer<Copy> {
        Ok(Self::flat(Side::device(to, bytes)?, Side::flat(from.expose_provenance() as u64, bytes)?, bytes))
    }

    fn to_host(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> Answer<Copy> {
        Ok(Self::flat(Side::flat(to.expose_provenance() as u64, bytes)?, Side::device(from, bytes)?, bytes))
    }

    fn on_device(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer<Copy> {
        Ok(Self::flat(Side::device(to, bytes)?, Side::device(from, bytes)?, bytes))
    }

    fn unified(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer<Copy> {
        Ok(Self::flat(Side::flat(to, bytes)?, Side::flat(from, bytes)?, bytes))
    }

    fn array_side(of: CUarray, offset: usize, bytes: usize) -> Answer<Side> {
        let array = array::of(of)?;
        Side::device(array.address() + offset as u64, bytes)
    }

    /// From the description of a three-dimensional copy.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an unknown kind of memory or a range outside of its allocation.
    pub fn from_3d(copy: &CUDA_MEMCPY3D) -> Answer<Copy> {
        let shape = [copy.width_in_bytes, copy.height, copy.depth];
        let from = strided(
            &Place {
                kind: copy.src_memory_type,
                host: copy.src_host.cast_mut(),
                device: copy.src_device,
                array: copy.src_array,
                pitch: [copy.src_pitch, copy.src_height],
                offset: [copy.src_x_in_bytes, copy.src_y, copy.src_z],
            },
            shape,
        )?;
        let to = strided(
            &Place {
                kind: copy.dst_memory_type,
                host: copy.dst_host,
                device: copy.dst_device,
                array: copy.dst_array,
                pitch: [copy.dst_pitch, copy.dst_height],
                offset: [copy.dst_x_in_bytes, copy.dst_y, copy.dst_z],
            },
            shape,
        )?;
        Ok(Copy { to, from, width: shape[0], height: shape[1], depth: shape[2] })
    }

    /// The description of this copy. Of an array it has the memory behind it.
    pub fn to_3d(self) -> CUDA_MEMCPY3D {
        let kind =
            |side: &Side| if side.device.is_some() { CU_MEMORYTYPE_DEVICE } else { CU_MEMORYTYPE_HOST };
        let rows = |side: &Side| side.slice.checked_div(side.row).unwrap_or(0);
        CUDA_MEMCPY3D {
            src_x_in_bytes: 0,
            src_y: 0,
            src_z: 0,
            src_lod: 0,
            src_memory_type: kind(&self.from),
            src_host: memory::pointer(self.from.address),
            src_device: self.from.address,
            src_array: ptr::null_mut(),
            reserved0: ptr::null_mut(),
            src_pitch: self.from.row,
            src_height: rows(&self.from),
            dst_x_in_bytes: 0,
            dst_y: 0,
            dst_z: 0,
            dst_lod: 0,
            dst_memory_type: kind(&self.to),
            dst_host: memory::pointer(self.to.address),
            dst_device: self.to.address,
            dst_array: ptr::null_mut(),
            reserved1: ptr::null_mut(),
            dst_pitch: self.to.row,
            dst_height: rows(&self.to),
            width_in_bytes: self.width,
            height: self.height,
            depth: self.depth,
        }
    }

    fn from_2d(copy: &CUDA_MEMCPY2D) -> Answer<Copy> {
        Self::from_3d(&CUDA_MEMCPY3D {
            src_x_in_bytes: copy.src_x_in_bytes,
            src_y: copy.src_y,
            src_z: 0,
            src_lod: 0,
            src_memory_type: copy.src_memory_type,
            src_host: copy.src_host,
            src_device: copy.src_device,
            src_array: copy.src_array,
            reserved0: ptr::null_mut(),
            src_pitch: copy.src_pitch,
            src_height: copy.height,
            dst_x_in_bytes: copy.dst_x_in_bytes,
            dst_y: copy.dst_y,
            dst_z: 0,
            dst_lod: 0,
            dst_memory_type: copy.dst_memory_type,
            dst_host: copy.dst_host,
            dst_device: copy.dst_device,
            dst_array: copy.dst_array,
            reserved1: ptr::null_mut(),
            dst_pitch: copy.dst_pitch,
            dst_height: copy.height,
            width_in_bytes: copy.width_in_bytes,
            height: copy.height,
            depth: 1,
        })
    }

    fn from_peer(copy: *const CUDA_MEMCPY3D_PEER) -> Answer<Copy> {
        // The two structures differ only in two words: contexts here, reserved there.
        Self::from_3d(&get(copy.cast::<CUDA_MEMCPY3D>())?)
    }
}

/// One side of a strided copy as the caller describes it.
struct Place {
    kind: CUmemorytype,
    host: *mut c_void,
    device: CUdeviceptr,
    array: CUarray,
    /// Bytes of a row, rows of a slice; 0 means "packed".
    pitch: [usize; 2],
    /// x in bytes, y in rows, z in slices.
    offset: [usize; 3],
}

fn strided(place: &Place, [width, height, depth]: [usize; 3]) -> Answer<Side> {
    let packed = |pitch: usize, least: usize| if pitch == 0 { least } else { pitch };
    let (address, row, rows) = match place.kind {
        CU_MEMORYTYPE_HOST => {
            (place.host.expose_provenance() as u64, packed(place.pitch[0], width), place.pitch[1])
        }
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => {
            (place.device, packed(place.pitch[0], width), place.pitch[1])
        }
        CU_MEMORYTYPE_ARRAY => array::of(place.array)?.strides(),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let slice = row.checked_mul(packed(rows, height)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let [x, y, z] = place.offset;
    let start = address + (z * slice + y * row + x) as u64;
    let span = match (height, depth) {
        (0, _) | (_, 0) => 0,
        _ => (depth - 1) * slice + (height - 1) * row + width,
    };
    let side = match place.kind {
        CU_MEMORYTYPE_HOST | CU_MEMORYTYPE_UNIFIED => Side::flat(start, span)?,
        _ => Side::device(start, span)?,
    };
    Ok(Side { row, slice, ..side })
}
