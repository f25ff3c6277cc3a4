//! The simulated `libcuda.so.1`: a driver that real, unmodified clients load, over GPUs that a broker process
//! simulates (`weir-simgpu-link`).
//!
//! Memory is host memory and copies are real; kernels take time and compute nothing. Times are nanoseconds,
//! sizes bytes. Every function of the driver API is exported (`api.rs`); those that are implemented stand in
//! the file of their subject, all others answer `CUDA_ERROR_NOT_SUPPORTED`.

#![allow(non_snake_case, reason = "methods and exports are named as the symbols they stand for")]
#![allow(clippy::too_many_arguments, reason = "the signatures are the driver's")]

mod api;
mod array;
mod attributes;
mod backing;
mod broken;
mod capture;
mod checkpoint;
mod context;
mod copy;
mod counters;
mod device;
mod edge;
mod effects;
mod event;
mod external;
mod fault;
mod fill;
mod function;
mod graph;
mod graph_memory;
mod green;
mod host_time;
mod image;
mod ipc;
mod ipc_event;
mod kept_attributes;
mod launch;
mod limits;
mod linker;
mod lookup;
mod memory;
mod module;
mod mps;
mod occupancy;
mod pointer;
mod pool;
mod price;
mod primary;
mod registry;
mod session;
mod stream;
mod stream_memory;
mod under_way;
mod visible;
mod vmm;
mod watch;
mod work;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What devices are called: nobody shall take them for real ones.
const NAME: &str = "Weir simulated GPU (A100)";

/// Locks, whether or not a thread has died with the lock: what is inside is whole after every statement.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
