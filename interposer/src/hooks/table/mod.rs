//! The table of hooks, in files by subject.
//!
//! A row gives the exported symbol, the slot of the real function, the answer to `dlsym`, `dlvsym` and
//! `cuGetProcAddress`, and its line in the documentation. Its type is checked against the driver's by the compiler.
//! See `docs/adding-a-hook.md`.

use super::nvml;
use crate::resolve::hook::Hooks;

/// A symbol as a C string.
macro_rules! c_name {
    ($symbol:ident) => {{
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
        NAME
    }};
}
pub(crate) use c_name;

/// The address of one of our functions: from where the code is, while what is exported would be looked up by the loader.
macro_rules! address_of {
    ($symbol:ident) => {{
        let address: *const std::ffi::c_void;
        // SAFETY: reads nothing.
        unsafe {
            std::arch::asm!(
                "lea {}, [rip + {}]",
                out(reg) address,
                sym $symbol,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        address
    }};
}
pub(crate) use address_of;

/// Each row: documentation, the driver's function, and the handler. In a handler's arguments `call` stands for the
/// real function with these arguments, to be called once.
macro_rules! driver_hooks {
    ($($(#[doc = $doc:literal])+
       fn $symbol:ident($($arg:ident: $kind:ty),* $(,)?) = |$call:ident| $handler:expr;)+) => {
        $(
            $(#[doc = $doc])+
            ///
            /// # Safety
            /// As the driver's function of this name.
            #[allow(non_snake_case, reason = "hooked functions keep their exact CUDA name")]
            #[cfg_attr(not(any(test, feature = "proxy")), unsafe(no_mangle))]
            pub unsafe extern "C" fn $symbol($($arg: $kind),*) -> weir_abi::CUresult {
                crate::failpoint::enter(stringify!($symbol));
                let Some(real) = real::$symbol.get(c_name!($symbol)) else { return weir_abi::types::CUDA_ERROR_NOT_FOUND };
                // SAFETY: `real` is the driver's function of this symbol, whose type the table of weir-abi gives.
                let real = unsafe { std::mem::transmute::<std::ptr::NonNull<std::ffi::c_void>, weir_abi::fns::$symbol>(real) };
                let $call = || {
                    // SAFETY: the arguments are the caller's own, for this very function.
                    let result = unsafe { real($($arg),*) };
                    crate::failpoint::called();
                    result
                };
                $handler
            }
            const _: weir_abi::fns::$symbol = $symbol;
        )+

        /// Each hook's line of documentation.
        #[cfg(test)]
        pub static DRIVER_HOOK_LINES: &[(&str, &str)] = &[$((stringify!($symbol), concat!($($doc),+))),+];

        /// The real function behind each hook.
        mod real {
            #![allow(non_upper_case_globals, reason = "named as the symbol it stands for")]
            use crate::resolve::hook::Real;
            $(pub static $symbol: Real = Real::new();)+
        }

        /// Adds the rows of this file.
        pub fn add_hooks(hooks: &mut crate::resolve::hook::Hooks) {
            $(hooks.add_of_driver(
                c_name!($symbol),
                weir_abi::rows::$symbol.base,
                (weir_abi::rows::$symbol.since, weir_abi::rows::$symbol.stream),
                address_of!($symbol),
                &real::$symbol,
            );)+
        }
    };
}

/// Position of a launch symbol among the counted ones, found at compile time.
macro_rules! counted {
    ($symbol:ident) => {{
        const AT: usize =
            crate::hooks::table::position(&weir_protocol::pages::COUNTED_LAUNCHES, stringify!($symbol));
        AT
    }};
}

/// Position of a memory symbol among the counted ones, found at compile time.
macro_rules! memory_call {
    ($symbol:ident) => {{
        const AT: usize =
            crate::hooks::table::position(&weir_protocol::pages::COUNTED_MEMORY_CALLS, stringify!($symbol));
        AT
    }};
}

/// Where `name` stands in `names`. A name that is not there stops the build.
#[allow(clippy::indexing_slicing, reason = "runs at compile time only")]
const fn position(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    loop {
        assert!(at < names.len(), "this symbol has no counter: add it to the list in weir-protocol");
        if same(names[at].as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
}

#[allow(clippy::indexing_slicing, reason = "runs at compile time only")]
const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

// Behind the macros, whose rows they have.
mod context;
mod copy;
mod graph;
mod launch;
mod memory;
mod order;
mod start;
mod vmm;

macro_rules! tables {
    ($($file:ident),+) => {
        /// Adds all rows.
        pub fn add_hooks(hooks: &mut Hooks) {
            $($file::add_hooks(hooks);)+
            nvml::add_hooks(hooks);
        }

        /// The lines of all hooks of the driver.
        #[cfg(test)]
        pub fn driver_hook_lines() -> impl Iterator<Item = (&'static str, &'static str)> {
            [$($file::DRIVER_HOOK_LINES),+].into_iter().flatten().copied()
        }
    };
}

// In the order of the documentation.
tables!(start, launch, order, graph, context, memory, vmm, copy);
