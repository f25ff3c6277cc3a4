//! Every way to launch.

use std::ptr::null_mut;

use weir_abi::types::*;

use crate::{Sweep, call};

/// Launches in each way, a different number of times.
pub fn all(sweep: &mut Sweep) {
    plain(sweep);
    extended(sweep);
    cooperative(sweep);
    graphs(sweep);
    as_in_cuda_2(sweep);
}

/// `cuLaunchKernel`, on the stream and on the thread's own.
fn plain(sweep: &mut Sweep) {
    let (f, s, null) = (sweep.function, sweep.stream, null_mut());
    for _ in 0..3 {
        call!(sweep, cuLaunchKernel(f, 4, 2, 1, 32, 1, 1, 0, s, null, null_mut()));
    }
    for _ in 0..4 {
        call!(sweep, cuLaunchKernel_ptsz(f, 4, 2, 1, 32, 1, 1, 0, null_mut(), null, null_mut()));
    }
}

/// `cuLaunchKernelEx`.
fn extended(sweep: &mut Sweep) {
    let config = CUlaunchConfig {
        grid_dim_x: 8,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: 32,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream: sweep.stream,
        attrs: null_mut(),
        num_attrs: 0,
    };
    for _ in 0..5 {
        call!(sweep, cuLaunchKernelEx(&raw const config, sweep.function, null_mut(), null_mut()));
    }
    for _ in 0..6 {
        call!(sweep, cuLaunchKernelEx_ptsz(&raw const config, sweep.function, null_mut(), null_mut()));
    }
}

/// `cuLaunchCooperativeKernel`, on one and on several devices.
fn cooperative(sweep: &mut Sweep) {
    let (f, s) = (sweep.function, sweep.stream);
    for _ in 0..7 {
        call!(sweep, cuLaunchCooperativeKernel(f, 1, 1, 1, 32, 1, 1, 0, s, null_mut()));
    }
    for _ in 0..8 {
        call!(sweep, cuLaunchCooperativeKernel_ptsz(f, 1, 1, 1, 32, 1, 1, 0, s, null_mut()));
    }
    let mut launch = CUDA_LAUNCH_PARAMS {
        function: f,
        grid_dim_x: 1,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: 32,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream: s,
        kernel_params: null_mut(),
    };
    call!(sweep, cuLaunchCooperativeKernelMultiDevice(&raw mut launch, 1, 0));
}

/// A captured launch, launched as a graph.
fn graphs(sweep: &mut Sweep) {
    let (mut graph, mut ready, s) = (null_mut(), null_mut(), sweep.stream);
    call!(sweep, cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    call!(sweep, cuLaunchKernel(sweep.function, 4, 2, 1, 32, 1, 1, 0, s, null_mut(), null_mut()));
    call!(sweep, cuStreamEndCapture(s, &raw mut graph));
    call!(sweep, cuGraphInstantiateWithFlags(&raw mut ready, graph, 0));
    for _ in 0..9 {
        call!(sweep, cuGraphLaunch(ready, s));
    }
    for _ in 0..10 {
        call!(sweep, cuGraphLaunch_ptsz(ready, s));
    }
}

/// What CUDA 2 had, exported to this day.
fn as_in_cuda_2(sweep: &mut Sweep) {
    call!(sweep, cuFuncSetBlockShape(sweep.function, 32, 1, 1));
    call!(sweep, cuLaunch(sweep.function));
    for _ in 0..2 {
        call!(sweep, cuLaunchGrid(sweep.function, 2, 2));
    }
    for _ in 0..3 {
        call!(sweep, cuLaunchGridAsync(sweep.function, 2, 2, sweep.stream));
    }
}
