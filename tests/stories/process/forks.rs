//! F04, F05: children that are forked and do not exec.

use weir_tests::life::Workshop;

use super::{CONTEXT, gpu, holder, managed, node, numbers, wait_for_an_empty_ledger};

const HELD: u64 = 64 << 20;

#[test]
fn sixty_four_forked_children_are_no_clients_and_leave_the_parents_books_as_they_were() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let node = node(&gpu);
    let _holder = holder(&gpu, &node);
    let mut parent = managed(&gpu, &node, &workshop.life("forks")).args(["many", "64"]).start();
    let line = parent.next_line().expect("it says how its children fared");
    assert_eq!(line, "ended 64 refused 64 parent 0");
    let tenant = node.tenant("life").expect("the parent runs");
    assert_eq!(tenant.pids.len(), 1, "only the parent is a client: {:?}", tenant.pids);
    assert_eq!(tenant.processes_ever, 1);
    assert_eq!(tenant.gpus[0].memory_held_bytes, HELD + CONTEXT, "no child gave the parent's memory back");
    parent.finish().well();
    wait_for_an_empty_ledger(&node);
}

#[test]
fn a_parents_end_frees_its_budget_although_its_child_lives() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let node = node(&gpu);
    let _holder = holder(&gpu, &node);
    let mut family = managed(&gpu, &node, &workshop.life("forks")).arg("outlived").start();
    let child = family.next_line().expect("the child is there");
    assert!(child.starts_with("parent "), "{child}");
    wait_for_an_empty_ledger(&node); // the child has the parent's socket, and reads stdin still
    family.finish().well();
}

#[test]
fn children_forked_while_other_threads_are_inside_of_hooks_do_not_hang() {
    let (gpu, workshop) = (gpu(), Workshop::default());
    let node = node(&gpu);
    let ended = managed(&gpu, &node, &workshop.life("forks")).args(["storm", "10000"]).run().well();
    assert_eq!(numbers(&ended.stdout[0]), [0, 0], "{:?}", ended.stdout);
}
