//! The types of the driver API that Weir or the simulated driver looks into, in our own definitions.
//!
//! Names of types and constants are those of `cuda.h`; fields are in snake case, in its order. What is
//! only ever passed by pointer, and never looked into, is `c_void` in the table. `tests/layout.rs` holds
//! every size, offset and constant against NVIDIA's own.
#![allow(
    non_camel_case_types,
    reason = "types keep the names of cuda.h, so that a reader can search for them"
)]
#![allow(missing_docs, reason = "fields mean what the CUDA driver API reference says of the same field")]

mod context;
mod copy;
mod graph;
mod handle;
mod launch;
mod memory;
mod result;
mod sparse;

pub use context::*;
pub use copy::*;
pub use graph::*;
pub use handle::*;
pub use launch::*;
pub use memory::*;
pub use result::*;
pub use sparse::*;
