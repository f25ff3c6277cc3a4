//! Fragmentation: free share that the expected demands cannot use, in permille of one GPU.
//!
//! For one kind of demand the free share of a node is useless as a whole where the kind cannot be placed, else in part; a
//! node's fragmentation is the mean over the kinds, weighted by how often they come. Kinds that need no GPU can use none of it.
//! Two views of what a kind that can be placed is able to use:
//!
//! * [`Fragments::of`]: all that is free on GPUs with at least its share (FGD, USENIX ATC 2023, section 3).
//! * [`Fragments::when_alone`]: what it would take if it came alone until the node is full, in whole shares and no further than
//!   the processors last. A GPU with 90 % free is of little use to a kind of 50 %, and none of it is without processors.

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
    /// In the order of their processors.
    kinds: Vec<Kinds>,
}

/// The kinds of one size that need no more than so many processors.
#[derive(Clone, Copy, Debug)]
struct Kinds {
    cpu: u32,
    /// How often they come.
    weight: f64,
    /// The same, each divided by its processors.
    weight_by_cpu: f64,
}

/// Free shares of a node's GPUs in permille, and its free processors: all that fragmentation depends on.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    gpus: [u32; MOST_GPUS],
    count: usize,
    cpu: u32,
    class: Option<ClassId>,
}

impl Free {
    /// What is free on `node`.
    pub fn of(node: &NodeState) -> Self {
        let mut gpus = [0; MOST_GPUS];
        gpus.iter_mut().zip(&node.gpus).for_each(|(free, gpu)| *free = gpu.free());
        Self { gpus, count: node.gpus.len().min(MOST_GPUS), cpu: node.cpu_free.0, class: node.class }
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

    fn gpus(&self) -> &[u32] {
        &self.gpus[..self.count]
    }

    fn total(&self) -> f64 {
        f64::from(self.gpus().iter().sum::<u32>())
    }
}

impl Fragments {
    /// Fragmentation against `workload`, each kind by its frequency.
    pub fn new(workload: &Workload) -> Self {
        Self::weighted(workload, |_| 1.0)
    }

    /// Fragmentation against `workload`, each kind by its frequency over the part of all GPUs that it may use: how likely it is
    /// to need this GPU rather than another.
    pub fn by_density(workload: &Workload) -> Self {
        Self::weighted(workload, |reach| if reach > 0.0 { 1.0 / reach } else { 0.0 })
    }

    fn weighted(workload: &Workload, by_reach: impl Fn(f64) -> f64) -> Self {
        let classes = (0u8..).take(ClassSet::MOST).map(ClassId::from_index);
        Self { classes: classes.map(|class| sizes(workload, class, &by_reach)).collect() }
    }

    /// Free share that is useless, as FGD has it.
    pub fn of(&self, free: &Free) -> f64 {
        free.total() - self.usable(free, Size::usable)
    }

    /// Free share that is useless, as the mean of both views.
    pub fn by_both_views(&self, free: &Free) -> f64 {
        free.total() - self.usable(free, |size, free| (size.usable(free) + size.when_alone(free)) / 2.0)
    }

    /// Free share that is useless to kinds which come alone.
    pub fn when_alone(&self, free: &Free) -> f64 {
        free.total() - self.usable(free, Size::when_alone)
    }

    fn usable(&self, free: &Free, of_size: impl Fn(&Size, &Free) -> f64) -> f64 {
        let Some(class) = free.class else { return 0.0 };
        let most = free.gpus().iter().copied().max().unwrap_or(0);
        let sizes = self.classes.get(class.index()).map_or(&[][..], Vec::as_slice);
        let fitting = sizes.iter().take_while(|size| size.request <= most);
        fitting.map(|size| of_size(size, free)).sum()
    }
}

impl Size {
    /// What is free on GPUs with enough for one, for all kinds that have processors enough.
    fn usable(&self, free: &Free) -> f64 {
        let (mut enough, mut total) = (0, 0);
        for gpu in free.gpus() {
            let fits = u32::from(*gpu >= self.request);
            enough += fits;
            total += fits * gpu;
        }
        if enough < self.gpus {
            return 0.0;
        }
        self.up_to(free.cpu).0 * f64::from(total)
    }

    /// What each kind would take if it came alone.
    fn when_alone(&self, free: &Free) -> f64 {
        let shares: u32 = free.gpus().iter().map(|gpu| gpu / self.request).sum();
        if shares < self.gpus {
            return 0.0;
        }
        // Kinds up to `even` processors run out of GPU share first, the others of processors.
        let even = u64::from(free.cpu) * u64::from(self.gpus) / u64::from(shares);
        let (by_share, by_share_cpu) = self.up_to(u32::try_from(even).unwrap_or(u32::MAX).min(free.cpu));
        let (_, all_cpu) = self.up_to(free.cpu);
        let taken_by_cpu = f64::from(free.cpu) * f64::from(self.gpus) * (all_cpu - by_share_cpu);
        f64::from(self.request) * (f64::from(shares) * by_share + taken_by_cpu)
    }

    /// Weight, and weight by processors, of the kinds that need at most `cpu`.
    fn up_to(&self, cpu: u32) -> (f64, f64) {
        let count = self.kinds.partition_point(|kinds| kinds.cpu <= cpu);
        let last = count.checked_sub(1).map(|last| self.kinds[last]);
        last.map_or((0.0, 0.0), |kinds| (kinds.weight, kinds.weight_by_cpu))
    }
}

/// What of `workload` can run on `class`, by size; the smallest request first.
fn sizes(workload: &Workload, class: ClassId, by_reach: impl Fn(f64) -> f64) -> Vec<Size> {
    let on_gpus = workload.kinds.iter().filter(|(kind, _)| kind.gpus > 0 && kind.classes.has(class));
    let weighted = on_gpus.map(|(kind, frequency)| (kind, frequency * by_reach(workload.reach(kind))));
    let mut kinds: Vec<_> =
        weighted.map(|(kind, weight)| (kind.request.max(1), kind.gpus, kind.cpu.0, weight)).collect();
    kinds.sort_by_key(|(request, gpus, cpu, _)| (*request, *gpus, *cpu));
    let alike = kinds.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1));
    alike.map(|kinds| Size::of(kinds[0].0, kinds[0].1, kinds.iter().map(|kind| (kind.2, kind.3)))).collect()
}

impl Size {
    fn of(request: u16, gpus: u8, kinds: impl Iterator<Item = (u32, f64)>) -> Self {
        let mut sum = Kinds { cpu: 0, weight: 0.0, weight_by_cpu: 0.0 };
        let summed = kinds.map(|(cpu, weight)| {
            sum.cpu = cpu;
            sum.weight += weight;
            sum.weight_by_cpu += weight / f64::from(cpu.max(1));
            sum
        });
        Self { kinds: summed.collect(), gpus: u32::from(gpus), request: u32::from(request) }
    }
}
