//! The usage page: what each process of a tenant holds and does on one GPU.
//!
//! One slot per process, each word of it written by that process alone. Memory is the tenant's in common: a
//! process announces what it wants, sums everybody's words, and takes it back if the sum is over the limit.
//! A dead process's slot is folded into the tenant's totals and zeroed by the manager.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use super::header::{Header, PageKind};
use super::slot::ProcessSlot;
use super::told::Told;
use crate::sync::{AtomicU64, Ordering, fence, relax};
use crate::units::{Bytes, Nanos};

/// Processes of one tenant that may use one GPU at the same time.
pub const PROCESS_SLOTS: usize = if cfg!(loom) { 2 } else { 32 };

/// One slot per process.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct UsagePage {
    header: Header,
    /// Grows with each [`Share`](super::Share) that a living process leaves to whoever else has the memory open.
    pub left: AtomicU64,
    stirs: AtomicU64,
    solo_until_ns: AtomicU64,
    _reserved: [u64; 3],
    /// The processes; the manager says in its welcome which slot is whose.
    pub slots: [ProcessSlot; PROCESS_SLOTS],
    /// Latencies that the processes have told, on the page of the tenant's first GPU. All of them add to it, and it stays when
    /// they end: a request that was served was served.
    pub told: Told,
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(offset_of!(UsagePage, slots) == 64);
    assert!(size_of::<UsagePage>() <= 96 << 10, "64 tenants with a page each must stay well under 16 MiB");
};

/// Rounds in which a reservation waits for others to decide theirs before it takes "no" for an answer.
const RESERVE_TRIES: usize = if cfg!(loom) { 2 } else { 1_000 };

impl UsagePage {
    /// Marks a zeroed page as ready.
    pub fn init(&self) {
        (0..).zip(&self.slots).for_each(|(number, slot)| slot.turn.init(number));
        self.header.publish(PageKind::Usage, size_of::<Self>());
    }

    /// The header, to be checked when the page is opened.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Memory that all processes hold.
    pub fn held(&self) -> Bytes {
        // SeqCst here and below: see the fence in `reserve`.
        let sum =
            |total: u64, slot: &ProcessSlot| total.saturating_add(slot.held_bytes.load(Ordering::SeqCst));
        Bytes(self.slots.iter().fold(0, sum))
    }

    /// A process of the tenant that is taken for asleep begins work on one of its GPUs, or waits at its gate there. Said on
    /// the page of the tenant's first GPU: all that a tick looks at of a tenant that sleeps ([`Bell`](super::Bell)).
    pub fn stir(&self) {
        // Release: whoever sees it sees what the process had shown before.
        self.stirs.fetch_add(1, Ordering::Release);
    }

    /// How often one has.
    pub fn stirs(&self) -> u64 {
        self.stirs.load(Ordering::Acquire)
    }

    /// A process asks that the tenant's processes take turns until then, so that each of them can be measured alone.
    pub fn ask_for_solo(&self, until: Nanos) {
        // Relaxed, here and below: whoever sees it late goes out of turn once more.
        self.solo_until_ns.fetch_max(until.0, Ordering::Relaxed);
    }

    /// Until when one has asked for that; 0: nobody has, or it is over.
    pub fn solo_until(&self) -> Nanos {
        Nanos(self.solo_until_ns.load(Ordering::Relaxed))
    }

