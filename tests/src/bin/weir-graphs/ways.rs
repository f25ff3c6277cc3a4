//! Every way to launch.

use std::ffi::c_void;
use std::ptr::null_mut;

use weir_abi::CUresult;
use weir_abi::types::*;
use weir_protocol::pages::COUNTED_LAUNCHES;
use weir_tests::call;
use weir_tests::obeying::{Done, handle, size};

use crate::{BLOCKS, Client, THREADS};

/// One command, if it is of this subject: `launch_by` a function, which is named by its place in [`COUNTED_LAUNCHES`], this
/// kernel, or this executable graph, on the legacy default stream or the thread's own.
pub fn obey(client: &mut Client, command: &str, numbers: &[u64]) -> Option<Done> {
    let n = |at: usize| numbers.get(at).copied().unwrap_or(0);
    match command {
        "launch_by" => {
            let way = COUNTED_LAUNCHES.get(size(n(0)))?;
            Some((kernel(client, way, n(1)).or_else(|| other(client, way, n(1), n(2)))?, Vec::new()))
        }
        _ => None,
    }
}

/// The launches of CUDA 4 and later that have the shape of the grid among their arguments.
fn kernel(client: &Client, way: &str, kernel: u64) -> Option<CUresult> {
    let (f, shared, s, none) = (client.function(kernel), 0, null_mut(), null_mut::<*mut c_void>());
    let (b, t) = (BLOCKS, THREADS);
    Some(match way {
        "cuLaunchKernel" => call!(client, cuLaunchKernel(f, b, 1, 1, t, 1, 1, shared, s, none, none)),
        "cuLaunchKernel_ptsz" => {
            call!(client, cuLaunchKernel_ptsz(f, b, 1, 1, t, 1, 1, shared, s, none, none))
        }
        "cuLaunchCooperativeKernel" => {
            call!(client, cuLaunchCooperativeKernel(f, b, 1, 1, t, 1, 1, shared, s, none))
        }
        "cuLaunchCooperativeKernel_ptsz" => {
            call!(client, cuLaunchCooperativeKernel_ptsz(f, b, 1, 1, t, 1, 1, shared, s, none))
        }
        _ => return None,
    })
}

/// The others.
fn other(client: &Client, way: &str, kernel: u64, graph: u64) -> Option<CUresult> {
    let (f, s, width) = (client.function(kernel), null_mut(), i32::try_from(BLOCKS).unwrap_or(1));
    let config = CUlaunchConfig {
        grid_dim_x: BLOCKS,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: THREADS,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream: s,
        attrs: null_mut(),
        num_attrs: 0,
    };
    let config = &raw const config;
    let shaped = || call!(client, cuFuncSetBlockShape(f, THREADS.cast_signed(), 1, 1));
    Some(match way {
        "cuLaunchKernelEx" => call!(client, cuLaunchKernelEx(config, f, null_mut(), null_mut())),
        "cuLaunchKernelEx_ptsz" => call!(client, cuLaunchKernelEx_ptsz(config, f, null_mut(), null_mut())),
        "cuLaunchCooperativeKernelMultiDevice" => {
            crate::places::on_devices(client, kernel, BLOCKS.into(), 1).0
        }
        "cuGraphLaunch" => call!(client, cuGraphLaunch(handle(graph), s)),
        "cuGraphLaunch_ptsz" => call!(client, cuGraphLaunch_ptsz(handle(graph), s)),
        "cuLaunch" => {
            shaped();
            call!(client, cuLaunch(f))
        }
        "cuLaunchGrid" => {
            shaped();
            call!(client, cuLaunchGrid(f, width, 1))
        }
        "cuLaunchGridAsync" => {
            shaped();
            call!(client, cuLaunchGridAsync(f, width, 1, s))
        }
        _ => return None,
    })
}
