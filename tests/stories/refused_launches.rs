//! Launches that the driver refuses: the program gets the driver's own answer, and nothing is charged.

use weir_tests::graphs::COSTS;
use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

use crate::GRAPHS;

/// A tenth of the GPU: a second of debt takes ten.
const TENTH: Budget<'_> = Budget { name: "tenth", request: "10%", limit: "10%", memory: "2GiB" };

/// By their places in `weir_tests::graphs::KERNELS`.
const US_5: u64 = 0;
const US_5000: u64 = 3;

#[test]
fn a_launch_on_several_devices_that_the_driver_refuses_costs_nothing() {
    let gpu = SimGpu::new(COSTS);
    let prices = "[[price]]\nname = \"us_5\"\ntime_us = 5\n[[price]]\nname = \"us_5000\"\ntime_us = 5000\n";
    let node = Node::start(&gpu, &format!("policy = \"static\"\n{prices}"));
    let mut client = Memory::start(Program::under_weir(&gpu, Some(&node), TENTH, GRAPHS));
    assert_eq!(client.tell("on_devices_of_nothing").result, "CUDA_ERROR_INVALID_VALUE", "no list");
    let longer = client.tell(&format!("on_too_many_devices {US_5}")).result;
    assert_eq!(
        longer, "CUDA_ERROR_INVALID_VALUE",
        "more devices than there are: nobody reads beyond the list"
    );
    let stream = client.does("stream");
    client.does(&format!("on_devices {US_5} 100"));
    for _ in 0..400 {
        let refused = client.tell(&format!("on_devices {US_5000} 0")).result;
        assert_eq!(refused, "CUDA_ERROR_INVALID_VALUE", "no blocks");
    }
    client.does(&format!("kernels {stream} {US_5} 10"));
    client.does("wait");
    let waited_ns = node.tenant(TENTH.name).expect("it runs").gpus[0].total.waited_ns;
    assert!(waited_ns < 1_000_000_000, "{waited_ns} ns at the gate, for two seconds of work that never ran");
}
