//! The driver's exports that hooks stand for, by address: read in one walk of the library that an address lies in, and kept
//! until a library is unloaded anywhere, since another one may lie there then.

use std::ffi::c_void;
use std::ops::Range;

use weir_core::lock::Lock;

use super::elf::{self, Unloads};
use super::hook::{self, Hook};

/// The hooked exports of one library.
struct Exports {
    read_at: Unloads,
    library: Range<usize>,
    hooks: Vec<(usize, &'static Hook)>, // by address
}

static KNOWN: Lock<Option<Exports>> = Lock::new(None);

/// The hook of the driver whose real function is at this address.
pub fn hook_at(real: *const c_void) -> Option<&'static Hook> {
    let address = real as usize;
    let unloads = elf::unloads();
    let is_known = |exports: &&Exports| exports.read_at == unloads && exports.library.contains(&address);
    // Never waited for: a forked child may find it held for ever.
    let known = KNOWN
        .try_lock()
        .and_then(|known| known.as_ref().filter(is_known).map(|exports| exports.hook_at(address)));
    if let Some(hook) = known {
        return hook;
    }
    let exports = Exports::around(address)?;
    let hook = exports.hook_at(address);
    let before = KNOWN.try_lock().and_then(|mut known| known.replace(exports));
    drop(before);
    hook
}

impl Exports {
    fn around(address: usize) -> Option<Self> {
        let mut hooks = Vec::with_capacity(hook::of_driver().count()); // nothing is allocated while the loader holds its lock
        elf::look_into(address, |library| {
            let of = |hook: &'static Hook| library.find(hook.symbol).map(|real| (real as usize, hook));
            hooks.extend(hook::of_driver().filter_map(of));
            hooks.sort_unstable_by_key(|(address, hook)| (*address, hook.symbol)); // of two names of one function the first
            Self { read_at: library.unloads, library: library.range.clone(), hooks }
        })
    }

    fn hook_at(&self, address: usize) -> Option<&'static Hook> {
        let at = self.hooks.partition_point(|(exported, _)| *exported < address);
        self.hooks.get(at).filter(|(exported, _)| *exported == address).map(|(_, hook)| *hook)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_driver_exports_is_no_hooks_real_function() {
        let ours = hook::of_driver().next().map(Hook::ours);
        let libc = elf::find_in_c_library(c"dlsym");
        assert!(ours.is_some() && libc.is_some());
        assert!(
            [ours, libc, Some(std::ptr::null())].into_iter().flatten().all(|real| hook_at(real).is_none())
        );
    }
}
