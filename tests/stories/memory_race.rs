//! Two processes of one tenant ask for its last bytes at the same moment: never do both get them, and none are lost.

use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::Program;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::MEMORY;
use crate::small::SMALL;

const MIB: u64 = 1 << 20;

/// What a context of the simulated driver costs.
const CONTEXT: u64 = 400 * MIB;

/// What is left beside two contexts of 2 GiB is enough for one of this, and not for two.
const WANTED: u64 = 640 * MIB;

/// For memory of each kind.
const ROUNDS: u64 = 2_000;

#[test]
fn two_processes_of_a_tenant_never_both_get_its_last_bytes_and_lose_none() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let held = || node.tenant(SMALL.name).expect("it lives").gpus[0].memory_held_bytes;
    let kinds = ["plain", "physical", "pool", "managed", "pitched", "array"];
    for (at, kind) in kinds.into_iter().enumerate() {
        let meeting = tempfile::NamedTempFile::new().expect("a file");
        meeting.as_file().set_len(16).expect("of two words");
        let racer = || {
            let program = Program::under_weir(&gpu, Some(&node), SMALL, MEMORY);
            Memory::start(program.env("RACE_FILE", meeting.path()))
        };
        let mut racers = [racer(), racer()];
        assert_eq!(held(), 2 * CONTEXT);
        racers.iter_mut().for_each(|racer| racer.begin(&format!("race {at} {WANTED} {ROUNDS}")));
        let ends = racers.each_mut().map(Memory::ended);
        ends.iter().for_each(|end| assert_eq!(end.result, "CUDA_SUCCESS", "{kind}"));
        let [(won, both), (won_too, both_too)] = ends.map(|end| (end.values[0], end.values[1]));
        eprintln!("{kind}: {won} and {won_too} of {ROUNDS}");
        assert_eq!(both + both_too, 0, "{kind}: both had the last bytes");
        assert!(won + won_too <= ROUNDS && won + won_too > ROUNDS * 9 / 10, "{kind}: {won} and {won_too}");
        assert_eq!(held(), 2 * CONTEXT, "{kind}: nothing is left behind");
        let whole = 2048 * MIB - 2 * CONTEXT;
        let all = racers[1].does(&format!("allocate {whole}"));
        racers[1].does(&format!("free {all}"));
        for racer in racers {
            racer.finish().well();
        }
    }
}
