//! Copies and memsets: counted by the way they go, taken out of what launches are charged, and held to the budget of
//! bandwidth.
//!
//! What runs on a copy engine costs no SM time: its stream's book knows of it, so that the meter does not take it for
//! launches (`weir_core::flight`). What runs on SMs (memsets, copies within the device) is charged as a launch is, but as
//! debt: nothing waits for tokens here.
//!
//! The budget of bandwidth binds where a launch could be held too: an asynchronous copy is a submission like a launch, so it
//! waits until the tenant's earlier copies are paid for, under the same rule of liveness. A call that returns when its copy
//! is done is a wait of the program's own, behind which others may wait: it passes and leaves its debt to the next launch
//! or asynchronous copy of its thread (gpu-truths, rule 8). A program that does nothing but such calls is not slowed.

use std::sync::atomic::Ordering;

use weir_abi::CUresult;
use weir_abi::types::CUDA_SUCCESS;
use weir_core::flight::{Due, Snapshot};
use weir_core::gate::in_flight;
use weir_core::price::Signature;
use weir_core::stall::Span;
use weir_protocol::pages::{CopyWay, Stall};
use weir_protocol::units::{Bytes, Nanos, Tokens};

use super::copy_pieces::{Amounts, What};
use super::launch::{Admission, owe};
use super::meter::{BRACKET, Hands, STRETCH};
use super::{excuse, sync};
use crate::driver::Stream;
use crate::guard::guard;
use crate::link::{CAPTURES, Client, Gpu};
use crate::thread::{self, Current, Thread};
use crate::{clock, joins, stall, wait};

/// A copy of so much predicted time gets marks of its own, before it and behind it, if what lies before each mark is worth
/// one: apart from launches both are measured best. At most one mark in 200 us, half a percent of the time.
const EDGE: Due = Due { time: Nanos(0), ..STRETCH };

/// A copy that is given to a stream.
pub fn later(stream: Stream, what: What, call: impl FnOnce() -> CUresult) -> CUresult {
    guard(
        |client| Ok(thread::with(|thread| Submission::admit(client, thread, stream, what))),
        call,
        |_, submission, result| {
            if let Some(submission) = submission {
                thread::with(|thread| submission.settle(thread, stream, result));
            }
        },
    )
}

/// A call without a stream: it returns when its copy is done, if one side of it is the host's memory.
pub fn now(stream: Stream, what: What, call: impl FnOnce() -> CUresult) -> CUresult {
    joins::used(stream);
    guard(
        |client| Ok(thread::with(|thread| admit_now(client, thread, stream, what))),
        call,
        |_, admitted, result| {
            thread::with(|thread| match admitted {
                Some(Now::Waits(waited)) => waited.settle(thread, stream, result),
                Some(Now::Returns(submission)) => submission.settle(thread, stream, result),
                None => {}
            });
        },
    )
}

/// What such a call is.
#[allow(clippy::large_enum_variant, reason = "lives on the stack for one call")]
enum Now {
    Waits(Waited),
    Returns(Submission),
}

/// A copy on its way into a stream.
struct Submission {
    current: Current,
    amounts: Amounts,
    on_sms: Option<(Admission, CopyWay)>,
    bracketed: bool,
    expected_ns: u64, // of the engines
}

/// The stream's GPU, and what is copied; `None` where nothing is to be counted: no granted GPU, or a capture, whose graph's
/// launch counts and pays.
fn admitted(
    client: &'static Client,
    thread: &Thread,
    stream: Stream,
    what: What,
) -> Option<(Current, Amounts)> {
    let current = thread.find_for(client, stream)?;
    if CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing() {
        return None;
    }
    Some((current, what.amounts(client.gpus.len() > 1)))
}

fn admit_now(client: &'static Client, thread: &Thread, stream: Stream, what: What) -> Option<Now> {
    let (current, amounts) = admitted(client, thread, stream, what)?;
    if amounts.budgeted() > 0 {
        return Some(Now::Waits(Waited::admit(thread, current, stream, amounts)));
    }
    Some(Now::Returns(Submission::begin(client, thread, (current, amounts), stream)))
}

impl Submission {
    fn admit(client: &'static Client, thread: &Thread, stream: Stream, what: What) -> Option<Self> {
        let (current, amounts) = admitted(client, thread, stream, what)?;
        if amounts.budgeted() > 0 {
            if current.gpu.grant.read().copy_limit.is_limited() {
                if excuse::of_copy(client, thread, current.gpu) {
                    excuse::count(&current);
                } else {
                    wait::for_copies(thread, &current, stream);
                }
                current.gpu.bucket.charge_copy(Bytes(amounts.budgeted()));
            }
            current.gpu.acknowledge(current.gpu.grant.generation());
        }
        Some(Self::begin(client, thread, (current, amounts), stream))
    }

