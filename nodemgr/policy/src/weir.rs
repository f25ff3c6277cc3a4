//! `weir`: the most filler work subject to the promises. The default.
//!
//! *Problem.* Latency tenants have a promise to keep, primaries must not be slowed, and whatever time neither needs shall be
//! worked in. Bubbles, latency and interference each tell a part of it.
//!
//! *Approach.* In this order:
//!
//! 1. *Latency against SLO.* Whoever breaks its promise borrows first, and nothing of its time goes to fillers. Whoever
//!    keeps it has each of its bursts put off as long as its promise allows ([`slack`](crate::slack); gpu-truths 2a). Between
//!    these fillers go on by the board, in the moment in which it is drained.
//! 2. *True slowdown*, where kernels run at once (MPS). How much longer the same work of those who tell no latency is on the SMs, so that neither our gate's nor
//!    the neighbours' slices count (gpu-truths, rule 3), nor larger requests (papers 1.5, weakness 7), moves the level of the
//!    fillers by RCKM's law ([`pressure`](crate::pressure)).
//! 3. *Bubbles.* While all betters are drained the fillers are open: at once where the bubble is foretold, after a tick
//!    otherwise. Where its end is foretold, no unit of theirs outlasts that. What a wake then costs a primary is paid from its
//!    [`purse`](crate::purse). How much fillers may queue grows with the time that nobody woke.
//!
//! Where kernels run at once (MPS) fillers need not wait for a bubble: beside latency tenants that keep their promise they have
//! as much of the time as that leaves, and nobody is put off. Beside whoever promised nothing they wait as ever.
//!
//! Debt never delays a latency tenant in favour of a filler (rule 4): floors come on top of the GPU, and its bucket holds
//! what accrues in ten seconds. Beside another better, whoever has promised something has its bursts whole ([`whole`]). Outside
//! signals scale what all fillers have together, and so do clocks that power or heat holds back while a better works
//! ([`cooling`](crate::cooling); rule 17). Among tenants of which none is a filler or promised
//! anything this is `static`.
//!
//! ```text
//!   BUSY       a better works                                             the level, by the board: in the moment in which it is drained
//!   EMERGENCY  the same, and a promise is broken or bursts are stretched  requests
//!   BESIDE     a better works, and has time to spare (MPS)                what it can spare
//!   SUSPECT    drained, and it may be over at once                        the same; requests, if nothing is left to pay a wait with
//!   SLACK      drained, and whoever comes next may be put off             the level
//!   FILL       a bubble                                                   the level
//!   OPEN       nobody has moved for long                                  the level, long queues
//!   CAPPED     one of these three, and the clocks are held back           the lesser of both levels
//! ```
//!
//! *What always holds*: see `tests/every_policy.rs`.

mod rest;
mod whole;

use weir_protocol::pages::Gate;
use weir_protocol::units::{Nanos, Tokens};

use crate::asked::{Asked, Common, Row};
use crate::bursts::{Bursts, Edge};
use crate::cooling::Cooling;
use crate::grants::{IN_FLIGHT_CAP, LONG_CAP, SHORT_CAP};
use crate::lend::{FULL, is_busy};
use crate::lull::{Lull, Watch, is_working};
use crate::memory::Memory;
use crate::observation::SWITCH;
use crate::pools::{Opened, Opening, Pools, is_filler};
use crate::pressure::{Level, Stretch, Stretched, Verdict};
use crate::promise::{self, Promise};
use crate::purse::{PART, Purse};
use crate::slack::Slack;
use crate::static_shares::STEADY;
use crate::{Class, Decision, Mode, Observation, Policy, Sample};
use rest::Resting;

/// Drained for so long is a bubble, if it was not foretold.
const FILL_AFTER: Nanos = Nanos::from_millis(1);

/// Nobody has moved for long: no bubble of an iteration is as long as this.
const OPEN_AFTER: Nanos = Nanos::from_millis(200);

/// Shorter bursts say nothing: a tick is too much of them.
const LEAST_BURST: Nanos = Nanos::from_millis(5);

/// Fillers that worked for less than this part of a burst, around it, did not stretch it.
const BESIDE_PART: u64 = 20;

/// Fillers queue no more than one part in so many of the time for which nobody woke: so little of it is lost to whoever wakes next.
const QUEUED_PART: u64 = 125;

/// What a wake in a bubble has cost shows so much later at most.
const SETTLED_LATE: Nanos = Nanos::from_millis(10);

/// Among fillers alone, and where there is neither a filler nor a promise, what counts is who is busy. The betters' rhythm is
/// learnt from when a filler comes.
pub fn is_static(samples: &[Sample]) -> bool {
    samples.iter().all(is_filler) || samples.iter().all(|sample| !is_filler(sample) && sample.slo.is_none())
}

