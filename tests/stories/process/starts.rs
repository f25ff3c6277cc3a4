//! F06, F07: programs that become others or start them.

use weir_tests::life::Workshop;
use weir_tests::program::Program;
use weir_tests::wait;

use super::{CONTEXT, alone, gpu, managed, node};

#[test]
fn each_exec_of_a_chain_is_a_new_client_and_the_last_one_holds_only_its_own() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let node = node(&gpu);
    let mut chain = managed(&gpu, &node, &workshop.life("starts")).args(["execs", "5"]).start();
    assert!(chain.next_line().is_some_and(|line| line.starts_with("pid ")));
    wait::until("one client of the six", || {
        let tenant = node.tenant("life").expect("it runs");
        (tenant.pids.len() == 1 && tenant.gpus[0].memory_held_bytes == (16 << 20) + CONTEXT).then_some(())
    });
    assert_eq!(node.tenant("life").expect("it runs").processes_ever, 6);
    chain.finish().well();
}

#[test]
fn vforked_and_spawned_children_get_no_descriptor_of_ours_and_harm_nothing() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let starts = workshop.life("starts");
    let bare = Program::bare(&gpu, &starts).args(["spawns", "10000"]).run().well();
    let tenant = alone(&gpu, &starts).args(["spawns", "10000"]).run().well();
    assert_eq!(bare.stdout[1], "failed 0 launched 0");
    assert_eq!(bare.stdout, tenant.stdout, "the first line counts what a child was given");
}
