//! Faults of our own on demand: `WEIR_FAILPOINT=1` makes every hook but `cuInit` panic where it runs our code first,
//! `2` where it does so for the second time in a call, `after` wherever it does once the driver has answered; `cuInit:1` is
//! `cuInit` alone. For the story that shows what a program sees of them. Compiled in with the feature `failpoints` only,
//! which nothing that is installed has.

/// A hook is entered.
#[inline(always)]
pub fn enter(_symbol: &'static str) {
    #[cfg(feature = "failpoints")]
    armed::enter(_symbol);
}

/// The driver has answered the call for which the hook stands.
#[inline(always)]
pub fn called() {
    #[cfg(feature = "failpoints")]
    armed::called();
}

/// Our code begins to run within the hook that was entered last: panics if this is the place.
#[inline(always)]
pub fn pass() {
    #[cfg(feature = "failpoints")]
    armed::pass();
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::cell::Cell;

    /// A hook in progress.
    #[derive(Clone, Copy)]
    struct Hook {
        symbol: &'static str,
        passed: u32,
        called: bool, // the driver has answered
    }

    thread_local! {
        static HOOK: Cell<Hook> = const { Cell::new(Hook { symbol: "", passed: 0, called: false }) };
    }

    pub fn enter(symbol: &'static str) {
        HOOK.set(Hook { symbol, passed: 0, called: false });
    }

    pub fn called() {
        HOOK.set(Hook { called: true, ..HOOK.get() });
    }

    #[allow(clippy::panic, reason = "this is the fault that was asked for")]
    pub fn pass() {
        let before = HOOK.get();
        let hook = Hook { passed: before.passed + 1, ..before };
        HOOK.set(hook);
        let Ok(place) = std::env::var("WEIR_FAILPOINT") else { return };
        let (of, nth) = place.split_once(':').unwrap_or(("", &place));
        let is_wanted =
            if of.is_empty() { !["", "cuInit"].contains(&hook.symbol) } else { of == hook.symbol };
        let is_here = if nth == "after" { hook.called } else { nth.parse() == Ok(hook.passed) };
        if is_wanted && is_here {
            panic!("failpoint in {}", hook.symbol);
        }
    }
}
