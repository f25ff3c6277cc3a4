//! The contexts that the process has on a GPU, green ones among them: events belong to a context, so marks do too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use weir_abi::types::*;
use weir_core::flight::Flight;
use weir_core::lock::Lock;
use weir_protocol::pages::ProcessSlot;
use weir_protocol::units::Nanos;

use super::{Client, Gpu, words};
use crate::driver;

/// Events of a context for marks: with one in a millisecond a program may run ahead so many milliseconds.
const MARK_EVENTS: usize = 128;

/// All contexts of the process on one GPU.
#[derive(Default)]
pub struct Contexts {
    known: Lock<Vec<&'static Context>>,
    greens: Lock<Vec<(u64, u64)>>, // the handle, and that of the context that stands for it
}

/// One of them.
pub struct Context {
    /// The driver's handle.
    pub handle: u64,
    /// That of the primary context that a green one is a part of; else its own. Memory is that one's.
    pub root: u64,
    /// What is in flight in its streams.
    pub flight: Flight,
    /// When the last launch of a signature that was never measured was due to be bounded: some may be bounded ahead of that.
    pub bound_at_ns: AtomicU64,
    /// The first launch of a burst is next measured apart from the rest then.
    pub apart_at_ns: AtomicU64,
    closed: AtomicBool,
}

impl Gpu {
    /// The context with this handle; made known on first sight. Its handle is current on the calling thread.
    pub fn context(&self, handle: u64) -> &'static Context {
        self.find_context(handle).unwrap_or_else(|| {
            self.ask_mode();
            if let Some(client) = Client::get() {
                client.start_helper();
            }
            self.add_context(handle, |context| {
                context.make_events();
                if wants_words(self.grant.read().in_flight_cap) {
                    words::give(&context.flight, self.in_stream);
                }
            })
        })
    }

    /// Makes a context known, then lets `equip` ask the driver for what it needs. That takes the driver a while, and nobody
    /// waits for it: another thread that launches in this context meanwhile puts no marks there.
    fn add_context(&self, handle: u64, equip: impl FnOnce(&Context)) -> &'static Context {
        let green = self.contexts.greens.lock().iter().any(|(_, context)| *context == handle);
        let root = if green { self.primary.load(Ordering::Relaxed) } else { handle };
        let mut contexts = self.contexts.known.lock();
        if let Some(known) = contexts.iter().find(|context| context.handle == handle) {
            return known; // another thread was faster
        }
        // Leaked on purpose: threads keep it at hand. A program makes a handful of contexts in its life.
        let context: &'static Context = Box::leak(Box::new(Context::new(handle, root)));
        contexts.push(context);
        drop(contexts);
        equip(context);
        context
    }

    /// The context with this handle, if it is known.
    pub fn find_context(&self, handle: u64) -> Option<&'static Context> {
        self.contexts.known.lock().iter().find(|context| context.handle == handle).copied()
    }

    /// A green context is there; `context` stands for it.
    pub fn add_green(&self, green: u64, context: u64) {
        self.contexts.greens.lock().push((green, context));
    }

    /// A green context is gone; says whether it was one of this GPU.
    pub fn forget_green(&self, green: u64) -> bool {
        let mut greens = self.contexts.greens.lock();
        let Some(at) = greens.iter().position(|(known, _)| *known == green) else { return false };
        let (_, context) = greens.swap_remove(at);
        drop(greens);
        self.forget_context(context);
        true
    }

    /// The green contexts that are parts of the context with this handle.
    pub fn parts_of(&self, handle: u64) -> Vec<&'static Context> {
        let part = |context: &&'static Context| context.root == handle && context.handle != handle;
        self.contexts.known.lock().iter().copied().filter(part).collect()
    }

    /// Every context that the process has here. Nothing is held meanwhile: who visits may wait in the driver, and the helper comes
    /// here, too. The last one first: one that takes the place of another that goes is visited twice, and none is missed.
    pub fn for_each_context(&self, mut visit: impl FnMut(&&'static Context)) {
        let nth = |at: usize| self.contexts.known.lock().get(at).copied();
        let count = self.contexts.known.lock().len();
        (0..count).rev().filter_map(nth).for_each(|context| visit(&context));
    }

    /// Gives up what is in flight in contexts that an error has broken. Nobody will see its end: the process would count as being at
    /// work for ever, and nothing of its neighbours' would be measured.
    pub fn give_up_broken(&self) {
        let contexts: Vec<_> = self.contexts.known.lock().clone();
        for context in contexts {
            if context.flight.any_event().is_some_and(|event| driver::is_broken(driver::handle(event))) {
                self.let_all_go();
                self.book_runs();
                context.close(self.slot());
            }
        }
        self.end_if_idle();
    }

    /// Forgets a context that is gone: nothing of it is in flight any more, whichever thread had launched it.
    pub fn forget_context(&self, handle: u64) {
        self.let_all_go();
        self.book_runs();
        let mut contexts = self.contexts.known.lock();
        let Some(at) = contexts.iter().position(|context| context.handle == handle) else { return };
        let context = contexts.swap_remove(at);
        drop(contexts);
        context.close(self.slot());
        self.end_if_idle(); // it may have been all that the process had here
    }
}

