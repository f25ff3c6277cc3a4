//! Memory that crosses processes: what a process has given out, and what it has opened of others.
//!
//! Memory is charged once, to its owner. When the owner dies while others have the memory open, it lives on, and somebody
//! has to be charged: the one who has had it open for longest. The manager, which sees the owner die, finds him by these
//! entries. An entry is written by its process; the one change that comes from elsewhere, [`Share::adopt`], is a single
//! compare-exchange, so that a process that closes the memory at that moment is either charged or not, never half.
//!
//! What a multicast object holds (its own size on each device, and what is bound to it) has no openers: it is there for as
//! long as any process has the object. Those are its members; what one of them was charged for falls to the one who has been
//! a member for longest, with an entry that the manager writes ([`UsagePage::bequeath`]).

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use super::{MemoryKind, UsagePage};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::units::{Bytes, Nanos};

/// Entries of a process. What does not fit is shown in its sums and not handed on.
pub const SHARES: usize = if cfg!(loom) { 1 } else { 16 };

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ShareState {
    /// Nothing.
    Free = 0,
    /// Being written or taken back.
    Changing = 1,
    /// The process owns the memory and has given it out.
    Exported = 2,
    /// The process has the memory open; it is charged elsewhere.
    Imported = 3,
    /// The process has the memory open, and is charged: its owner is dead.
    Adopted = 4,
    /// The process owned the memory and has let go of it: who else has it open, is to be charged. The manager sees to it.
    Left = 5,
    /// The process has a multicast object: what that holds may fall to it.
    Member = 6,
    /// The process is charged for what a multicast object holds, and others may have the object.
    Kept = 7,
    /// The same, of somebody who has the object no more. The manager has written the entry.
    Inherited = 8,
    /// The process was charged for what a multicast object holds, and has let go of it. The manager sees to it.
    KeptLeft = 9,
}

impl ShareState {
    /// From a word that a tenant wrote; `None` for what stands for no memory.
    fn of_word(word: u32) -> Option<Self> {
        Some(match word {
            2 => Self::Exported,
            3 => Self::Imported,
            4 => Self::Adopted,
            5 => Self::Left,
            6 => Self::Member,
            7 => Self::Kept,
            8 => Self::Inherited,
            9 => Self::KeptLeft,
            _ => return None,
        })
    }
}

/// One entry.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Share {
    state: AtomicU32,
    kind: AtomicU32,
    key: AtomicU64,
    bytes: AtomicU64,
    since_ns: AtomicU64,
}

/// An entry as plain values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The same number at the owner and at everybody who has the memory open.
    pub key: u64,
    /// How much.
    pub bytes: Bytes,
    /// Of which kind it is at its owner.
    pub kind: MemoryKind,
    /// When it was given out or opened, on the tenant's clock: compared only to find who came first.
    pub since: Nanos,
}

