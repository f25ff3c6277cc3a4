//! The long way of a launch: everything that it can need besides tokens in the purse.

use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::CUDA_SUCCESS;
use weir_core::admission::{Launching, Wanted};
use weir_core::flight::Due;
use weir_core::gate::{Gate, capped};
use weir_core::price::{Estimate, Hit, Signature};
use weir_core::purse::Purse;
use weir_core::turn::MEASURING;
use weir_protocol::pages::{Grant, Rate};
use weir_protocol::units::{Nanos, Tokens};

use super::super::excuse;
use super::super::meter::{BRACKET, Hands, STRETCH, unseen, wants_bracket, wants_first_apart};
use super::{UNCOUNTED, Work, queue, take_back};
use crate::driver::Stream;
use crate::guard::{caught, refused};
use crate::link::{CAPTURES, Client};
use crate::thread::{self, Current, Inside, Pair, Thread};
use crate::{clock, gang, joins, wait};

/// A launch on its long way.
pub(super) struct Entered {
    _inside: Inside,
    client: &'static Client,
    admission: Option<Admission>,
}

impl Entered {
    /// Before the driver is called; `None`: the launch is none of ours.
    #[cold]
    #[inline(never)]
    pub(super) fn admit(counted: usize, stream: Stream, work: Work, pair: Pair) -> Option<Self> {
        let inside = Inside::enter()?;
        let client = Client::get()?;
        client.knock();
        let admit = || thread::with(|thread| admit(client, thread, counted, stream, (&work, pair)));
        Some(Self { _inside: inside, client, admission: caught(client, admit).flatten() })
    }

    /// The driver has answered.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(self, stream: Stream, result: CUresult) {
        if let Some(admission) = self.admission {
            caught(self.client, || thread::with(|thread| admission.settle(thread, stream, result)));
        }
        if result != CUDA_SUCCESS {
            refused(self.client, result);
        }
    }
}

/// A launch that may go.
pub struct Admission {
    current: Current,
    price: i64,
    bracketed: bool, // a mark stands before it, one shall stand behind it
    is_new: bool,    // nothing like it was ever launched
    paired: bool,    // another launch may overlap it, if nothing stands between them
    collective: bool,
    queued: bool, // it waits for a piece
}

/// The stream's GPU, the capture rules, the price, the gate. `None`: the launch passes without charge (no granted GPU; or
/// captured, and paid by the graph's launch).
fn admit(
    client: &'static Client,
    thread: &Thread,
    counted: usize,
    stream: Stream,
    (work, pair): (&Work, Pair),
) -> Option<Admission> {
    let current = thread.find_for(client, stream)?;
    if CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing() {
        current.counters.launched(counted, 0);
        current.counters.add(&current.counters.lane().captured, 1);
        return None;
    }
    let signature = work.signature();
    if thread.cache.get(signature).is_none() {
        thread.keep(signature, work.look_up(client));
    }
    let known = thread.cache.get(signature)?;
    let excused = excuse::of_launch(client, thread, current.gpu);
    if known.estimate.runs_ahead() && !excused && !known.estimate.is_collective() {
        wait::for_news(thread, &current, stream, known.estimate);
    }
    let price = known.estimate.price(); // of which there may be news
    let (is_new, paired) = (known.estimate.is_new(), thread.pairs.meets(stream.key(), pair));
    let may_queue = queue::may(&current, known.estimate, paired);
    let drawn = draw(client, thread, &current, stream, (known.estimate, price), (excused, may_queue));
    if drawn == Drawn::Nothing {
        queue::put(thread, &current, stream, counted, (&known, price.unsigned_abs()));
        return Some(Admission { price, queued: true, ..Admission::of_nothing(&current) });
    }
    let bracketed = begin(thread, &current, stream, &known, (paired, pair));
    if let Drawn::AtGate(generation) = drawn {
        current.gpu.acknowledge(generation); // behind the board: whoever gives way has waited for nothing of ours
    }
    thread.add_wherever(&current, stream, price.unsigned_abs());
    current.counters.launched(counted, price.unsigned_abs());
    current.gpu.has_begun();
    let collective = known.estimate.is_collective();
    if collective {
        current.context.flight.communicates(stream.key(), price.unsigned_abs());
    }
    Some(Admission { current, price, bracketed, is_new, paired, collective, queued: false })
}

