//! Whether a program is bound by its host: it spends its time launching, and hardly waits for the GPU.
//!
//! ```text
//!   launching   from one launch to the next, whatever the program does in between, unless it waits for the GPU
//!   blocked     in calls that wait for the GPU, for as long at most as the work takes that they wait for
//!   work        of the launches, by price
//!
//!   dense       blocked for more than half of both, or more work than the time in which it was launched
//! ```
//!
//! Both questions have a band in which the answer stays as it was. Prices matter to a factor only: what is launched faster than the
//! GPU can do it piles up, whoever waits for it.

use weir_protocol::units::Nanos;

/// Launching and waiting count for about this long: some steps of a training. For half of it a program whose host
/// loses its processor for 50 ms passes for as long; for twice of it one whose prices are not known yet passes for longer.
const WINDOW_NS: f64 = 100e6;

/// Fewer nanoseconds of launching and waiting tell nothing yet.
const LEAST_NS: f64 = 1e6;

/// Part of the time for which a program that is bound by its host is blocked at most, and a dense one at least.
const BLOCKED: (f64, f64) = (0.4, 0.6);

/// Work in the time in which it is launched, of a program that is bound by its host at most, and of a dense one at least.
const WORK: (f64, f64) = (0.8, 1.2);

/// What is known of a process's pace on one GPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    launched: Option<Sample>, // the last launch of a run
    blocks_since: Option<Nanos>,
    waited_for: u64, // what was charged in all when it blocked last, ...
    awaited: u64,    // ... and how much of that since the time before
    launching: f64,
    blocked: f64,
    work: f64,
    host_bound: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Nanos,
    charged: u64,
}

impl Pace {
    /// Something is launched now; so much was charged before it in all.
    pub fn launches(&mut self, now: Nanos, charged: u64) {
        self.run_until(now, charged);
        self.launched = Some(Sample { at: now, charged });
    }

    /// What was held back at the gate goes on: that time counts for nothing, be it a launch that waited or a call that waits for
    /// launches.
    pub fn goes_on(&mut self, now: Nanos, charged: u64) {
        match &mut self.blocks_since {
            Some(since) => *since = now,
            None => self.launched = Some(Sample { at: now, charged }),
        }
    }

    /// The program calls something that waits for the GPU.
    pub fn blocks(&mut self, now: Nanos, charged: u64) {
        self.run_until(now, charged);
        self.launched = None;
        self.blocks_since = Some(now);
        self.awaited = charged.saturating_sub(std::mem::replace(&mut self.waited_for, charged));
    }

    /// That call has returned. What it waited beyond its own work is its neighbours' doing.
    pub fn returns(&mut self, now: Nanos) {
        let Some(since) = self.blocks_since.take() else { return };
        let blocked = now.since(since).0.min(std::mem::take(&mut self.awaited)) as f64;
        self.fade(blocked);
        self.blocked += blocked;
        self.judge();
    }

    /// Whether the program is bound by its host.
    pub fn is_host_bound(&self) -> bool {
        self.host_bound
    }

    fn run_until(&mut self, now: Nanos, charged: u64) {
        let Some(before) = self.launched else { return };
        let (time, work) = (now.since(before.at).0 as f64, charged.saturating_sub(before.charged) as f64);
        self.fade(time.max(work));
        self.launching += time;
        self.work += work;
        self.judge();
    }

    fn fade(&mut self, ns: f64) {
        let kept = WINDOW_NS / (WINDOW_NS + ns);
        for sum in [&mut self.launching, &mut self.blocked, &mut self.work] {
            *sum *= kept;
        }
    }

    fn judge(&mut self) {
        let known = self.launching + self.blocked;
        if known.max(self.work) < LEAST_NS {
            return;
        }
        let (blocked, work) = (self.blocked, self.work);
        let is_dense = blocked > BLOCKED.1 * known || work > WORK.1 * self.launching;
        let is_host_bound = blocked < BLOCKED.0 * known && work < WORK.0 * self.launching;
        self.host_bound = is_host_bound || (self.host_bound && !is_dense);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What launches, waits and pauses come to. Times in microseconds.
    #[derive(Default)]
    struct Program {
        pace: Pace,
        now: u64,
        charged: u64,
    }

    impl Program {
        fn launch(&mut self, count: u64, host_us: u64, gpu_us: u64) {
            for _ in 0..count {
                self.pace.launches(Nanos::from_micros(self.now), self.charged);
                self.charged += gpu_us * 1_000;
                self.now += host_us;
            }
        }

        fn wait(&mut self, us: u64) {
            self.pace.blocks(Nanos::from_micros(self.now), self.charged);
            self.now += us;
            self.pace.returns(Nanos::from_micros(self.now));
        }

        fn is_host_bound(&self) -> bool {
            self.pace.is_host_bound()
        }
    }

    fn after(steps: u64, mut step: impl FnMut(&mut Program)) -> bool {
        let mut program = Program { now: 1_000, ..Program::default() };
        (0..steps).for_each(|_| step(&mut program));
        program.is_host_bound()
    }

    #[test]
    fn a_decoding_loop_is_bound_by_its_host_though_it_waits_for_each_token() {
        let decode = |program: &mut Program| {
            program.launch(96, 12, 3);
            program.wait(10);
        };
        assert!(after(20, decode));
    }

    #[test]
    fn who_waits_for_each_unit_of_work_is_dense() {
        let flood = |program: &mut Program| {
            program.launch(1, 10, 1_600);
            program.wait(1_590);
        };
        assert!(!after(20, flood));
    }

    #[test]
    fn a_program_that_never_waits_is_dense_if_its_work_piles_up() {
        let loader = |program: &mut Program| {
            program.launch(6, 5, 1_600);
            program.now += 5_000;
        };
        assert!(!after(20, loader));
        let light = |program: &mut Program| program.launch(1_000, 10, 3);
        assert!(after(20, light));
    }

    #[test]
    fn a_large_training_is_dense_and_a_small_one_is_not() {
        let step = |gpu_us: u64, wait_us: u64| {
            move |program: &mut Program| {
                program.launch(1_700, 10, gpu_us);
                program.wait(wait_us);
            }
        };
        assert!(!after(20, step(17, 12_000)) && after(20, step(5, 500)));
    }

    #[test]
    fn a_host_that_is_held_up_by_neighbours_slices_stays_bound_by_its_host() {
        let mut program = Program { now: 1_000, ..Program::default() };
        for _ in 0..20 {
            program.launch(1_000, 10, 5);
            program.wait(500);
        }
        for _ in 0..20 {
            program.launch(1_000, 10, 5);
            program.wait(60_000);
        }
        assert!(program.is_host_bound());
    }

    /// A program whose launches wait in their streams: its call for the GPU lasts until they have gone and run.
    #[test]
    fn what_the_gate_holds_back_while_the_program_waits_for_it_counts_for_nothing() {
        let is_host_bound = after(20, |program| {
            program.launch(50, 100, 20);
            program.pace.blocks(Nanos::from_micros(program.now), program.charged);
            program.now += 20_000; // another's turns
            program.pace.goes_on(Nanos::from_micros(program.now), program.charged);
            program.now += 1_000;
            program.pace.returns(Nanos::from_micros(program.now));
        });
        assert!(is_host_bound, "it waits for 1 ms of 6");
    }
}
