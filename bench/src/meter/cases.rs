//! The sweep: kernels from 2 us to 50 ms, on 1 to all SMs, in 1 to 4 streams, in the rhythms that programs have, on GPUs of three
//! sizes.

use serde::Serialize;
use weir_simgpu_link::config::SMS;

use crate::rig::Kernel;

/// Every kernel of the sweep.
pub const KERNELS: [Kernel; 8] = [
    Kernel { name: "tiny", time_us: 2.0, blocks: 1, bandwidth: 0, spread: 1.0 },
    Kernel { name: "short", time_us: 5.0, blocks: 20, bandwidth: 0, spread: 1.0 },
    Kernel { name: "medium", time_us: 100.0, blocks: 108, bandwidth: 0, spread: 1.0 },
    Kernel { name: "narrow", time_us: 300.0, blocks: 10, bandwidth: 0, spread: 1.0 },
    Kernel { name: "long", time_us: 5_000.0, blocks: 200, bandwidth: 0, spread: 1.0 },
    Kernel { name: "huge", time_us: 50_000.0, blocks: 108, bandwidth: 0, spread: 1.0 },
    Kernel { name: "bound", time_us: 200.0, blocks: 10, bandwidth: 80, spread: 1.0 },
    Kernel { name: "varied", time_us: 80.0, blocks: 108, bandwidth: 0, spread: 10.0 },
];

/// SMs of half the simulated GPU.
pub const HALF: u32 = 54;

/// More SMs than any GPU has had that the other cases are like: the widest kernel holds them all.
const MANY: u32 = 200;

/// As few as the smallest part of a GPU that is handed out has: an A100's `1g.5gb` (NVIDIA, MIG user guide).
const FEW: u32 = 14;

/// When a program waits for its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rhythm {
    /// At the end.
    Backlogged,
    /// After each turn of its mix, with a pause of the host.
    Steps,
    /// After each launch.
    Sparse,
    /// As `Backlogged`, with the mix as one CUDA graph, captured after it has run a few times.
    Graph,
    /// As `Graph`, with the graph twice inside of another, and never run before. So are the following.
    ChildGraphs,
    /// As `Graph`, which takes turns between the mix and the mix without its last kernel, given by `cuGraphExecUpdate`.
    UpdatedGraph,
    /// As `Graph`, with each kernel of the mix as a branch of its own.
    Branches,
    /// As `Backlogged`, in green contexts of half the SMs each.
    Green,
}

/// One program.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// Kernels by name, and how many of each in a row.
    pub mix: &'static [(&'static str, usize)],
    /// Streams that take turns.
    pub streams: usize,
    /// When it waits.
    pub rhythm: Rhythm,
    /// Processes of the tenant, each of which runs it.
    pub processes: usize,
    /// SMs of the GPU.
    pub sms: u32,
}

impl Case {
    const fn of_processes(self, processes: usize) -> Self {
        Self { processes, ..self }
    }

    const fn on(self, sms: u32) -> Self {
        Self { sms, ..self }
    }
}

impl Rhythm {
    /// Whether each launch is one of a graph.
    pub fn is_graph(self) -> bool {
        matches!(self, Self::Graph | Self::ChildGraphs | Self::UpdatedGraph | Self::Branches)
    }

    /// Whether the kernels are launched by themselves, if only before the graph is made.
    pub fn has_kernels(self) -> bool {
        self == Self::Graph || !self.is_graph()
    }
}

const fn case(
    name: &'static str,
    mix: &'static [(&'static str, usize)],
    streams: usize,
    rhythm: Rhythm,
) -> Case {
    Case { name, mix, streams, rhythm, processes: 1, sms: SMS }
}

/// All programs.
pub const CASES: [Case; 26] = [
    case("mixed", &[("short", 60), ("medium", 10), ("narrow", 3), ("long", 1)], 1, Rhythm::Backlogged),
    case("tiny", &[("tiny", 100)], 1, Rhythm::Backlogged),
    case("huge", &[("huge", 1)], 1, Rhythm::Backlogged),
    case("varied", &[("varied", 10), ("short", 10)], 1, Rhythm::Backlogged),
    case("two streams", &[("narrow", 4), ("medium", 4)], 2, Rhythm::Backlogged),
    case("four streams", &[("short", 20), ("medium", 10), ("narrow", 3)], 4, Rhythm::Backlogged),
    case("steps", &[("medium", 20), ("short", 50)], 1, Rhythm::Steps),
    case("short steps", &[("short", 30)], 1, Rhythm::Steps),
    case("sparse", &[("medium", 1)], 1, Rhythm::Sparse),
    case("sparse tiny", &[("tiny", 1)], 1, Rhythm::Sparse),
    case("graph", &[("short", 40), ("medium", 10)], 1, Rhythm::Graph),
    case("graph with children", &[("short", 40), ("medium", 10)], 1, Rhythm::ChildGraphs),
    case("updated graph", &[("short", 40), ("medium", 10)], 1, Rhythm::UpdatedGraph),
    case("graph with branches", &[("short", 60), ("narrow", 2), ("medium", 4)], 1, Rhythm::Branches),
    case("green context", &[("medium", 10), ("narrow", 3)], 1, Rhythm::Green),
    case("two processes", &[("short", 60), ("medium", 10), ("narrow", 3)], 1, Rhythm::Backlogged)
        .of_processes(2),
    case("two processes' steps", &[("medium", 20), ("short", 50)], 1, Rhythm::Steps).of_processes(2),
    case("two processes' graphs", &[("short", 40), ("medium", 10)], 1, Rhythm::Graph).of_processes(2),
    case("two processes of long", &[("short", 60), ("medium", 10), ("long", 1)], 1, Rhythm::Backlogged)
        .of_processes(2),
    case("200 SMs", ALL_WIDTHS, 1, Rhythm::Backlogged).on(MANY),
    case("200 SMs, narrow", &[("short", 60), ("narrow", 3)], 1, Rhythm::Backlogged).on(MANY),
    case("14 SMs", ALL_WIDTHS, 1, Rhythm::Backlogged).on(FEW),
    case("14 SMs, narrow", &[("tiny", 100), ("narrow", 3)], 1, Rhythm::Backlogged).on(FEW),
    case("bound by memory", &[("bound", 10)], 1, Rhythm::Backlogged),
    case("all lengths", &[("tiny", 100), ("short", 60), ("medium", 10), ("huge", 1)], 1, Rhythm::Backlogged),
    case("two processes of varied", &[("varied", 10), ("short", 10)], 1, Rhythm::Backlogged).of_processes(2),
];

/// Kernels of 1, 10, 20, 108 and 200 blocks.
const ALL_WIDTHS: &[(&str, usize)] =
    &[("tiny", 100), ("short", 60), ("narrow", 3), ("medium", 10), ("long", 1)];

/// Pairs that run beside each other, by position in [`CASES`].
pub const PAIRS: [(usize, usize); 12] = [
    (0, 1),
    (0, 10),
    (3, 6),
    (5, 2),
    (4, 0),
    (5, 0),
    (15, 10),
    (19, 20),
    (21, 22),
    (23, 2),
    (23, 0),
    (24, 7),
];