    /// Charges what runs on SMs; puts a mark before the copy where one is due.
    fn begin(
        client: &Client,
        thread: &Thread,
        (current, amounts): (Current, Amounts),
        stream: Stream,
    ) -> Self {
        let on_sms = amounts
            .on_sms()
            .map(|(way, bytes)| (class(way, bytes), way))
            .map(|(class, way)| (owe(thread, &current, stream, class, || client.book.fill(&class)), way));
        let flight = &current.context.flight;
        let (key, prices) = (stream.key(), flight.copy_prices());
        let engines = || amounts.on_engines();
        let expected_ns = engines().map(|(way, calls, bytes)| prices.predict(way, calls, bytes)).sum();
        let bracketed = engines().any(|(way, _, bytes)| prices.wants_bracket(way, bytes));
        if engines().next().is_some() {
            thread.book_run();
            flight.opens(key, stream.place(), thread.address());
            let idle = !flight.is_busy(key);
            let due = match () {
                () if bracketed => BRACKET,
                () if idle => Due { work: Nanos(0), ..STRETCH },
                () => EDGE,
            };
            let worth = bracketed || idle || expected_ns >= EDGE.work.0;
            if worth && Hands::new(thread, &current, stream).put(due) && idle {
                flight.launches(key, clock::now());
            }
        }
        Self { current, amounts, on_sms, bracketed, expected_ns }
    }

    fn settle(self, thread: &Thread, stream: Stream, result: CUresult) {
        let (gpu, copies) = (self.current.gpu, &self.current.gpu.slot().copies);
        if let Some((admission, way)) = &self.on_sms {
            admission.settle(thread, stream, result);
            let price = if result == CUDA_SUCCESS { admission.price() } else { 0 };
            copies.of(*way).add_time(price);
        }
        if result != CUDA_SUCCESS {
            return gpu.bucket.refund_copy(Bytes(limited(&self.current, &self.amounts)));
        }
        self.amounts.each().for_each(|(way, calls, bytes)| copies.of(way).add(calls, bytes));
        let flight = &self.current.context.flight;
        for (way, calls, bytes) in self.amounts.on_engines() {
            copies.of(way).add_time(flight.copied(stream.key(), way, calls, bytes).cast_signed());
        }
        if self.expected_ns > 0 {
            let mut hands = Hands::new(thread, &self.current, stream);
            let due = match () {
                () if self.bracketed => Due { spare: 0, ..BRACKET },
                () if self.expected_ns >= EDGE.work.0 => EDGE,
                () => STRETCH,
            };
            if hands.put(due) {
                hands.look();
            }
        }
    }
}

/// Something was copied that could not wait: if the budget of bandwidth lacks it, the thread's next launch goes the long
/// way, and waits there.
pub(super) fn leave_debt(thread: &Thread, gpu: &Gpu) {
    if gpu.owes_copies()
        && let Some(purse) = thread.purse(gpu)
    {
        thread.note_debt();
        gpu.bucket.charge(Tokens(-purse.empty()));
    }
}

/// What the budget was charged.
fn limited(current: &Current, amounts: &Amounts) -> u64 {
    if current.gpu.grant.read().copy_limit.is_limited() { amounts.budgeted() } else { 0 }
}

/// What tells memsets and copies within the device of different cost apart: the kind, and the size to a power of two. They
/// are measured as launches are, and many sizes must not become many prices of which each has to be learnt.
fn class(way: CopyWay, bytes: u64) -> Signature {
    // No function has such a handle: it would be an address in the first page.
    Signature { handle: 1 + way as u64, blocks: bytes.next_power_of_two(), threads: 0, shared_bytes: 0 }
}

/// A copy that the program waits for.
struct Waited {
    current: Current,
    amounts: Amounts,
    before: Snapshot,
    alone: bool, // nothing of this process was in flight: all of the wait is the copy's
    began: Nanos,
}

impl Waited {
    fn admit(thread: &Thread, current: Current, stream: Stream, amounts: Amounts) -> Self {
        sync::end_stretch(thread, &current, Some(stream), sync::How::Waits);
        current.gpu.book_runs();
        let flight = &current.context.flight;
        let before = flight.snapshot(Some(stream.key()));
        let alone = in_flight(current.gpu.slot()) == Nanos(0) && !flight.is_any_busy();
        if current.gpu.grant.read().copy_limit.is_limited() {
            current.gpu.bucket.charge_copy(Bytes(amounts.budgeted()));
        }
        Self { current, amounts, before, alone, began: clock::now() }
    }

    /// The call has waited for the stream as a synchronize call does: its earlier work is done.
    fn settle(self, thread: &Thread, stream: Stream, result: CUresult) {
        let gpu = self.current.gpu;
        if result != CUDA_SUCCESS {
            return gpu.bucket.refund_copy(Bytes(limited(&self.current, &self.amounts)));
        }
        let ended = clock::now();
        Hands::new(thread, &self.current, stream).look(); // may say what copies take
        let took = self.count(ended);
        let flight = &self.current.context.flight;
        flight.drained(&self.before, gpu.slot(), ended);
        gpu.end_if_idle();
        let (from, to) = (ended.0.saturating_sub(took) as f64, ended.0 as f64);
        gpu.stalls.lock().add(Span { stall: Stall::Copies, from, to });
        stall::settle(&mut Hands::new(thread, &self.current, stream));
        leave_debt(thread, gpu);
    }

    /// Counts the copies; returns how long they took, in nanoseconds: all of the wait, if there was nothing else to wait
    /// for, else no more than such copies have taken before.
    fn count(&self, ended: Nanos) -> u64 {
        let wall = ended.since(self.began).0;
        let prices = self.current.context.flight.copy_prices();
        let mut all = 0;
        for (way, calls, bytes) in self.amounts.each() {
            let took = if self.alone { wall } else { wall.min(prices.predict_waited(way, bytes)) };
            if self.alone {
                prices.waited(way, bytes, wall);
            }
            let copied = self.current.gpu.slot().copies.of(way);
            copied.add(calls, bytes);
            copied.add_time(took.cast_signed());
            all += took;
        }
        all.min(wall)
    }
}