/// A paid launch is about to go out: counts it for the meter, puts a mark before it where one is due.
fn begin(
    thread: &Thread,
    current: &Current,
    stream: Stream,
    known: &Hit<'_>,
    (paired, pair): (bool, Pair),
) -> bool {
    current.gpu.begin();
    if !known.estimate.is_learnt() {
        thread.note_guess();
    }
    known.estimate.waits_for_bounds();
    if !known.estimate.is_learnt() || known.estimate.wants_room() {
        current.gpu.activity.turn.ask_for(MEASURING);
        current.gpu.slot().turn.ask_for(MEASURING);
    }
    // Of what is new a few are measured by themselves all the same: what is not known goes the long way each time.
    let spared = paired && known.estimate.spares();
    let bracketed = match spared && current.context.flight.is_busy(stream.key()) {
        true => before_pair(thread, current, stream, pair),
        false => start_stretch(thread, current, stream, known.estimate, spared),
    };
    known.count();
    bracketed || !(paired || joins::is_apart(stream))
}

/// Work on the SMs that may not wait: the driver's own (a memset, a copy within the device), or a part of what runs on several
/// GPUs. It is charged as a launch is: what the purse lacks is a debt that the next launch pays.
pub fn owe(
    thread: &Thread,
    current: &Current,
    stream: Stream,
    signature: Signature,
    look_up: impl FnOnce() -> &'static Estimate,
) -> Admission {
    if thread.cache.get(&signature).is_none() {
        thread.keep(&signature, look_up());
    }
    let Some(known) = thread.cache.get(&signature) else {
        // Cannot be: it was just put there.
        return Admission::of_nothing(current);
    };
    let price = known.estimate.price();
    current.gpu.note_rest_over(clock::now());
    if queue::is_behind(current, stream) {
        queue::put(thread, current, stream, UNCOUNTED, (&known, price.unsigned_abs()));
        return Admission { price, queued: true, ..Admission::of_nothing(current) };
    }
    if let Some(purse) = thread.purse(current.gpu) {
        let grant = current.gpu.grant.read();
        if !purse.pay(price, grant.generation) {
            go_into_debt(current, purse, price, &grant);
        }
    }
    let bracketed = begin(thread, current, stream, &known, (false, Pair::default()));
    thread.add_wherever(current, stream, price.unsigned_abs());
    current.counters.add(&current.counters.lane().charged_ns, price.unsigned_abs());
    current.gpu.has_begun();
    Admission { price, bracketed, ..Admission::of_nothing(current) }
}

/// Pays for what may not wait.
fn go_into_debt(current: &Current, purse: &Purse, price: i64, grant: &Grant) {
    if purse.generation() != grant.generation {
        current.gpu.bucket.charge(Tokens(-purse.empty()));
    }
    let lacks = purse.lacks(price);
    if grant.rate != Rate::FULL {
        current.gpu.bucket.charge(Tokens(lacks));
    }
    purse.fill(lacks, price, grant.generation);
}

/// Puts the mark that is due before a launch in whose stream launches overlap, unless it is itself to overlap the one before it.
/// None belongs behind it.
fn before_pair(thread: &Thread, current: &Current, stream: Stream, pair: Pair) -> bool {
    thread.book_run();
    let mut hands = Hands::new(thread, current, stream);
    if !pair.follows && hands.keep_up(current.gpu.grant.read().in_flight_cap) {
        hands.look();
    }
    false
}

/// Puts a mark before a launch of which nothing is known, or before the first one on an idle stream if a stretch is due.
/// Says whether one belongs behind it, too: if nothing is known, or if no later call may put it, or if the launch may wait for the
/// end of somebody else's time slice: what follows it is then measured without that, now and then.
fn start_stretch(
    thread: &Thread,
    current: &Current,
    stream: Stream,
    estimate: &Estimate,
    paired: bool,
) -> bool {
    let flight = &current.context.flight;
    thread.book_run();
    let idle = !flight.is_busy(stream.key());
    let bracketed = !paired && wants_bracket(current, estimate, idle);
    let due = if bracketed { BRACKET } else { Due { work: Nanos(0), ..STRETCH } };
    if !(bracketed || idle) || !Hands::new(thread, current, stream).put(due) {
        return false;
    }
    current.counters.add(&current.counters.lane().bracketed, u64::from(bracketed));
    if !idle {
        return bracketed;
    }
    flight.launches(stream.key(), clock::now());
    if current.gpu.overlaps() {
        current.gpu.look_around();
        return bracketed;
    }
    bracketed || (!paired && wants_first_apart(current))
}

/// How a launch is paid for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drawn {
    /// From the purse, or as a debt.
    AtHand,
    /// At the gate, under the grant of this generation.
    AtGate(u32),
    /// Not yet: it is to wait in its stream.
    Nothing,
}

