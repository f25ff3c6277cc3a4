//! A server: requests arrive, prompts are read in batches, tokens come step by step.
//!
//! Continuous batching as vLLM has it: between two steps waiting prompts are read first (a prefill for all that fit into
//! the batch), then every request under way gets one token by a decode step. A model without tokens (ResNet, BERT) is one
//! prefill for a batch. The host waits for each step, since it must sample from what came out.

use std::collections::VecDeque;

use weir_simgpu_model::Nanos;

use super::{Arrival, Program, Step, Work};
use crate::sim::measure::{Log, Served};
use crate::sim::random::Random;
use crate::sim::scenario::{self, KernelShape};

/// A request that has not been served yet.
#[derive(Clone, Copy, Debug)]
struct Request {
    arrived: Nanos,
    tokens: u32,
}

/// A request that is being served.
#[derive(Clone, Copy, Debug)]
struct Running {
    request: Request,
    first_token: Nanos,
    tokens: u32,
}

/// What the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Looks what there is.
    Looks,
    /// Launches the prefill of so many prompts.
    Reads(usize),
    /// Waits for it.
    HasRead(usize),
    /// Launches a decode step.
    Decodes,
    /// Waits for it.
    HasDecoded,
}

/// The server.
pub struct Inference {
    spec: scenario::Inference,
    arrivals: VecDeque<Arrival>,
    random: Random,
    waiting: VecDeque<Request>,
    running: Vec<Running>,
    phase: Phase,
    work: Work,
}

impl Inference {
    /// A server to which these requests come.
    pub fn new(
        spec: &scenario::Inference,
        arrivals: Vec<Arrival>,
        random: Random,
        shape: KernelShape,
    ) -> Self {
        Self {
            work: Work::new(spec.unit(), shape),
            spec: spec.clone(),
            arrivals: arrivals.into(),
            random,
            waiting: VecDeque::new(),
            running: Vec::new(),
            phase: Phase::Looks,
        }
    }

    fn take_arrivals(&mut self, now: Nanos, log: &mut Log) {
        while let Some(Arrival { at: arrived, tokens }) = self.arrivals.pop_front_if(|next| next.at <= now) {
            let tokens = tokens.unwrap_or_else(|| self.spec.draw_tokens(&mut self.random));
            self.waiting.push_back(Request { arrived, tokens });
            log.arrived(arrived);
        }
    }

    /// What comes next, when nothing is under way.
    fn look(&mut self) -> Option<Phase> {
        let room = self.spec.batch.saturating_sub(self.running.len());
        let prompts = self.waiting.len().min(room);
        if prompts > 0 {
            self.work.add(self.spec.prefill(prompts));
            return Some(Phase::Reads(prompts));
        }
        if self.running.is_empty() {
            return None;
        }
        self.work.add(self.spec.decode());
        Some(Phase::Decodes)
    }

    /// The prompts have been read: each has its first token.
    fn read(&mut self, prompts: usize, now: Nanos) {
        let running = |request| Running { request, first_token: now, tokens: 1 };
        self.running.extend(self.waiting.drain(..prompts).map(running));
    }

    /// Those that have all of their tokens are done.
    fn finish(&mut self, now: Nanos, log: &mut Log) {
        for done in self.running.extract_if(.., |running| running.tokens >= running.request.tokens) {
            log.served(Served {
                arrived: done.request.arrived,
                first_token: done.first_token,
                done: now,
                tokens: done.tokens,
            });
        }
    }
}

impl Program for Inference {
    fn next(&mut self, now: Nanos, log: &mut Log) -> Step {
        loop {
            self.take_arrivals(now, log);
            match self.phase {
                Phase::Looks => match (self.look(), self.arrivals.front()) {
                    (Some(phase), _) => self.phase = phase,
                    (None, Some(next)) => return Step::Rest(next.at),
                    (None, None) => return Step::End,
                },
                Phase::Reads(_) | Phase::Decodes => {
                    if let Some(kernel) = self.work.next() {
                        return Step::Launch(kernel);
                    }
                    self.phase = match self.phase {
                        Phase::Reads(prompts) => Phase::HasRead(prompts),
                        _ => Phase::HasDecoded,
                    };
                    return Step::Synchronise;
                }
                Phase::HasRead(prompts) => {
                    self.read(prompts, now);
                    self.finish(now, log);
                    self.phase = Phase::Looks;
                }
                Phase::HasDecoded => {
                    self.running.iter_mut().for_each(|running| running.tokens += 1);
                    self.finish(now, log);
                    self.phase = Phase::Looks;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::measure::Window;

    /// Runs the server on a GPU that does one kernel after another and nothing else; returns (first token, done) of each
    /// request in ms.
    fn serve(spec: &scenario::Inference, arrivals: &[u64]) -> Vec<(u64, u64)> {
        const MS: Nanos = 1_000_000;
        let arrivals = arrivals.iter().map(|ms| Arrival::from(ms * MS)).collect();
        let mut server = Inference::new(spec, arrivals, Random::new(1, 1), KernelShape::default());
        let mut log = Log::new(Window { from: 0, to: u64::MAX });
        let (mut now, mut ends) = (0, 0);
        loop {
            match server.next(now, &mut log) {
                Step::Launch(kernel) => ends = ends.max(now) + kernel.solo,
                Step::Synchronise => now = now.max(ends),
                Step::Rest(until) => now = now.max(until),
                Step::End => break,
            }
        }
        log.all().iter().map(|s| (s.first_token / MS, s.done / MS)).collect()
    }

    fn llm() -> scenario::Inference {
        scenario::Inference {
            prefill_ms: 10.0,
            decode_ms: 5.0,
            tokens: 3.0,
            batch: 2,
            unit_us: 500.0,
            ..scenario::Inference::default()
        }
    }

    #[test]
    fn a_request_costs_its_prefill_and_a_step_for_each_further_token() {
        assert_eq!(serve(&llm(), &[100]), [(110, 120)]);
    }

    #[test]
    fn requests_share_steps_and_a_prompt_that_comes_is_read_between_two_of_them() {
        assert_eq!(serve(&llm(), &[100, 111]), [(110, 130), (125, 135)]);
    }

    #[test]
    fn who_does_not_fit_into_the_batch_waits_for_one_that_ends() {
        assert_eq!(serve(&llm(), &[100, 100, 100]), [(110, 120), (110, 120), (130, 140)]);
    }

    #[test]
    fn prompts_that_cost_each_for_itself_make_a_batch_longer() {
        let spec = scenario::Inference { prefill_ms: 0.0, prefill_each_ms: 4.0, tokens: 1.0, ..llm() };
        assert_eq!(serve(&spec, &[10, 10]), [(18, 18), (18, 18)]);
    }
}
