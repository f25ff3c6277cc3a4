//! Death on demand: `WEIR_NODE_FAILPOINT=register.noted:3` kills the manager, as SIGKILL does, when it comes to that
//! place for the third time. For the stories of restarts. Compiled in with the feature `failpoints` only, which nothing
//! that is installed has.

/// The places, each between two steps of which one without the other must be no harm.
pub const PLACES: [&str; 9] = [
    "create.noted",      // the tenant is in the journal, its neighbours do not know of it
    "register.noted",    // the process is in the journal, not on the page
    "register.added",    // and on the page, but has not been told
    "register.welcomed", // it has been told, nobody watches over it
    "resize.noted",      // the budget is in the journal, not on the page
    "resize.published",  // and on the page, but nobody has been told
    "bury.noted",        // the death is in the journal, the slot still full
    "bury.cleared",      // the slot is empty
    "end.begun",         // nobody needs the tenant, its budget is not free yet
];

/// The manager comes to a place.
#[inline]
pub fn at(_place: &'static str) {
    #[cfg(feature = "failpoints")]
    armed::at(_place);
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Where to die, and how many times to pass there before.
    static ORDER: OnceLock<Option<(String, usize)>> = OnceLock::new();
    static PASSED: AtomicUsize = AtomicUsize::new(0);

    fn order() -> Option<(String, usize)> {
        let order = std::env::var("WEIR_NODE_FAILPOINT").ok()?;
        let (place, count) = order.split_once(':').unwrap_or((&order, "1"));
        Some((place.to_owned(), count.parse().ok()?))
    }

    pub fn at(place: &'static str) {
        let Some((wanted, count)) = ORDER.get_or_init(order) else { return };
        if wanted == place && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == *count {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            loop {
                std::thread::park(); // the signal is on its way
            }
        }
    }
}
