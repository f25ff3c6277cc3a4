//! Waiting at the gate: the only place where a launch or a copy is held back.
//!
//! A sleep is a futex wait on the grant page, so that a new grant wakes everyone at once, and it is bounded: by the
//! time in which enough tokens accrue, or by what is in flight. Nothing is held while we sleep.

use std::sync::Arc;

use rustix::thread::futex;
use rustix::time::Timespec;
use weir_core::gate::{Cause, Gate, Patience, Request, Verdict, Wait, work_of_all};
use weir_protocol::mapping::Mapped;
use weir_protocol::pages::ActivityPage;
use weir_protocol::units::{Nanos, Tokens};

use crate::driver::Stream;
use crate::gang::AtGate;
use crate::hooks::{ANYTHING, Hands};
use crate::link::{CAPTURE_TURN, Client, Gpu, Held};
use crate::thread::{Current, Thread};
use crate::{clock, stall};

/// Why a launch went on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Admitted.
    Paid,
    /// As debt: nothing of the tenant completes.
    Forced,
    /// As debt: other ranks have gone ahead.
    CaughtUp,
}

/// Asks until the launch may go: whether it is the tenant's turn, and if tokens are `wanted`, for these. Returns the
/// generation under which it was admitted, and what was drawn.
pub fn at_gate(
    client: &Client,
    thread: &Thread,
    current: &Current,
    stream: Stream,
    wanted: Option<Request>,
) -> (u32, Tokens) {
    let gpu = current.gpu;
    let arrived = clock::now();
    let price = wanted.map_or(Tokens(0), |wanted| wanted.price);
    let (mut now, mut patience) = (arrived, Patience::Fresh);
    let mut gang = AtGate::new(client, gpu, arrived);
    let (generation, drawn, pass) = loop {
        let asked = gang.ask(now, patience, |patience| {
            ask(gpu, wanted.map(|wanted| Request { patience, ..wanted }), patience, (arrived, now))
        });
        let held = match asked {
            Asked::Goes(generation, tokens) => break (generation, tokens, Pass::Paid),
            Asked::CatchesUp(generation) => {
                gpu.bucket.charge(price);
                break (generation, price, Pass::CaughtUp);
            }
            Asked::Waits(held) => held,
        };
        if now == arrived {
            stall::wait(gpu, arrived);
            mark_everything(&mut Hands::new(thread, current, stream)); // or the end of what is queued would never show
        }
        Hands::new(thread, current, stream).look();
        if stands_still(gpu, arrived, now) {
            gpu.bucket.charge(price);
            break (held.generation, price, Pass::Forced);
        }
        gpu.show_state();
        held.sleep(gpu);
        if gpu.grant.generation() != held.generation {
            patience = Patience::None; // a new grant takes effect at once
        } else if held.cause == Cause::Tokens && patience == Patience::Fresh {
            patience = Patience::Turn;
        }
        now = clock::now().max(Nanos(now.0 + 1)); // however short the sleep, this launch has waited
    };
    count(current, arrived, now, pass);
    if now > arrived {
        gang.resumes(now);
    }
    (generation, drawn)
}

/// Waits until the tenant's earlier copies are paid for. The rule of liveness holds as for launches: a kernel may spin for
/// what is to be copied.
pub fn for_copies(thread: &Thread, current: &Current, stream: Stream) {
    let gpu = current.gpu;
    let arrived = clock::now();
    let (mut now, mut pass) = (arrived, Pass::Paid);
    while let Some(Wait { generation, at_most, cause }) = Gate::copy_wait(gpu.pages(), now) {
        if now == arrived {
            stall::wait(gpu, arrived);
            mark_everything(&mut Hands::new(thread, current, stream));
        }
        Hands::new(thread, current, stream).look();
        if stands_still(gpu, arrived, now) {
            pass = Pass::Forced;
            break;
        }
        Holdup { generation, at_most, cause, neighbour: None }.sleep(gpu);
        now = clock::now().max(Nanos(now.0 + 1));
    }
    count(current, arrived, now, pass);
}

/// Whether nothing of the tenant has moved for so long that the launch shall pass. Nothing is learnt from work that stood
/// still.
fn stands_still(gpu: &Gpu, arrived: Nanos, now: Nanos) -> bool {
    let others =
        Client::get().map_or(&[][..], |client| &client.gpus).iter().filter(|other| other.index != gpu.index);
    let elsewhere = others
        .map(|other| work_of_all(&other.usage))
        .fold((0u64, 0u64), |(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)));
    let stands = gpu.gate.stands_still(gpu.pages(), elsewhere, arrived, now);
    if stands {
        gpu.for_each_context(|context| context.flight.stood_still());
    }
    stands
}

fn count(current: &Current, arrived: Nanos, now: Nanos, pass: Pass) {
    let counters = current.counters;
    if now > arrived {
        stall::waited(current.gpu, now);
        counters.add(&counters.lane().throttled, 1);
        counters.add(&counters.lane().waited_ns, now.since(arrived).0);
    }
    counters.add(&counters.lane().forced, u64::from(pass == Pass::Forced));
    counters.add(&counters.lane().caught_up, u64::from(pass == Pass::CaughtUp));
}