/// What is remembered of a better.
#[derive(Default)]
struct Better {
    stretch: Stretch,
    promise: Promise,
    slack: Slack,
    purse: Purse,
    verdict: Verdict,
    unmetered: bool, // in the last tick
    beside: u64,     // ns that fillers worked since its last burst ended, ...
    within: u64,     // ... and since this one began, with what they had queued then
    rests: Option<rest::Since>,
}

/// The policy.
pub struct Weir {
    watch: Watch,
    betters: Memory<Better>,
    charged: Memory<Tokens>, // what each had done at the last look
    worked: u64,             // ns that fillers have worked in all; only differences count
    awake: Vec<usize>,       // those who are looked at, by position
    resting: Resting,        // what the others come to
    mode: Mode,
    looked: Nanos,
    level: Level,
    cooling: Cooling,
    hold: Nanos, // for which all betters may be put off
    filled_at: Option<Nanos>,
    asked: Asked,
    pools: Pools,
}

impl Default for Weir {
    fn default() -> Self {
        Self {
            watch: Watch::default(),
            betters: Memory::default(),
            charged: Memory::default(),
            worked: 0,
            awake: Vec::new(),
            resting: Resting::default(),
            mode: Mode::default(),
            looked: Nanos(0),
            level: Level::new(FULL),
            cooling: Cooling::default(),
            hold: Nanos(0),
            filled_at: None,
            asked: Asked::default(),
            pools: Pools::default(),
        }
    }
}

impl Policy for Weir {
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision] {
        self.watch.follow(seen);
        self.betters.follow(seen.samples);
        self.charged.follow(seen.samples);
        self.rouse_all(seen);
        self.decide_on(seen);
        self.pools.last()
    }

    fn awake(&self, now: Nanos, mode: Mode) -> Option<&[usize]> {
        (mode == self.mode && self.watch.is_followed(now)).then_some(&self.awake)
    }

    fn follow(&mut self, seen: &Observation<'_>, moved: &[usize]) -> Option<&[Decision]> {
        self.rouse(seen, moved);
        self.decide_on(seen).then(|| self.pools.last())
    }
}

impl Weir {
    /// Decides by those who are awake; says whether that is anything new.
    fn decide_on(&mut self, seen: &Observation<'_>) -> bool {
        let mut lull = self.watch.look_at(seen, self.awake.iter().copied());
        lull.quiet = lull.quiet.min(self.resting.quiet(seen.now));
        self.judge(seen);
        self.cooling.look(seen, lull.quiet);
        let (opened, opening) = self.open(seen, &lull);
        let puts_off = self.wants_to_fill(seen) && seen.mode == Mode::TimeSlicing;
        let hold = if puts_off { self.hold } else { Nanos(0) };
        let beside = Common { opened, opening, hold, best_effort: seen.signals.best_effort_permille };
        let betters = &self.betters;
        let row = |at: &usize| {
            let sample = seen.samples.get(*at)?;
            Some((*at, Row::of(sample, betters.get(*at)?.verdict, whole::turn(sample))))
        };
        let is_same = self.asked.is_same(beside, seen.samples.len(), self.awake.iter().filter_map(row));
        if !is_same {
            self.divide(seen, opened, opening, hold);
        }
        self.lay_to_rest(seen);
        (self.mode, self.looked) = (seen.mode, seen.now);
        !is_same
    }

    /// Divides the GPU anew.
    fn divide(&mut self, seen: &Observation<'_>, opened: Opened, opening: Opening, hold: Nanos) {
        self.pools.begin(seen);
        // Where kernels run at once nobody is faster for time that another does not get.
        let first = |sample: &Sample| seen.mode == Mode::TimeSlicing && promise::is_broken(sample);
        self.pools.divide(seen, opened, first);
        let rates = seen.samples.iter().zip(&self.pools.rates).zip(self.betters.iter_mut());
        for ((_, rate), better) in rates.filter(|((sample, _), _)| !is_filler(sample)) {
            better.unmetered = *rate == FULL;
        }
        let fillers = seen.samples.iter().any(is_filler);
        let state = |at: usize| {
            self.betters.get(at).map_or(STEADY, |better| better.state(&seen.samples[at], fillers))
        };
        let decisions = self.pools.answer(seen, |_| opening, state);
        whole::widen(seen, hold, decisions);
    }

