//! F11: other libraries that are preloaded before or after ours, and programs with an allocator of their own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use weir_tests::compile::own_file;
use weir_tests::life::Workshop;
use weir_tests::program::{Finished, Program};
use weir_tests::simgpu::SimGpu;

use super::{alone, gpu};

const ANSWER: [&str; 2] = ["launched 100 allocated 0 freed 0", "absent 0"];

/// A program under `weir run`, with another library before or behind ours.
fn beside(gpu: &SimGpu, program: &Path, other: &Path, before: bool) -> Finished {
    under_both(gpu, program, other, before).run().well()
}

fn under_both(gpu: &SimGpu, program: &Path, other: &Path, before: bool) -> Program {
    let ours = gpu.dist().preload();
    let order = if before { [other, ours.as_path()] } else { [ours.as_path(), other] };
    let both = order.map(|library| library.as_os_str().to_owned()).join(&OsString::from(":"));
    // `weir run` puts ours first; whoever wants it otherwise says so behind it.
    let mut assignment = OsString::from("LD_PRELOAD=");
    assignment.push(both);
    alone(gpu, Path::new("env")).arg(assignment).arg(program)
}

#[track_caller]
fn assert_all_is_counted(ended: &Finished) {
    assert_eq!(ended.summary()["calls"]["cuLaunchKernel"], 100, "each launch went by the gate");
}

#[test]
fn an_allocator_that_looks_functions_up_whenever_it_is_called_works_before_and_behind_us() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let (program, malloc) = (workshop.life("plain"), workshop.preload("malloc"));
    for before in [true, false] {
        let ended = beside(&gpu, &program, &malloc, before);
        assert_eq!(ended.stdout, ANSWER, "before: {before}");
        assert_all_is_counted(&ended);
    }
}

#[test]
fn a_profiler_in_a_linked_program_sees_each_launch_and_so_do_we_before_and_behind_it() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let (program, profiler) = (linked(&workshop, &gpu), workshop.preload("profiler"));
    for before in [true, false] {
        let ended = beside(&gpu, &program, &profiler, before);
        assert!(ended.stderr.contains("profiler saw 100 launches"), "before: {before}\n{}", ended.stderr);
        assert_all_is_counted(&ended);
    }
}

/// A program that is linked to the driver and launches a hundred times.
fn linked(workshop: &Workshop, gpu: &SimGpu) -> PathBuf {
    let text = "#include <stdio.h>\n\
        int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuModuleLoadData(void **, const char *);\n\
        int cuModuleGetFunction(void **, void *, const char *), cuLaunchKernel(void *, int, int, int, int, int, int, int, void *, void *, void *);\n\
        int main(void) { void *c, *m, *f; int bad = cuInit(0) | cuDevicePrimaryCtxRetain(&c, 0); bad |= cuCtxSetCurrent(c);\n\
        bad |= cuModuleLoadData(&m, \".version 7.0\\n.target sm_80\\n.address_size 64\\n.visible .entry nothing()\\n{\\n\\tret;\\n}\\n\");\n\
        bad |= cuModuleGetFunction(&f, m, \"nothing\");\n\
        for (int at = 0; at < 100; at++) bad |= cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);\n\
        return bad; }\n";
    let source = workshop.dir().join("linked.c");
    std::fs::write(&source, text).expect("a file in it");
    let (out, driver) = (workshop.dir().join("linked"), gpu.dist().simgpu().join("libcuda.so.1"));
    let driver = driver.to_str().expect("a plain path");
    weir_tests::compile::c(&[driver, "-Wl,--allow-shlib-undefined"], &source, &out);
    out
}

#[test]
fn another_library_that_hooks_dlsym_itself_works_before_and_behind_us() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let (program, dlsym) = (workshop.life("plain"), workshop.preload("dlsym"));
    let behind = beside(&gpu, &program, &dlsym, false);
    assert_eq!(behind.stdout, ANSWER);
    assert_all_is_counted(&behind);
    // In front it answers the program from the C library, past us: `weir run` puts ours in front.
    assert_eq!(beside(&gpu, &program, &dlsym, true).stdout, ANSWER);
}

#[test]
fn weir_run_puts_our_library_before_those_that_are_there_already() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let ended =
        alone(&gpu, &workshop.life("plain")).env("LD_PRELOAD", workshop.preload("dlsym")).run().well();
    assert_eq!(ended.stdout, ANSWER);
    assert_all_is_counted(&ended);
}

