//! What is left of a process, and of a tenant.

use crate::stage::{Actor, Stage, wish};

#[test]
fn a_killed_process_gives_its_memory_and_its_slot_back_and_its_counters_stay() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    assert_eq!(process.ask("hold 1000000"), "held");
    process.ask("launch");
    process.kill();
    stage.until("train", "the end of the process", |t| t.is_some_and(|t| t.pids.is_empty()));
    let tenant = stage.tenant("train").unwrap();
    assert_eq!(tenant.gpus[0].memory_held_bytes, 0);
    assert_eq!((tenant.gpus[0].total.launches, tenant.gpus[0].total.memory_peak_bytes), (1, 1_000_000));
    let (_next, first) = Actor::enter(&created);
    assert_eq!(first, "ready 0", "the slot is free again");
}

#[test]
fn a_process_that_is_killed_in_its_tenants_turn_leaves_the_turn_to_others() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let (mut killed, mut other) = (Actor::ready(&created), Actor::ready(&created));
    assert_eq!((killed.ask("turn").as_str(), other.ask("stand").as_str()), ("Holds", "Holds"));
    killed.kill();
    stage.until("train", "the end of the process", |t| t.is_some_and(|t| t.pids == [other.pid()]));
    assert_eq!(other.ask("stand"), "Away", "nobody has to find out by waiting");
}

#[test]
fn the_budget_is_free_when_the_run_and_its_last_process_have_gone_and_not_before() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    drop(run);
    process.ask("launch");
    assert!(stage.tenant("train").is_some(), "a process of it lives");
    process.kill();
    stage.until("train", "the tenant's end", |tenant| tenant.is_none());
    assert!(!created.dir.exists());
    assert!(stage.client().create(wish("other", 100)).is_ok());
}

#[test]
fn a_program_that_calls_exec_is_no_process_of_the_tenant_any_more() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    process.ask("hold 1000");
    process.tell("exec");
    stage.until("train", "the end of the registration", |t| t.is_some_and(|t| t.pids.is_empty()));
    assert_eq!(stage.tenant("train").unwrap().gpus[0].memory_held_bytes, 0);
}

#[test]
fn a_process_that_merely_lost_its_socket_keeps_its_slot() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    assert_eq!(process.ask("close"), "closed");
    // The next process's whole life lies beyond the grace that the first one has.
    let mut second = Actor::ready(&created);
    second.tell("exec");
    stage.until("train", "the end of the second", |t| t.is_some_and(|t| t.pids == [process.pid()]));
    process.ask("launch");
    assert_eq!(stage.tenant("train").unwrap().gpus[0].total.launches, 1);
}

#[test]
fn two_hundred_killed_processes_cost_no_budget() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    for round in 0..20 {
        let mut processes: Vec<_> = (0..10).map(|_| Actor::ready(&created)).collect();
        processes
            .iter_mut()
            .for_each(|process| assert_eq!(process.ask("hold 1000"), "held", "round {round}"));
        processes.iter_mut().for_each(Actor::kill);
        stage.until("train", "the end of all", |t| t.is_some_and(|t| t.pids.is_empty()));
        assert_eq!(stage.tenant("train").unwrap().gpus[0].memory_held_bytes, 0, "round {round}");
    }
}
