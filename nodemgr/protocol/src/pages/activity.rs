//! The activity page: whether each process of a tenant has work on one GPU.
//!
//! The one page that crosses tenants, with the tenant's word in the queue for [turns](super::Turn): its neighbours on that GPU map it read-only, and all of them together are the
//! board (design 5). A process's word is odd while it has work; it only grows, so whoever finds the same even number
//! twice knows that nothing went on in between. A tenant that lies here can keep fillers out and spoil its neighbours'
//! measurements, no more.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use super::header::{Header, PageKind};
use super::standing::{Standing, set_bit};
use super::turn::Turn;
use super::usage::PROCESS_SLOTS;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::Nanos;

/// One process's word, on a cache line of its own.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
struct Activity {
    word: AtomicU64,
    busy_ns: AtomicU64,
    weighted_ns: AtomicU64,
    squared_ns: AtomicU64,
    cubed_ns: AtomicU64,
    since_ns: AtomicU64,
    until_ns: AtomicU64,
    sms_ns: AtomicU64,
}

impl Activity {
    /// The process has held so much more of the GPU. The time comes first: whoever reads meanwhile may find some of it without its
    /// weight, but never a weight without its time, by which the process would seem to weigh a multiple of what it does. What took less
    /// than its price beside that would be taken to be so much shorter by itself, and stay so.
    fn add(&self, more: &Held) {
        // Release, each: of what came before.
        self.busy_ns.fetch_add(more.busy_ns, Ordering::Release);
        self.weighted_ns.fetch_add(more.weighted_ns, Ordering::Release);
        self.squared_ns.fetch_add(more.squared_ns, Ordering::Release);
        self.cubed_ns.fetch_add(more.cubed_ns, Ordering::Release);
        self.sms_ns.fetch_add(more.sms_ns, Ordering::Release);
    }

    /// What it has held, read the other way round.
    fn held(&self) -> Held {
        let sms_ns = self.sms_ns.load(Ordering::Acquire);
        let cubed_ns = self.cubed_ns.load(Ordering::Acquire);
        let squared_ns = self.squared_ns.load(Ordering::Acquire);
        let weighted_ns = self.weighted_ns.load(Ordering::Acquire);
        Held { busy_ns: self.busy_ns.load(Ordering::Acquire), weighted_ns, squared_ns, cubed_ns, sms_ns }
    }
}

/// How much of the GPU a tenant, or one process of it, has held so far. Under MPS, where tenants overlap, a nanosecond is
/// divided among those who are there by the weight of their kernels (gpu-truths, rule 12): of one that fills all SMs it
/// is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Time in which it had a kernel on the GPU, ns.
    pub busy_ns: u64,
    /// The same, each nanosecond times the weight of all kernels that it had there, ...
    pub weighted_ns: u64,
    /// ... times its square, ...
    pub squared_ns: u64,
    /// ... and times its cube.
    pub cubed_ns: u64,
    /// Times the part of the SMs alone that they had: by that, not by the bandwidth that they took, whoever wants more SMs than are left
    /// runs slower.
    pub sms_ns: u64,
}

impl Held {
    /// Both together; sums wrap.
    fn and(self, more: Self) -> Self {
        Self {
            busy_ns: self.busy_ns.wrapping_add(more.busy_ns),
            weighted_ns: self.weighted_ns.wrapping_add(more.weighted_ns),
            squared_ns: self.squared_ns.wrapping_add(more.squared_ns),
            cubed_ns: self.cubed_ns.wrapping_add(more.cubed_ns),
            sms_ns: self.sms_ns.wrapping_add(more.sms_ns),
        }
    }
}

/// What a tenant, or one process of it, says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// What it had held ...
    pub held: Held,
    /// ... up to this moment, on its own clock.
    pub until: Nanos,
    /// Since when it has had work on the GPU, on the same clock; `None`: it has none now.
    pub busy_since: Option<Nanos>,
}

/// One word per process.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct ActivityPage {
    header: Header,
    edges: AtomicU32,   // how often any word of the tenant's has moved; neighbours sleep on it
    passing: AtomicU32, // a bit for each process that takes no turns
    /// How the tenant stands to its share, and whether it waits for turns at all.
    pub standing: Standing,
    /// How the tenant stands to the turn.
    pub turn: Turn,
    slots: [Activity; PROCESS_SLOTS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ActivityPage>() == 64 * (2 + PROCESS_SLOTS));

impl ActivityPage {
    /// Marks a zeroed page of this tenant, a number that tells tenants apart, as ready.
    pub fn init(&self, tenant: u64) {
        self.turn.init(tenant);
        self.header.publish(PageKind::Activity, size_of::<Self>());
    }

