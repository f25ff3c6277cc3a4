//! The pieces of this process on a GPU: the helper lets each go when a launch on the host might go (`weir_core::piece`).

use std::sync::atomic::{AtomicU64, Ordering};

use weir_core::admission::{self, Asked, Wanted};
use weir_core::gate::{Cause, Patience, capped, in_flight};
use weir_core::piece::{self, Piece};
use weir_core::turn::LEAD;
use weir_protocol::message::Class;
use weir_protocol::pages::{Lane, Rate};
use weir_protocol::units::{Nanos, Tokens};

use super::{Client, Gpu, SHARED_LANE, helper};
use crate::{clock, stall, wait};
use wait::Holdup;

/// Work that was let go and is not seen to move may wait for the next piece. Beyond its predicted end it is taken as done, and
/// that piece goes all the same after so long.
const AT_LATEST: Nanos = Nanos::from_millis(250);

/// So many turns the driver's slices may be the neighbours' while nothing of ours moves: a turn is longer than a slice, and three
/// neighbours may pass at once. For half of it pieces go out of turn beside three who pass; for twice of it a kernel that spins for a
/// launch does so for twice as long.
const ROUND: u64 = 2;

/// Who asks for the piece that goes next.
#[derive(Default)]
pub(super) struct Asker {
    held: Option<HeldUp>,
    waits: bool,       // some piece does
    busy_until: Nanos, // the process's own work ran until then
}

/// The answer that the next piece was given last.
struct HeldUp {
    number: u64,
    patience: Patience,
    holdup: Holdup,
}

impl Gpu {
    /// Whether launches wait in their streams, and not on the host.
    pub fn queues(&self) -> bool {
        let is_single = || Client::get().is_some_and(|client| client.gpus.len() == 1);
        self.in_stream && helper::runs() && !self.overlaps() && is_single()
    }

    /// How much work forms a piece.
    pub fn piece_size(&self) -> Nanos {
        let is_filler = Client::get().is_none_or(|client| client.class == Class::Filler);
        let cap = self.grant.read().in_flight_cap;
        piece::size(self.turn_length(), is_filler || self.piece() > Nanos(0), cap)
    }

    /// How long the tenant's turns are.
    pub fn turn_length(&self) -> Nanos {
        let grant = self.grant.read();
        grant.turn.max(Nanos(grant.resume_at.0.unsigned_abs()))
    }

    /// Lets go what may, and says what holds the next piece up.
    pub(super) fn let_pieces_go(&self, asker: &mut Asker, now: Nanos) -> Option<Holdup> {
        while let Some(piece) = self.pieces.next() {
            if self.is_busy() {
                asker.busy_until = now;
            }
            if !asker.waits {
                stall::wait(self, piece.since);
                asker.waits = true;
            }
            if let Some(holdup) = self.ask_for(asker, &piece, now) {
                return Some(holdup);
            }
            let waited = now.since(piece.since.max(asker.busy_until));
            self.count(|lane| &lane.throttled, 1);
            self.count(|lane| &lane.waited_ns, waited.0);
            asker.busy_until = now;
        }
        if std::mem::take(&mut asker.waits) {
            stall::waited(self, now);
            self.pages().let_in();
            self.note_wait_over(now);
        }
        None
    }

    /// Asks the gate for one piece, and lets it go if it may; else says what holds it up.
    fn ask_for(&self, asker: &mut Asker, piece: &Piece, now: Nanos) -> Option<Holdup> {
        let known = self.grant.generation();
        let patience = match asker.held.take().filter(|held| held.number == piece.number) {
            Some(HeldUp { patience, holdup, .. }) => holdup.patience_then(patience, known),
            None => Patience::under(self.launched_under(), known),
        };
        if let Some(at_most) = self.is_full_for(piece, now) {
            return Some(Holdup { generation: known, at_most, cause: Cause::InFlight, neighbour: None });
        }
        let price = Tokens(piece.work.cast_signed());
        let wanted = Some(Wanted { price, tokens: price });
        match admission::ask(&mut &*self, wanted, patience, (piece.since, now)) {
            Asked::Goes(generation, paid) => {
                self.let_go(piece.number, paid);
                self.acknowledge(generation);
                None
            }
            Asked::Waits(_) if self.stands_still(piece, now) => {
                self.count(|lane| &lane.forced, 1);
                self.let_go(piece.number, Tokens(0));
                None
            }
            Asked::Waits(held) => {
                let holdup = Holdup { generation: known, ..held };
                asker.held = Some(HeldUp { number: piece.number, patience, holdup: holdup.clone() });
                Some(holdup)
            }
        }
    }

    /// In how long there is room for a piece beside what is in flight; `None`: there is. The last of that is about to end, then.
    fn is_full_for(&self, piece: &Piece, now: Nanos) -> Option<Nanos> {
        let cap = capped(self.grant.read(), self.piece()).in_flight_cap;
        let queued = in_flight(self.slot()).0;
        if cap == Nanos(0) || queued == 0 || !self.is_busy() || queued.saturating_add(piece.work) <= cap.0 {
            return None;
        }
        if self.runs_ahead() {
            return None;
        }
        let left = admission::left(&mut &*self, now).at_most;
        (left > LEAD).then(|| Nanos(left.0 - LEAD.0))
    }

    fn stands_still(&self, piece: &Piece, now: Nanos) -> bool {
        let is_awaited = self.is_busy() || now.since(piece.since) > AT_LATEST;
        let neighbours = self.working_neighbours();
        let least = if neighbours > 0 { Nanos(ROUND * self.turn_length().0) } else { Nanos(0) };
        is_awaited && wait::stands_still(self, least, piece.since, now)
    }

    /// Lets a piece go for which `paid` was drawn, if it is the next one still.
    fn let_go(&self, number: u64, paid: Tokens) {
        let Some(piece) = self.pieces.take(number) else {
            self.take_back(paid.0);
            return;
        };
        self.take_back(paid.0 - piece.work.cast_signed()); // it may have grown, or goes as debt
        let now = clock::now();
        self.begin(); // before the GPU can
        self.slot().submitted_ns.fetch_add(piece.work, Ordering::Relaxed);
        self.for_each_context(|context| context.flight.let_go(piece.number, now));
        self.has_begun();
    }

    /// Tokens that were drawn are not used: they go back to the bucket and the turn. Negative: what lacks is owed to both.
    pub fn take_back(&self, tokens: i64) {
        if tokens == 0 {
            return;
        }
        if self.grant.read().rate != Rate::FULL {
            self.bucket.charge(Tokens(-tokens));
        }
        self.activity.turn.spend(-tokens);
        self.slot().turn.spend(-tokens);
    }

    /// Nothing may be left behind a wait: what is there goes as debt.
    pub fn let_all_go(&self) {
        self.let_go_up_to(u64::MAX);
    }

    /// The same of the pieces up to this number.
    pub fn let_go_up_to(&self, number: u64) {
        while let Some(piece) = self.pieces.next().filter(|piece| piece.number <= number) {
            self.let_go(piece.number, Tokens(0));
        }
    }

    /// Counts on the lane that threads share.
    fn count(&self, counter: impl FnOnce(&Lane) -> &AtomicU64, amount: u64) {
        counter(&self.slot().lanes[SHARED_LANE]).fetch_add(amount, Ordering::Relaxed);
    }
}
