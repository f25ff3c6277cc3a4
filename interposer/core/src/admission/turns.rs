//! A launch and its turns: the tenant's among its neighbours, and the process's own among its siblings while they take any
//! ([`crate::solo`]).

use weir_protocol::pages::{Stand, Turn};
use weir_protocol::units::Nanos;

use super::{LOOK, Launching, SHORTEST, TURN_STEP};
use crate::progress::Left;
use crate::turn::{self, Answer, LEAD, Neighbour, Terms};

/// How long a launch waits before it asks again, and whose word ends that sooner.
type Waits<W> = (Nanos, Option<W>);

/// What a launch does by the answer that it was given.
enum Next<W> {
    Goes,
    Waits(Waits<W>),
    /// The turn is over and its work nearly done.
    PassesOn,
}

/// How long to wait for the tenant's turn, and then for the process's own in it, and for whom; `None`: it may go.
pub(super) fn ask_turns<L: Launching>(
    launching: &mut L,
    arrived: Nanos,
    now: Nanos,
) -> Option<Waits<L::Word>> {
    let waits = ask_turn(launching, arrived, now);
    if waits.is_some() {
        moves(launching);
        return waits;
    }
    ask_solo(launching, arrived, now)
}

/// The process waits for others than its siblings, and shows those that it has not stopped.
pub(super) fn moves(launching: &mut impl Launching) {
    launching.solo(|own, _| own.draw_again());
}

/// How long to wait for the turn, and for whom; `None`: it is the tenant's, or there are no turns.
fn ask_turn<L: Launching>(launching: &mut L, arrived: Nanos, now: Nanos) -> Option<Waits<L::Word>> {
    let held_before = holds(launching.turn());
    let used_up = launching.turn().left() <= 0;
    if launching.is_alone() {
        if !launching.is_busy() {
            launching.with_progress(|progress| progress.begin(now));
        }
        return None;
    }
    let (gate, pages) = (launching.gate(), launching.pages());
    let grant = pages.grant.read();
    let saved = gate.has_saved(pages, &grant, now);
    let length = grant.turn.max(Nanos(grant.resume_at.0.unsigned_abs()));
    let terms = Terms { length, saved, beyond: launching.room() };
    let asked = launching.queue(|own, neighbours| ask_in(own, neighbours, terms, (arrived, now), L::word))?;
    match next(launching, asked, now) {
        Next::Waits(waits) => Some(waits),
        Next::Goes if !held_before => {
            let sum = |_: &Turn, neighbours: &mut [L::Neighbour]| {
                turns(neighbours).map(|turn| turn.look().1).fold(0, u32::wrapping_add)
            };
            let (turns, switch) = (launching.queue(sum).unwrap_or_default(), launching.switch());
            launching.with_progress(|progress| progress.begin_turn(turns, switch, now));
            None
        }
        Next::Goes => {
            if used_up && launching.work().queued <= turn::patience(launching.turn()).0 {
                // Another one, as nobody waits. Who was given up once is not waited for until it moves; what takes longer than
                // anybody's patience does not.
                launching.turn().draw_again();
            }
            None
        }
        Next::PassesOn => {
            let kept = launching.queue(|own, neighbours| turn::keep(own, neighbours, terms.length));
            (kept != Some(true)).then(|| {
                requeue(launching);
                (SHORTEST, None)
            })
        }
    }
}

/// How long to wait for the process's own turn among its siblings; `None`: it may go, or they take none.
fn ask_solo<L: Launching>(launching: &mut L, arrived: Nanos, now: Nanos) -> Option<Waits<L::Word>> {
    let terms = Terms { length: launching.solo_turn(), saved: false, beyond: Nanos(0) };
    let asked =
        launching.solo(|own, siblings| ask_in(own, siblings, terms, (arrived, now), L::sibling_word))?;
    match next(launching, asked, now) {
        Next::Goes => None,
        Next::Waits(waits) => Some(waits),
        Next::PassesOn => {
            if launching.solo(|own, siblings| own.requeue(turns(siblings))) == Some(true) {
                launching.solo_passed();
            }
            Some((SHORTEST, None))
        }
    }
}

/// Asks in one of the two queues, and says on whose word to sleep.
fn ask_in<N: Neighbour, W>(
    own: &Turn,
    others: &mut [N],
    terms: Terms,
    (arrived, now): (Nanos, Nanos),
    word: impl FnOnce(&N, u32) -> W,
) -> (Answer, Option<W>) {
    let answer = turn::ask(own, others, terms, arrived, now);
    let word = match answer {
        // Who is about to queue up or to step up moves without waking anybody.
        Answer::Behind(at, shows) => {
            let settled = |other: &&N| !matches!(other.turn().look().0, Stand::Arrives | Stand::StepsUp);
            others.get(at).filter(settled).map(|other| word(other, shows))
        }
        _ => None,
    };
    (answer, word)
}

