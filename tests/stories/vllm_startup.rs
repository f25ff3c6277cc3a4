//! vLLM's start-up arithmetic, replayed call by call (`tests/clients/vllm_startup.py`): servers that start at the same moment
//! on one card size themselves as each would alone.

use serde_json::Value;
use weir_tests::dist::{client, python};
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program, Running};
use weir_tests::simgpu::SimGpu;

/// Cards, and contexts, that are small: what is held on the simulated GPU is address space. (A context of 400 MiB would
/// leave less than nine tenths of 2.7 GiB: on a card of that size vLLM would refuse, too.)
const CARDS: &str = "gpus = 2\nmemory = \"6GiB\"\ncontext_overhead = \"100MiB\"\nlinger_ms = 3_600_000\n";

const CARD: u64 = 6 << 30;

/// Nine tenths of what it sees, half a gigabyte of weights.
const SERVER: &[&str] = &["--gpu-memory-utilization", "0.9"];

/// Another model.
const LARGER: &[&str] = &["--gpu-memory-utilization", "0.85", "--weights", "900", "--activations", "320"];

/// A server that starts, step by step.
struct Server(Running);

impl Server {
    fn start(program: Program, arguments: &[&str]) -> Self {
        let mut running = program.arg(client("vllm_startup.py")).args(arguments).start();
        running.next_line().expect("its process id");
        Self(running)
    }

    fn under_weir(gpu: &SimGpu, node: &Node<'_>, name: &str, flags: &[&str], arguments: &[&str]) -> Self {
        let budget = Budget { name, request: "40%", limit: "100%", memory: "2700MiB" };
        Self::start(Program::under_weir_with(gpu, Some(node), budget, flags, python()), arguments)
    }

    fn step(&mut self) -> Value {
        self.0.say("");
        serde_json::from_str(&self.0.next_line().expect("a line")).expect("figures are JSON")
    }
}

/// The steps of all servers, each step of all before the next one of any; every other round the other way about. Returns
/// what each said, step by step.
fn interleaved(servers: &mut [Server]) -> Vec<Vec<Value>> {
    let mut said = vec![Vec::new(); servers.len()];
    for step in 0..4 {
        let mut order: Vec<usize> = (0..servers.len()).collect();
        if step % 2 == 1 {
            order.reverse();
        }
        for at in order {
            said[at].push(servers[at].step());
        }
    }
    said
}

fn number(said: &[Value], step: usize, name: &str) -> u64 {
    said[step][name].as_u64().unwrap_or_else(|| panic!("no {name} in {:?}", said))
}

#[test]
fn two_servers_that_start_together_get_the_cache_that_each_would_get_alone() {
    let gpu = SimGpu::new(CARDS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let alone = [SERVER, LARGER].map(|arguments| {
        interleaved(&mut [Server::under_weir(&gpu, &node, "alone", &[], arguments)]).remove(0)
    });
    let mut servers = [
        Server::under_weir(&gpu, &node, "one", &[], SERVER),
        Server::under_weir(&gpu, &node, "two", &[], LARGER),
    ];
    let together = interleaved(&mut servers);
    assert_eq!(together, alone, "to the byte, in every step");
    for said in &together {
        assert!(number(said, 2, "blocks") > 100, "{said:?}");
        assert!(number(said, 0, "total") == 2700 << 20, "it sees its budget: {said:?}");
    }
    let used: u64 = gpu.books().gpus[0].memory_used;
    assert!(used > 2 * (2700 << 20) * 8 / 10 && used <= CARD, "both caches are there: {used}");
}

#[test]
fn without_weir_the_second_server_refuses_to_start() {
    let gpu = SimGpu::new(CARDS);
    let mut servers = [0; 2].map(|_| Server::start(Program::bare(&gpu, python()), SERVER));
    servers[0].step();
    servers[0].step();
    let second = servers[1].step();
    let why = second["refused"].as_str().expect("it sees what the first one has taken");
    assert!(why.contains("less than what is wanted"), "{why}");
}

#[test]
fn without_weir_servers_that_start_together_miscount_each_others_memory() {
    let gpu = SimGpu::new(CARDS);
    let modest = &["--gpu-memory-utilization", "0.45"];
    let start = || Server::start(Program::bare(&gpu, python()), modest);
    let alone = number(&interleaved(&mut [start()])[0], 2, "kv_bytes");
    let said = interleaved(&mut [start(), start()]);
    let least = said.iter().map(|said| number(said, 2, "kv_bytes")).min();
    assert!(
        least < Some(alone - (500 << 20)),
        "the other's weights are held for one's own: {least:?} of {alone}"
    );
}

#[test]
fn ranks_of_two_tensor_parallel_servers_on_two_cards_agree() {
    let gpu = SimGpu::new(CARDS);
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let rank = |name, rank| {
        let arguments = [SERVER, &["--device", rank]].concat();
        Server::under_weir(&gpu, &node, name, &["--gpu", "0,1"], &arguments)
    };
    let mut servers = [rank("one", "0"), rank("two", "0"), rank("one", "1"), rank("two", "1")];
    let said = interleaved(&mut servers);
    let blocks: Vec<u64> = said.iter().map(|said| number(said, 2, "blocks")).collect();
    assert!(blocks[0] > 100 && blocks.iter().all(|n| *n == blocks[0]), "{blocks:?}");
    assert!(said.iter().all(|said| said[3]["refused"].is_null()), "{said:?}");
    let used: Vec<u64> = gpu.books().gpus.iter().map(|gpu| gpu.memory_used).collect();
    assert!(used.iter().all(|used| *used <= CARD), "{used:?}");
}
