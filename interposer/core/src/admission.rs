//! Admission: whether a launch goes now, and what it waits for. Whether it begins a burst that can wait is asked first, then
//! whoever it gives way to, then the turn, then the bucket.
//!
//! ```text
//!   to be put off  --> wait: the burst begins later, its promise leaves time to spare
//!   one goes first --> wait until it is drained, for as long as it is within its share
//!   it passes      --> only a limit holds it back: it is bound by its host or online, and within its share
//!   it would       --> wait until it is within its share again, if one that is due more takes turns
//!   a better works --> the rate of the request, whoever's turn it is; the own turn is left
//!   else the turn  --> held by somebody: wait; over: pass it on when the work is done
//!   its own turn   --> among the tenant's processes, while one of them asks for that: the same
//!   then the gate  --> in-flight cap, bucket: wait, or tokens
//! ```
//!
//! `libweir.so` and the simulator ask in this same order; where the answers lie, and how to sleep, is their own
//! ([`Launching`]).

mod turns;

use weir_protocol::pages::Turn;
use weir_protocol::units::{Nanos, Tokens};

pub use self::turns::{about_to_drain, drained, has_turn, left};
use self::turns::{ask_turns, holds, leave_queue, leave_turn, moves, turn_ceiling};

use crate::gate::{Cause, Gate, Pages, Patience, Request, Verdict, Wait};
use crate::progress::{Progress, Work};
use crate::turn::{LEAD, Neighbour};

/// A wait for a turn is looked at anew so often, though nothing moves: a neighbour that does not is given up after 20 ms.
const TURN_STEP: Nanos = Nanos::from_millis(4);

/// A wait for those to whom a tenant gives way is looked at anew so often: a while after they have drained it goes on.
const CLOSED_STEP: Nanos = Nanos::from_micros(300);

/// While a turn ends, or neighbours count on what is seen, progress is looked for so often.
const LOOK: Nanos = Nanos::from_micros(200);

/// No look at what ends soon, the tenant's own work or a neighbour's rest, follows sooner.
pub const SHORTEST: Nanos = Nanos::from_micros(30);

/// A process that launches on one GPU.
pub trait Launching {
    /// What a launch can sleep on until a neighbour moves.
    type Word;
    /// A neighbour with whom turns are taken.
    type Neighbour: Neighbour;
    /// Another process of the tenant.
    type Sibling: Neighbour;

    /// The process's gate.
    fn gate(&self) -> &Gate;
    /// Its pages.
    fn pages(&self) -> Pages<'_>;
    /// The tenant's turn.
    fn turn(&self) -> &Turn;
    /// Who has work to whom the tenant gives way, unless the manager lends it the time all the same.
    fn gives_way_to(&self) -> Option<Self::Word>;
    /// Whether it goes without turns: it is bound by its host or online, and its tenant within its share.
    fn passes(&self) -> bool {
        false
    }
    /// In how long it will be within its share again, if it would pass then and one that is due more takes turns.
    fn beyond_share(&mut self, _now: Nanos) -> Option<Nanos> {
        None
    }
    /// Whether others wait until its work is drained.
    fn goes_first(&self) -> bool {
        false
    }
    /// Whether another tenant wants turns, too: else only a limit holds this one back.
    fn is_contended(&mut self) -> bool {
        true
    }
    /// A neighbour that goes first and has work.
    fn who_goes_first(&mut self) -> Option<Self::Word> {
        None
    }
    /// Whether the tenant usually rests for less than a switch takes, so that it keeps its turn meanwhile.
    fn keeps_turn(&self) -> bool {
        false
    }
    /// Whether it has just drained, and is usually back by now or a little later.
    fn is_back_soon(&self, _now: Nanos) -> bool {
        false
    }
    /// Work of this one waits until neighbours are drained, or no longer does.
    fn set_gives_way(&mut self, _gives_way: bool) {}
    /// Most work that may be queued, where somebody goes first; 0: no such bound.
    fn piece(&self) -> Nanos {
        Nanos(0)
    }
    /// Whether no other tenant waits for what this one has queued: it may queue any amount.
    fn runs_ahead(&self) -> bool {
        false
    }
    /// How long a launch that arrived then is put off, with which a burst would begin, so that fillers have the time.
    fn held_back(&self, arrived: Nanos, now: Nanos) -> Option<Nanos>;
    /// Whether there is nobody to take turns with, or work of all runs at once.
    fn is_alone(&self) -> bool;
    /// Whether there are other tenants on the GPU, at work or not.
    fn has_neighbours(&self) -> bool;
    /// Asks about the turn and the neighbours; `None` if they are not known.
    fn queue<R>(&mut self, ask: impl FnOnce(&Turn, &mut [Self::Neighbour]) -> R) -> Option<R>;
    /// A neighbour's word on the board, and what it shows.
    fn word(neighbour: &Self::Neighbour, shows: u32) -> Self::Word;
    /// Whether this process has work on the GPU.
    fn is_busy(&self) -> bool;
    /// How long the GPU takes to switch to it after a neighbour's turn.
    fn switch(&self) -> Nanos {
        Nanos(0)
    }
    /// How far the tenant's work has come.
    fn with_progress<R>(&mut self, look: impl FnOnce(&mut Progress) -> R) -> R;
    /// Predicted work that is queued and not known to be done, and what is known to be done, of all the tenant's processes;
    /// and whether a neighbour's work may lie in between.
    fn work(&self) -> Work;
    /// The turn has been passed on: wakes whoever waits for it.
    fn turn_passed(&mut self);
    /// How much a turn may take beyond its length, so that what is launched now can be measured.
    fn room(&self) -> Nanos;
    /// Whether the tenant's processes take turns of their own ([`crate::solo`]).
    fn is_solo(&self) -> bool;
    /// Asks about this process's own turn and its siblings, if they take turns.
    fn solo<R>(&mut self, ask: impl FnOnce(&Turn, &mut [Self::Sibling]) -> R) -> Option<R>;
    /// How long they are.
    fn solo_turn(&self) -> Nanos;
    /// A sibling's word, and what it shows.
    fn sibling_word(sibling: &Self::Sibling, shows: u32) -> Self::Word;
    /// The process's own turn has been passed on: wakes whoever waits for it.
    fn solo_passed(&mut self);