fn next<L: Launching>(
    launching: &mut L,
    (answer, word): (Answer, Option<L::Word>),
    now: Nanos,
) -> Next<L::Word> {
    match answer {
        Answer::Mine => Next::Goes,
        Answer::Over => match outlasts(launching, now) {
            Some(left) => Next::Waits((left.min(LOOK), None)),
            None => Next::PassesOn,
        },
        Answer::Queueing => Next::Waits((SHORTEST, None)),
        // Until the tenant's last work is done nobody measures anything.
        Answer::Behind(..) => {
            let soon = launching.is_busy() || word.is_none();
            Next::Waits((if soon { LOOK } else { TURN_STEP }, word))
        }
    }
}

/// Whether launches go without asking: no burst is put off, no better has work, and the tenant holds the turn, or has nobody
/// to take turns with.
pub fn has_turn<L: Launching>(launching: &L) -> bool {
    let own = launching.turn();
    launching.passes()
        || launching.pages().grant.read().hold == Nanos(0)
            && launching.gives_way_to().is_none()
            && ((holds(own) && own.left() > 0) || launching.is_alone())
            && !launching.is_solo()
}

/// The tenant has nothing to launch, or no tokens to launch it with: the turn is passed on when its work is done, in so
/// long.
pub(super) fn leave_turn(launching: &mut impl Launching, now: Nanos) -> Option<Nanos> {
    launching.turn().forfeit();
    pass_on(launching, now)
}

/// The tenant waits for no turn any more; one that it holds is passed on when its work is done.
pub(super) fn leave_queue(launching: &mut impl Launching, now: Nanos) {
    if holds(launching.turn()) {
        leave_turn(launching, now);
    } else if launching.turn().drain(|| false) {
        launching.turn_passed();
    }
}

/// Passes the turn on if the tenant holds it and its work is done, or nearly so; else says in how long that will be.
fn pass_on(launching: &mut impl Launching, now: Nanos) -> Option<Nanos> {
    let left = outlasts(launching, now);
    if left.is_none() {
        launching.end_turn();
    }
    left
}

/// In how long the next tenant is to be let in; `None`: at once.
fn outlasts(launching: &mut impl Launching, now: Nanos) -> Option<Nanos> {
    let left = left(launching, now).predicted;
    (left > LEAD).then(|| Nanos(left.0 - LEAD.0))
}

/// Passes the turn on to whoever waits, and waits behind him. Between an end and a new number he would find that nobody waits, and
/// launch for another turn.
fn requeue(launching: &mut impl Launching) {
    match launching.queue(|own, neighbours| own.requeue(turns(neighbours))) {
        Some(true) => launching.turn_passed(),
        Some(false) => {}
        None => launching.end_turn(), // the neighbours are not known
    }
}

/// The tenant has nothing on the GPU: its turn goes on, unless some is left and a launch waits to go in it, or enough is left and the
/// tenant is usually back at once. If a launch waits for the next one, that is in the queue by then.
pub fn drained(launching: &mut impl Launching, now: Nanos) {
    let own = launching.turn();
    let waits = launching.pages().waits();
    let is_over = own.is_over() && waits;
    let is_worth = holds(own) && own.left() >= Turn::worth(own.length());
    // Beside others who pass, work may seem done before the next piece was let go.
    let goes_on = holds(own) && own.left() > 0 && waits;
    let is_kept = goes_on || (is_worth && launching.keeps_turn() && launching.is_back_soon(now));
    if is_over {
        requeue(launching);
    } else if !is_kept && launching.turn().drain(|| launching.pages().waits()) {
        launching.turn_passed();
    }
}

/// The program waits for all its work, so nothing follows before that is done: the next tenant is let in a little earlier if one waits, and
/// the GPU does not idle while it is woken. In how long that is; `None`: it has been, or this is no turn that a drain would end.
pub fn about_to_drain(
    launching: &mut impl Launching,
    is_waited_for: impl FnOnce() -> bool,
    now: Nanos,
) -> Option<Nanos> {
    if !holds(launching.turn()) || launching.keeps_turn() || launching.pages().waits() {
        return None;
    }
    let left = outlasts(launching, now);
    if left.is_none() && is_waited_for() && launching.turn().drain(|| false) {
        launching.turn_passed();
    }
    left
}

/// In how long the tenant's work will be done.
pub fn left(launching: &mut impl Launching, now: Nanos) -> Left {
    let work = launching.work();
    launching.with_progress(|progress| progress.left(work, now))
}

pub(super) fn holds(turn: &Turn) -> bool {
    turn.look().0 == Stand::Holds
}

/// Tokens that may be drawn at once in what is left of the turns.
pub(super) fn turn_ceiling(launching: &mut impl Launching) -> i64 {
    let left = |own: &Turn| if holds(own) { own.left().max(1) } else { i64::MAX };
    let solo = launching.solo(|own, _| left(own)).unwrap_or(i64::MAX);
    left(launching.turn()).min(solo)
}

fn turns(others: &[impl Neighbour]) -> impl Iterator<Item = &Turn> {
    others.iter().map(Neighbour::turn)
}
