//! Two ranks on two GPUs in virtual time: steps of kernels with a collective behind them, throttled.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use weir_protocol::pages::{BucketPage, Grant, GrantPage, ProcessSlot, Rate, UsagePage};
use weir_protocol::units::Bytes;

use super::*;
use crate::gate::{Gate, Pages, Patience, Request, Verdict};

const STEP: u64 = 10_000; // of the simulation, ns
const KERNEL: u64 = 300_000;
const COLLECTIVE: u64 = 50_000;
const MOST_QUEUED: usize = 8;
const WAKE: u64 = 50_000; // a thread's that another one wakes

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Kernel,
    Collective,
}

/// One GPU, with one rank on it.
struct Rank {
    grant: Box<GrantPage>,
    bucket: Box<BucketPage>,
    usage: Box<UsagePage>,
    gate: Gate,
    launched: u64,
    arrived: u64,
    resumed_at: u64,
    wakes_at: u64,
    waited: bool,
    queue: VecDeque<Op>,
    left: u64, // of what runs
    begun: u64,
    ended: u64, // collectives
    busy: u64,
    spun: u64,
    caught_up: u64,
}

fn zeroed<P: zerocopy::FromZeros>() -> Box<P> {
    Box::new(P::new_zeroed())
}

impl Rank {
    fn new(percent: u32, debt: i64) -> Self {
        let tokens = |ms: u32| Tokens(i64::from(percent) * 10_000 * i64::from(ms));
        let grant = Grant {
            rate: Rate::ppm(percent * 10_000),
            fallback_rate: Rate::ppm(percent * 10_000),
            capacity: tokens(20),
            resume_at: tokens(10),
            memory_limit: Bytes::gib(1),
            ..Grant::default()
        };
        let (pages, bucket): (Box<GrantPage>, Box<BucketPage>) = (zeroed(), zeroed());
        pages.init(&grant);
        bucket.init();
        bucket.refill(Nanos(1), grant.rate, grant.capacity);
        bucket.charge(Tokens(debt));
        Self {
            grant: pages,
            bucket,
            usage: zeroed(),
            gate: Gate::default(),
            launched: 0,
            arrived: 1,
            resumed_at: 0,
            wakes_at: 0,
            waited: false,
            queue: VecDeque::new(),
            left: 0,
            begun: 0,
            ended: 0,
            busy: 0,
            spun: 0,
            caught_up: 0,
        }
    }

