//! F08, F09, F12, F13: threads that end, programs that end, libraries and descriptors that are closed, signals.

use weir_tests::life::Workshop;
use weir_tests::program::Program;

use super::{alone, gpu, managed, node, null_driver, numbers};

/// Growth that is none: allocators keep what threads of yesterday needed.
const FLAT_KIB: i64 = 1024;

#[test]
fn ten_thousand_short_threads_that_launch_leave_the_process_as_large_as_it_was() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let ended = alone(&gpu, &workshop.life("threads")).arg("10000").run().well();
    let [failed, grown_kib] = numbers(&ended.stdout[0])[..] else { panic!("{:?}", ended.stdout) };
    eprintln!("grown by {grown_kib} KiB between the 1,000th thread and the last");
    assert_eq!(failed, 0, "each thread launched, and launched again from its destructor");
    assert!(grown_kib <= FLAT_KIB, "{grown_kib} KiB");
}

#[test]
fn calls_from_exit_handlers_and_destructors_fare_as_without_weir() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let ends = workshop.life("ends");
    let bare = Program::bare(&gpu, &ends).arg("late").run().well();
    let tenant = alone(&gpu, &ends).arg("late").run().well();
    assert_eq!(bare.stdout, ["atexit 0 0 0", "destructor 0 0 0"]);
    assert_eq!(tenant.stdout, bare.stdout);
}

#[test]
fn closing_the_driver_or_our_library_pulls_nothing_from_under_the_program() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let closes = alone(&gpu, &workshop.life("ends")).args(["closes", "100"]).arg(gpu.dist().preload());
    assert_eq!(closes.run().well().stdout, ["failed 0"]);
}

#[test]
fn a_program_that_takes_the_managers_descriptor_for_itself_stays_within_its_budget_unspoilt() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let (node, file) = (node(&gpu), workshop.dir().join("its-own"));
    let mut program = managed(&gpu, &node, &workshop.life("descriptors")).arg(&file).start();
    let line = program.next_line().expect("it says how it fared");
    assert_eq!(line, "launched 2000 taken 1 over_the_limit 2");
    let tenant = node.tenant("life").expect("it runs");
    assert_eq!((tenant.pids.len(), tenant.state.as_str()), (1, "enforced"));
    program.finish().well();
    assert_eq!(std::fs::read_to_string(file).expect("its file"), "mine\n", "not one stray byte");
}

#[test]
fn a_program_that_takes_every_descriptor_finds_no_stray_byte_in_its_file() {
    // A driver without descriptors: the simulated one would not survive this, and a real one does not either.
    let (gpu, workshop) = (gpu(), Workshop::default());
    let node = node(&gpu);
    let driver = null_driver(&workshop, &gpu, &node, |_| 0);
    let file = workshop.dir().join("its-own");
    let program = managed(&gpu, &node, &workshop.life("descriptors")).arg(&file).arg("all");
    let ended = program.env("LD_LIBRARY_PATH", driver).run().well();
    assert_eq!(ended.stdout, ["launched 2000 taken 1 over_the_limit 2"]);
    assert_eq!(std::fs::read_to_string(file).expect("its file"), "mine\n", "not one stray byte");
}

#[test]
fn a_storm_of_signals_breaks_no_launch_and_the_programs_handlers_and_errno_stay_its_own() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let ended = alone(&gpu, &workshop.life("signals")).run().well();
    assert_eq!(ended.stdout, ["failed 0 spoilt 0 changed 0 interrupted 1"]);
}
