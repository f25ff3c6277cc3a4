//! The tenant that the stories of memory look at.

use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::MEMORY;

/// It has 2 GiB and half of the GPU.
pub const SMALL: Budget<'_> = Budget { name: "small", request: "50%", limit: "100%", memory: "2GiB" };

/// A process of it that gets and gives back memory as it is told.
pub fn client(gpu: &SimGpu, node: &Node<'_>) -> Memory {
    Memory::start(Program::under_weir(gpu, Some(node), SMALL, MEMORY))
}

/// What its ledger has for memory of a kind, in bytes.
pub fn charged(node: &Node<'_>, kind: &str) -> u64 {
    node.tenant("small").expect("the tenant lives").memory_of_kind_bytes(kind)
}
