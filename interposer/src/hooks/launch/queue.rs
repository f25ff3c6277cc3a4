//! Launches that wait in their streams: the host goes on (`weir_core::piece`).

use weir_core::price::{Estimate, Hit};

use super::super::meter::Hands;
use crate::clock;
use crate::driver::Stream;
use crate::link::helper;
use crate::thread::{Current, Thread};
use crate::wait;

/// Whether a launch may wait in its stream. One of which little is known is measured by itself, one that exchanges data with others
/// goes with them, and nothing of ours comes between a pair.
pub fn may(current: &Current, estimate: &Estimate, paired: bool) -> bool {
    let (gpu, flight) = (current.gpu, &current.context.flight);
    let is_plain = estimate.is_learnt() && !estimate.wants_room() && !estimate.is_collective();
    gpu.queues() && flight.can_wait() && is_plain && !paired
}

/// Puts a launch at this price into a piece: behind a wait in its stream, if there is none yet.
pub fn put(
    thread: &Thread,
    current: &Current,
    stream: Stream,
    counted: usize,
    (known, price): (&Hit<'_>, u64),
) {
    let (gpu, flight, key) = (current.gpu, &current.context.flight, stream.key());
    thread.book_run();
    flight.opens(key, stream.place(), thread.address());
    let joined = gpu.pieces.join(flight.behind(key), price, gpu.piece_size(), clock::now());
    if joined.is_first {
        helper::call(); // at once: whatever becomes of this call, somebody asks for the piece
    }
    if joined.waits {
        let mut hands = Hands::new(thread, current, stream);
        if !flight.wait_for_piece(key, joined.number, &mut hands) {
            wait::for_piece(thread, current, stream, joined.number);
        }
        hands.look();
    }
    thread.add_behind(current, stream, price);
    current.counters.launched(counted, price);
    known.count();
}

/// Whether the stream waits for a piece that has not been let go: what comes there now runs behind that.
pub fn is_behind(current: &Current, stream: Stream) -> bool {
    let gpu = current.gpu;
    gpu.pieces.any_wait() && current.context.flight.behind(stream.key()) > gpu.pieces.last_gone()
}
