//! F40: drivers that are not there, or not what they should be.

use std::path::Path;

use weir_tests::life::Workshop;
use weir_tests::looping::Looping;
use weir_tests::program::{Finished, Program};
use weir_tests::simgpu::SimGpu;

use super::{BUDGET, gpu};
use crate::LOOP;

/// A program that uses CUDA, bare and under the preload, with this directory as the only one of the driver.
fn bare_and_preloaded(gpu: &SimGpu, program: &Path, driver: &Path) -> [Finished; 2] {
    [None, Some(gpu.dist().preload())].map(|preload| {
        let program = Program::bare(gpu, program).env("LD_LIBRARY_PATH", driver);
        match preload {
            Some(library) => program.env("LD_PRELOAD", library).run(),
            None => program.run(),
        }
    })
}

#[track_caller]
fn assert_same(both: &[Finished; 2]) {
    let [bare, preloaded] = both;
    assert_eq!((&bare.stdout, bare.status), (&preloaded.stdout, preloaded.status));
}

/// The simulated driver's file, changed.
fn changed_driver(gpu: &SimGpu, workshop: &Workshop, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(gpu.dist().simgpu().join("libcuda.so.1")).expect("the driver");
    change(&mut bytes);
    std::fs::write(workshop.dir().join("libcuda.so.1"), bytes).expect("a file in it");
}

#[test]
fn a_driver_that_is_missing_or_of_another_machine_gives_the_programs_own_error() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let program = workshop.life("plain");
    let missing = bare_and_preloaded(&gpu, &program, workshop.dir());
    assert!(missing[0].stdout.concat().contains("libcuda.so.1"), "{:?}", missing[0].stdout);
    assert_same(&missing);
    let changes: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[4] = 1,       // of 32 bits
        |bytes| bytes[18] = 183,    // for aarch64
        |bytes| bytes.truncate(40), // hardly copied
        |bytes| bytes.clear(),
    ];
    for change in changes {
        changed_driver(&gpu, &workshop, change);
        let both = bare_and_preloaded(&gpu, &program, workshop.dir());
        assert_eq!(both[0].status.code(), Some(2), "{:?}", both[0]);
        assert_same(&both);
    }
}

#[test]
fn a_driver_too_old_for_a_function_is_found_to_lack_it_as_without_us() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let program = workshop.life("plain");
    workshop.library("libcuda.so.1", "int cuInit(unsigned flags) { return 0; }\n", &[]);
    let both = bare_and_preloaded(&gpu, &program, workshop.dir());
    assert_eq!(both[0].status.code(), Some(3));
    assert!(both[0].stderr.contains("no cuDevicePrimaryCtxRetain"), "{}", both[0].stderr);
    assert_same(&both);
    assert_eq!(
        both[0].stderr,
        both[1]
            .stderr
            .lines()
            .filter(|line| !line.starts_with("weir:"))
            .map(|l| format!("{l}\n"))
            .collect::<String>()
    );
}

#[test]
fn a_driver_that_is_replaced_on_disk_serves_who_has_loaded_it() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    changed_driver(&gpu, &workshop, |_| {});
    let search = format!("{}:{}", workshop.dir().display(), gpu.dist().simgpu().display());
    let mut looping =
        Looping::start(Program::under_weir(&gpu, None, BUDGET, LOOP).env("LD_LIBRARY_PATH", search));
    let (old, new) = (workshop.dir().join("libcuda.so.1"), workshop.dir().join("new"));
    std::fs::write(&new, "no driver").expect("a file in it");
    std::fs::rename(new, old).expect("replaced, as a package manager does");
    looping.goes_on(1000);
    assert_eq!(looping.allocate("64MiB"), "CUDA_SUCCESS");
    looping.finish().well();
}
