//! What stories and `weir-graphs` know in common.

use crate::node::Node;
use crate::simgpu::SimGpu;

/// Kernels by name. What they take stands in [`COSTS`]; those of Weir's own set the switch of a conditional node.
pub const KERNELS: [&str; 8] =
    ["us_5", "us_50", "us_200", "us_5000", "weir_set_conditional", "weir_count_down", "us_2", "us_50000"];

/// The simulated GPU's configuration: each kernel takes exactly what its name says, on the whole GPU; `us_200` on a third
/// of it. Marks take none of the GPU's time, which the books say apart: a charge is held against kernels alone.
pub const COSTS: &str = "linger_ms = 3_600_000\nspread_ppm = 0\ncontext_stalls = 0\n\
    [marks]\ntimed_event_ns = 0\nwrite_ns = 0\n\
    [[kernel]]\nname = \"us_5\"\ntime_us = 5\n\
    [[kernel]]\nname = \"us_50\"\ntime_us = 50\n\
    [[kernel]]\nname = \"us_200\"\ntime_us = 200\nblocks = 36\n\
    [[kernel]]\nname = \"us_5000\"\ntime_us = 5000\n\
    [[kernel]]\nname = \"us_2\"\ntime_us = 2\n\
    [[kernel]]\nname = \"us_50000\"\ntime_us = 50_000\n\
    [[kernel]]\nname = \"weir_*\"\ntime_us = 2\n";

/// What a tenant was charged, and what it truly used by the simulated GPU's books, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// By Weir's counters.
    pub charged_ns: u64,
    /// By the GPU's books.
    pub used_ns: u64,
}

impl Spent {
    /// What `tenant` has spent so far, in the process `pid`.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn of(gpu: &SimGpu, node: &Node<'_>, tenant: &str, pid: i32) -> Self {
        let stats = node.tenant(tenant).expect("the tenant lives");
        let contexts = gpu.client(pid).map(|client| client.contexts).unwrap_or_default();
        let used_ns = contexts.iter().map(|context| context.true_use_ns).sum();
        Self { charged_ns: stats.gpus[0].total.charged_ns, used_ns }
    }

    /// What was spent since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let (charged_ns, used_ns) =
            (self.charged_ns.wrapping_sub(before.charged_ns), self.used_ns.wrapping_sub(before.used_ns));
        Self { charged_ns, used_ns }
    }

    /// The middle one of an odd number of windows, by how far the charge is from the use: a host that stood still for a while
    /// in one of them says nothing of the charge. It is for windows so short that they cannot be held together ([`Self::sum`]): of 10 ms
    /// a host that stands still for a third of one is 3 %. Of twelve threads in 60 ms some stand still each time: ten runs came to
    /// 14 % in one window and to 2.8 % in all seven together.
    ///
    /// # Panics
    /// If there is none.
    pub fn median(mut windows: Vec<Self>) -> Self {
        windows.sort_by(|a, b| a.error_percent().abs().total_cmp(&b.error_percent().abs()));
        windows[windows.len() / 2]
    }

    /// What all windows come to together.
    pub fn sum(windows: &[Self]) -> Self {
        let add = |sum: Self, one: &Self| Self {
            charged_ns: sum.charged_ns.wrapping_add(one.charged_ns),
            used_ns: sum.used_ns.wrapping_add(one.used_ns),
        };
        windows.iter().fold(Self { charged_ns: 0, used_ns: 0 }, add)
    }

    /// How far the charge is from the use, in percent of the use.
    pub fn error_percent(self) -> f64 {
        100.0 * (self.charged_ns as f64 / self.used_ns as f64 - 1.0)
    }
}
