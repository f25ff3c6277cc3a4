//! Multicast objects that cross processes, as a collective library of several ranks has them: each rank adds its own GPU and
//! binds its own memory. The ledger is compared with what the simulated GPUs hold.

use weir_tests::memory::Memory;
use weir_tests::node::Node;
use weir_tests::program::{self, Budget, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};
use weir_tests::wait;

use crate::MEMORY;

const MIB: u64 = 1 << 20;

/// The object, and what each rank binds to it, in bytes.
const SHARED: u64 = 256 * MIB;

const ONE: Budget<'_> = Budget { name: "one", request: "50%", limit: "100%", memory: "4GiB" };
const OTHER: Budget<'_> = Budget { name: "other", request: "50%", limit: "100%", memory: "4GiB" };

/// Two GPUs, and ranks on both.
struct Ranks<'a> {
    gpu: &'a SimGpu,
    node: Node<'a>,
    ranks: Vec<Memory>,
    /// What a context on the first GPU costs.
    context: u64,
    /// What the GPUs hold for contexts, which is none of the object's.
    before: [u64; 2],
}

fn machine() -> SimGpu {
    SimGpu::new(&format!("gpus = 2\n{EVERY_KERNEL_20_US}"))
}

impl<'a> Ranks<'a> {
    fn start(gpu: &'a SimGpu, tenants: &[Budget<'_>]) -> Self {
        let node = Node::start(gpu, "policy = \"static\"\n");
        let rank = |budget: &Budget<'_>| {
            Memory::start(Program::under_weir_with(gpu, Some(&node), *budget, &["--gpu", "0,1"], MEMORY))
        };
        let ranks = tenants.iter().map(rank).collect();
        let mut started = Self { gpu, node, ranks, context: 0, before: [0; 2] };
        started.before = started.held();
        started.context = started.before[0] / tenants.len() as u64;
        started
    }

    fn does(&mut self, rank: usize, line: &str) -> u64 {
        self.ranks[rank].does(line)
    }

    /// The first rank makes the object and gives it out, and all join; the memory of each, and the object as each knows it.
    fn join(&mut self) -> [[u64; 2]; 2] {
        let object = self.does(0, &format!("multicast_to_share {SHARED} 2"));
        let file = self.does(0, &format!("export {object}"));
        let imported = self.does(1, &format!("import {} {file}", self.ranks[0].pid));
        let objects = [object, imported];
        for (rank, object) in objects.into_iter().enumerate() {
            self.does(rank, &format!("multicast_join {object} {rank}"));
        }
        let memory = [0, 1].map(|rank| self.does(rank, &format!("create_at {SHARED} 1 {rank}")));
        for rank in [0, 1] {
            self.does(rank, &format!("multicast_bind {} {} {SHARED}", objects[rank], memory[rank]));
        }
        [objects, memory]
    }

    /// Kills a rank, whose charges then fall to another.
    fn kill(&mut self, rank: usize, heir: usize) {
        program::kill(self.ranks[rank].pid);
        self.before[0] -= self.context;
        wait::until("the charges to move", || (self.charged(heir) == [2 * SHARED; 2]).then_some(()));
        wait::until("the GPU to know of it", || {
            (self.held()[0] == self.before[0] + 2 * SHARED).then_some(())
        });
    }

    /// What the simulated GPUs hold.
    fn held(&self) -> [u64; 2] {
        let gpus = self.gpu.books().gpus;
        [0, 1].map(|number| gpus[number].memory_used)
    }

    /// What a rank is charged on each GPU, its context apart.
    fn charged(&self, rank: usize) -> [u64; 2] {
        let tenants = self.node.stats().tenants;
        let gpus = tenants.into_iter().flat_map(|tenant| tenant.gpus);
        let of = gpus.filter_map(|gpu| {
            let process = gpu.processes.iter().find(|process| process.pid == self.ranks[rank].pid)?;
            Some((gpu.uuid, process.memory_held_bytes))
        });
        let mut of: Vec<_> = of.collect();
        of.sort();
        [of[0].1 - self.context, of[1].1]
    }

    /// Beyond the contexts, the card and the ledger hold so much on each GPU.
    fn agree(&self, wanted: [u64; 2], when: &str) {
        let ledger = || {
            let all = self.node.stats().tenants.into_iter().flat_map(|tenant| tenant.gpus);
            let mut sums = std::collections::BTreeMap::<_, u64>::new();
            for gpu in all {
                let held = gpu.processes.iter().map(|process| process.memory_held_bytes).sum::<u64>();
                *sums.entry(gpu.uuid).or_default() += held;
            }
            let sums: Vec<_> = sums.into_values().collect();
            [sums[0], sums[1]]
        };
        let full = [0, 1].map(|number| self.before[number] + wanted[number]);
        assert_eq!(self.held(), full, "the GPUs, {when}");
        assert_eq!(ledger(), full, "the ledger, {when}");
    }
}

