//! Training on one GPU of several: iterations with the bubbles that the others leave in them.
//!
//! Shapes (SpecInF, papers 2: bubbles of communication, of pipeline stalls, of allocation gaps; where they lie in an
//! iteration is ours):
//!
//! ```text
//!   data       [ compute                 ][ bubble ]         gradients are exchanged at the end
//!   model      [ compute / 2 ][ bubble / 2 ][ compute / 2 ][ bubble / 2 ]       the other half of the layers runs elsewhere
//!   pipeline   [ c ][b][ c ][b] .. [ c ][ bubble / 2: the pipeline drains and fills ]
//! ```
//!
//! A bubble is a gap in which the context is drained (gpu-truths, rule 1), unless the exchange is a kernel that stays
//! resident as NCCL's do: then the GPU is busy with it, and nobody can fill it while contexts take turns.

use weir_simgpu_model::Nanos;

use super::{Program, Step, Work, kernel};
use crate::sim::measure::Log;
use crate::sim::random::Random;
use crate::sim::scenario::{self, Exchange, KernelShape, Parallel};

/// A kernel that exchanges data holds few SMs and some of the bandwidth: NCCL uses some 24 of 108 SMs.
const EXCHANGE: KernelShape = KernelShape { sm_percent: 20, bandwidth_percent: 30 };

/// A part of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Compute(Nanos),
    Bubble(Nanos),
}

/// What the loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begins,
    Launches,
    Waits,
}

/// The training loop.
pub struct Training {
    spec: scenario::Training,
    parts: Vec<Part>,
    at: usize,
    phase: Phase,
    work: Work,
    random: Random,
}

impl Training {
    /// The loop.
    pub fn new(spec: &scenario::Training, random: Random, shape: KernelShape) -> Self {
        Self {
            parts: parts(spec),
            work: Work::new(spec.unit(), shape),
            spec: spec.clone(),
            at: 0,
            phase: Phase::Begins,
            random,
        }
    }

    /// Bubbles vary as the other ranks do; how much there is to compute does not.
    fn vary(&mut self, bubble: Nanos) -> Nanos {
        let cv = self.spec.jitter_percent / 100.0;
        scenario::nanos(self.random.gamma(bubble as f64, cv))
    }
}

fn parts(spec: &scenario::Training) -> Vec<Part> {
    let (compute, bubble) = (spec.compute(), spec.bubble());
    match spec.parallel {
        Parallel::Data => vec![Part::Compute(compute), Part::Bubble(bubble)],
        Parallel::Model => [Part::Compute(compute / 2), Part::Bubble(bubble / 2)].repeat(2),
        Parallel::Pipeline => {
            let n = spec.micro_batches.max(1);
            let small = if n > 1 { bubble / 2 / (n - 1) } else { 0 };
            let mut parts =
                [Part::Compute(compute / n), Part::Bubble(small)].repeat(usize::try_from(n).unwrap_or(1));
            let last = bubble - small * (n - 1);
            parts.pop();
            parts.push(Part::Bubble(last));
            parts
        }
    }
}

/// How much work each part of an iteration gives the GPU.
pub fn work(spec: &scenario::Training) -> impl Iterator<Item = Nanos> {
    parts(spec).into_iter().filter_map(|part| match part {
        Part::Compute(length) => Some(length),
        Part::Bubble(_) => None,
    })
}

impl Program for Training {
    fn next(&mut self, now: Nanos, log: &mut Log) -> Step {
        loop {
            match (self.phase, self.parts[self.at]) {
                (Phase::Begins, Part::Compute(length)) => {
                    self.work.add(length);
                    self.phase = Phase::Launches;
                }
                (Phase::Launches, Part::Compute(_)) => {
                    if let Some(kernel) = self.work.next() {
                        return Step::Launch(kernel);
                    }
                    self.phase = Phase::Waits;
                    return Step::Synchronise;
                }
                (Phase::Begins, Part::Bubble(length)) => {
                    let length = self.vary(length);
                    self.phase = Phase::Waits;
                    return match self.spec.exchange {
                        Exchange::Drained => Step::Rest(now + length),
                        Exchange::Resident => Step::Launch(kernel(length.max(1), EXCHANGE)),
                    };
                }
                (Phase::Waits, Part::Bubble(_)) if self.spec.exchange == Exchange::Resident => {
                    self.phase = Phase::Launches;
                    return Step::Synchronise;
                }
                (Phase::Waits, _) | (Phase::Launches, Part::Bubble(_)) => {
                    self.at = (self.at + 1) % self.parts.len();
                    self.phase = Phase::Begins;
                    if self.at == 0 {
                        log.iterated(now);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::measure::Window;

    const MS: Nanos = 1_000_000;

    fn spec(parallel: Parallel) -> scenario::Training {
        scenario::Training {
            parallel,
            compute_ms: 80.0,
            bubble_ms: 20.0,
            micro_batches: 4,
            unit_us: 1_000.0,
            ..scenario::Training::default()
        }
    }

    /// Busy and idle times of one iteration in ms.
    fn iteration(spec: &scenario::Training) -> Vec<(u64, u64)> {
        let mut training = Training::new(spec, Random::new(1, 1), KernelShape::default());
        let mut log = Log::new(Window { from: 0, to: u64::MAX });
        let (mut now, mut busy, mut seen) = (0, 0, Vec::new());
        while now < 100 * MS {
            match training.next(now, &mut log) {
                Step::Launch(kernel) => busy += kernel.solo,
                Step::Synchronise => now += busy,
                Step::Rest(until) => {
                    seen.push((busy / MS, (until - now) / MS));
                    (now, busy) = (until, 0);
                }
                Step::End => unreachable!("training never ends"),
            }
        }
        seen
    }

    #[test]
    fn each_kind_of_parallelism_leaves_bubbles_of_its_shape_and_all_of_the_same_sum() {
        assert_eq!(iteration(&spec(Parallel::Data)), [(80, 20)]);
        assert_eq!(iteration(&spec(Parallel::Model)), [(40, 10), (40, 10)]);
        assert_eq!(iteration(&spec(Parallel::Pipeline)), [(20, 3), (20, 3), (20, 3), (20, 10)]);
    }

    #[test]
    fn an_exchange_by_a_resident_kernel_keeps_the_gpu_busy() {
        let spec = scenario::Training { exchange: Exchange::Resident, ..spec(Parallel::Data) };
        let mut training = Training::new(&spec, Random::new(1, 1), KernelShape::default());
        let mut log = Log::new(Window { from: 0, to: u64::MAX });
        let steps: Vec<Step> = (0..1_000).map(|_| training.next(0, &mut log)).collect();
        assert!(!steps.iter().any(|step| matches!(step, Step::Rest(_))));
        let long = steps.iter().filter(|step| matches!(step, Step::Launch(k) if k.solo == 20 * MS));
        assert!(long.count() > 5, "one exchange for each iteration");
    }
}
