//! Who waits for nothing: a launch or a copy that goes at once where a wait could stop what it waits for (gpu-truths, rule 8).
//!
//! * On a thread of the driver's, in a host function: all other host functions, and the streams behind them, wait too.
//! * While the thread captures: others may be kept from their work by the capture.
//! * Within a sequence of memory operations: a stream waits for a word that this very launch may be the one to set.
//!
//! What it lacks is a debt, which the next launch that has no excuse pays by waiting. The first two last as long as a call of the
//! program's does. A stream may wait for a word for ever, so there the debt has an end: see [`MOST_OWED`].

use weir_core::gate::Gate;
use weir_protocol::pages::Accrual;
use weir_protocol::units::Nanos;

use super::capture;
use crate::clock;
use crate::link::{Client, Gpu};
use crate::thread::{Current, Thread};

/// While a stream waits for a word a tenant goes into debt by so much of the GPU's time, or of what it may copy in it, and no
/// deeper: as long as a standstill is waited for (`weir_core::gate`), which holds from then on.
const MOST_OWED: Nanos = Nanos::from_millis(5);

/// Whether a launch on this GPU goes at once.
pub fn of_launch(client: &Client, thread: &Thread, gpu: &Gpu) -> bool {
    may_not_wait(thread) || (client.stream_waits.any_under_way() && owes_little_time(gpu))
}

/// Whether a copy does.
pub fn of_copy(client: &Client, thread: &Thread, gpu: &Gpu) -> bool {
    may_not_wait(thread) || (client.stream_waits.any_under_way() && owes_few_bytes(gpu))
}

/// Counts one.
pub fn count(current: &Current) {
    current.counters.add(&current.counters.lane().excused, 1);
}

fn may_not_wait(thread: &Thread) -> bool {
    thread.is_called_back() || capture::by_this_thread()
}

fn owes_little_time(gpu: &Gpu) -> bool {
    let in_debt = gpu.gate.debt(gpu.pages(), clock::now()).is_some();
    !in_debt || gpu.bucket.balance().0.saturating_neg() < MOST_OWED.0.cast_signed()
}

fn owes_few_bytes(gpu: &Gpu) -> bool {
    let in_debt = Gate::copy_wait(gpu.pages(), clock::now()).is_some();
    let most = Accrual::over(gpu.grant.read().copy_limit, MOST_OWED);
    !in_debt || gpu.bucket.copies().unsigned_abs() < most
}