#[test]
fn each_gpu_that_joins_is_charged_once_to_who_has_added_it_and_bound_memory_outlives_its_handle() {
    let gpu = machine();
    let mut ranks = Ranks::start(&gpu, &[ONE, ONE]);
    let [objects, memory] = ranks.join();
    ranks.agree([2 * SHARED; 2], "all have joined and bound");
    assert_eq!(ranks.charged(0), [2 * SHARED, 0]);
    assert_eq!(ranks.charged(1), [0, 2 * SHARED]);
    for rank in [0, 1] {
        ranks.does(rank, &format!("map {} {SHARED}", objects[rank]));
        ranks.does(rank, &format!("release {}", memory[rank]));
    }
    ranks.agree([2 * SHARED; 2], "what is bound has no handle any more");
    ranks.does(1, &format!("multicast_unbind {} {SHARED} 1", objects[1]));
    ranks.agree([2 * SHARED, SHARED], "the second rank has unbound it");
    let twice = format!("multicast_join {} 1", objects[0]);
    assert_eq!(ranks.ranks[0].tell(&twice).result, "CUDA_ERROR_INVALID_VALUE", "it is in already");
    ranks.agree([2 * SHARED, SHARED], "a refusal costs nothing");
}

#[test]
fn what_a_living_rank_lets_go_of_is_charged_to_who_has_the_object_still() {
    let gpu = machine();
    let mut ranks = Ranks::start(&gpu, &[ONE, OTHER]);
    let [objects, memory] = ranks.join();
    ranks.agree([2 * SHARED; 2], "two tenants");
    ranks.does(0, &format!("release {}", objects[0]));
    wait::until("the object's charge to move", || (ranks.charged(1) == [SHARED, 2 * SHARED]).then_some(()));
    ranks.agree([2 * SHARED; 2], "the first rank has closed the object, and has its memory");
    ranks.does(0, &format!("release {}", memory[0]));
    wait::until("the memory's charge to move", || (ranks.charged(1) == [2 * SHARED; 2]).then_some(()));
    assert_eq!(ranks.charged(0), [0, 0]);
    ranks.agree([2 * SHARED; 2], "and its memory, which is bound");
    ranks.does(1, &format!("release {}", objects[1]));
    ranks.agree([0, SHARED], "the object is gone");
    ranks.does(1, &format!("release {}", memory[1]));
    ranks.agree([0, 0], "and all memory");
}

