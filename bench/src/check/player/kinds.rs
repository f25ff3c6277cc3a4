//! Every kind of device memory that a program gets by calls of its own, piece by piece until the driver refuses one.

use std::ptr::null_mut;

use serde_json::{Value, json};
use weir_abi::CUresult;
use weir_abi::types::*;

use super::memory::{Memory, ask, on_device};
use crate::client::{ClientError, check};

/// Kinds that [`Memory::fill`] knows: `ordered` is of the default pool, `pool` of one of its own, `graph` of a graph's memory node.
pub const KINDS: [&str; 9] =
    ["plain", "pitched", "managed", "ordered", "pool", "graph", "virtual", "array", "mipmap"];

/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: std::ffi::c_uint = 1;

/// Width of pitched memory and of arrays, in bytes: a multiple of every alignment.
const WIDTH: usize = 1 << 15;

/// Elements of arrays are four words of 32 bits.
const ELEMENT: (CUarray_format, std::ffi::c_uint, usize) = (CU_AD_FORMAT_UNSIGNED_INT32, 4, 16);

/// A piece of device memory, by how it came.
enum Piece {
    Pointer(CUdeviceptr),
    Ordered(CUdeviceptr),
    Handle(CUmemGenericAllocationHandle),
    Array(CUarray),
    Mipmap(CUmipmappedArray),
    /// What was allocated when it was launched, the graph made executable, and the graph.
    Graph(CUdeviceptr, CUgraphExec, CUgraph),
}

impl Memory {
    /// As many pieces of a kind as the driver grants, all of which go back; how many they were, and how the next one was refused.
    pub(super) fn fill(&self, kind: &str, bytes: usize) -> Result<Value, ClientError> {
        let pool = if kind == "pool" { self.pool()? } else { null_mut() };
        let mut pieces = Vec::new();
        let code = loop {
            let (piece, result) = self.take(kind, bytes, pool)?;
            match result {
                CUDA_SUCCESS => pieces.push(piece),
                refusal => {
                    if let Piece::Graph(_, exec, graph) = piece {
                        self.destroy(exec, graph)?;
                    }
                    break refusal.0;
                }
            }
        };
        let count = pieces.len();
        pieces.into_iter().try_for_each(|piece| self.give_back(&piece))?;
        check("cuCtxSynchronize", ask!(self, cuCtxSynchronize())?)?;
        // Pools and graphs keep what they have reserved; these two give it back.
        match kind {
            "pool" => check("cuMemPoolDestroy", ask!(self, cuMemPoolDestroy(pool))?)?,
            "graph" => check("cuDeviceGraphMemTrim", ask!(self, cuDeviceGraphMemTrim(0))?)?,
            _ => {}
        }
        Ok(json!({"pieces": count, "code": code}))
    }

    fn take(&self, kind: &str, bytes: usize, pool: CUmemoryPool) -> Result<(Piece, CUresult), ClientError> {
        let (mut pointer, mut pitch, height) = (0, 0, bytes / WIDTH);
        let place = &raw mut pointer;
        Ok(match kind {
            "pitched" => {
                let answer = ask!(self, cuMemAllocPitch_v2(place, &raw mut pitch, WIDTH, height, 16))?;
                (Piece::Pointer(pointer), answer)
            }
            "managed" => {
                let answer = ask!(self, cuMemAllocManaged(place, bytes, ATTACH_GLOBAL))?;
                (Piece::Pointer(pointer), answer)
            }
            "ordered" => {
                let answer = ask!(self, cuMemAllocAsync(place, bytes, null_mut()))?;
                (Piece::Ordered(pointer), answer)
            }
            "pool" => {
                let answer = ask!(self, cuMemAllocFromPoolAsync(place, bytes, pool, null_mut()))?;
                (Piece::Ordered(pointer), answer)
            }
            "graph" => self.take_by_graph(bytes)?,
            "virtual" => {
                let (mut handle, on_device) = (0, on_device());
                let answer = ask!(self, cuMemCreate(&raw mut handle, bytes, &raw const on_device, 0))?;
                (Piece::Handle(handle), answer)
            }
            "array" | "mipmap" => self.take_array(kind, bytes / WIDTH)?,
            _ => {
                let answer = ask!(self, cuMemAlloc_v2(place, bytes))?;
                (Piece::Pointer(pointer), answer)
            }
        })
    }