    /// Whether any process of the tenant takes no turns: it is bound by its host, or goes first.
    pub fn passes(&self) -> bool {
        self.passing.load(Ordering::Relaxed) != 0 // for people to read
    }

    /// Says whether the process in `slot` takes no turns.
    pub fn set_passes(&self, slot: usize, passes: bool) {
        set_bit(&self.passing, slot, passes);
    }

    /// The process in `slot` is gone: it has no work, and goes before no other.
    pub fn forget(&self, slot: usize) {
        self.end(slot);
        self.set_passes(slot, false);
        self.standing.set_goes_first(slot, false);
    }

    /// The header, to be checked when the page is opened.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Moves whenever a process of the tenant begins or ends work: one load tells a neighbour whether anything has changed
    /// since it looked.
    #[inline]
    pub fn edges(&self) -> u32 {
        // SeqCst: see `step`. A load costs no more for it.
        self.edges.load(Ordering::SeqCst)
    }

    /// The word to sleep on until [`Self::edges`] moves.
    pub fn futex_word(&self) -> &AtomicU32 {
        &self.edges
    }

    /// Whether a process that goes first has work.
    pub fn works_first(&self) -> bool {
        let busy = |slot: &Activity| slot.word.load(Ordering::SeqCst) % 2 == 1;
        self.slots.iter().enumerate().any(|(at, slot)| self.standing.goes_first(at) && busy(slot))
    }

    /// Whether the process in `slot` says that it has work. The launch path asks this of its own word.
    #[inline]
    pub fn is_busy(&self, slot: usize) -> bool {
        // Relaxed: a process asks for its own word.
        self.slots.get(slot).is_some_and(|slot| slot.word.load(Ordering::Relaxed) % 2 == 1)
    }

    /// The process in `slot` has work from `now` on; says whether it had none before.
    pub fn begin(&self, slot: usize, now: impl FnOnce() -> Nanos) -> bool {
        let Some(own) = self.slots.get(slot).filter(|_| !self.is_busy(slot)) else { return false };
        own.since_ns.store(now().0, Ordering::Relaxed); // seen with the step
        self.step(slot, 0)
    }

    /// The process in `slot` has no work any more.
    pub fn end(&self, slot: usize) {
        self.step(slot, 1);
    }

    /// One step, if the word is even (0) or odd (1); says whether it was. Of two threads that step at once one does.
    fn step(&self, slot: usize, parity: u64) -> bool {
        let Some(slot) = self.slots.get(slot) else { return false };
        let now = slot.word.load(Ordering::Relaxed);
        if now % 2 != parity {
            return false;
        }
        // SeqCst: in one order with the look at other words that follows a launch, here and at the neighbours.
        let moved = slot.word.compare_exchange(now, now.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed);
        if moved.is_ok() {
            self.edges.fetch_add(1, Ordering::SeqCst);
        }
        moved.is_ok()
    }

    /// The process in `slot` has held so much more of the GPU, up to `until`.
    pub fn occupied(&self, slot: usize, more: &Held, until: Nanos) {
        let Some(slot) = self.slots.get(slot) else { return };
        slot.add(more);
        // Release: whoever finds it finds what was held until then, or more.
        slot.until_ns.store(until.0, Ordering::Release);
    }

    /// What all processes but that in slot `own` say. Any bytes may stand there: sums wrap.
    pub fn occupancy(&self, own: Option<usize>) -> Occupancy {
        let others = self.slots.iter().enumerate().filter(|(slot, _)| Some(*slot) != own);
        others.fold(Occupancy::default(), |sum, (_, slot)| {
            let until = sum.until.max(Nanos(slot.until_ns.load(Ordering::Acquire)));
            let held = sum.held.and(slot.held());
            let is_busy = slot.word.load(Ordering::Acquire) % 2 == 1; // and so it was since then
            let since = is_busy.then(|| Nanos(slot.since_ns.load(Ordering::Relaxed)));
            let busy_since = sum.busy_since.into_iter().chain(since).min();
            Occupancy { held, until, busy_since }
        })
    }

    /// The sum of all words but that of `own`: the same number twice means that none of those processes had work in
    /// between. `None`: one of them has work now.
    pub fn quiet(&self, own: Option<usize>) -> Option<u64> {
        let others = self.slots.iter().enumerate().filter(|(slot, _)| Some(*slot) != own);
        // SeqCst: see `step`.
        let mut words = others.map(|(_, slot)| slot.word.load(Ordering::SeqCst));
        words.try_fold(0u64, |sum, word| (word % 2 == 0).then(|| sum.wrapping_add(word)))
    }