impl Share {
    /// Writes the entry if it is free; says whether it was.
    pub fn put(&self, state: ShareState, shared: &Shared) -> bool {
        let (free, changing) = (ShareState::Free as u32, ShareState::Changing as u32);
        // Acquire: the last owner's stores come before ours.
        if self.state.compare_exchange(free, changing, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.kind.store(shared.kind as u32, Ordering::Relaxed);
        self.key.store(shared.key, Ordering::Relaxed);
        self.bytes.store(shared.bytes.0, Ordering::Relaxed);
        self.since_ns.store(shared.since.0, Ordering::Relaxed);
        // Release: whoever sees the state sees the words.
        self.state.store(state as u32, Ordering::Release);
        true
    }

    /// The entry, and what it says; `None` for a free one and for words that no process of ours writes.
    pub fn read(&self) -> Option<(ShareState, Shared)> {
        let state = ShareState::of_word(self.state.load(Ordering::Acquire))?;
        let kind = MemoryKind::ALL.get(self.kind.load(Ordering::Relaxed) as usize)?;
        let shared = Shared {
            key: self.key.load(Ordering::Relaxed),
            bytes: Bytes(self.bytes.load(Ordering::Relaxed)),
            kind: *kind,
            since: Nanos(self.since_ns.load(Ordering::Relaxed)),
        };
        Some((state, shared))
    }

    /// Makes imported memory adopted; says whether it still was imported. The manager calls this, and has charged the
    /// memory before: a process that finds it adopted gives that back.
    pub fn adopt(&self) -> bool {
        self.turn(ShareState::Imported, ShareState::Adopted)
    }

    /// Takes the entry back, and says what it was.
    pub fn take(&self) -> Option<(ShareState, Shared)> {
        let (_, shared) = self.read()?;
        let before = self.state.swap(ShareState::Free as u32, Ordering::AcqRel);
        Some((ShareState::of_word(before)?, shared))
    }

    /// Leaves memory that was given out to whoever else has it open, or what a multicast object holds to its members; says
    /// whether it was either.
    pub fn leave(&self) -> bool {
        self.turn(ShareState::Exported, ShareState::Left) || self.turn(ShareState::Kept, ShareState::KeptLeft)
    }

    /// What was left is charged to somebody, or gone: the entry is free. The manager calls this.
    pub fn settle_left(&self) -> bool {
        self.turn(ShareState::Left, ShareState::Free) || self.turn(ShareState::KeptLeft, ShareState::Free)
    }

    /// Takes back what has fallen to the process of the multicast object of this key.
    pub fn take_inherited(&self, key: u64) -> Option<Shared> {
        let (_, shared) = self.read().filter(|(state, s)| *state == ShareState::Inherited && s.key == key)?;
        self.turn(ShareState::Inherited, ShareState::Free).then_some(shared)
    }

    /// Whether what was written here falls to this member; not if the process has gone as one, and has not seen it.
    fn falls_to(&self, member: &Self, key: u64) -> bool {
        // A member that goes takes its entry back first, and looks for what has fallen to it behind such a fence of its own:
        // either it sees this entry, or we see that it has gone.
        fence(Ordering::SeqCst);
        let here = member.read().is_some_and(|(state, m)| state == ShareState::Member && m.key == key);
        here || !self.turn(ShareState::Inherited, ShareState::Free)
    }

    fn turn(&self, from: ShareState, to: ShareState) -> bool {
        self.state.compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Zeroes the entry for the slot's next owner.
    pub fn clear(&self) {
        for word in [&self.key, &self.bytes, &self.since_ns] {
            word.store(0, Ordering::Relaxed);
        }
        self.kind.store(0, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
    }
}

impl UsagePage {
    /// The process that has had the memory of this key open for longest, and is not charged for it: its slot and entry.
    pub fn longest_holder(&self, key: u64) -> Option<(usize, usize, Nanos)> {
        self.longest(ShareState::Imported, key)
    }

    /// The process that has had the multicast object of this key for longest: its slot and entry.
    pub fn longest_member(&self, key: u64) -> Option<(usize, usize, Nanos)> {
        self.longest(ShareState::Member, key)
    }

    fn longest(&self, wanted: ShareState, key: u64) -> Option<(usize, usize, Nanos)> {
        let entries = self.slots.iter().enumerate().flat_map(|(slot, process)| {
            process.shares.iter().enumerate().map(move |(entry, share)| (slot, entry, share))
        });
        let holders = entries.filter_map(|(slot, entry, share)| match share.read()? {
            (state, shared) if state == wanted && shared.key == key => Some((slot, entry, shared.since)),
            _ => None,
        });
        holders.min_by_key(|(_, _, since)| *since)
    }

    /// Charges imported memory to the process that has it open; says whether it still had.
    pub fn adopt(&self, slot: usize, entry: usize) -> bool {
        let Some(process) = self.slots.get(slot) else { return false };
        let Some((share, (_, shared))) =
            process.shares.get(entry).and_then(|share| Some((share, share.read()?)))
        else {
            return false;
        };
        // Before the entry says so: whoever closes the memory then finds charged what he is to give back.
        process.book(shared.bytes);
        process.by_kind[shared.kind as usize].fetch_add(shared.bytes.0, Ordering::Relaxed);
        let adopted = share.adopt();
        if adopted {
            process.shared_bytes.fetch_sub(shared.bytes.0, Ordering::Relaxed);
        } else {
            process.by_kind[shared.kind as usize].fetch_sub(shared.bytes.0, Ordering::Relaxed);
            process.release(shared.bytes);
        }
        adopted
    }

    /// Charges what a multicast object holds to the process whose entry says that it has the object; says whether it still
    /// had, and whether there was room to write it down. The manager alone calls this.
    pub fn bequeath(&self, slot: usize, member: usize, kept: &Shared) -> bool {
        let Some(process) = self.slots.get(slot) else { return false };
        let Some(member) = process.shares.get(member) else { return false };
        let by_kind = &process.by_kind[kept.kind as usize];
        let undo = || {
            by_kind.fetch_sub(kept.bytes.0, Ordering::Relaxed);
            process.release(kept.bytes);
        };
        process.book(kept.bytes); // before the entry says so, as with what is adopted
        by_kind.fetch_add(kept.bytes.0, Ordering::Relaxed);
        let Some(share) = process.shares.iter().find(|share| share.put(ShareState::Inherited, kept)) else {
            undo();
            return false;
        };
        let stands = share.falls_to(member, kept.key);
        if !stands {
            undo();
        }
        stands
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHARED: Shared = Shared { key: 7, bytes: Bytes(64), kind: MemoryKind::Plain, since: Nanos(9) };

    fn entry() -> Share {
        zerocopy::FromZeros::new_zeroed()
    }

    #[test]
    fn an_entry_says_what_was_written_until_it_is_taken_back() {
        let entry = entry();
        assert!(entry.read().is_none());
        assert!(entry.put(ShareState::Imported, &SHARED));
        assert!(!entry.put(ShareState::Imported, &SHARED), "it is taken");
        assert_eq!(entry.read(), Some((ShareState::Imported, SHARED)));
        assert_eq!(entry.take(), Some((ShareState::Imported, SHARED)));
        assert_eq!(entry.take(), None);
    }

    #[test]
    fn only_what_is_open_is_adopted_and_only_once() {
        let entry = entry();
        assert!(!entry.adopt());
        entry.put(ShareState::Imported, &SHARED);
        assert!(entry.adopt() && !entry.adopt());
        assert_eq!(entry.take().map(|(state, _)| state), Some(ShareState::Adopted));
    }

    #[test]
    fn what_was_given_out_can_be_left_and_is_settled_once() {
        let entry = entry();
        entry.put(ShareState::Exported, &SHARED);
        assert!(!entry.settle_left() && entry.leave() && !entry.leave());
        assert_eq!(entry.read(), Some((ShareState::Left, SHARED)));
        assert!(entry.settle_left() && !entry.settle_left());
        assert!(entry.put(ShareState::Imported, &SHARED), "it is free again");
    }

    #[test]
    fn whoever_has_had_memory_open_for_longest_is_charged_for_it() {
        let page: Box<UsagePage> = Box::new(zerocopy::FromZeros::new_zeroed());
        let opened = |slot: usize, since: u64| {
            page.slots[slot].shared_bytes.fetch_add(SHARED.bytes.0, Ordering::Relaxed);
            page.slots[slot].shares[3].put(ShareState::Imported, &Shared { since: Nanos(since), ..SHARED });
        };
        opened(1, 20);
        opened(2, 10);
        assert_eq!(page.longest_holder(SHARED.key), Some((2, 3, Nanos(10))));
        assert!(page.longest_holder(8).is_none());
        assert!(page.adopt(2, 3) && !page.adopt(2, 3));
        assert_eq!(page.held(), SHARED.bytes);
        assert_eq!(page.slots[2].shared_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(page.longest_holder(SHARED.key), Some((1, 3, Nanos(20))));
    }

    #[test]
    fn what_a_multicast_object_holds_falls_to_a_member_and_to_nobody_who_has_gone() {
        let page: Box<UsagePage> = Box::new(zerocopy::FromZeros::new_zeroed());
        let kept = Shared { bytes: Bytes(96), ..SHARED };
        let [member, other] = [2, 1].map(|slot| &page.slots[slot].shares[3]);
        member.put(ShareState::Member, &SHARED);
        other.put(ShareState::Imported, &SHARED); // memory of the same key is something else
        let (slot, entry, _) = page.longest_member(SHARED.key).unwrap();
        assert!((slot, entry) == (2, 3) && page.bequeath(slot, entry, &kept));
        assert_eq!(page.held(), kept.bytes);
        let mut inherited = page.slots[2].shares.iter().filter_map(|share| share.take_inherited(SHARED.key));
        assert_eq!(inherited.next(), Some(kept));
        page.slots[2].release(kept.bytes);
        assert!(page.slots[2].shares.iter().all(|share| share.take_inherited(SHARED.key).is_none()));
        member.take();
        assert!(!page.bequeath(slot, entry, &kept), "it is no member any more");
        assert_eq!(page.held(), Bytes(0));
    }

    #[test]
    fn words_of_no_meaning_are_no_entry() {
        let entry = entry();
        entry.put(ShareState::Exported, &SHARED);
        entry.kind.store(99, Ordering::Relaxed);
        assert!(entry.read().is_none());
        entry.state.store(99, Ordering::Relaxed);
        assert!(entry.read().is_none());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    #[test]
    fn memory_that_is_closed_while_it_is_adopted_is_charged_to_nobody_afterwards() {
        loom::model(|| {
            let shared = Shared { key: 7, bytes: Bytes(64), kind: MemoryKind::Plain, since: Nanos(9) };
            let page = loom::sync::Arc::new((Share::default(), AtomicU64::new(0)));
            page.0.put(ShareState::Imported, &shared);
            let other = {
                let page = page.clone();
                loom::thread::spawn(move || {
                    page.1.fetch_add(64, Ordering::SeqCst);
                    if !page.0.adopt() {
                        page.1.fetch_sub(64, Ordering::SeqCst);
                    }
                })
            };
            if let Some((ShareState::Adopted, shared)) = page.0.take() {
                page.1.fetch_sub(shared.bytes.0, Ordering::SeqCst);
            }
            other.join().unwrap();
            assert_eq!(page.1.load(Ordering::SeqCst), 0);
        });
    }

    #[test]
    fn what_falls_to_a_member_that_goes_is_charged_to_it_never_and_passed_on_by_one_alone() {
        loom::model(|| {
            let kept = Shared { key: 7, bytes: Bytes(64), kind: MemoryKind::Virtual, since: Nanos(9) };
            let page = loom::sync::Arc::new(([Share::default(), Share::default()], AtomicU64::new(0)));
            page.0[0].put(ShareState::Member, &kept);
            let manager = {
                let page = page.clone();
                loom::thread::spawn(move || {
                    let ([member, place], held) = &*page;
                    held.fetch_add(64, Ordering::SeqCst);
                    place.put(ShareState::Inherited, &kept);
                    let stands = place.falls_to(member, kept.key);
                    if !stands {
                        held.fetch_sub(64, Ordering::SeqCst);
                    }
                    stands
                })
            };
            let ([member, place], held) = &*page;
            member.take();
            fence(Ordering::SeqCst);
            let seen = place.take_inherited(kept.key);
            if let Some(shared) = seen {
                held.fetch_sub(shared.bytes.0, Ordering::SeqCst);
            }
            assert_eq!(manager.join().unwrap(), seen.is_some(), "one of the two hands it on");
            assert_eq!(held.load(Ordering::SeqCst), 0);
        });
    }
}
