//! What graphs copy: counted at each launch of an executable graph, by its copy and memset nodes as they are then.
//!
//! The launch path finds the sums without a lock: in lists that only grow, of entries that are used again. Graphs that
//! copy nothing pay one load. The time of what runs on SMs is in the graph's own price; that of the copy engines is what
//! such copies take outside of graphs, and is not known before. Against the budget of bandwidth a graph counts as a call
//! that cannot wait: it leaves its debt to the thread's next launch, and to everybody's next asynchronous copy.

use std::array;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use weir_abi::types::*;
use weir_protocol::pages::CopyWay;
use weir_protocol::units::Bytes;

use super::super::copy::leave_debt;
use super::super::copy_pieces::Amounts;
use crate::driver::Stream;
use crate::guard::caught;
use crate::link::{CAPTURES, Client};
use crate::thread::{self, Inside, Thread};

/// Lists of [`Sums`]: a program has hundreds of graphs at the most, of which few are in the same one.
const LISTS: usize = 64;

const WAYS: usize = CopyWay::ALL.len();

/// What one launch of an executable graph copies. Never freed, and used again for another graph.
struct Sums {
    exec: AtomicU64, // 0: nobody's
    calls: [AtomicU64; WAYS],
    bytes: [AtomicU64; WAYS],
    next: *const Sums,
}

static HEADS: [AtomicPtr<Sums>; LISTS] = [const { AtomicPtr::new(ptr::null_mut()) }; LISTS];

fn head(exec: u64) -> Option<&'static AtomicPtr<Sums>> {
    HEADS.get((exec.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize)
}

/// The entry of an executable graph, or one that is nobody's (`exec` 0 in the list of `of`).
fn find(of: u64, exec: u64) -> Option<&'static Sums> {
    // Acquire: the entry was written before it was put there.
    let mut at: *const Sums = head(of)?.load(Ordering::Acquire);
    loop {
        // SAFETY: null, or an entry that is never freed.
        let sums = unsafe { at.as_ref() }?;
        // Acquire: who finds its graph finds what that copies.
        if sums.exec.load(Ordering::Acquire) == exec {
            return Some(sums);
        }
        at = sums.next;
    }
}

/// Says what each launch of `exec` copies from now on. Callers come one at a time: they hold the lock of all graphs.
pub fn tell(exec: u64, copied: &Amounts) {
    if let Some(known) = find(exec, exec) {
        return known.set(copied);
    }
    if copied.each().next().is_none() {
        return;
    }
    if let Some(free) = find(exec, 0) {
        free.set(copied);
        return free.exec.store(exec, Ordering::Release);
    }
    let Some(head) = head(exec) else { return };
    let zeros = || array::from_fn(|_| AtomicU64::new(0));
    let next = head.load(Ordering::Relaxed).cast_const(); // nobody else writes it
    let sums = Box::leak(Box::new(Sums { exec: AtomicU64::new(exec), calls: zeros(), bytes: zeros(), next }));
    sums.set(copied);
    head.store(sums, Ordering::Release);
}

/// An executable graph is gone. As [`tell`], one caller at a time.
pub fn forget(exec: u64) {
    if let Some(known) = find(exec, exec) {
        known.exec.store(0, Ordering::Release);
    }
}

/// A graph was launched: counts what it copies.
#[inline]
pub fn launched(stream: Stream, exec: CUgraphExec) {
    if let Some(sums) = find(exec.addr() as u64, exec.addr() as u64) {
        sums.launched(stream);
    }
}

impl Sums {
    fn set(&self, copied: &Amounts) {
        // Relaxed: a program that changes a graph while another thread launches it gets the one or the other.
        let clear = |words: &[AtomicU64]| words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        clear(&self.calls);
        clear(&self.bytes);
        for (way, calls, bytes) in copied.each() {
            let set = |words: &[AtomicU64], n| {
                words.get(way as usize).into_iter().for_each(|word| word.store(n, Ordering::Relaxed));
            };
            set(&self.calls, calls);
            set(&self.bytes, bytes);
        }
    }

    #[cold]
    fn launched(&self, stream: Stream) {
        let Some(_inside) = Inside::enter() else { return };
        let Some(client) = Client::get() else { return };
        caught(client, || thread::with(|thread| self.count(client, thread, stream)));
    }

    fn count(&self, client: &'static Client, thread: &Thread, stream: Stream) {
        let Some(current) = thread.find_for(client, stream) else { return };
        // Relaxed: a capture that this thread began is in its own past. A launch that is captured copies later.
        if CAPTURES.load(Ordering::Relaxed) != 0 && stream.is_capturing() {
            return;
        }
        let (gpu, prices) = (current.gpu, current.context.flight.copy_prices());
        let mut budgeted = 0;
        for ((way, calls), bytes) in CopyWay::ALL.into_iter().zip(&self.calls).zip(&self.bytes) {
            let (calls, bytes) = (calls.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
            if calls == 0 {
                continue;
            }
            let copied = gpu.slot().copies.of(way);
            copied.add(calls, bytes);
            if !way.is_on_sms() {
                copied.add_time(prices.predict(way, calls, bytes).cast_signed());
            }
            budgeted += if way.is_budgeted() { bytes } else { 0 };
        }
        if budgeted > 0 && gpu.grant.read().copy_limit.is_limited() {
            gpu.bucket.charge_copy(Bytes(budgeted));
            leave_debt(thread, gpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::copy_pieces::What;

    fn calls(exec: u64) -> Option<[u64; WAYS]> {
        find(exec, exec).map(|sums| sums.calls.each_ref().map(|calls| calls.load(Ordering::Relaxed)))
    }

    #[test]
    fn graphs_of_one_list_are_told_apart_and_their_places_used_again() {
        let fill = What::fill(1, 100, 1).amounts(false);
        let twice = fill.plus(&fill);
        let list = |exec| head(exec).map(ptr::from_ref);
        let mut same = (1u64..).filter(|exec| list(*exec) == list(1));
        let [first, second, third] = array::from_fn(|_| same.next().unwrap_or(0));
        tell(first, &fill);
        tell(second, &twice);
        assert_eq!(
            (calls(first), calls(second), calls(third)),
            (Some([0, 0, 0, 0, 1]), Some([0, 0, 0, 0, 2]), None)
        );
        let place = find(first, first).map(ptr::from_ref);
        forget(first);
        assert_eq!((calls(first), calls(second)), (None, Some([0, 0, 0, 0, 2])));
        tell(third, &fill);
        assert_eq!(find(third, third).map(ptr::from_ref), place);
        tell(third, &Amounts::default());
        assert_eq!(calls(third), Some([0; WAYS]), "its copies are gone, it is not");
    }

    #[test]
    fn what_is_added_can_be_taken_away() {
        let (one, two) = (What::fill(1, 100, 1).amounts(false), What::fill(4, 10, 3).amounts(false));
        let left: Vec<_> = one.plus(&two).less(&one).each().collect();
        assert_eq!(left, [(CopyWay::Fill, 1, 120)]);
        assert_eq!(one.less(&one).each().count(), 0);
    }
}
