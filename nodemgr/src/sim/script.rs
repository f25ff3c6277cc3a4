//! A scenario's programs outside of the simulator: the same steps, from the same seed, for whoever runs them on a GPU in
//! real time. What comes of both can then be held against each other (`weir-bench agree`).

use std::collections::BTreeSet;

use weir_simgpu_model::Nanos;

use super::compare::{Spread, spread};
use super::engine::program;
use super::measure::Log;
use super::scenario::{Inference, Metric, Scenario, Tenant, Training, nanos};
use super::workload::{self, Program, Step, Work};
use crate::latency::{self, Promise};

/// One tenant's program, and what it tells.
pub struct Script {
    program: Box<dyn Program>,
    log: Log,
    promised: Metric,
}

/// What a program has told when it is over.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Told {
    /// Iterations or batches done in the window.
    pub iterations: u64,
    /// Requests that came in the window and were not served.
    pub unserved: u64,
    /// Of those that were, the latency that its promise is about: without one, from arrival to the last token.
    pub latency: Option<Spread>,
}

impl Script {
    /// That of the tenant at this place; nothing if there is none.
    pub fn of(scenario: &Scenario, at: usize) -> Option<Self> {
        let tenant = scenario.tenant.get(at)?;
        let program = program(scenario, at, tenant);
        Some(Self { program, log: Log::new(scenario.window()), promised: tenant.slo_on })
    }

    /// What it does next, when the step before is done; `now` is the scenario's time, which begins at
    /// [`START`](super::START).
    pub fn next(&mut self, now: Nanos) -> Step {
        self.program.next(now, &mut self.log)
    }

    /// The promised latency of all who were served since this was asked last.
    pub fn news(&mut self) -> Vec<Nanos> {
        self.log.news(self.promised)
    }

    /// What it has told.
    pub fn told(&self) -> Told {
        Told {
            iterations: self.log.iterations(),
            unserved: self.log.unserved(),
            latency: spread(&self.log.latencies(self.promised)),
        }
    }
}

impl Scenario {
    /// The same with all that its programs do `times` as long, and as much less often.
    #[must_use]
    pub fn slowed(mut self, times: f64) -> Self {
        for tenant in &mut self.tenant {
            tenant.slo = tenant.slo.take().map(|slo| slower(&slo, times));
            if let Some(Inference { prefill_ms, prefill_each_ms, decode_ms, unit_us, arrivals, .. }) =
                &mut tenant.inference
            {
                [prefill_ms, prefill_each_ms, decode_ms, unit_us].into_iter().for_each(|time| *time *= times);
                arrivals.per_s = arrivals.per_s.map(|rate| rate / times);
                arrivals.times /= times;
            }
            if let Some(Training { compute_ms, bubble_ms, unit_us, .. }) = &mut tenant.training {
                [compute_ms, bubble_ms, unit_us].into_iter().for_each(|time| *time *= times);
            }
            if let Some(offline) = &mut tenant.offline {
                offline.batch_ms *= times;
                offline.unit_us *= times;
            }
        }
        self
    }

    /// How long the kernels are that its programs launch, but for exchanges that stay resident: those last as long as the
    /// bubbles, which vary.
    pub fn kernels(&self) -> BTreeSet<Nanos> {
        let mut kernels = BTreeSet::new();
        for tenant in &self.tenant {
            for length in lengths(tenant) {
                let mut work = Work::new(tenant.unit(), tenant.kernel);
                work.add(length);
                kernels.extend(std::iter::from_fn(|| work.next()).map(|kernel| kernel.solo));
            }
        }
        kernels
    }
}

/// The same promise of what takes `times` as long. What is no promise stays what it is: whoever reads it says so.
fn slower(slo: &str, times: f64) -> String {
    let slow = |promise: Promise| Promise { target_ns: nanos(promise.target_ns as f64 * times), ..promise };
    latency::parse(slo).map_or_else(|_| slo.to_owned(), |promise| slow(promise).to_string())
}

/// How much work the tenant's program gives the GPU at once.
fn lengths(tenant: &Tenant) -> Vec<Nanos> {
    let served = tenant.inference.iter().flat_map(|spec| {
        let prefills = (1..=spec.batch).map(|prompts| spec.prefill(prompts));
        prefills.chain([spec.decode()])
    });
    let trained = tenant.training.iter().flat_map(workload::work);
    served.chain(trained).chain(tenant.offline.iter().map(|spec| spec.batch())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::measure::Served;
    use std::path::Path;

    const TEXT: &str = "about = 'a'\nseconds = 2\n[[tenant]]\nname = 'serve'\nrequest = '50%'\n\
        [tenant.inference]\nprefill_ms = 3\nprefill_each_ms = 1\nbatch = 2\nunit_us = 500\narrivals = { per_s = 20 }\n\
        [[tenant]]\nname = 'train'\nrequest = '50%'\n\
        [tenant.training]\nparallel = 'pipeline'\ncompute_ms = 10\nbubble_ms = 10\nunit_us = 300\n";

    fn scenario() -> Scenario {
        Scenario::parse(TEXT, Path::new("a.toml")).unwrap()
    }

    /// Plays on a GPU of its own, and says which kernels were launched.
    fn play(scenario: &Scenario, at: usize) -> (BTreeSet<Nanos>, Told) {
        let (mut script, mut kernels) = (Script::of(scenario, at).unwrap(), BTreeSet::new());
        let (mut now, mut ends) = (super::super::START, 0);
        while now < scenario.window().to {
            match script.next(now) {
                Step::Launch(kernel) => {
                    kernels.insert(kernel.solo);
                    ends = ends.max(now) + kernel.solo;
                }
                Step::Synchronise => now = now.max(ends),
                Step::Rest(until) => now = now.max(until),
                Step::End => break,
            }
        }
        (kernels, script.told())
    }

    #[test]
    fn every_kernel_that_the_programs_launch_is_known_before() {
        let scenario = scenario();
        let launched: BTreeSet<Nanos> = (0..2).flat_map(|at| play(&scenario, at).0).collect();
        assert_eq!(launched, scenario.kernels());
    }

    #[test]
    fn a_slowed_scenario_has_the_same_load_of_longer_work() {
        let (scenario, slowed) = (scenario(), Scenario { seconds: 20.0, ..scenario().slowed(10.0) });
        let ms = |told: Told| told.latency.map(|spread| spread.p50_ms);
        assert_eq!((ms(play(&scenario, 0).1), ms(play(&slowed, 0).1)), (Some(4.0), Some(40.0)));
        let longest = |scenario: &Scenario| scenario.kernels().last().copied();
        assert_eq!(longest(&slowed), longest(&scenario).map(|ns| ns * 10));
    }

    #[test]
    fn a_slowed_promise_is_as_much_wider() {
        let mut promised = scenario();
        promised.tenant[0].slo = Some("p95 < 6ms".into());
        assert_eq!(promised.slowed(10.0).tenant[0].slo.as_deref(), Some("p95 < 60ms"));
    }

    #[test]
    fn who_was_served_is_news_once() {
        let mut script = Script::of(&scenario(), 0).unwrap();
        let (arrived, first_token) = (super::super::START, super::super::START + 5);
        for done in [first_token + 2, first_token + 4] {
            script.log.served(Served { arrived, first_token, done, tokens: 2 });
            assert_eq!(script.news(), [done - arrived]);
        }
        assert!(script.news().is_empty());
    }
}