    /// Looks at each better, and moves the level and the slacks.
    fn judge(&mut self, seen: &Observation<'_>) {
        let (worked, queued) = self.take_fillers_work(seen);
        let busy = self.awake_betters(seen).filter(|(sample, _)| is_working(sample)).count();
        // What fillers take behind closed gates is their floor, and no price of a bubble.
        let filled = self.filled_at.is_some_and(|at| seen.now.since(at) <= SETTLED_LATE);
        let mut told = !self.resting.any; // who rests tells nothing
        for at in &self.awake {
            let (Some(sample), Some(better)) = (seen.samples.get(*at), self.betters.get_mut(*at)) else {
                continue;
            };
            let Some(bursts) = self.watch.bursts(*at).filter(|_| !is_filler(sample)) else { continue };
            better.note_fillers(worked, queued, bursts.1);
            better.purse.settle(seen.now, &sample.work, busy <= 1 && filled, better.unmetered);
            // Where tenants take turns, and fillers keep off by the board, none stretches another's work on the SMs.
            if let Some(stretched) = better.look(seen, sample, bursts).filter(|_| seen.mode == Mode::Overlap)
            {
                better.verdict = self.level.judge(stretched);
            }
            told &= better.promise.is_told(seen.now);
        }
        if told {
            self.level.open(); // who tells is asked, and not guessed at
        }
    }

    /// What fillers did since the last look, and what they have queued, in ns.
    fn take_fillers_work(&mut self, seen: &Observation<'_>) -> (u64, u64) {
        let (mut worked, mut queued) = (0u64, 0u64);
        for at in &self.awake {
            let (Some(sample), Some(charged)) = (seen.samples.get(*at), self.charged.get_mut(*at)) else {
                continue;
            };
            let before = std::mem::replace(charged, sample.work.charged);
            if is_filler(sample) {
                let more = sample.work.charged.0.saturating_sub(before.0);
                worked = worked.saturating_add(u64::try_from(more).unwrap_or(0));
                queued = queued.saturating_add(sample.outstanding.0);
            }
        }
        self.worked = self.worked.wrapping_add(worked);
        (worked, queued)
    }

    /// The betters that are looked at.
    fn awake_betters<'a>(
        &'a self,
        seen: &Observation<'a>,
    ) -> impl Iterator<Item = (&'a Sample, &'a Better)> + Clone {
        let samples = seen.samples;
        let rows = self.awake.iter().filter_map(move |at| Some((samples.get(*at)?, self.betters.get(*at)?)));
        rows.filter(|(sample, _)| !is_filler(sample))
    }

    /// Whether a filler would use the time.
    fn wants_to_fill(&self, seen: &Observation<'_>) -> bool {
        let mut awake = self.awake.iter().filter_map(|at| seen.samples.get(*at));
        awake.any(|sample| is_filler(sample) && is_busy(sample))
    }

    /// How far the fillers are opened, and how.
    fn open(&mut self, seen: &Observation<'_>, lull: &Lull) -> (Opened, Opening) {
        let betters = self.awake_betters(seen);
        let disturbed =
            self.resting.disturbed || betters.clone().any(|(sample, better)| better.is_disturbed(sample));
        let is_empty =
            |(sample, better): (&Sample, &Better)| sample.class == Class::Primary && better.purse.is_empty();
        let empty = !lull.working && betters.clone().any(is_empty);
        let online = self.resting.online || betters.clone().any(|(sample, _)| sample.class == Class::Latency);
        // Who serves requests has drained when one is answered; a primary drains between two kernels, too.
        let all_online = betters.clone().all(|(sample, _)| sample.class == Class::Latency);
        let spare = beside(seen.mode, betters.clone());
        self.hold = hold(betters);
        if lull.working {
            let level = self.level.ppm.min(self.cooling.ppm());
            return match spare {
                _ if disturbed => closed("EMERGENCY"),
                Some(ppm) => (Opened::Bubble(level.min(ppm).into()), Opening::beside()),
                // They keep off by the board, and go on in the moment in which it is drained.
                None if seen.mode == Mode::TimeSlicing => {
                    (Opened::BetweenBursts(level.into()), Opening::open(SHORT_CAP, "BUSY"))
                }
                None => closed("BUSY"),
            };
        }
        // Who may be put off needs not have them away at once.
        let back_at = lull.back_at.filter(|_| self.hold == Nanos(0)).unwrap_or_default();
        if self.hold == Nanos(0) && !all_online && !is_bubble(lull, empty) {
            return match seen.mode {
                Mode::TimeSlicing if !empty => {
                    let level = self.level.ppm.min(self.cooling.ppm());
                    let opening = Opening { back_at, ..Opening::open(SHORT_CAP, "SUSPECT") };
                    (Opened::BetweenBursts(level.into()), opening)
                }
                _ => closed("SUSPECT"),
            };
        }
        self.filled_at = Some(seen.now);
        let most = match online {
            true if disturbed => SHORT_CAP,
            true => LONG_CAP,
            false => IN_FLIGHT_CAP,
        };
        let state = match lull.quiet {
            _ if self.cooling.holds() => "CAPPED",
            quiet if quiet >= OPEN_AFTER => "OPEN",
            _ if self.hold > Nanos(0) => "SLACK",
            _ => "FILL",
        };
        let ppm = self.level.ppm.min(self.cooling.ppm());
        // Whoever comes next needs not have them away at once.
        let gate = if seen.mode == Mode::Overlap && self.hold > Nanos(0) { Gate::Lent } else { Gate::Open };
        (Opened::Bubble(ppm.into()), Opening { gate, back_at, ..Opening::open(cap(lull, most), state) })
    }
}

