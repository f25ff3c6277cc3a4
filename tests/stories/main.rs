//! The stories: what must hold when real processes meet the laid-out build. One file per subject.
//!
//! Every story has its own simulated GPU, its own node manager and its own processes. `scripts/build` comes first.

mod bench;
mod clients;
mod clocks;
mod cluster;
mod container;
mod copies;
mod documents;
mod excuses;
mod fail_policy;
mod faults;
mod first_call;
mod fit;
mod gang;
mod gate;
mod gpu_check;
mod graph_copies;
mod graph_order;
mod graph_split;
mod graphs;
mod green;
mod guard;
mod hint;
mod install;
mod kill;
mod launch_file;
mod live;
mod memory;
mod memory_contexts;
mod memory_graphs;
mod memory_multicast;
mod memory_oversubscribe;
mod memory_places;
mod memory_pools;
mod memory_race;
mod memory_shares;
mod memory_tiles;
mod memory_view;
mod mps;
mod new_kernels;
mod pairs;
mod park;
mod peers;
mod plans;
mod podman;
mod policy;
mod power;
mod preload;
mod probe;
mod process;
mod profile;
mod promise;
mod proxy;
mod readme;
mod refused_launches;
mod resize;
mod restart;
mod room;
mod scraper;
mod signals;
mod small;
mod sparse;
mod stalls;
mod standalone;
mod sticky;
mod stopped;
mod stream_gate;
mod stream_words;
mod switch;
mod turns;
mod upgrade;
mod vllm_startup;
mod watchdog;

use weir_tests::dist::{client, python};
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program};
use weir_tests::simgpu::SimGpu;

/// The loop client of this build.
const LOOP: &str = env!("CARGO_BIN_EXE_weir-loop");

/// The client that builds, changes and launches graphs as it is told.
const GRAPHS: &str = env!("CARGO_BIN_EXE_weir-graphs");

/// The client that copies, launches, waits and pauses as it is told.
const COPIES: &str = env!("CARGO_BIN_EXE_weir-copies");

/// The client that gets and gives back memory as it is told.
const MEMORY: &str = env!("CARGO_BIN_EXE_weir-memory");

/// The program that calls everything of this build.
const SWEEP: &str = env!("CARGO_BIN_EXE_weir-sweep");

/// One of the Python clients, bare.
fn bare_python(gpu: &SimGpu, script: &str) -> Program {
    for_tinygrad(Program::bare(gpu, python())).arg(client(script))
}

/// One of the Python clients, within a budget.
fn budgeted_python(gpu: &SimGpu, node: Option<&Node<'_>>, budget: Budget<'_>, script: &str) -> Program {
    for_tinygrad(Program::under_weir(gpu, node, budget, python())).arg(client(script))
}

/// What tinygrad wants to hear, and no cache that other runs would share; nobody else listens.
fn for_tinygrad(program: Program) -> Program {
    program.env("DEV", "CUDA").env("TRAINING", "1").env("CACHELEVEL", "0")
}
