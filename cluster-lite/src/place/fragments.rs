//! Fragmentation: free share that the expected demands cannot use (FGD, USENIX ATC 2023, section 3).
//!
//! For one kind of demand the free share of a node is useless as a whole when the kind cannot be placed there; else useless is
//! what lies free on GPUs with less than the kind's share. A node's fragmentation is the mean over the kinds, weighted by their
//! frequency. Kinds that need no GPU can use none of it.

use crate::cluster::{ClassId, ClassSet, NodeState, Slice};

use super::workload::Workload;

/// GPUs of one node that are looked at, at most.
const MOST_GPUS: usize = 16;

/// Measures fragmentation against one workload.
#[derive(Clone, Debug)]
pub struct Fragments {
    /// For each device class what can run on it, by size.
    classes: Vec<Vec<Size>>,
}

/// Kinds with equal needs of GPUs.
#[derive(Clone, Debug)]
struct Size {
    gpus: u32,
    request: u32,
    /// Processors needed, in order, with the frequency of all kinds that need no more.
    cpu: Vec<(u32, f64)>,
}

/// Free shares of a node's GPUs in permille, and its free processors: all that fragmentation depends on.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    gpus: [u32; MOST_GPUS],
    cpu: u32,
    class: Option<ClassId>,
}

impl Free {
    /// What is free on `node`.
    pub fn of(node: &NodeState) -> Self {
        let mut gpus = [0; MOST_GPUS];
        gpus.iter_mut().zip(&node.gpus).for_each(|(free, gpu)| *free = gpu.free());
        Self { gpus, cpu: node.cpu_free.0, class: node.class }
    }

    /// What is free when `slices` and `cpu` are taken.
    #[must_use]
    pub fn less(mut self, cpu: u32, slices: &[Slice]) -> Self {
        self.cpu = self.cpu.saturating_sub(cpu);
        for slice in slices {
            if let Some(free) = self.gpus.get_mut(usize::from(slice.gpu)) {
                *free = free.saturating_sub(u32::from(slice.request.as_permille()));
            }
        }
        self
    }

    fn total(&self) -> u32 {
        self.gpus.iter().sum()
    }
}

impl Fragments {
    /// Fragmentation against `workload`.
    pub fn new(workload: &Workload) -> Self {
        let classes = (0u8..).take(ClassSet::MOST).map(ClassId::from_index);
        Self { classes: classes.map(|class| sizes(workload, class)).collect() }
    }

    /// Free share that the workload cannot use, in permille of one GPU.
    pub fn of(&self, free: &Free) -> f64 {
        f64::from(free.total()) - self.usable(free)
    }

    fn usable(&self, free: &Free) -> f64 {
        let Some(class) = free.class else { return 0.0 };
        let sizes = self.classes.get(class.index()).map_or(&[][..], Vec::as_slice);
        sizes.iter().map(|size| size.usable(free)).sum()
    }
}

impl Size {
    fn usable(&self, free: &Free) -> f64 {
        let mut enough = 0u32;
        let mut total = 0u32;
        for gpu in free.gpus {
            let fits = u32::from(gpu >= self.request);
            enough += fits;
            total += fits * gpu;
        }
        if enough < self.gpus {
            return 0.0;
        }
        let kinds = self.cpu.partition_point(|(cpu, _)| *cpu <= free.cpu);
        kinds.checked_sub(1).map_or(0.0, |last| self.cpu[last].1 * f64::from(total))
    }
}

/// What of `workload` can run on `class`, by size.
fn sizes(workload: &Workload, class: ClassId) -> Vec<Size> {
    let on_gpus = workload.kinds.iter().filter(|(kind, _)| kind.gpus > 0 && kind.classes.has(class));
    let mut kinds: Vec<_> =
        on_gpus.map(|(kind, frequency)| (kind.gpus, kind.request.max(1), kind.cpu.0, *frequency)).collect();
    kinds.sort_by_key(|(gpus, request, cpu, _)| (*gpus, *request, *cpu));
    let alike = kinds.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1));
    alike
        .map(|kinds| {
            let mut sum = 0.0;
            let mut sum_up = |frequency: f64| {
                sum += frequency;
                sum
            };
            let cpu = kinds.iter().map(|(_, _, cpu, frequency)| (*cpu, sum_up(*frequency))).collect();
            Size { gpus: u32::from(kinds[0].0), request: u32::from(kinds[0].1), cpu }
        })
        .collect()
}