/// Pays for one launch, from the purse if it suffices, else at the gate.
fn draw(
    client: &Client,
    thread: &Thread,
    current: &Current,
    stream: Stream,
    (estimate, price): (&Estimate, i64),
    (excused, may_queue): (bool, bool),
) -> Drawn {
    let Some(purse) = thread.purse(current.gpu) else { return Drawn::AtHand };
    let gpu = current.gpu;
    gpu.note_launch(clock::now());
    if !excused && thread.take_debt() {
        wait::for_copies(thread, current, stream); // of a call that could not
    }
    if !gpu.betters.are_calm() && gpu.gives_way_to().is_some() {
        gpu.bucket.charge(Tokens(-purse.empty())); // drawn in better times; behind a closed gate nobody draws ahead
    }
    if gpu.pieces.any_wait() && follows_pieces(thread, current, stream, purse, (excused, may_queue)) {
        return Drawn::Nothing;
    }
    if purse.pay(price, gpu.grant.generation()) {
        if gpu.has_turn() {
            return Drawn::AtHand;
        }
        if excused {
            excuse::count(current);
            return Drawn::AtHand;
        }
        if wait::at_gate(client, thread, current, stream, (None, may_queue)).is_none() {
            purse.refund(price); // its piece pays
            return Drawn::Nothing;
        }
        return Drawn::AtHand;
    }
    let grant = capped(gpu.grant.read(), gpu.piece());
    if purse.generation() != grant.generation {
        gpu.bucket.charge(Tokens(-purse.empty())); // drawn under another grant: too much, perhaps
    }
    if excused {
        go_into_debt(current, purse, price, &grant);
        excuse::count(current);
        return Drawn::AtHand;
    }
    if Gate::is_full(gpu.pages(), &grant) {
        Hands::new(thread, current, stream).look(); // it may be done by now, and then nobody needs to sleep
    }
    // A price that is still a guess buys one launch at a time.
    let ceiling = if estimate.is_learnt() { slice(thread, current, stream, &grant, estimate) } else { price };
    gpu.room_for(estimate);
    let wanted = Wanted { price: Tokens(purse.lacks(price)), tokens: Tokens(purse.ask(price, ceiling)) };
    let Some((generation, drawn)) = wait::at_gate(client, thread, current, stream, (Some(wanted), may_queue))
    else {
        return Drawn::Nothing;
    };
    purse.fill(drawn.0, price, generation);
    current.counters.add(&current.counters.lane().slices, 1);
    Drawn::AtGate(generation)
}

/// Whether the launch waits in its stream, where others do: one with an excuse only if they stand before it there.
fn follows_pieces(
    thread: &Thread,
    current: &Current,
    stream: Stream,
    purse: &Purse,
    (excused, may_queue): (bool, bool),
) -> bool {
    current.gpu.take_back(purse.empty()); // pieces draw for themselves
    if excused {
        return queue::is_behind(current, stream);
    }
    if may_queue {
        wait::for_room(thread, current, stream);
    }
    may_queue
}

/// Most tokens that the thread may draw at once for launches like this one. Programs change graphs, so of those the mean may not say what
/// a few took: where nobody waits for the end of a slice, marks do.
fn slice(thread: &Thread, current: &Current, stream: Stream, grant: &Grant, estimate: &Estimate) -> i64 {
    let alone = !Launching::has_neighbours(&current.gpu);
    let ceiling = Gate::slice_ceiling(grant, current.gpu.threads(), estimate.price(), alone);
    let piece = || Hands::new(thread, current, stream).piece().0.try_into().unwrap_or(i64::MAX);
    if alone && estimate.made_of().is_some() { ceiling.min(piece()) } else { ceiling }
}

impl Admission {
    /// Without a price, or anything that follows from it.
    fn of_nothing(current: &Current) -> Self {
        let (current, price) = (*current, 0);
        Self {
            current,
            price,
            bracketed: false,
            is_new: false,
            paired: false,
            collective: false,
            queued: false,
        }
    }

    /// What it was charged.
    pub fn price(&self) -> i64 {
        self.price
    }

    /// Puts a mark behind the launch if one is due; takes everything back if the driver refused.
    pub fn settle(&self, thread: &Thread, stream: Stream, result: CUresult) {
        if self.queued {
            if result != CUDA_SUCCESS {
                self.current.counters.uncharge(self.price.unsigned_abs()); // its piece pays for it all the same
            }
            return;
        }
        if result != CUDA_SUCCESS {
            return take_back(thread, &self.current, self.price);
        }
        if self.collective {
            gang::launched(self.current.gpu);
        }
        if self.bracketed && self.is_new {
            self.current.context.flight.launched(stream.key(), clock::now());
        }
        let mut hands = Hands::new(thread, &self.current, stream);
        let gpu = self.current.gpu;
        let cap = capped(gpu.grant.read(), gpu.piece()).in_flight_cap;
        let marked = match () {
            () if self.bracketed => {
                let marked = hands.put(Due { spare: 0, ..BRACKET });
                marked | (!self.paired && hands.tell())
            }
            () if self.paired => hands.put(unseen(cap)),
            () => hands.keep_up(cap),
        };
        if marked {
            hands.look();
        }
    }
}
