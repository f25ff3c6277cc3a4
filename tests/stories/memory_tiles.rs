//! Sparse arrays: physical memory that is mapped to a part of one stays charged until no handle and no tile has it, as CUDA's
//! reference of `cuMemRelease` and `cuMemMapArrayAsync` has it. Each time the driver's own books say the same.

use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::small::{self, client};

const MIB: u64 = 1 << 20;

/// What is mapped, in bytes.
const MAPPED: u64 = 512 * MIB;

/// A sparse array of 8 x 8 tiles, each of 128 rows.
const SPARSE: &str = "sparse 1024 1024 0";

/// A mipmapped array whose levels 4 to 10 are smaller than a tile.
const LEVELS: &str = "sparse_levels 1024 1024 11";

/// Asserts what the tenant is charged for physical memory, and for arrays nothing; its ledger is what the driver has in its
/// books for the process.
#[track_caller]
fn charged(gpu: &SimGpu, node: &Node<'_>, process: &Memory, bytes: u64) {
    assert_eq!(small::charged(node, "virtual"), bytes);
    assert_eq!(small::charged(node, "array"), 0, "these arrays have no memory of their own");
    let held = node.tenant("small").expect("the tenant lives").gpus[0].memory_held_bytes;
    assert_eq!(held, gpu.client(process.pid).expect("a client of the driver").memory_bytes);
}

/// Memory of which only tiles are left: it is mapped as the commands say, and its handle released.
fn mapped(client: &mut Memory, commands: &[String]) {
    let memory = client.does(&format!("create_for_tiles {MAPPED}"));
    for command in commands {
        client.does(&format!("{command} {memory}"));
    }
    client.does(&format!("release {memory}"));
}

#[test]
fn memory_in_a_sparse_array_is_charged_until_its_last_tile_is_unmapped() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let array = small.does(SPARSE);
    charged(&gpu, &node, &small, 0);
    mapped(&mut small, &[format!("tiles {array} 0 384")]);
    charged(&gpu, &node, &small, MAPPED);
    let rest = format!("create {}", 1536 * MIB);
    assert_eq!(
        small.tell(&rest).result,
        "CUDA_ERROR_OUT_OF_MEMORY",
        "over the limit, with what the tiles hold"
    );
    small.does(&format!("tiles {array} 128 256 0"));
    charged(&gpu, &node, &small, MAPPED); // one tile before, one behind
    small.does(&format!("tiles_of_thread {array} 0 128 0"));
    charged(&gpu, &node, &small, MAPPED);
    small.does(&format!("tiles {array} 0 1024 0"));
    charged(&gpu, &node, &small, 0);
    small.does(&rest);
    charged(&gpu, &node, &small, 1536 * MIB);
}

#[test]
fn memory_in_a_sparse_array_is_given_back_when_other_memory_is_mapped_over_it() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let array = small.does(SPARSE);
    mapped(&mut small, &[format!("tiles {array} 0 384")]);
    let other = small.does(&format!("create_for_tiles {}", 2 * MIB));
    for (rows, left) in [("128 256", MAPPED), ("0 128", MAPPED), ("256 384", 0)] {
        small.does(&format!("tiles_of_thread {array} {rows} {other}"));
        charged(&gpu, &node, &small, left + 2 * MIB);
    }
    mapped(&mut small, &[format!("tiles {array} 0 128 {other} {array} 512 640")]);
    let third = small.does(&format!("create_for_tiles {}", 4 * MIB));
    small.does(&format!("tiles {array} 512 640 {third} {array} 512 640 {other}")); // in the order of the list
    small.does(&format!("release {third}"));
    charged(&gpu, &node, &small, 2 * MIB);
}

#[test]
fn memory_in_a_sparse_array_goes_with_the_array_or_with_its_context() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let (array, levels) = (small.does(SPARSE), small.does(LEVELS));
    let everywhere = [
        format!("tiles {array} 0 128"),
        format!("level {levels} 0"),
        format!("level {levels} 3"),
        format!("tail {levels} 65536"),
    ];
    mapped(&mut small, &everywhere);
    small.does(&format!("array_destroy {array}"));
    small.does(&format!("level {levels} 0 0"));
    small.does(&format!("level {levels} 3 0"));
    charged(&gpu, &node, &small, MAPPED); // the tail holds it
    assert_eq!(small.tell(&format!("array_destroy {levels}")).result, "CUDA_ERROR_INVALID_HANDLE");
    charged(&gpu, &node, &small, MAPPED);
    small.does(&format!("levels_destroy {levels}"));
    charged(&gpu, &node, &small, 0);
    let array = small.does(SPARSE);
    mapped(&mut small, &[format!("tiles {array} 0 128")]);
    charged(&gpu, &node, &small, MAPPED);
    small.does("primary_release");
    charged(&gpu, &node, &small, 0);
}

#[test]
fn a_list_that_the_driver_refuses_changes_nothing() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let array = small.does(SPARSE);
    let plain = small.does(&format!("create {}", 2 * MIB));
    mapped(&mut small, &[format!("tiles {array} 0 256")]);
    let mut refused = |list: &str| {
        assert_eq!(small.tell(list).result, "CUDA_ERROR_INVALID_VALUE", "{list}");
        charged(&gpu, &node, &small, MAPPED + 2 * MIB);
    };
    refused(&format!("tiles {array} 0 100 0")); // no whole tile
    refused(&format!("tiles {array} 0 128 0 {array} 128 256 12345")); // no memory
    refused(&format!("tiles {array} 0 128 0 {array} 128 256 {plain}")); // no memory for tiles
    refused(&format!("tiles {array} 0 256 {plain}"));
    small.does(&format!("tiles {array} 0 128 0"));
    charged(&gpu, &node, &small, MAPPED + 2 * MIB);
    small.does(&format!("release {plain}"));
    small.does(&format!("tiles {array} 128 256 0"));
    charged(&gpu, &node, &small, 0);
}

#[test]
fn an_array_whose_memory_comes_later_has_it_as_a_whole() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let array = small.does("deferred 256 256");
    charged(&gpu, &node, &small, 0);
    mapped(&mut small, &[format!("tiles {array} 3 5")]);
    charged(&gpu, &node, &small, MAPPED);
    mapped(&mut small, &[format!("tiles {array} 0 0")]);
    charged(&gpu, &node, &small, MAPPED); // in the place of the first
    small.does(&format!("tiles {array} 7 9 0"));
    charged(&gpu, &node, &small, 0);
}

#[test]
fn the_driver_tells_how_an_array_is_cut_into_tiles() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let mut small = client(&gpu, &node);
    let (flat, deep) = (small.does(SPARSE), small.does("sparse 64 64 64"));
    let (levels, deferred) = (small.does(LEVELS), small.does("deferred 256 256"));
    let mut tiling = |array, is_mipmap| small.tell(&format!("tiling {array} {is_mipmap}"));
    assert_eq!(tiling(flat, 0).values, [128, 128, 1, 0, 0]);
    assert_eq!(tiling(deep, 0).values, [32, 32, 16, 0, 0]);
    assert_eq!(tiling(levels, 1).values, [128, 128, 1, 4, 65_536]);
    assert_eq!(tiling(deferred, 0).result, "CUDA_ERROR_INVALID_VALUE", "it is not sparse");
}
