//! Programs as they ran on the card: how long hosts and kernels take is from what each got alone.

use crate::Micros;
use crate::host::{Program, Random, Step};

/// Steps that are done over and over.
pub struct Loop {
    steps: Vec<Step>,
    at: usize,
}

impl Program for Loop {
    fn next(&mut self, _now: Micros, _random: &mut Random) -> Step {
        let step = self.steps[self.at % self.steps.len()];
        self.at += 1;
        step
    }
}

/// `kernels` of `gpu` us, each launched after `host` us; the host waits for each `sync_every`th of such units.
fn launches(kernels: usize, host: Micros, gpu: Micros, sync_every: usize) -> Box<dyn Program> {
    let unit = [Step::Host(host), Step::Launch(gpu)].repeat(kernels);
    let mut steps = [unit, vec![Step::Done(None)]].concat().repeat(sync_every);
    steps.push(Step::Below(0));
    Box::new(Loop { steps, at: 0 })
}

/// Products of 1.63 ms, four deep.
pub fn flood() -> Box<dyn Program> {
    let steps = vec![Step::Below(3), Step::Host(10.0), Step::Launch(1_630.0), Step::Done(None)];
    Box::new(Loop { steps, at: 0 })
}

/// A training that the GPU bounds.
pub fn bigtrain() -> Box<dyn Program> {
    launches(600, 28.5, 49.0, 10)
}

/// A training that its host bounds.
pub fn train() -> Box<dyn Program> {
    launches(600, 28.5, 14.0, 10)
}

/// A token of 96 small kernels.
pub fn decode() -> Box<dyn Program> {
    launches(96, 11.5, 3.0, 20)
}

/// The same as a graph.
pub fn replay() -> Box<dyn Program> {
    launches(1, 6.0, 290.0, 4)
}

/// 300 us, and a wait.
pub fn waits() -> Box<dyn Program> {
    launches(1, 8.0, 300.0, 1)
}

/// Kernels of 100 us, as many as the queue takes.
pub fn backlogged() -> Box<dyn Program> {
    Box::new(Loop { steps: vec![Step::Host(4.3), Step::Launch(100.0), Step::Done(None)], at: 0 })
}

/// 10 ms of work, waited for, and 10 ms of rest.
pub fn bursty() -> Box<dyn Program> {
    let mut steps = [Step::Host(10.0), Step::Launch(1_430.0)].repeat(6);
    steps.extend([Step::Below(0), Step::Done(None), Step::Host(10_100.0)]);
    Box::new(Loop { steps, at: 0 })
}

/// Requests at random times, one in 8 ms, each of four replays.
pub struct Server {
    due: Micros,
    at: usize,
}

/// Between two requests in the mean, us.
const GAP: Micros = 8_000.0;

pub fn server() -> Box<dyn Program> {
    Box::new(Server { due: 0.0, at: 0 })
}

impl Program for Server {
    fn next(&mut self, now: Micros, random: &mut Random) -> Step {
        self.at += 1;
        match self.at {
            1 => {
                self.due += -GAP * (1.0 - random.uniform()).ln();
                // Hosts jitter: it looks again whether the time has come.
                Step::Host((self.due - now).max(0.0))
            }
            2 if now < self.due => {
                self.at = 1;
                Step::Host(self.due - now + 0.001)
            }
            2..=9 if self.at.is_multiple_of(2) => Step::Host(6.0),
            2..=9 => Step::Launch(290.0),
            10 => Step::Below(0),
            _ => {
                self.at = 0;
                Step::Done(Some(self.due))
            }
        }
    }
}