fn closed(state: &'static str) -> (Opened, Opening) {
    (Opened::Beside(0), Opening::closed(state))
}

/// How much fillers may do beside betters that work, in millionths, where kernels run at once: what the promises of those leave.
fn beside<'a>(mode: Mode, betters: impl Iterator<Item = (&'a Sample, &'a Better)>) -> Option<u32> {
    let working = betters.filter(|(sample, _)| is_working(sample));
    let least = working.map(|(_, better)| better.slack.ppm()).min()?;
    (mode == Mode::Overlap && least > 0).then_some(least)
}

/// For how long all may be put off who have moved of late: the least of what each has to spare. Who promised nothing has nothing.
fn hold<'a>(betters: impl Iterator<Item = (&'a Sample, &'a Better)>) -> Nanos {
    let awake = betters.filter(|(sample, better)| is_busy(sample) || better.slack.hold() > Nanos(0));
    awake.map(|(_, better)| better.slack.hold()).min().unwrap_or_default()
}

/// Whether a lull is worth filling. `careful`: a primary has nothing left to pay a wait with.
fn is_bubble(lull: &Lull, careful: bool) -> bool {
    let wait = Nanos(SHORT_CAP.0 + SWITCH.0);
    let begun = lull.quiet >= FILL_AFTER || lull.foreseen;
    begun && (!careful || lull.back_at.is_some() || lull.quiet.0 >= wait.0 * PART)
}

/// How much fillers may queue: a small part of the time that nobody woke, in steps of two so that it seldom changes.
fn cap(lull: &Lull, most: Nanos) -> Nanos {
    let allowed = (lull.quiet.0 / QUEUED_PART).min(most.0);
    let steps = (allowed / SHORT_CAP.0).max(1).ilog2();
    Nanos(SHORT_CAP.0 << steps)
}

impl Better {
    /// Follows its bursts and its promise; says how far it is slowed down when there is news.
    fn look(
        &mut self,
        seen: &Observation<'_>,
        sample: &Sample,
        bursts: (&Bursts, Edge),
    ) -> Option<Stretched> {
        let now = seen.now;
        let stretched = self.follow(now, sample, bursts);
        let reading = self.promise.read(now, sample);
        let told = self.promise.is_told(now);
        if !told || sample.class != Class::Latency {
            self.slack = Slack::default();
        } else if let Some(reading) = reading {
            self.slack.note(reading);
        }
        if told {
            self.verdict = Verdict::default();
        }
        stretched.filter(|_| !told)
    }

    /// What fillers did in the last tick, and have queued now.
    fn note_fillers(&mut self, worked: u64, queued: u64, edge: Edge) {
        self.beside = self.beside.saturating_add(worked);
        let before = if matches!(edge, Edge::Began(_)) { queued } else { self.within };
        self.within = before.saturating_add(worked);
    }

    /// Follows its bursts; says how far fillers stretched one that they worked beside, or just before.
    fn follow(&mut self, now: Nanos, sample: &Sample, (bursts, edge): (&Bursts, Edge)) -> Option<Stretched> {
        let Edge::Ended(length) = edge else {
            if !(bursts.is_busy() && self.is_beside(bursts.wall(now))) {
                return None;
            }
            let (pace, fillers) = bursts.pace(sample, Nanos(self.within))?;
            return self.stretch.goes_on(pace, fillers);
        };
        let beside = self.is_beside(length);
        self.beside = 0;
        if length < LEAST_BURST {
            return None;
        }
        let (pace, fillers) = bursts.pace(sample, Nanos(self.within))?;
        self.stretch.ended(pace, fillers).filter(|_| beside)
    }

    /// Whether fillers worked enough to have stretched a burst of this length.
    fn is_beside(&self, length: Nanos) -> bool {
        self.beside >= length.0 / BESIDE_PART
    }

    /// Whether fillers have to be out of its way.
    fn is_disturbed(&self, sample: &Sample) -> bool {
        promise::is_broken(sample) || self.verdict == Verdict::Emergency
    }

    fn state(&self, sample: &Sample, fillers: bool) -> &'static str {
        match (promise::is_broken(sample), fillers) {
            (true, _) => Verdict::Emergency.name(),
            (false, true) => self.verdict.name(),
            (false, false) => STEADY,
        }
    }
}

#[cfg(test)]
mod tests;