    /// It is over.
    pub fn end_solo(&self, until: Nanos) {
        let _ = self.solo_until_ns.compare_exchange(until.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn held_or_wanted(&self) -> Bytes {
        let sum = |total: u64, slot: &ProcessSlot| {
            // The announcement first: `reserve` raises `held` before it withdraws the announcement, so this
            // order can count bytes twice for a moment, and never miss them.
            let tentative = slot.tentative_bytes.load(Ordering::SeqCst);
            total.saturating_add(tentative).saturating_add(slot.held_bytes.load(Ordering::SeqCst))
        };
        Bytes(self.slots.iter().fold(0, sum))
    }

    /// Takes `want` for the process in `slot` if the tenant then stays within `limit`, and says so. The caller
    /// gives it back with [`ProcessSlot::release`] if the driver refuses. Two processes never both get the last
    /// bytes; that both are turned away where one would fit is made unlikely by trying again.
    pub fn reserve(&self, slot: usize, want: Bytes, limit: Bytes) -> bool {
        let Some(own) = self.slots.get(slot) else { return false };
        for _ in 0..RESERVE_TRIES {
            own.tentative_bytes.fetch_add(want.0, Ordering::SeqCst);
            // Of two processes that announce at once, at least one sees the other: both fences stand in one total
            // order, and whoever's comes second reads behind the other's announcement.
            fence(Ordering::SeqCst);
            let fits = self.held_or_wanted() <= limit;
            if fits {
                own.held_bytes.fetch_add(want.0, Ordering::SeqCst);
            }
            own.tentative_bytes.fetch_sub(want.0, Ordering::SeqCst);
            if fits {
                // Relaxed: for people to read.
                own.peak_bytes.fetch_max(own.held_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
                return true;
            }
            if self.held().0.saturating_add(want.0) > limit.0 {
                return false; // over the limit by what is held, not by what others merely announce
            }
            relax();
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pages::{LANES, Moved};
    use proptest::prelude::*;

    fn page() -> Box<UsagePage> {
        Box::new(zerocopy::FromZeros::new_zeroed())
    }

    #[test]
    fn the_limit_binds_the_tenant_across_its_processes() {
        let page = page();
        assert!(page.reserve(0, Bytes(60), Bytes(100)));
        assert!(!page.reserve(1, Bytes(41), Bytes(100)));
        assert!(page.reserve(1, Bytes(40), Bytes(100)));
        page.slots[0].release(Bytes(60));
        assert!(page.reserve(1, Bytes(60), Bytes(100)));
        assert_eq!(page.held(), Bytes(100));
    }

    #[test]
    fn a_slot_that_does_not_exist_gets_nothing() {
        assert!(!page().reserve(PROCESS_SLOTS, Bytes(1), Bytes(100)));
    }

    #[test]
    fn a_cleared_slot_holds_nothing() {
        let page = page();
        assert!(page.reserve(3, Bytes(60), Bytes(100)));
        page.slots[3].lanes[2].calls[0].store(7, Ordering::Relaxed);
        page.slots[3].clear();
        assert_eq!(page.held(), Bytes(0));
        assert_eq!(page.slots[3].lanes[2].calls[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_process_that_gets_another_slot_holds_there_what_it_held_whatever_it_frees_meanwhile() {
        let (own, common) = (page(), page());
        let (old, new, mut moved) = (&own.slots[0], &common.slots[5], Moved::default());
        assert!(common.reserve(1, Bytes(10), Bytes(100)) && own.reserve(0, Bytes(60), Bytes(100)));
        old.by_kind[2].store(60, Ordering::Relaxed);
        old.lanes[3].charged_ns.store(7, Ordering::Relaxed);
        old.graphs.add(crate::pages::GraphCount::Split, 2);
        new.continue_from(old);
        new.move_memory(old, &mut moved);
        assert_eq!((common.held(), new.by_kind[2].load(Ordering::Relaxed)), (Bytes(70), 60));
        assert_eq!(
            (
                new.lanes[3].charged_ns.load(Ordering::Relaxed),
                new.graphs.get(crate::pages::GraphCount::Split)
            ),
            (7, 2)
        );
        old.release(Bytes(20)); // a thread that had looked at the old page
        new.move_memory(old, &mut moved);
        assert_eq!(common.held(), Bytes(50));
        new.move_memory(old, &mut moved);
        assert_eq!(common.held(), Bytes(50), "and only once");
    }

    #[test]
    fn whoever_knocks_launches_or_asks_for_memory_has_called() {
        let page = page();
        let slot = &page.slots[0];
        let launch = &slot.lanes[LANES - 1].calls[0];
        let calls: [&dyn Fn(); 3] = [&|| slot.knock(), &|| launch.store(1, Ordering::Relaxed), &|| {
            slot.memory_calls[0].store(1, Ordering::Relaxed)
        }];
        for call in calls {
            let before = slot.calls();
            call();
            assert_ne!(slot.calls(), before);
        }
        slot.clear();
        assert_eq!(slot.calls(), 0, "the next one has not called yet");
    }

    proptest! {
        #[test]
        fn no_sequence_of_reservations_passes_the_limit(steps in prop::collection::vec((0usize..4, 0u64..50), 0..200)) {
            let page = page();
            let mut held = [0u64; 4];
            for (slot, bytes) in steps {
                if bytes % 3 == 0 && held[slot] > 0 {
                    page.slots[slot].release(Bytes(held[slot]));
                    held[slot] = 0;
                } else if page.reserve(slot, Bytes(bytes), Bytes(100)) {
                    held[slot] += bytes;
                } else {
                    prop_assert!(held.iter().sum::<u64>() + bytes > 100, "refused although it fits");
                }
                prop_assert_eq!(page.held(), Bytes(held.iter().sum()));
                prop_assert!(page.held() <= Bytes(100));
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    #[test]
    fn two_processes_never_both_get_the_last_bytes() {
        loom::model(|| {
            let page = loom::sync::Arc::new(UsagePage::default());
            let other = {
                let page = page.clone();
                loom::thread::spawn(move || page.reserve(1, Bytes(60), Bytes(100)))
            };
            let mine = page.reserve(0, Bytes(60), Bytes(100));
            let theirs = other.join().unwrap();
            assert!(!(mine && theirs), "120 of 100 bytes are held");
            assert!(page.held() <= Bytes(100));
        });
    }
}
