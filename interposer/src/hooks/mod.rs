//! The hooks: every driver function that we stand in for is one row in `table` and one handler in a file of its subject
//! here. See `docs/adding-a-hook.md`.

mod callback;
mod capture;
mod context;
mod context_memory;
mod copy;
mod copy_pieces;
mod excuse;
mod external;
mod graph;
mod graph_device;
mod graph_memory;
mod graph_nodes;
mod graph_segments;
mod graph_split;
mod init;
mod launch;
mod memory;
mod meter;
mod multicast;
mod names;
mod nvml;
mod nvml_processes;
mod nvml_structures;
mod oversubscribe;
mod pool;
mod shares;
mod stream_waits;
mod sync;
mod table;
mod team;
mod tiles;
#[cfg(test)]
mod unhooked;
mod view;
mod vmm;
mod vmm_shares;

pub use capture::forget_all as forget_captures;
pub use context_memory::ContextMemory;
pub use graph::GraphPrices;
pub use graph_memory::GraphMemory;
pub use graph_split::Splits;
pub use launch::launch_price;
pub use meter::{ANYTHING, Hands};
pub use nvml_processes::Utilization;
pub use pool::{Pools, piece_freed};
pub use shares::Shares;
pub use stream_waits::StreamWaits;
pub use table::add_hooks;
pub(crate) use table::{address_of, c_name};
pub use tiles::Tiles;
pub use vmm::VirtualMemory;
