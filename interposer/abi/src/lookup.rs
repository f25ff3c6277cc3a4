//! What the driver's own look-up means: a base name, a version and flags pick one symbol.

use crate::types::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
use crate::{SYMBOLS, Stream, Symbol};

/// Why a look-up found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// No version of the driver has a function of this name.
    NoSuchName,
    /// The function exists, but only since this later version.
    Since(u32),
}

/// The symbol under which `version` has the function, where that is another function's.
pub fn renamed(base: &str, version: u32) -> Option<&'static str> {
    RENAMED.iter().find(|row| row.0 == base && version >= row.1).map(|row| row.2)
}

/// Functions whose newest form is exported under another function's symbol: (asked, since, symbol).
const RENAMED: &[(&str, u32, &str)] = &[("cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags")];

/// The position of an exported symbol in [`SYMBOLS`].
pub fn index_of(name: &str) -> Option<usize> {
    SYMBOLS.binary_search_by(|symbol| symbol.name.cmp(name)).ok()
}

/// The symbol that `cuGetProcAddress(base, version, flags)` means.
///
/// It is the youngest one that is not younger than `version`. With the flag for per-thread default streams
/// it is the `_ptsz` or `_ptds` flavour if the function has one. As with the driver, a name with a version
/// or stream suffix is no base name and finds nothing.
///
/// # Errors
/// [`Unresolved`] says whether the name is unknown or only the version too old.
pub fn resolve(base: &str, version: u32, flags: u64) -> Result<&'static Symbol, Unresolved> {
    if let Some(symbol) = renamed(base, version) {
        return index_of(symbol).map(|at| &SYMBOLS[at]).ok_or(Unresolved::NoSuchName);
    }
    let wanted = if flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0 {
        Stream::PerThread
    } else {
        Stream::Legacy
    };
    youngest(base, version, wanted).or_else(|| youngest(base, version, Stream::Legacy)).ok_or_else(|| {
        of_base(base).map(|symbol| symbol.since).min().map_or(Unresolved::NoSuchName, Unresolved::Since)
    })
}

/// The youngest symbol of `base` with this stream flavour that `version` already has.
fn youngest(base: &str, version: u32, stream: Stream) -> Option<&'static Symbol> {
    of_base(base)
        .filter(|symbol| symbol.stream == stream && symbol.since <= version)
        .max_by_key(|symbol| symbol.since)
}

/// All symbols of one base name. They start with it, so they lie together, with longer names between.
fn of_base(base: &str) -> impl Iterator<Item = &'static Symbol> {
    let first = SYMBOLS.partition_point(|symbol| symbol.name < base);
    SYMBOLS[first..]
        .iter()
        .take_while(move |symbol| symbol.name.starts_with(base))
        .filter(move |symbol| symbol.base == base)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_THREAD: u64 = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

    fn name(base: &str, version: u32, flags: u64) -> Result<&'static str, Unresolved> {
        resolve(base, version, flags).map(|symbol| symbol.name)
    }

    #[test]
    fn the_table_is_sorted_and_each_name_stands_once() {
        assert!(SYMBOLS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(SYMBOLS.iter().enumerate().all(|(at, symbol)| index_of(symbol.name) == Some(at)));
    }

    #[test]
    fn a_version_picks_the_youngest_symbol_that_it_has() {
        assert_eq!(name("cuMemAlloc", 2000, 0), Ok("cuMemAlloc"));
        assert_eq!(name("cuMemAlloc", 3020, 0), Ok("cuMemAlloc_v2"));
        assert_eq!(name("cuMemAlloc", 13000, 0), Ok("cuMemAlloc_v2"));
        assert_eq!(name("cuCtxCreate", 12040, 0), Ok("cuCtxCreate_v3"));
        assert_eq!(name("cuCtxCreate", 12050, 0), Ok("cuCtxCreate_v4"));
    }

    #[test]
    fn the_per_thread_flag_picks_the_flavour_where_there_is_one() {
        assert_eq!(name("cuLaunchKernel", 12000, PER_THREAD), Ok("cuLaunchKernel_ptsz"));
        assert_eq!(name("cuMemcpyHtoD", 12000, PER_THREAD), Ok("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(name("cuMemcpyHtoD", 6000, PER_THREAD), Ok("cuMemcpyHtoD_v2"), "older than the flavour");
        assert_eq!(name("cuMemAlloc", 12000, PER_THREAD), Ok("cuMemAlloc_v2"), "no stream, no flavour");
    }

    #[test]
    fn the_lookup_functions_are_found_by_themselves() {
        assert_eq!(name("cuGetProcAddress", 11030, 0), Ok("cuGetProcAddress"));
        assert_eq!(name("cuGetProcAddress", 12000, 0), Ok("cuGetProcAddress_v2"));
        assert_eq!(name("cuGetProcAddress", 12000, PER_THREAD), Ok("cuGetProcAddress_v2"));
    }

    #[test]
    fn a_renamed_function_is_found_under_its_old_name() {
        assert_eq!(name("cuGraphInstantiate", 11000, 0), Ok("cuGraphInstantiate_v2"));
        assert_eq!(name("cuGraphInstantiate", 12000, 0), Ok("cuGraphInstantiateWithFlags"));
    }

    #[test]
    fn what_is_no_base_name_is_told_apart_from_what_is_too_young() {
        assert_eq!(name("", 12000, 0), Err(Unresolved::NoSuchName));
        assert_eq!(name("cuMemAlloc_v2", 12000, 0), Err(Unresolved::NoSuchName));
        assert_eq!(name("cuMemAl", 12000, 0), Err(Unresolved::NoSuchName));
        assert_eq!(name("cuMemCreate", 10000, 0), Err(Unresolved::Since(10020)));
    }
}
