//! The preload in programs of all kinds: it loads where they load, and changes nothing that is not about the GPU.

use std::collections::BTreeSet;

use object::elf::{DT_NEEDED, FileHeader64, R_X86_64_64, R_X86_64_RELATIVE};
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, RelocationFlags, StringTable};
use weir_tests::dist::Dist;
use weir_tests::program::{Budget, Finished, Program};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::{bare_python, budgeted_python};

/// The oldest glibc that the library promises to load on, as in `GLIBC_2.17`.
const OLDEST_GLIBC: [u32; 2] = [2, 17];

/// The bytes of the library in both its forms.
fn libraries() -> [Vec<u8>; 2] {
    let dist = Dist::find();
    [dist.preload(), dist.proxy().join("libcuda.so.1")]
        .map(|file| std::fs::read(file).expect("the library can be read"))
}

/// The names after `GLIBC_` of all symbol versions that the library needs.
fn needed_glibc(bytes: &[u8]) -> BTreeSet<String> {
    let elf = ElfFile64::<Endianness>::parse(bytes).expect("an ELF library");
    let (endian, sections) = (elf.endian(), elf.elf_section_table());
    let (mut files, strings) =
        sections.gnu_verneed(endian, bytes).expect("well formed").expect("it needs the C library");
    let strings = sections.strings(endian, bytes, strings).expect("well formed");
    let mut versions = BTreeSet::new();
    while let Some((_, mut needed)) = files.next().expect("well formed") {
        while let Some(version) = needed.next().expect("well formed") {
            let name = version.name(endian, strings).expect("a name");
            versions.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    versions
}

/// The libraries that the library wants loaded with it.
fn needed_libraries(bytes: &[u8]) -> Vec<String> {
    let header = FileHeader64::<Endianness>::parse(bytes).expect("an ELF library");
    let endian = header.endian().expect("a known byte order");
    let sections = header.sections(endian, bytes).expect("well formed");
    let (entries, strings) =
        sections.dynamic(endian, bytes).expect("well formed").expect("a dynamic section");
    let strings: StringTable<'_> = sections.strings(endian, bytes, strings).expect("well formed");
    let needed = entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED));
    let name = |entry: &object::elf::Dyn64<_>| entry.string(endian, strings).expect("a name");
    needed.map(|entry| String::from_utf8_lossy(name(entry)).into_owned()).collect()
}

#[test]
fn the_library_loads_on_glibc_2_17_and_later() {
    let versions: BTreeSet<_> = libraries().iter().flat_map(|bytes| needed_glibc(bytes)).collect();
    assert!(versions.iter().any(|name| name.starts_with("GLIBC_")), "{versions:?}");
    for name in versions {
        let number = name.strip_prefix("GLIBC_").unwrap_or_else(|| panic!("{name} is not glibc's"));
        let parts: Vec<u32> = number.split('.').filter_map(|part| part.parse().ok()).collect();
        assert!(parts.as_slice() <= OLDEST_GLIBC.as_slice(), "the library needs {name}");
    }
}

#[test]
fn the_library_brings_nothing_but_the_c_library_along() {
    for name in libraries().iter().flat_map(|bytes| needed_libraries(bytes)) {
        let known = ["libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"];
        assert!(known.contains(&name.as_str()), "the library needs {name}");
    }
}

#[test]
fn a_program_that_starts_pays_for_no_symbol_of_ours_for_few_addresses_and_for_little_storage_of_threads() {
    let bytes = std::fs::read(Dist::find().preload()).expect("the library can be read");
    let elf = ElfFile64::<Endianness>::parse(&*bytes).expect("an ELF library");
    let of_kind = |r_type| {
        let all = elf.dynamic_relocations().expect("relocations");
        all.filter(|(_, relocation)| relocation.flags() == RelocationFlags::Elf { r_type }).count()
    };
    assert_eq!(of_kind(R_X86_64_64), 0, "the loader looks each of these up");
    let mended = of_kind(R_X86_64_RELATIVE);
    assert!((1..=600).contains(&mended), "{mended} addresses that the loader mends");
    let size = |name| elf.section_by_name(name).map_or(0, |section| section.size());
    let (copied, cleared) = (size(".tdata"), size(".tbss"));
    assert!(copied <= 256, "{copied} bytes of thread-local storage are not zero at first");
    assert!(cleared <= 1024, "{cleared} bytes are cleared when a thread begins");
}

/// Runs a program as it is and under the preload; neither is a tenant.
fn with_and_without(arguments: &[&str], stripped: bool) -> [Finished; 2] {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    [None, Some(gpu.dist().preload())].map(|preload| {
        let program = Program::bare(&gpu, arguments[0]).args(&arguments[1..]);
        let program =
            if stripped { program.without_environment().env("PATH", "/usr/bin:/bin") } else { program };
        match preload {
            Some(library) => program.env("LD_PRELOAD", library).run(),
            None => program.run(),
        }
    })
}

#[track_caller]
fn assert_same(arguments: &[&str], stripped: bool) {
    let [without, with] = with_and_without(arguments, stripped);
    assert_eq!(without.stdout, with.stdout, "{arguments:?}");
    assert_eq!(without.stderr, with.stderr, "{arguments:?}");
    assert_eq!(without.status, with.status, "{arguments:?}");
}

#[test]
fn programs_without_cuda_do_not_notice_it() {
    let programs: [&[&str]; 9] = [
        &["true"],
        &["ls", "/proc/self/task/.."],
        &["sh", "-c", "echo $((6 * 7)) | cat; exit 5"],
        &["sh", "-c", "exec 0<&- 1>&- 2>&-; exit 6"],
        &["sort", "--version"],
        &["python3", "-c", "import threading, ssl, sqlite3; print(len(dir(threading)))"],
        &["python3", "-c", "import subprocess; print(subprocess.check_output(['uname', '-s']))"],
        &["python3", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"],
        &["cc", "--version"],
    ];
    for arguments in programs {
        assert_same(arguments, false);
        assert_same(arguments, true);
    }
}

#[test]
fn a_symbol_that_is_nowhere_is_null_and_dlerror_says_so_as_before() {
    let ask = "import ctypes\n\
               for name in ('no_such_function', 'cuNoSuchFunction', 'nvNoSuchFunction', 'cuLaunchKernel', 'cu', 'c', ''):\n    \
                   try: print(getattr(ctypes.CDLL('libm.so.6'), name))\n    \
                   except AttributeError as error: print(error)\n";
    assert_same(&["python3", "-c", ask], false);
}

/// Runs a client bare and as a tenant.
fn bare_and_as_tenant(script: &str, argument: &str) -> [Finished; 2] {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let bare = bare_python(&gpu, script).arg(argument).run();
    [bare, budgeted_python(&gpu, None, Budget::default(), script).arg(argument).run()]
}

#[test]
fn a_child_that_is_forked_after_init_ends_in_its_own_way_and_the_parent_goes_on() {
    for how in ["exit", "_exit", "exec"] {
        let [bare, tenant] = bare_and_as_tenant("fork_after_init.py", how);
        let expected = r#"{"child": 7, "parent": "launched again"}"#;
        assert_eq!(bare.well().stdout, [expected], "{how}, bare");
        assert_eq!(tenant.well().stdout, [expected], "{how}, under Weir");
    }
}

#[test]
fn a_program_that_closes_every_file_descriptor_fares_as_without_weir() {
    let [bare, tenant] = bare_and_as_tenant("closes_everything.py", "");
    assert_eq!(bare.well().stdout, tenant.well().stdout);
}