    fn take_array(&self, kind: &str, height: usize) -> Result<(Piece, CUresult), ClientError> {
        let (format, num_channels, bytes) = ELEMENT;
        let width = WIDTH / bytes;
        if kind == "array" {
            let (mut array, wanted) =
                (null_mut(), CUDA_ARRAY_DESCRIPTOR { width, height, format, num_channels });
            let answer = ask!(self, cuArrayCreate_v2(&raw mut array, &raw const wanted))?;
            return Ok((Piece::Array(array), answer));
        }
        let wanted = CUDA_ARRAY3D_DESCRIPTOR { width, height, depth: 0, format, num_channels, flags: 0 };
        // One level: then a piece is as large as of any other kind.
        let (mut mipmap, levels) = (null_mut(), 1);
        let answer = ask!(self, cuMipmappedArrayCreate(&raw mut mipmap, &raw const wanted, levels))?;
        Ok((Piece::Mipmap(mipmap), answer))
    }

    /// A graph whose one node allocates, launched once: that is when it takes the memory.
    fn take_by_graph(&self, bytes: usize) -> Result<(Piece, CUresult), ClientError> {
        let (mut graph, mut exec, mut node) = (null_mut(), null_mut(), null_mut());
        let mut wanted = CUDA_MEM_ALLOC_NODE_PARAMS {
            pool_props: pool_of_device(),
            access_descs: std::ptr::null(),
            access_desc_count: 0,
            bytesize: bytes,
            dptr: 0,
        };
        check("cuGraphCreate", ask!(self, cuGraphCreate(&raw mut graph, 0))?)?;
        let (place, none) = (&raw mut node, std::ptr::null());
        let mut answer = ask!(self, cuGraphAddMemAllocNode(place, graph, none, 0, &raw mut wanted))?;
        if answer == CUDA_SUCCESS {
            answer = ask!(self, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0))?;
        }
        if answer == CUDA_SUCCESS {
            answer = ask!(self, cuGraphLaunch(exec, null_mut()))?;
        }
        Ok((Piece::Graph(wanted.dptr, exec, graph), answer))
    }

    fn give_back(&self, piece: &Piece) -> Result<(), ClientError> {
        match *piece {
            Piece::Pointer(pointer) => check("cuMemFree_v2", ask!(self, cuMemFree_v2(pointer))?),
            Piece::Ordered(pointer) => {
                check("cuMemFreeAsync", ask!(self, cuMemFreeAsync(pointer, null_mut()))?)
            }
            Piece::Handle(handle) => check("cuMemRelease", ask!(self, cuMemRelease(handle))?),
            Piece::Array(array) => check("cuArrayDestroy", ask!(self, cuArrayDestroy(array))?),
            Piece::Mipmap(mipmap) => {
                check("cuMipmappedArrayDestroy", ask!(self, cuMipmappedArrayDestroy(mipmap))?)
            }
            Piece::Graph(pointer, exec, graph) => {
                check("cuMemFree_v2", ask!(self, cuMemFree_v2(pointer))?)?;
                self.destroy(exec, graph)
            }
        }
    }

    fn destroy(&self, exec: CUgraphExec, graph: CUgraph) -> Result<(), ClientError> {
        if !exec.is_null() {
            check("cuGraphExecDestroy", ask!(self, cuGraphExecDestroy(exec))?)?;
        }
        check("cuGraphDestroy", ask!(self, cuGraphDestroy(graph))?)
    }

    fn pool(&self) -> Result<CUmemoryPool, ClientError> {
        let (mut pool, wanted) = (null_mut(), pool_of_device());
        check("cuMemPoolCreate", ask!(self, cuMemPoolCreate(&raw mut pool, &raw const wanted))?)?;
        Ok(pool)
    }
}

/// A pool of the first GPU, for nobody else, as large as it becomes.
fn pool_of_device() -> CUmemPoolProps {
    CUmemPoolProps {
        alloc_type: CU_MEM_ALLOCATION_TYPE_PINNED,
        handle_types: CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        win32_security_attributes: null_mut(),
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    }
}
