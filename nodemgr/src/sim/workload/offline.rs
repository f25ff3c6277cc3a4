//! Batches without end: offline inference, or any other work that nobody waits for.

use super::{Program, Step, Work};
use crate::sim::measure::Log;
use crate::sim::scenario::{self, KernelShape};
use weir_simgpu_model::Nanos;

/// The loop.
pub struct Offline {
    spec: scenario::Offline,
    work: Work,
    batches: u64,
    waited: bool,
}

impl Offline {
    /// The loop.
    pub fn new(spec: &scenario::Offline, shape: KernelShape) -> Self {
        Self { work: Work::new(spec.unit(), shape), spec: spec.clone(), batches: 0, waited: true }
    }
}

impl Program for Offline {
    fn next(&mut self, now: Nanos, log: &mut Log) -> Step {
        if let Some(kernel) = self.work.next() {
            return Step::Launch(kernel);
        }
        if !std::mem::replace(&mut self.waited, true) {
            return Step::Synchronise;
        }
        if self.batches > 0 {
            log.iterated(now);
        }
        self.batches += 1;
        self.work.add(self.spec.batch());
        self.waited = false;
        self.work.next().map_or(Step::End, Step::Launch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::measure::Window;

    #[test]
    fn it_waits_for_each_batch_and_begins_the_next() {
        let spec = scenario::Offline { batch_ms: 2.0, unit_us: 1_000.0, ..scenario::Offline::default() };
        let mut offline = Offline::new(&spec, KernelShape::default());
        let mut log = Log::new(Window { from: 0, to: u64::MAX });
        let mut launched = |steps: usize| {
            let steps = (0..steps).map(|_| offline.next(0, &mut log));
            steps.map(|step| matches!(step, Step::Launch(_))).collect::<Vec<_>>()
        };
        assert_eq!(launched(6), [true, true, false, true, true, false]);
        assert_eq!(log.iterations(), 1);
    }
}