#[test]
fn an_allocator_inside_of_the_program_that_looks_functions_up_while_it_starts_does_not_meet_itself() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let program = workshop.life("own_malloc");
    assert_eq!(Program::bare(&gpu, &program).run().well().stdout, ANSWER);
    let ended = alone(&gpu, &program).run().well();
    assert_eq!(ended.stdout, ANSWER);
    assert_all_is_counted(&ended);
}

#[test]
fn a_program_with_jemalloc_linked_into_it_runs_as_without_us() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let Some(library) = debian("libjemalloc.a", "libjemalloc-dev") else { return };
    let library = library.to_str().expect("a plain path");
    let program = workshop.linked_life("plain", &["-Wl,-u,malloc", library, "-lm"]);
    let with_stats = |program: Program| program.env("MALLOC_CONF", "stats_print:true").run().well();
    let bare = with_stats(Program::bare(&gpu, &program));
    assert_eq!(bare.stdout, ANSWER);
    assert!(bare.stderr.contains("jemalloc statistics"), "it is its allocator: {}", bare.stderr);
    let ended = with_stats(alone(&gpu, &program));
    assert_eq!(ended.stdout, ANSWER);
    assert!(ended.stderr.contains("jemalloc statistics"), "{}", ended.stderr);
    assert_all_is_counted(&ended);
}

#[test]
fn debians_jemalloc_and_faketime_work_before_and_behind_us() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let program = workshop.life("plain");
    for (file, package) in
        [("libjemalloc.so.2", "libjemalloc2"), ("faketime/libfaketime.so.1", "libfaketime")]
    {
        let Some(library) = debian(file, package) else { continue };
        for before in [true, false] {
            let both = under_both(&gpu, &program, &library, before);
            let ended = both.env("FAKETIME", "+2d").env("MALLOC_CONF", "stats_print:true").run().well();
            assert_eq!(ended.stdout, ANSWER, "{file}, before: {before}");
            assert_all_is_counted(&ended);
            let talks = ended.stderr.contains("jemalloc statistics");
            assert_eq!(talks, package == "libjemalloc2", "it is its allocator: {}", ended.stderr);
        }
    }
}

/// The program `plain` with an address sanitizer, linked as the flags say; none where the compiler lacks `library`.
fn sanitized(workshop: &Workshop, library: &str, flags: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let Some(library) = own_file(library) else {
        eprintln!("SKIPPED: the compiler has no {library}; install Debian package `libgcc-12-dev`");
        return None;
    };
    let flags = [&["-fsanitize=address"], flags].concat();
    Some((workshop.linked_life("plain", &flags), library))
}

/// It says so itself, where its allocator is asked to talk.
#[track_caller]
fn assert_sanitized(program: Program) -> Finished {
    let ended = program.with_all_addresses().env("ASAN_OPTIONS", "verbosity=1").run().well();
    assert_eq!(ended.stdout, ANSWER);
    assert!(ended.stderr.contains("AddressSanitizer Init done"), "it is sanitized: {}", ended.stderr);
    ended
}

#[test]
fn a_program_with_an_address_sanitizer_in_it_runs_as_without_us() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let Some((program, _)) = sanitized(&workshop, "libasan.a", &["-static-libasan"]) else { return };
    assert_sanitized(Program::bare(&gpu, &program));
    assert_all_is_counted(&assert_sanitized(alone(&gpu, &program)));
}

#[test]
fn a_program_whose_address_sanitizer_is_a_library_runs_where_that_comes_first_as_it_demands_of_any_preload() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let Some((program, library)) = sanitized(&workshop, "libasan.so", &[]) else { return };
    assert_sanitized(Program::bare(&gpu, &program));
    assert_all_is_counted(&assert_sanitized(under_both(&gpu, &program, &library, true)));
    // Its own rule, whatever is preloaded: a library with nothing in it as well as ours.
    let nothing = workshop.library("nothing.so", "int nothing_at_all;\n", &[]);
    for behind in [Program::bare(&gpu, &program).env("LD_PRELOAD", nothing), alone(&gpu, &program)] {
        let ended = behind.with_all_addresses().run();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stderr.contains("ASan runtime does not come first"), "{}", ended.stderr);
    }
}

/// A library of a Debian package: where `scripts/setup` has unpacked it, or where the package has it.
fn debian(file: &str, package: &str) -> Option<PathBuf> {
    let unpacked = concat!(env!("CARGO_MANIFEST_DIR"), "/../.venv/debian");
    let place = |root| PathBuf::from(format!("{root}/usr/lib/{}-linux-gnu/{file}", std::env::consts::ARCH));
    let found = [unpacked, ""].map(place).into_iter().find(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: there is no {file}; install Debian package `{package}`");
    }
    found
}