    /// Ends the turn, if the tenant holds it.
    fn end_turn(&mut self) {
        if self.turn().end() {
            self.turn_passed();
        }
    }
}

/// Tokens that a launch asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its price, less what the thread's purse still holds.
    pub price: Tokens,
    /// For it and for the next ones.
    pub tokens: Tokens,
}

/// What was said to a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<W> {
    /// It goes, under the grant of this generation, with so many tokens drawn.
    Goes(u32, Tokens),
    /// It waits.
    Waits(Held<W>),
}

/// What holds a launch up, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<W> {
    /// The grant under which it was asked for: a new one ends the sleep.
    pub generation: u32,
    /// Longest sleep before it asks again.
    pub at_most: Nanos,
    /// What holds it up.
    pub cause: Cause,
    /// The neighbour that has to move first.
    pub neighbour: Option<W>,
}

impl<W> Held<W> {
    /// With how much patience the launch asks again, which had `before`, now that the grant of this generation holds.
    pub fn patience_then(&self, before: Patience, generation: u32) -> Patience {
        if generation != self.generation {
            Patience::Regranted // a new grant takes effect at once
        } else if self.cause == Cause::Tokens && before == Patience::Fresh {
            Patience::Turn
        } else {
            before
        }
    }
}

/// Asks for a launch that arrived a while ago, and for tokens if any are `wanted`.
pub fn ask<L: Launching>(
    launching: &mut L,
    wanted: Option<Wanted>,
    patience: Patience,
    times: (Nanos, Nanos),
) -> Asked<L::Word> {
    let asked = decide(launching, wanted, patience, times);
    if matches!(asked, Asked::Waits(_)) {
        launching.pages().put_off();
    }
    asked
}

fn decide<L: Launching>(
    launching: &mut L,
    wanted: Option<Wanted>,
    patience: Patience,
    (arrived, now): (Nanos, Nanos),
) -> Asked<L::Word> {
    let generation = launching.pages().grant.generation();
    let waits = |at_most: Nanos, neighbour| {
        let at_most = at_most.clamp(SHORTEST, TURN_STEP);
        Asked::Waits(Held { generation, at_most, cause: Cause::Turn, neighbour })
    };
    if let Some(left) = launching.held_back(arrived, now) {
        return waits(left, None);
    }
    if !launching.goes_first()
        && let Some(neighbour) = wait_for_first(launching, arrived, now)
    {
        return waits(CLOSED_STEP, Some(neighbour));
    }
    if launching.passes() {
        return ask_passing(launching, wanted, patience, now);
    }
    let in_turn = !goes_out_of_turn(launching, patience);
    if in_turn && let Some(left) = wait_for_share(launching, arrived, now) {
        return waits(left, None);
    }
    if let Some(better) = launching.gives_way_to() {
        launching.set_gives_way(true);
        return ask_closed(launching, wanted, patience, now, better);
    }
    if in_turn && let Some((at_most, neighbour)) = ask_turns(launching, arrived, now) {
        return waits(at_most, neighbour);
    }
    let Some(Wanted { price, tokens }) = wanted else { return Asked::Goes(generation, Tokens(0)) };
    let out_of_turn = !in_turn && !launching.is_alone() && !holds(launching.turn());
    let ceiling = if out_of_turn { price.0 } else { turn_ceiling(launching).max(price.0) };
    let tokens = Tokens(tokens.0.min(ceiling));
    let (passes, piece) = (!launching.is_contended(), launching.piece());
    let runs_ahead = launching.runs_ahead();
    let is_awaited = launching.pages().grant.read().back_at > Nanos(0);
    let ahead = if is_awaited { left(launching, now).predicted } else { Nanos(0) };
    let request = Request { price, tokens, patience, closed: false, runs_ahead, passes, piece, ahead };
    match ask_gate(launching, now, request) {
        Verdict::Admitted { generation, tokens } => {
            launching.turn().spend(tokens.0);
            launching.solo(|own, _| own.spend(tokens.0));
            Asked::Goes(generation, tokens)
        }
        Verdict::Wait(Wait { generation, at_most, cause }) => {
            if cause == Cause::Tokens {
                moves(launching);
            }
            let left = if cause == Cause::Tokens { out_of_tokens(launching, now) } else { None };
            let at_most = left.map_or(at_most, |left| at_most.min(left)).max(SHORTEST);
            Asked::Waits(Held { generation, at_most, cause, neighbour: None })
        }
    }
}