    /// How often any process but that of `own` has ended work, now or never: the same number twice means that none of them did
    /// in between.
    pub fn ended(&self, own: Option<usize>) -> u64 {
        let others = self.slots.iter().enumerate().filter(|(slot, _)| Some(*slot) != own);
        others.fold(0, |sum, (_, slot)| sum.wrapping_add(slot.word.load(Ordering::SeqCst) / 2))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn page() -> Box<ActivityPage> {
        Box::new(zerocopy::FromZeros::new_zeroed())
    }

    #[test]
    fn a_process_that_is_gone_passes_no_more_and_goes_before_no_other() {
        let page = page();
        page.set_passes(3, true);
        page.standing.set_goes_first(3, true);
        page.set_passes(5, true);
        page.forget(3);
        assert!(page.passes() && !page.standing.may_go_first(), "another process passes still");
        page.forget(5);
        assert!(!page.passes());
    }

    #[test]
    fn work_shows_while_it_lasts_and_leaves_a_trace() {
        let page = page();
        let before = page.quiet(None);
        assert!(page.begin(3, || Nanos(7)) && !page.begin(3, || Nanos(7)), "it begins once");
        assert!(page.is_busy(3) && page.quiet(None).is_none());
        assert_eq!(page.quiet(Some(3)), before, "a process does not stand in its own way");
        page.end(3);
        page.end(3);
        assert!(!page.is_busy(3));
        assert_ne!(page.quiet(None), before, "something went on meanwhile");
        assert_eq!(page.edges(), 2, "it began once, and ended once");
        assert_eq!((page.ended(None), page.ended(Some(3))), (1, 0));
        assert!(page.begin(3, || Nanos(9)) && page.ended(None) == 1, "what has begun has not ended");
    }

    #[test]
    fn a_slot_that_does_not_exist_changes_nothing() {
        let page = page();
        assert!(!page.begin(PROCESS_SLOTS, || Nanos(7)));
        assert!(!page.is_busy(PROCESS_SLOTS));
        assert_eq!(page.quiet(None), Some(0));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::fence;

    /// As the interposer begins and ends work (`link::Gpu`).
    #[test]
    fn a_launch_that_was_counted_shows_whoever_found_nothing_in_flight_meanwhile() {
        loom::model(|| {
            let page = loom::sync::Arc::new(ActivityPage::default());
            let counted = loom::sync::Arc::new(AtomicU64::new(0));
            page.begin(0, Nanos::default); // work that is done by now
            let launches = {
                let (page, counted) = (page.clone(), counted.clone());
                loom::thread::spawn(move || {
                    page.begin(0, Nanos::default);
                    counted.store(1, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    if !page.is_busy(0) {
                        page.begin(0, Nanos::default);
                    }
                })
            };
            if counted.load(Ordering::Relaxed) == 0 {
                page.end(0);
                fence(Ordering::SeqCst);
                if counted.load(Ordering::Relaxed) != 0 {
                    page.begin(0, Nanos::default);
                }
            }
            launches.join().unwrap();
            assert!(page.is_busy(0), "the launch is under way, and nobody knows");
        });
    }

    #[test]
    fn no_weight_is_ever_read_without_the_time_for_which_it_was_held() {
        loom::model(|| {
            let process = loom::sync::Arc::new(Activity::default());
            let holds = {
                let process = process.clone();
                loom::thread::spawn(move || {
                    let all = Held { busy_ns: 1, weighted_ns: 1, squared_ns: 1, cubed_ns: 1, sms_ns: 1 };
                    process.add(&all);
                    process.add(&all);
                })
            };
            let Held { busy_ns, weighted_ns, squared_ns, cubed_ns, sms_ns } = process.held();
            assert!(
                sms_ns <= cubed_ns
                    && cubed_ns <= squared_ns
                    && squared_ns <= weighted_ns
                    && weighted_ns <= busy_ns
            );
            holds.join().unwrap();
        });
    }

    #[test]
    fn whoever_finds_the_same_quiet_twice_missed_no_work_in_between() {
        loom::model(|| {
            let page = loom::sync::Arc::new(ActivityPage::default());
            let launched = loom::sync::Arc::new(AtomicU64::new(0));
            let tenant = {
                let (page, launched) = (page.clone(), launched.clone());
                loom::thread::spawn(move || {
                    page.begin(0, || Nanos(7));
                    launched.fetch_add(1, Ordering::SeqCst);
                    page.end(0);
                })
            };
            let before = page.quiet(None);
            let first = launched.load(Ordering::SeqCst);
            let then = launched.load(Ordering::SeqCst);
            let after = page.quiet(None);
            if before.is_some() && before == after {
                assert_eq!(first, then, "work went on between two looks that found the same quiet");
            }
            tenant.join().unwrap();
        });
    }
}