/// The maker is killed, and its charges fall to who has the object for longest.
fn killed(tenants: [Budget<'_>; 2]) {
    let gpu = machine();
    let mut ranks = Ranks::start(&gpu, &tenants);
    let [objects, memory] = ranks.join();
    ranks.agree([2 * SHARED; 2], "all have joined and bound");
    ranks.kill(0, 1);
    ranks.agree([2 * SHARED; 2], "the maker is dead");
    ranks.does(1, &format!("release {}", objects[1]));
    ranks.agree([0, SHARED], "the object is gone, and with it what the dead one had bound");
    ranks.does(1, &format!("release {}", memory[1]));
    ranks.agree([0, 0], "nothing is left");
}

#[test]
fn after_its_makers_death_an_object_and_what_it_holds_is_charged_to_the_rank_that_has_it() {
    killed([ONE, ONE]);
}

#[test]
fn after_its_makers_death_an_object_is_charged_to_another_tenant_that_has_it() {
    killed([ONE, OTHER]);
}

#[test]
fn what_an_heir_was_charged_for_falls_to_the_next_one() {
    let gpu = machine();
    let mut ranks = Ranks::start(&gpu, &[ONE, OTHER, OTHER]);
    let object = ranks.does(0, &format!("multicast_to_share {SHARED} 2"));
    let file = ranks.does(0, &format!("export {object}"));
    let import = format!("import {} {file}", ranks.ranks[0].pid);
    let objects = [object, ranks.does(1, &import), ranks.does(2, &import)];
    for rank in [0, 1] {
        ranks.does(rank, &format!("multicast_join {} {rank}", objects[rank]));
    }
    for rank in [0, 1] {
        let memory = ranks.does(rank, &format!("create_at {SHARED} 1 {rank}"));
        ranks.does(rank, &format!("multicast_bind {} {memory} {SHARED}", objects[rank]));
    }
    assert_eq!(ranks.charged(2), [0, 0], "it has the object, and nothing there");
    ranks.kill(0, 1);
    ranks.kill(1, 2);
    ranks.agree([2 * SHARED; 2], "two ranks are dead");
    ranks.does(2, &format!("release {}", objects[2]));
    ranks.agree([0, 0], "the object is gone");
}

#[test]
fn a_rank_beyond_its_limit_is_refused_when_the_size_of_an_imported_object_shows() {
    let gpu = machine();
    let tight = Budget { memory: "900MiB", ..OTHER };
    let mut ranks = Ranks::start(&gpu, &[ONE, tight]);
    let object = ranks.does(0, &format!("multicast_to_share {SHARED} 2"));
    let file = ranks.does(0, &format!("export {object}"));
    let imported = ranks.does(1, &format!("import {} {file}", ranks.ranks[0].pid));
    ranks.does(0, &format!("multicast_join {object} 0"));
    ranks.does(1, &format!("multicast_join {imported} 1"));
    let memory = ranks.does(1, &format!("create_at {} 1 1", 3 * SHARED));
    let bind = format!("multicast_bind {imported} {memory} {SHARED}");
    assert_eq!(ranks.ranks[1].tell(&bind).result, "CUDA_ERROR_OUT_OF_MEMORY");
    ranks.does(1, &format!("release {memory}"));
    let memory = ranks.does(1, &format!("create_at {SHARED} 1 1"));
    ranks.does(1, &format!("multicast_bind {imported} {memory} {SHARED}"));
    ranks.agree([SHARED, 2 * SHARED], "within the limit");
}

#[test]
fn binding_and_mapping_wait_until_the_last_device_has_joined() {
    let gpu = machine();
    let mut ranks = Ranks::start(&gpu, &[ONE, ONE]);
    let object = ranks.does(0, &format!("multicast_to_share {SHARED} 2"));
    let file = ranks.does(0, &format!("export {object}"));
    let imported = ranks.does(1, &format!("import {} {file}", ranks.ranks[0].pid));
    ranks.does(0, &format!("multicast_join {object} 0"));
    let memory = ranks.does(0, &format!("create {SHARED}"));
    ranks.ranks[0].begin(&format!("multicast_bind {object} {memory} {SHARED}"));
    ranks.does(1, &format!("multicast_join {imported} 1"));
    assert_eq!(ranks.ranks[0].ended().result, "CUDA_SUCCESS");
    ranks.does(1, &format!("map {imported} {SHARED}"));
    ranks.agree([2 * SHARED, SHARED], "mapped, its size is known");
}
