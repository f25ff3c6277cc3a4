//! Functions of libraries that are loaded, found without asking the loader. Of the C library: `dlsym` and `dlvsym`,
//! because every ordinary look-up of them, ours included, ends at our own exports; and a few that we must not name (see
//! `old_glibc`). Of the driver: because a look-up may come out of an allocator that the loader itself has called, and
//! then the loader cannot be asked to open anything.
//!
//! The dynamic symbol tables are read instead. Source: the ELF gABI, "Dynamic Section" and "Symbol Table"; the layout
//! of DT_GNU_HASH as glibc reads it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;

/// Where glibc keeps its functions; since 2.34 all of them are in the first.
const C_LIBRARY: [&CStr; 3] = [c"libc.so.6", c"libdl.so.2", c"libpthread.so.0"];

/// A function of the C library; `None` if no part of it that has the function is loaded.
pub fn find_in_c_library(name: &CStr) -> Option<*const c_void> {
    find_in(&C_LIBRARY, name)
}

/// A function of the first loaded library that has one of these names, by its file or by its own word, and has the
/// function.
pub fn find_in(libraries: &[&CStr], name: &CStr) -> Option<*const c_void> {
    let is = |candidate: &[u8]| libraries.iter().any(|library| library.to_bytes() == candidate);
    let mut found = None;
    first_object(|info| {
        if info.dlpi_name.is_null() {
            return false;
        }
        // SAFETY: the loader describes an object that is loaded, its names are C strings that live as long, and it lets none go while it
        // calls us.
        unsafe {
            let path = CStr::from_ptr(info.dlpi_name).to_bytes();
            let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            if let Some(table) = Table::of(info)
                && (is(file) || table.own_name().is_some_and(|name| is(name.to_bytes())))
            {
                found = table.find(name);
            }
        }
        found.is_some()
    });
    found
}

/// How many objects the loader has unloaded: while that stays, what was loaded lies where it lay. musl's loader, which unloads none, says 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unloads(u64);

/// The count now.
pub fn unloads() -> Unloads {
    let mut unloads = Unloads(0);
    first_object(|info| {
        unloads = Unloads(info.dlpi_subs);
        true
    });
    unloads
}

/// A loaded object.
pub struct Object {
    /// Where it lies.
    pub range: Range<usize>,
    /// Objects unloaded when it was found.
    pub unloads: Unloads,
    table: Table,
}

impl Object {
    /// The address of one of its symbols. Only while the loader shows it: in [`look_into`].
    pub fn find(&self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: `look_into` lends an object out only while the loader keeps it.
        unsafe { self.table.find(name) }
    }
}

/// What `look` makes of the object that lies at this address. Meanwhile the loader lets none go.
pub fn look_into<R>(address: usize, look: impl FnOnce(&Object) -> R) -> Option<R> {
    let (mut look, mut seen) = (Some(look), None);
    first_object(|info| {
        let Some(range) = range(info).filter(|range| range.contains(&address)) else { return false };
        // SAFETY: the loader describes an object that is loaded.
        if let (Some(table), Some(look)) = (unsafe { Table::of(info) }, look.take()) {
            seen = Some(look(&Object { range, unloads: Unloads(info.dlpi_subs), table }));
        }
        true
    });
    seen
}

/// Where the object's segments lie.
fn range(info: &libc::dl_phdr_info) -> Option<Range<usize>> {
    let base = usize::try_from(info.dlpi_addr).ok()?;
    // SAFETY: the loader guarantees `dlpi_phnum` program headers at `dlpi_phdr`.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = loaded().map(|header| header.p_vaddr).min()?;
    let end = loaded().map(|header| header.p_vaddr.saturating_add(header.p_memsz)).max()?;
    Some(base + usize::try_from(start).ok()?..base + usize::try_from(end).ok()?)
}

/// Shows loaded objects until `is_it` says so of one.
fn first_object<F: FnMut(&libc::dl_phdr_info) -> bool>(mut is_it: F) {
    unsafe extern "C" fn show<F: FnMut(&libc::dl_phdr_info) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid description, and `data` is the closure of `first_object`.
        let (info, is_it) = unsafe { (&*info, &mut *data.cast::<F>()) };
        c_int::from(is_it(info))
    }
    // SAFETY: `show` gets the closure back as `data` and is done with it when the call returns.
    unsafe { libc::dl_iterate_phdr(Some(show::<F>), (&raw mut is_it).cast()) };
}

