//! One GPU that serves requests, event by event: what the chain of [`super::queue`] is judged against. *Simulated.*

use std::collections::VecDeque;

use rand::Rng;
use rand_distr::{Distribution, Exp, Gamma};

use super::Load;

/// Milliseconds of each of `count` requests: they come at random, need times that vary as the load says, run up to `together` at once at the curve's pace, and queue in their order.
pub fn responses_ms(load: &Load, together: usize, count: usize, random: &mut impl Rng) -> Vec<f64> {
    let draws = (
        Exp::new(load.rate / 1_000.0),
        Gamma::new(load.variation.powi(-2), load.service_ms * load.variation.powi(2)),
    );
    let (Ok(gap), Ok(need)) = draws else { return Vec::new() };
    let mut gpu =
        Gpu { load, together, running: Vec::new(), queue: VecDeque::new(), done: Vec::with_capacity(count) };
    let (mut now, mut arrival) = (0.0, gap.sample(random));
    let mut arrived = 0;
    while gpu.done.len() < count {
        let finish = gpu.next_finish(now);
        let next = if arrived < count { arrival.min(finish) } else { finish };
        gpu.advance(next - now);
        now = next;
        if arrived < count && next == arrival {
            gpu.queue.push_back(Request { arrived: now, left: need.sample(random) });
            arrived += 1;
            arrival = now + gap.sample(random);
        }
        gpu.turn(now);
    }
    gpu.done
}

/// The time that `part` of them do not pass.
pub fn quantile(mut times: Vec<f64>, part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index"
    )]
    let at = (part * times.len() as f64) as usize;
    times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

struct Request {
    arrived: f64,
    left: f64,
}

struct Gpu<'a> {
    load: &'a Load,
    together: usize,
    running: Vec<Request>,
    queue: VecDeque<Request>,
    done: Vec<f64>,
}

/// Work below which a request counts as finished, in milliseconds: what rounding leaves.
const FINISHED_MS: f64 = 1e-9;

impl Gpu<'_> {
    fn pace(&self) -> f64 {
        1.0 / self.load.curve.slowdown(self.running.len())
    }

    fn next_finish(&self, now: f64) -> f64 {
        let least = self.running.iter().map(|request| request.left).fold(f64::INFINITY, f64::min);
        now + least / self.pace()
    }

    fn advance(&mut self, passed: f64) {
        let done = passed * self.pace();
        self.running.iter_mut().for_each(|request| request.left -= done);
    }

    /// Takes out who is finished and lets in who may run.
    fn turn(&mut self, now: f64) {
        self.done.extend(
            self.running
                .extract_if(.., |request| request.left <= FINISHED_MS)
                .map(|request| now - request.arrived),
        );
        let room = self.together.saturating_sub(self.running.len()).min(self.queue.len());
        self.running.extend(self.queue.drain(..room));
    }
}