    fn pages(&self) -> Pages<'_> {
        Pages { grant: &self.grant, bucket: &self.bucket, usage: &self.usage, slot: self.slot() }
    }

    fn slot(&self) -> &ProcessSlot {
        &self.usage.slots[0]
    }

    fn collectives(&self) -> u64 {
        self.slot().collectives.load(Ordering::Relaxed)
    }

    fn seen_as(&self, gpu: usize) -> Other {
        Other { gpu, collectives: self.collectives(), resumed_at: Nanos(self.resumed_at) }
    }

    /// What the program launches next: three kernels, then a collective.
    fn next(&self) -> Op {
        if self.launched % 4 == 3 { Op::Collective } else { Op::Kernel }
    }

    /// The program's thread tries to launch.
    fn launch(&mut self, now: u64, turn: Turn) {
        if now < self.wakes_at || self.queue.len() >= MOST_QUEUED {
            return;
        }
        let op = self.next();
        let price = Tokens(if op == Op::Kernel { KERNEL } else { COLLECTIVE }.cast_signed());
        let patience = match turn {
            Turn::Join => Patience::None,
            _ if self.waited => Patience::Turn,
            _ => Patience::Fresh,
        };
        let asked = match turn {
            Turn::Wait(at_most) => Err(at_most),
            _ => match self.gate.ask(
                self.pages(),
                Nanos(now),
                Request {
                    price,
                    tokens: price,
                    patience,
                    closed: false,
                    runs_ahead: false,
                    passes: false,
                    piece: Nanos(0),
                    ahead: Nanos(0),
                },
            ) {
                Verdict::Admitted { .. } => Ok(()),
                Verdict::Wait(wait) => Err(wait.at_most),
            },
        };
        if let Err(at_most) = asked {
            if turn != Turn::CatchUp || !may_owe(self.bucket.balance(), self.grant.read().capacity) {
                self.wakes_at = now + at_most.min(LOOK).0;
                self.waited = true;
                return;
            }
            self.bucket.charge(price);
            self.caught_up += 1;
        } else if self.waited {
            self.resumed_at = now;
        }
        (self.waited, self.arrived) = (false, now + STEP);
        self.launched += 1;
        self.queue.push_back(op);
        if op == Op::Collective {
            self.slot().collectives.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The GPU runs for a step; a collective spins until `met` of them have begun elsewhere.
    fn run(&mut self, met: u64) {
        let Some(op) = self.queue.front().copied() else { return };
        if self.left == 0 {
            self.left = if op == Op::Kernel { KERNEL } else { COLLECTIVE };
            self.begun += u64::from(op == Op::Collective);
        }
        self.busy += STEP;
        if op == Op::Collective && met < self.begun {
            self.spun += STEP;
            return self.bucket.charge(Tokens(STEP.cast_signed())); // as measured time is
        }
        self.left -= STEP;
        if self.left == 0 {
            self.queue.pop_front();
            self.ended += u64::from(op == Op::Collective);
        }
    }
}

/// Runs both for so many milliseconds, with the rules or without.
fn run(ranks: &mut [Rank; 2], ms: u64, rules: bool) {
    for step in 1..ms * 100 {
        let now = step * STEP;
        for at in 0..2 {
            let other = 1 - at;
            let rank = &ranks[at];
            let debt = |gpu: usize| ranks[gpu].gate.debt(ranks[gpu].pages(), Nanos(now));
            let others = [ranks[other].seen_as(other)].into_iter();
            let arrived = Nanos(rank.arrived);
            let turn = if rules { turn(rank.collectives(), arrived, others, debt) } else { Turn::Gate };
            let before = rank.collectives();
            ranks[at].launch(now, turn);
            let ahead = before < ranks[at].collectives();
            if rules && (ranks[at].resumed_at == now || ahead) {
                ranks[other].wakes_at = ranks[other].wakes_at.min(now + WAKE);
            }
        }
        let begun = [ranks[0].begun, ranks[1].begun];
        ranks[0].run(begun[1]);
        ranks[1].run(begun[0]);
    }
}

fn percent(part: u64, ms: u64) -> f64 {
    part as f64 / (ms * 10_000) as f64
}

#[test]
fn ranks_of_a_gang_hardly_spin_for_each_other_and_get_their_share() {
    let pair = || [Rank::new(20, 0), Rank::new(20, 7_000_000)];
    let (mut with, mut without) = (pair(), pair());
    run(&mut with, 2_000, true);
    run(&mut without, 2_000, false);
    let spun = |ranks: &[Rank; 2]| percent(ranks[0].spun + ranks[1].spun, 2_000);
    assert!(spun(&with) < 1.5 && spun(&without) > 10.0, "{} %, else {} %", spun(&with), spun(&without));
    for rank in &with {
        let used = percent(rank.busy, 2_000);
        assert!((18.5..20.5).contains(&used), "a rank used {used} %");
    }
    assert!(with[0].ended > 2 * without[0].ended, "{} steps, else {}", with[0].ended, without[0].ended);
    assert!(with[0].caught_up + with[1].caught_up > 0);
}

#[test]
fn a_gang_goes_at_the_pace_of_its_slowest_gpu() {
    let mut ranks = [Rank::new(40, 0), Rank::new(10, 0)];
    run(&mut ranks, 2_000, true);
    let [fast, slow] = ranks.each_ref().map(|rank| percent(rank.busy - rank.spun, 2_000));
    assert!((8.5..10.5).contains(&fast) && (8.5..10.5).contains(&slow), "{fast} and {slow}");
    let spun = percent(ranks[0].spun, 2_000);
    assert!(spun < 6.0, "{spun} % where 30 could be spun");
}

#[test]
fn a_rank_that_is_always_behind_owes_no_more_than_the_bound() {
    let mut rank = Rank::new(20, 0);
    for step in 1..200_000 {
        rank.launch(step * STEP, Turn::CatchUp);
        rank.run(u64::MAX);
    }
    let used = percent(rank.busy, 2_000);
    let bound = 20.0 + percent((MOST_DEBT + 1).unsigned_abs() * 4_000_000 + KERNEL, 2_000);
    assert!((20.0..bound).contains(&used), "{used} %, at most {bound} %");
}

fn other(gpu: usize, collectives: u64) -> Other {
    Other { gpu, collectives, resumed_at: Nanos(5) }
}

#[test]
fn only_ranks_within_the_window_belong_together() {
    let turn = |own, count| turn(own, Nanos(5), [other(1, count)].into_iter(), |_| Some(Nanos(7)));
    assert_eq!(turn(10, 11), Turn::CatchUp);
    assert_eq!(turn(10, 10 + WINDOW), Turn::CatchUp);
    assert_eq!(turn(10, 11 + WINDOW), Turn::Gate, "another communicator's, or a program before this one");
    assert_eq!(turn(11, 10), Turn::Wait(Nanos(7)));
    assert_eq!(turn(11 + WINDOW, 10), Turn::Gate, "it takes part no longer");
    assert_eq!(turn(10, 0), Turn::Gate, "it never took part");
}

#[test]
fn a_rank_waits_for_the_gpu_that_is_in_debt_for_longest() {
    let others = [other(0, 4), other(1, 5), other(2, 5)].into_iter();
    let debt = |gpu: usize| [Some(Nanos(3)), None, Some(Nanos(9))][gpu];
    assert_eq!(turn(5, Nanos(5), others, debt), Turn::Wait(Nanos(9)));
}

#[test]
fn a_rank_joins_a_turn_that_began_while_it_waited() {
    let turn = |arrived| turn(5, Nanos(arrived), [other(1, 5)].into_iter(), |_| None);
    assert_eq!((turn(5), turn(6)), (Turn::Join, Turn::Gate));
}
