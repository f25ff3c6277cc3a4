//! The tenants to which this one gives way: whether any of them has work, without a lock (gpu-truths, rule 13).
//!
//! Each launch of a filler asks. It costs one load for each better, whose page says by a counter that it has begun or ended
//! work. While the counters stand where they stood when all were found quiet, all are.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use weir_protocol::mapping::Mapped;
use weir_protocol::pages::ActivityPage;
use weir_protocol::units::Nanos;

use super::connection::File;

/// A better's page.
pub struct Better {
    /// By this it is known. Not by its tenant's number: a manager that starts again gives that to the new page of a tenant
    /// of which no process was left, and the tenant itself could write another one.
    pub file: File,
    /// The page.
    pub page: Arc<Mapped<ActivityPage>>,
}

/// Betters, as they were said to be. Never freed: another thread may be reading them.
struct List {
    betters: Vec<Better>,
    calm: AtomicU64, // the sum of their counters when all were found quiet, and had been for a while
    quiet: AtomicU64, // the same when they were first found so
    quiet_at: AtomicU64, // and when that was
}

/// No sum of counters: they are 32 bits wide, and few.
const STIRRED: u64 = u64::MAX;

/// The betters on one GPU.
#[derive(Default)]
pub struct Betters(AtomicPtr<List>);

impl Betters {
    /// They are these from now on.
    pub fn replace(&self, betters: Vec<Better>) {
        let files = |betters: &[Better]| betters.iter().map(|better| better.file).collect::<Vec<_>>();
        if self.list().map_or(betters.is_empty(), |old| files(&old.betters) == files(&betters)) {
            return; // tenants come and go; betters seldom do
        }
        let list = match betters.is_empty() {
            true => std::ptr::null_mut(),
            false => {
                let [calm, quiet, quiet_at] = [STIRRED, STIRRED, 0].map(AtomicU64::new);
                Box::into_raw(Box::new(List { betters, calm, quiet, quiet_at }))
            }
        };
        // Release: whoever finds the list finds what is in it. The old one stays: a launch may be looking at it.
        self.0.store(list, Ordering::Release);
    }

    #[inline]
    fn list(&self) -> Option<&List> {
        // SAFETY: null, or a list that `replace` has made and that is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Whether none of them has begun anything since they were last found quiet. For the launch path.
    #[inline]
    pub fn are_calm(&self) -> bool {
        self.list().is_none_or(|list| list.edges() == list.calm.load(Ordering::Relaxed))
    }

    /// Looks whether all are quiet, and have been for a while; else says for whom to wait, and where its counter stands.
    pub fn look(&self, now: impl FnOnce() -> Nanos) -> Result<(), (Arc<Mapped<ActivityPage>>, u32)> {
        let Some(list) = self.list() else { return Ok(()) };
        let edges = list.edges(); // first: whoever begins after this moves it on
        for Better { page, .. } in &list.betters {
            let before = page.edges();
            if page.quiet(None).is_none() {
                list.calm.store(STIRRED, Ordering::Relaxed);
                return Err((page.clone(), before));
            }
        }
        if list.calm.load(Ordering::Relaxed) == edges {
            return Ok(());
        }
        let now = now();
        if list.quiet.swap(edges, Ordering::Relaxed) != edges {
            list.quiet_at.store(now.0, Ordering::Relaxed);
        }
        let is_over = now.since(Nanos(list.quiet_at.load(Ordering::Relaxed))) >= list.grace();
        match list.betters.iter().max_by_key(|better| better.page.standing.grace()) {
            Some(last) if !is_over => Err((last.page.clone(), last.page.edges())),
            _ => {
                list.calm.store(edges, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl List {
    #[inline]
    fn edges(&self) -> u64 {
        self.betters.iter().map(|better| u64::from(better.page.edges())).sum()
    }

    /// For how long they count as at work after all have drained: a server pauses for some tenths of a millisecond between two steps,
    /// and what went out meanwhile would hold it up.
    fn grace(&self) -> Nanos {
        self.betters.iter().map(|better| better.page.standing.grace()).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::link::connection::file_of;

    /// Looks twice, the second time long after the first.
    fn settle(betters: &Betters) -> Result<(), (Arc<Mapped<ActivityPage>>, u32)> {
        let _ = betters.look(|| Nanos(1));
        betters.look(|| Nanos::from_secs(1))
    }

    /// A page of the tenant with this number.
    fn better(tenant: u64) -> Better {
        let (file, page) = Mapped::<ActivityPage>::create("test").unwrap();
        page.init(tenant);
        Better { file: file_of(file.as_fd()).unwrap(), page: Arc::new(page) }
    }

    #[test]
    fn a_better_that_begins_is_seen_until_it_is_found_quiet_again() {
        let (betters, one) = (Betters::default(), better(1));
        assert!(betters.are_calm() && settle(&betters).is_ok(), "there is none");
        let page = one.page.clone();
        betters.replace(vec![one, better(2)]);
        assert!(!betters.are_calm(), "nobody has looked yet");
        assert!(settle(&betters).is_ok() && betters.are_calm());
        page.begin(0, || Nanos(1));
        assert!(
            !betters.are_calm()
                && settle(&betters)
                    .is_err_and(|(who, edges)| { Arc::ptr_eq(&who, &page) && edges == page.edges() })
        );
        page.end(0);
        assert!(!betters.are_calm() && settle(&betters).is_ok() && betters.are_calm());
    }

    #[test]
    fn a_better_that_has_just_drained_is_waited_for_a_moment_longer() {
        let (betters, one) = (Betters::default(), better(1));
        let page = one.page.clone();
        page.standing.set_grace(Nanos::from_micros(300));
        betters.replace(vec![one]);
        page.begin(0, || Nanos(1));
        page.end(0);
        let at = |us: u64| betters.look(|| Nanos::from_micros(us)).is_ok();
        assert!(!at(1_000) && !at(1_299) && at(1_300) && betters.are_calm());
        page.begin(0, || Nanos(1));
        page.end(0);
        assert!(!at(1_400) && !at(1_600) && at(1_700), "it was back meanwhile");
    }

    #[test]
    fn a_new_page_of_the_same_tenant_takes_the_old_ones_place() {
        let (betters, before, after) = (Betters::default(), better(1), better(1));
        betters.replace(vec![before]);
        assert!(settle(&betters).is_ok() && betters.are_calm());
        let page = after.page.clone();
        betters.replace(vec![after]);
        page.begin(0, || Nanos(1));
        assert!(!betters.are_calm() && settle(&betters).is_err());
    }
}
