//! A hook: one exported symbol, our function for it, and the real one.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use weir_abi::Stream;
use weir_abi::types::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

use super::dlsym;
use crate::hooks::add_hooks;
use crate::made::Made;

/// The real function behind one hook; null until it was looked up.
pub struct Real(AtomicPtr<c_void>);

impl Real {
    /// Not looked up yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The real function's address; looked up on first use by a program that is linked to it.
    #[inline]
    pub fn get(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // Acquire: what the loader did for this symbol is seen.
        NonNull::new(self.0.load(Ordering::Acquire)).or_else(|| self.look_up(symbol))
    }

    #[cold]
    fn look_up(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // Another interposer behind us stands before the driver; a driver that the program is linked to is next itself.
        let next = if cfg!(feature = "proxy") { None } else { dlsym::real_dlsym(libc::RTLD_NEXT, symbol) };
        let real = next.or_else(|| super::driver_symbol(symbol))?;
        self.0.store(real.cast_mut(), Ordering::Release);
        NonNull::new(real.cast_mut())
    }
}

/// One row of the hook table.
pub struct Hook {
    /// The exported symbol.
    pub symbol: &'static CStr,
    variant: Option<Variant>, // of a function of the driver
    ours: *const c_void,
    real: &'static Real,
}

/// Which of the functions that `cuGetProcAddress` knows by one name.
struct Variant {
    base: &'static str,
    since: u32,
    stream: Stream,
}

/// Hooks, row by row. They are written down by code at the first look-up: of a table that lies in the library the loader
/// would have to mend each address, in every program that starts.
#[derive(Default)]
pub struct Hooks(Vec<Hook>);

// SAFETY: the pointer is the address of a function; nothing is ever written through it.
unsafe impl Send for Hook {}
// SAFETY: as above.
unsafe impl Sync for Hook {}

impl Hooks {
    /// A row for a function of the driver: the variant of `base` since a version, for a default stream.
    #[inline(never)] // else the compiler makes a table of them again
    pub fn add_of_driver(
        &mut self,
        symbol: &'static CStr,
        base: &'static str,
        (since, stream): (u32, Stream),
        ours: *const c_void,
        real: &'static Real,
    ) {
        self.0.push(Hook { symbol, variant: Some(Variant { base, since, stream }), ours, real });
    }

    /// A row for a function of NVML.
    #[inline(never)] // as above
    pub fn add_of_nvml(&mut self, symbol: &'static CStr, ours: *const c_void, real: &'static Real) {
        self.0.push(Hook { symbol, variant: None, ours, real });
    }

    /// The rows.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.0.iter()
    }
}

impl Hook {
    /// Our function.
    pub fn ours(&self) -> *const c_void {
        self.ours
    }

    /// Remembers the real function; the first one found stays. A driver that finds its own exports through the loader
    /// hands ours out already: that is no news of the real one.
    pub fn set_real(&self, real: *const c_void) {
        if real == self.ours {
            return;
        }
        let null = std::ptr::null_mut();
        // A lost race found the same function.
        let _ = self.real.0.compare_exchange(null, real.cast_mut(), Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The hook for an exported symbol.
pub fn by_symbol(symbol: &[u8]) -> Option<&'static Hook> {
    let sorted = sorted();
    let at = sorted.binary_search_by(|hook| hook.symbol.to_bytes().cmp(symbol)).ok()?;
    sorted.get(at)
}

/// The hooks of functions of the driver, in alphabetical order.
pub fn of_driver() -> impl Iterator<Item = &'static Hook> {
    sorted().iter().filter(|hook| hook.variant.is_some())
}

/// The hook for what `cuGetProcAddress(base, version, flags)` means: the youngest variant that `version` has, in the
/// flavour that the flags ask for if there is one. A test holds this against the table of all symbols.
pub fn by_base(base: &str, version: u32, flags: u64) -> Option<&'static Hook> {
    if let Some(symbol) = weir_abi::renamed(base, version) {
        return by_symbol(symbol.as_bytes());
    }
    let youngest = |stream: Stream| {
        let fits = |known: &Variant| known.base == base && known.stream == stream && known.since <= version;
        let hooks = sorted().iter().filter(|hook| hook.variant.as_ref().is_some_and(fits));
        hooks.max_by_key(|hook| hook.variant.as_ref().map(|known| known.since))
    };
    let per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0;
    let flavoured = if per_thread { youngest(Stream::PerThread) } else { None };
    flavoured.or_else(|| youngest(Stream::Legacy))
}

fn sorted() -> &'static [Hook] {
    static SORTED: Made<Vec<Hook>> = Made::new();
    SORTED.get(|| {
        let mut hooks = Hooks::default();
        add_hooks(&mut hooks);
        hooks.0.sort_unstable_by_key(|hook| hook.symbol);
        hooks.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_is_found_by_its_symbol_and_stands_once() {
        for hook in sorted() {
            assert!(by_symbol(hook.symbol.to_bytes()).is_some_and(|found| std::ptr::eq(found, hook)));
        }
        assert!(
            sorted().windows(2).all(|pair| pair.first().map(|h| h.symbol) < pair.last().map(|h| h.symbol))
        );
    }

    #[test]
    fn a_hooked_function_is_found_as_the_driver_finds_it_and_no_younger_variant_of_it_is_missed() {
        let versions =
            weir_abi::SYMBOLS.iter().map(|symbol| symbol.since).collect::<std::collections::BTreeSet<_>>();
        for Variant { base, since, .. } in sorted().iter().filter_map(|hook| hook.variant.as_ref()) {
            for (&version, flags) in versions.iter().filter(|v| *v >= since).flat_map(|v| [(v, 0), (v, 2)]) {
                let driver = weir_abi::resolve(base, version, flags).map(|symbol| symbol.name).ok();
                let ours = by_base(base, version, flags).and_then(|hook| hook.symbol.to_str().ok());
                assert_eq!(ours, driver, "{base} {version} {flags}");
            }
        }
    }

    #[test]
    fn every_driver_hook_is_an_exported_symbol_of_the_driver() {
        for hook in sorted().iter().filter(|hook| hook.symbol.to_bytes().starts_with(b"cu")) {
            let name = hook.symbol.to_str().unwrap_or_default();
            assert!(weir_abi::index_of(name).is_some(), "{name}");
        }
    }
}