/// A new budget lets one launch through at once, in any tenant's turn, and so do the ranks of a gang that go.
fn goes_out_of_turn(launching: &impl Launching, patience: Patience) -> bool {
    let is_new = || launching.gate().has_new_budget(&launching.pages().grant.read());
    patience == Patience::None || (patience == Patience::Regranted && is_new())
}

/// No work waits longer for those who go first.
const LONGEST_WAY: Nanos = Nanos::from_millis(250);

/// Who has work for which this launch waits: a neighbour that goes first.
fn wait_for_first<L: Launching>(launching: &mut L, arrived: Nanos, now: Nanos) -> Option<L::Word> {
    let first = launching.who_goes_first().filter(|_| now.since(arrived) < LONGEST_WAY);
    launching.set_gives_way(first.is_some());
    first
}

/// In how long a launch asks again whose tenant would pass but for its share. It stands in no queue meanwhile: most of a turn would pass in its
/// host's pauses.
fn wait_for_share(launching: &mut impl Launching, arrived: Nanos, now: Nanos) -> Option<Nanos> {
    let left = launching.beyond_share(now).filter(|_| now.since(arrived) < LONGEST_WAY)?;
    leave_queue(launching, now);
    Some(left)
}

/// A launch that passes: it takes no turns, and leaves one that it may have from before.
fn ask_passing<L: Launching>(
    launching: &mut L,
    wanted: Option<Wanted>,
    patience: Patience,
    now: Nanos,
) -> Asked<L::Word> {
    launching.end_turn();
    let generation = launching.pages().grant.generation();
    let Some(Wanted { price, tokens }) = wanted else { return Asked::Goes(generation, Tokens(0)) };
    let (piece, runs_ahead) = (launching.piece(), launching.runs_ahead());
    let (closed, passes, ahead) = (false, true, Nanos(0));
    let request = Request { price, tokens, patience, closed, runs_ahead, passes, piece, ahead };
    match ask_gate(launching, now, request) {
        Verdict::Admitted { generation, tokens } => Asked::Goes(generation, tokens),
        Verdict::Wait(Wait { generation, at_most, cause }) => {
            Asked::Waits(Held { generation, at_most: at_most.max(SHORTEST), cause, neighbour: None })
        }
    }
}

/// Asks about the bucket and the queue. A long kernel counts as queued until it is done: where that holds the launch up, it
/// goes as that is about to end, so that the GPU does not idle behind each.
fn ask_gate<L: Launching>(launching: &mut L, now: Nanos, request: Request) -> Verdict {
    let verdict = launching.gate().ask(launching.pages(), now, request);
    let Verdict::Wait(wait @ Wait { cause: Cause::InFlight, .. }) = verdict else { return verdict };
    let left = left(launching, now).at_most;
    if left <= LEAD {
        return launching.gate().ask(launching.pages(), now, Request { runs_ahead: true, ..request });
    }
    Verdict::Wait(Wait { at_most: wait.at_most.min(Nanos(left.0 - LEAD.0)), ..wait })
}

/// No tokens to launch with: meanwhile others may go. How soon that has to be looked after; `None`: it has been.
fn out_of_tokens<L: Launching>(launching: &mut L, now: Nanos) -> Option<Nanos> {
    let left = leave_turn(launching, now)?;
    // Those whose work runs at the same time count on this one's until it is seen to have ended.
    let counted_on = launching.is_alone() && launching.has_neighbours();
    Some(if counted_on { left.min(LOOK) } else { left })
}

/// While a better has work a launch goes at the rate of the tenant's request, whoever's turn it is. Its own turn is left.
fn ask_closed<L: Launching>(
    launching: &mut L,
    wanted: Option<Wanted>,
    patience: Patience,
    now: Nanos,
    better: L::Word,
) -> Asked<L::Word> {
    leave_turn(launching, now);
    let price = wanted.map_or(Tokens(0), |wanted| wanted.price);
    let piece = launching.piece();
    let (closed, runs_ahead, passes, ahead) = (true, false, false, Nanos(0));
    let request = Request { price, tokens: price, patience, closed, runs_ahead, passes, piece, ahead };
    match ask_gate(launching, now, request) {
        Verdict::Admitted { generation, tokens } => Asked::Goes(generation, tokens),
        Verdict::Wait(wait) => {
            let at_most = wait.at_most.clamp(SHORTEST, CLOSED_STEP);
            let (generation, cause) = (wait.generation, wait.cause);
            Asked::Waits(Held { generation, at_most, cause, neighbour: Some(better) })
        }
    }
}

#[cfg(test)]
mod tests;