/// One object's dynamic symbols.
struct Table {
    base: usize,
    symbols: *const libc::Elf64_Sym,
    strings: *const c_char,
    hash: *const u32,
    own_name: Option<usize>, // where its name stands among the strings
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// One entry of a dynamic section.
#[repr(C)]
struct Dyn {
    tag: i64,
    value: usize,
}

impl Table {
    /// # Safety
    /// `info` describes a loaded object.
    unsafe fn of(info: &libc::dl_phdr_info) -> Option<Self> {
        let base = usize::try_from(info.dlpi_addr).ok()?;
        // SAFETY: the loader guarantees `dlpi_phnum` program headers at `dlpi_phdr`.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut entry = (base + usize::try_from(dynamic.p_vaddr).ok()?) as *const Dyn;
        let mut table = Self {
            base,
            symbols: std::ptr::null(),
            strings: std::ptr::null(),
            hash: std::ptr::null(),
            own_name: None,
        };
        // glibc has relocated the addresses in place, except in the kernel's own object.
        let address = |value: usize| if value < base { base + value } else { value };
        // SAFETY: a dynamic section ends with a null tag.
        while let Dyn { tag: 1.., value } = unsafe { &*entry } {
            // SAFETY: as above: this entry is not the last.
            match unsafe { (*entry).tag } {
                DT_STRTAB => table.strings = address(*value) as *const c_char,
                DT_SYMTAB => table.symbols = address(*value) as *const libc::Elf64_Sym,
                DT_GNU_HASH => table.hash = address(*value) as *const u32,
                DT_SONAME => table.own_name = Some(*value),
                _ => {}
            }
            // SAFETY: as above.
            entry = unsafe { entry.add(1) };
        }
        let whole = !table.symbols.is_null() && !table.strings.is_null() && !table.hash.is_null();
        whole.then_some(table)
    }

    /// What the object calls itself.
    ///
    /// # Safety
    /// The table's pointers are those of a loaded object.
    unsafe fn own_name(&self) -> Option<&CStr> {
        // SAFETY: the strings are NUL-terminated, and the name stands among them.
        self.own_name.map(|at| unsafe { CStr::from_ptr(self.strings.add(at)) })
    }

    /// Walks the GNU hash table's chain for `name`.
    ///
    /// # Safety
    /// The table's pointers are those of a loaded object.
    unsafe fn find(&self, name: &CStr) -> Option<*const c_void> {
        let hash = gnu_hash(name.to_bytes());
        // SAFETY: header, bloom filter, buckets and chains follow each other as the format says; a bucket of zero
        // means no such symbol, and a chain ends at the first hash with its lowest bit set.
        unsafe {
            let [buckets, first, bloom_words] = [0, 1, 2].map(|at| *self.hash.add(at) as usize);
            if buckets == 0 {
                return None;
            }
            let bucket_table = self.hash.add(4 + 2 * bloom_words);
            let mut index = *bucket_table.add(hash as usize % buckets) as usize;
            if index < first {
                return None;
            }
            loop {
                let chained = *bucket_table.add(buckets + index - first);
                let symbol = &*self.symbols.add(index);
                let found = CStr::from_ptr(self.strings.add(symbol.st_name as usize));
                if chained | 1 == hash | 1 && found == name && symbol.st_shndx != 0 {
                    let address = self.base + usize::try_from(symbol.st_value).ok()?;
                    return Some(address as *const c_void);
                }
                if chained & 1 == 1 {
                    return None;
                }
                index += 1;
            }
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_librarys_own_functions_are_found() {
        for name in [c"dlsym", c"dlvsym", c"pthread_key_create", c"dladdr"] {
            // SAFETY: a look-up by a C string.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(find_in_c_library(name), Some(expected.cast_const()), "{name:?}");
        }
        assert_eq!(find_in_c_library(c"no_such_function"), None);
    }

    #[test]
    fn a_library_is_found_by_its_file_and_by_its_own_name_and_no_other_is_asked() {
        assert!(find_in(&[c"libc.so.6"], c"dlsym").is_some());
        assert!(find_in(&[c"linux-vdso.so.1"], c"__vdso_clock_gettime").is_some(), "its file has no name");
        assert_eq!(find_in(&[c"libm.so.6"], c"dlsym"), None);
        assert_eq!(find_in(&[c"libc.so"], c"dlsym"), None);
    }
}
