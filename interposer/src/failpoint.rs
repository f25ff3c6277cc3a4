//! Faults of our own on demand: `WEIR_FAILPOINT=1` makes every hook but `cuInit` panic where it runs our code first,
//! `2` where it does so for the second time in a call; `cuInit:1` is `cuInit` alone. For the story that shows what a
//! program sees of them. Compiled in with the feature `failpoints` only, which nothing that is installed has.

/// A hook is entered.
#[inline(always)]
pub fn enter(_symbol: &'static str) {
    #[cfg(feature = "failpoints")]
    armed::enter(_symbol);
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

    thread_local! {
        static HOOK: Cell<(&'static str, u32)> = const { Cell::new(("", 0)) };
    }

    pub fn enter(symbol: &'static str) {
        HOOK.set((symbol, 0));
    }

    #[allow(clippy::panic, reason = "this is the fault that was asked for")]
    pub fn pass() {
        let (symbol, passed) = HOOK.get();
        HOOK.set((symbol, passed + 1));
        let Ok(place) = std::env::var("WEIR_FAILPOINT") else { return };
        let here = match place.split_once(':') {
            Some((wanted, nth)) => wanted == symbol && nth.parse() == Ok(passed + 1),
            None => symbol != "cuInit" && !symbol.is_empty() && place.parse() == Ok(passed + 1),
        };
        if here {
            panic!("failpoint in {symbol}");
        }
    }
}
