//! The tenants to which this one gives way: whether any of them has work, without a lock (gpu-truths, rule 13).
//!
//! Each launch of a filler asks. It costs one load for each better, whose page says by a counter that it has begun or ended
//! work. While the counters stand where they stood when all were found quiet, all are.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use weir_protocol::mapping::Mapped;
use weir_protocol::pages::ActivityPage;

/// Pages of betters, as they were said to be. Never freed: another thread may be reading them.
struct Pages(Vec<Arc<Mapped<ActivityPage>>>);

/// No sum of counters: they are 32 bits wide, and few.
const STIRRED: u64 = u64::MAX;

/// The betters on one GPU.
pub struct Betters {
    pages: AtomicPtr<Pages>,
    calm: AtomicU64, // the sum of their counters when all were found quiet
}

impl Default for Betters {
    fn default() -> Self {
        Self { pages: AtomicPtr::default(), calm: AtomicU64::new(STIRRED) }
    }
}

impl Betters {
    /// They are these from now on.
    pub fn replace(&self, pages: Vec<Arc<Mapped<ActivityPage>>>) {
        let same = |old: &Pages| {
            old.0.len() == pages.len()
                && old.0.iter().zip(&pages).all(|(a, b)| a.turn.tenant() == b.turn.tenant())
        };
        if self.pages().map_or(pages.is_empty(), same) {
            return; // tenants come and go; betters seldom do
        }
        self.calm.store(STIRRED, Ordering::Relaxed);
        let pages =
            if pages.is_empty() { std::ptr::null_mut() } else { Box::into_raw(Box::new(Pages(pages))) };
        // Release: whoever finds the list finds what is in it. The old one stays: a launch may be looking at it.
        self.pages.store(pages, Ordering::Release);
    }

    #[inline]
    fn pages(&self) -> Option<&Pages> {
        // SAFETY: null, or a list that `replace` has made and that is never freed.
        unsafe { self.pages.load(Ordering::Acquire).as_ref() }
    }

    /// Whether none of them has begun anything since they were last found quiet. For the launch path.
    #[inline]
    pub fn are_calm(&self) -> bool {
        self.pages().is_none_or(|pages| pages.edges() == self.calm.load(Ordering::Relaxed))
    }

    /// Looks whether all are quiet; else says who is not, and where its counter stands.
    pub fn look(&self) -> Result<(), (Arc<Mapped<ActivityPage>>, u32)> {
        let Some(pages) = self.pages() else { return Ok(()) };
        let edges = pages.edges(); // first: whoever begins after this moves it on
        for page in &pages.0 {
            let before = page.edges();
            if page.quiet(None).is_none() {
                self.calm.store(STIRRED, Ordering::Relaxed);
                return Err((page.clone(), before));
            }
        }
        self.calm.store(edges, Ordering::Relaxed);
        Ok(())
    }
}

impl Pages {
    #[inline]
    fn edges(&self) -> u64 {
        self.0.iter().map(|page| u64::from(page.edges())).sum()
    }
}