impl Context {
    /// Lets go of events that died with the driver's context. Other threads may still hold the context at hand; they
    /// find nothing in it that they could use.
    fn close(&self, slot: &ProcessSlot) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // either we find what another thread books, or it finds this
        self.flight.reset(slot);
    }

    /// Counts so many launches on `stream`, predicted to take `ns`. If the context is gone by now, nobody will see their end.
    pub fn submitted(&self, stream: u64, launches: u64, ns: u64, slot: &ProcessSlot) {
        self.flight.submitted(stream, launches, ns, slot);
        fence(Ordering::SeqCst); // as above
        if self.closed.load(Ordering::Relaxed) {
            self.flight.reset(slot);
        }
    }

    /// As [`Self::submitted`], for a launch that waits for a piece.
    pub fn joined(&self, stream: u64, ns: u64, slot: &ProcessSlot) {
        self.flight.joined(stream, ns);
        fence(Ordering::SeqCst); // as above
        if self.closed.load(Ordering::Relaxed) {
            self.flight.reset(slot);
        }
    }

    fn new(handle: u64, root: u64) -> Self {
        Self {
            handle,
            root,
            flight: Flight::default(),
            bound_at_ns: AtomicU64::new(0),
            apart_at_ns: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    fn make_events(&self) {
        let _relaxed = driver::Relaxed::enter();
        let create = || {
            let mut event: CUevent = std::ptr::null_mut();
            (driver::event_create(&raw mut event, 0) == CUDA_SUCCESS).then_some(event)
        };
        let marks = (0..MARK_EVENTS).map_while(|_| create());
        let marks: Vec<_> = marks.map(|event| event.addr() as u64).collect();
        self.flight.add_events(marks); // they are there: nothing is held while the driver makes them
    }
}

/// Whether completion shall show by words under this cap; without one it need not show soon.
fn wants_words(cap: Nanos) -> bool {
    cap > Nanos(0)
}

#[cfg(test)]
mod tests {
    use weir_core::flight::Place;

    use super::*;
    use crate::link::a_gpu;

    #[test]
    fn who_destroys_its_only_context_with_work_in_flight_has_none_any_more() {
        let gpu = a_gpu();
        let context = Box::leak(Box::new(Context::new(7, 7)));
        gpu.contexts.known.lock().push(context);
        gpu.begin();
        context.flight.opens(1, Place(1), 0);
        context.submitted(1, 1, 1_000, gpu.slot());
        gpu.has_begun();
        gpu.end_if_idle();
        assert!(gpu.activity.quiet(None).is_none(), "it is under way");
        gpu.forget_context(7);
        assert!(gpu.activity.quiet(None).is_some() && !gpu.is_busy());
    }

    #[test]
    fn while_the_driver_equips_a_context_nobody_waits_for_it() {
        let gpu = a_gpu();
        let context = gpu.add_context(1, |_| {
            assert!(gpu.contexts.known.try_lock().is_some(), "a launch in another context would wait");
            gpu.add_context(1, |_| unreachable!("it is known, and another thread is at it"));
        });
        assert!(gpu.find_context(1).is_some_and(|known| std::ptr::eq(known, context)));
    }

    #[test]
    fn words_are_for_who_has_a_cap_and_not_for_who_has_none() {
        let wants = [Nanos(0), Nanos::from_micros(300), Nanos::from_millis(20)].map(wants_words);
        assert_eq!(wants, [false, true, true]);
    }
}
