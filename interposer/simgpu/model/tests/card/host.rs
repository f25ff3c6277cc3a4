//! Programs on hosts, in virtual time: each goes on until it waits for the GPU, for its queue or for the clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_simgpu_model::{Completion, Device, Kernel, Nanos, Spec, StreamId, StreamKind, Work};

use crate::Micros;

/// Launches that a stream takes before the call waits. Source: an H200, 1,021.
const DEPTH: u64 = 1_021;
/// From the end of work until a host that synchronizes goes on, us. Source: an H200, end to known below 5 us, and a return.
const WAKE: Micros = 8.0;
/// Hosts take so much more or less for each of their own steps, part of one.
const JITTER: f64 = 0.1;

/// What a program does next.
#[derive(Clone, Copy)]
pub enum Step {
    /// Its host is at work, or sleeps, us.
    Host(Micros),
    /// A kernel of so long, us.
    Launch(Micros),
    /// Waits until so many kernels at most are not done.
    Below(u64),
    /// A unit of its own is done; if it is a request, how late it was, us, is from when it was due.
    Done(Option<Micros>),
}

/// A program: asked at the moment (us) at which it can go on.
pub trait Program {
    /// What it does next.
    fn next(&mut self, now: Micros, random: &mut Random) -> Step;
}

/// Numbers between 0 and 1, the same in every run.
pub struct Random(u64);

impl Random {
    pub fn uniform(&mut self) -> f64 {
        // Source: Knuth's MMIX; the upper bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What a program has got done.
#[derive(Default)]
pub struct Got {
    units: u64,
    late: Vec<Micros>,
    seconds: f64,
}

impl Got {
    pub fn per_second(&self) -> f64 {
        self.units as f64 / self.seconds
    }

    /// How late requests were, ms: the median and the 99th of a hundred.
    pub fn late_ms(mut self) -> [f64; 2] {
        self.late.sort_by(f64::total_cmp);
        let count = self.late.len();
        [count / 2, count * 99 / 100].map(|place| self.late[place] / 1e3)
    }
}

struct Tenant {
    program: Box<dyn Program>,
    stream: StreamId,
    launched: u64,
    done: u64,
    /// What it waits for, if it does.
    waits: Option<Step>,
    got: Got,
}

/// Runs programs beside each other, each in a context of its own, without anything in between.
pub fn run<const N: usize>(programs: [Box<dyn Program>; N], seconds: f64) -> [Got; N] {
    let mut device = Device::new(Spec { births: 0, ..Spec::h200() }, 0);
    let mut tag = 0;
    let mut tenants = programs.map(|program| {
        let context = device.create_context();
        let stream = device.open_stream(context, StreamKind::NonBlocking, 0, tag).unwrap();
        tag += 1;
        Tenant { program, stream, launched: 0, done: 0, waits: None, got: Got::default() }
    });
    let (mut random, end) = (Random(1), nanos(seconds * 1e6));
    let mut hosts: BinaryHeap<_> = (0..N).map(|place| Reverse((place as Nanos, place))).collect();
    while device.now() < end {
        let next = hosts.peek().map_or(end, |host| host.0.0).min(end);
        let now = device.advance_until_done(next);
        for completion in device.drain_completions() {
            let Completion::Done { tag, .. } = completion else { continue };
            let tenant = &mut tenants[usize::try_from(tag).unwrap()];
            tenant.done += 1;
            if tenant.goes_on() {
                hosts.push(Reverse((now + nanos(WAKE), usize::try_from(tag).unwrap())));
            }
        }
        while let Some(Reverse((at, place))) = hosts.peek().copied()
            && at <= now
        {
            hosts.pop();
            if let Some(again) = tenants[place].go(now, &mut device, &mut random) {
                hosts.push(Reverse((again, place)));
            }
        }
    }
    tenants.map(|tenant| Got { seconds, ..tenant.got })
}

impl Tenant {
    /// Whether what it waited for has come; then it does not wait for it any longer.
    fn goes_on(&mut self) -> bool {
        let left = self.launched - self.done;
        let over = match self.waits {
            Some(Step::Below(most)) => left <= most,
            Some(Step::Launch(_)) => left < DEPTH,
            _ => false,
        };
        if over && matches!(self.waits, Some(Step::Below(_))) {
            self.waits = None;
        }
        over
    }

    /// Does what the program wants, until it waits; when to come again, if that is known.
    fn go(&mut self, now: Nanos, device: &mut Device, random: &mut Random) -> Option<Nanos> {
        let us = now as f64 / 1e3;
        loop {
            let step = self.waits.take().unwrap_or_else(|| self.program.next(us, random));
            match step {
                Step::Host(takes) => {
                    let jitter = 1.0 + JITTER * (2.0 * random.uniform() - 1.0);
                    return Some(now + nanos(takes * jitter));
                }
                Step::Launch(_) if self.launched - self.done >= DEPTH => self.waits = Some(step),
                Step::Launch(takes) => {
                    self.launched += 1;
                    device.submit(now, self.stream, self.launched, Work::Kernel(Kernel::full(nanos(takes))));
                }
                Step::Below(most) if self.launched - self.done > most => self.waits = Some(step),
                Step::Below(_) => {}
                Step::Done(due) => {
                    self.got.units += 1;
                    self.got.late.extend(due.map(|due| us - due));
                }
            }
            if self.waits.is_some() {
                return None;
            }
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole ns of a positive time are meant"
)]
fn nanos(us: Micros) -> Nanos {
    (us * 1e3) as Nanos
}