/// What was said to a launch, each with the generation of the grant under which it was.
pub enum Asked {
    /// It goes, with so many tokens drawn.
    Goes(u32, Tokens),
    /// It goes as debt: other ranks of its gang have gone ahead.
    CatchesUp(u32),
    /// It waits.
    Waits(Holdup),
}

/// What holds a launch up, and until when.
pub struct Holdup {
    /// The grant under which it was asked for.
    pub generation: u32,
    /// Longest sleep before it asks again.
    pub at_most: Nanos,
    /// What holds it up.
    pub cause: Cause,
    /// The neighbour that has to move first.
    pub neighbour: Option<Watched>,
}

/// A neighbour's word to sleep on, and what it shows.
pub enum Watched {
    /// It is its turn.
    Turn(Arc<Mapped<ActivityPage>>, u32),
    /// It has work to which this tenant gives way.
    Edges(Arc<Mapped<ActivityPage>>, u32),
}

/// A wait for a turn is looked at anew so often: the grant may change meanwhile.
const TURN_STEP: Nanos = Nanos::from_millis(1);

/// While a turn ends, progress is looked for so often: what is seen late makes the turn end late.
const LOOK: Nanos = Nanos::from_micros(200);

/// A launch that waits until its own tenant's work is done looks so soon again, at least.
const SHORTEST: Nanos = Nanos::from_micros(30);

fn ask(gpu: &Gpu, wanted: Option<Request>, patience: Patience, (arrived, now): (Nanos, Nanos)) -> Asked {
    let generation = gpu.grant.generation();
    let waits = |at_most: Nanos, neighbour| {
        let at_most = at_most.clamp(SHORTEST, TURN_STEP);
        Asked::Waits(Holdup { generation, at_most, cause: Cause::Turn, neighbour })
    };
    if let Some((better, edges)) = gpu.gives_way_to() {
        return ask_closed(gpu, wanted, patience, now, Watched::Edges(better, edges));
    }
    // A new grant lets one launch through at once, whoever's turn it is.
    if patience != Patience::None {
        match gpu.ask_turn(arrived, now) {
            Held::No => {}
            Held::Queueing => return waits(SHORTEST, None),
            Held::Over(left) => return waits(left.min(LOOK), None),
            Held::Behind(page, word) => {
                // Until the tenant's last work is done nobody measures anything.
                let step = if gpu.is_busy() { LOOK } else { TURN_STEP };
                return waits(step, Some(Watched::Turn(page, word)));
            }
        }
    }
    let Some(request) = wanted else { return Asked::Goes(generation, Tokens(0)) };
    let ceiling = gpu.turn_ceiling().max(request.price.0);
    let request = Request { tokens: Tokens(request.tokens.0.min(ceiling)), ..request };
    match gpu.gate.ask(gpu.pages(), now, request) {
        Verdict::Admitted { generation, tokens } => {
            gpu.activity.turn.spend(tokens.0);
            Asked::Goes(generation, tokens)
        }
        Verdict::Wait(Wait { generation, mut at_most, cause }) => {
            if cause == Cause::Tokens
                && let Some(left) = gpu.leave_turn(now)
            {
                at_most = at_most.min(left.max(SHORTEST)); // meanwhile others may go
            }
            Asked::Waits(Holdup { generation, at_most, cause, neighbour: None })
        }
    }
}

/// While a better has work a launch goes at the rate of the tenant's request, whoever's turn it is. Its own turn is left.
fn ask_closed(gpu: &Gpu, wanted: Option<Request>, patience: Patience, now: Nanos, better: Watched) -> Asked {
    gpu.leave_turn(now);
    let one = Request { price: Tokens(0), tokens: Tokens(0), patience, closed: true };
    let request = wanted.map_or(one, |request| Request { tokens: request.price, closed: true, ..request });
    match gpu.gate.ask(gpu.pages(), now, request) {
        Verdict::Admitted { generation, tokens } => Asked::Goes(generation, tokens),
        Verdict::Wait(Wait { generation, at_most, cause }) => {
            let at_most = at_most.clamp(SHORTEST, TURN_STEP);
            Asked::Waits(Holdup { generation, at_most, cause, neighbour: Some(better) })
        }
    }
}

/// Puts a mark behind all work of this context that has none.
fn mark_everything(hands: &mut Hands<'_>) {
    hands.put(ANYTHING);
    let _no_capture_begins = CAPTURE_TURN.lock();
    hands.put_everywhere();
}

impl Holdup {
    fn sleep(&self, gpu: &Gpu) {
        const SECOND: u64 = 1_000_000_000;
        let whole = |n: u64| i64::try_from(n).unwrap_or(0);
        let timeout =
            Timespec { tv_sec: whole(self.at_most.0 / SECOND), tv_nsec: whole(self.at_most.0 % SECOND) };
        let (word, value) = match &self.neighbour {
            Some(Watched::Turn(page, word)) => (page.turn.futex_word(), *word),
            Some(Watched::Edges(page, edges)) => (page.futex_word(), *edges),
            None => (gpu.grant.futex_word(), self.generation),
        };
        // Woken, timed out, interrupted, or the word had moved already: in each case the gate is asked again.
        let _ = futex::wait(word, futex::Flags::empty(), value, Some(&timeout));
    }
}
