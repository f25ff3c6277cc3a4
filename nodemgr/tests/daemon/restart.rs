//! A manager that starts where another one ended, and takes over what that one had.

use weir_nodemgr::control::schema::{Created, SetBudget};
use weir_nodemgr::control::{Client, TenantStats};

use crate::stage::{Actor, Stage, wish};

/// A tenant with one process that holds a million bytes and has launched once.
pub fn one_process(stage: &Stage) -> (Client, Created, Actor) {
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    assert_eq!(process.ask("hold 1000000"), "held");
    process.ask("launch");
    (run, created, process)
}

pub fn train(stage: &Stage) -> TenantStats {
    stage.tenant("train").expect("it is there")
}

#[test]
fn pages_budgets_slots_and_counters_are_as_they_were() {
    let mut stage = Stage::new();
    let (_run, created, mut process) = one_process(&stage);
    let second = Actor::ready(&created);
    let before = train(&stage);
    stage.restart();
    let after = train(&stage);
    assert_eq!(after.pids, [process.pid(), second.pid()]);
    assert_eq!(
        (after.budget, after.budget_at_start, after.class),
        (before.budget, before.budget_at_start, before.class)
    );
    assert_eq!((after.processes_ever, after.oversubscribe), (2, before.oversubscribe));
    assert_eq!(after.gpus[0].memory_held_bytes, 1_000_000);
    assert_eq!(after.gpus[0].total.launches, 1);
    assert_eq!(after.gpus[0].memory_limit_bytes, before.gpus[0].memory_limit_bytes);
    assert!(after.gpus[0].epoch >= before.gpus[0].epoch, "the pages are the same ones");
    process.ask("launch");
    assert_eq!(train(&stage).gpus[0].total.launches, 2, "and what happens on them is seen");
    assert_eq!(process.ask("hold 20000000000"), "out of memory");
}

#[test]
fn a_page_that_a_program_has_closed_is_found_where_it_is_mapped() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: mapped files can be opened by root alone");
    }
    let mut stage = Stage::new();
    let (_run, _created, mut process) = one_process(&stage);
    assert_eq!(process.ask("forget"), "forgotten");
    stage.restart();
    assert_eq!(train(&stage).gpus[0].memory_held_bytes, 1_000_000);
}

#[test]
fn whoever_comes_back_has_his_slot_and_is_no_second_process() {
    let mut stage = Stage::new();
    let (_run, created, mut process) = one_process(&stage);
    stage.restart();
    assert_eq!(process.ask("back"), "rejoined");
    let tenant = train(&stage);
    assert_eq!((tenant.pids.as_slice(), tenant.processes_ever), ([process.pid()].as_slice(), 1));
    let (_next, first) = Actor::enter(&created);
    assert_eq!(first, "ready 1", "the slot is taken");
    process.tell("exec");
    stage.until("train", "the end of the registration", |t| {
        t.is_some_and(|t| !t.pids.contains(&process.pid()))
    });
}

#[test]
fn whoever_died_while_no_manager_was_there_holds_nothing_and_is_counted() {
    let mut stage = Stage::new();
    let (_run, created, mut process) = one_process(&stage);
    let survivor = Actor::ready(&created);
    stage.stop();
    process.kill();
    process.wait();
    stage.restart();
    let tenant = train(&stage);
    assert_eq!((tenant.pids.as_slice(), tenant.gpus[0].memory_held_bytes), ([survivor.pid()].as_slice(), 0));
    assert_eq!((tenant.gpus[0].total.launches, tenant.processes_ever), (1, 2));
    let (_next, first) = Actor::enter(&created);
    assert_eq!(first, "ready 0", "the slot is free again");
}

#[test]
fn the_dead_stay_counted_over_two_restarts() {
    let mut stage = Stage::new();
    let (_run, created, mut process) = one_process(&stage);
    let _survivor = Actor::ready(&created);
    process.kill();
    stage.until("train", "the end of the process", |t| t.is_some_and(|t| t.pids.len() == 1));
    stage.restart();
    stage.restart();
    assert_eq!((train(&stage).gpus[0].total.launches, train(&stage).processes_ever), (1, 2));
}

#[test]
fn a_changed_budget_holds_for_the_next_manager() {
    let mut stage = Stage::new();
    let (_run, _created, mut process) = one_process(&stage);
    let smaller = SetBudget {
        tenant: "train".into(),
        request_permille: Some(300),
        memory_bytes: Some(2_000_000),
        ..SetBudget::default()
    };
    stage.client().set(smaller).unwrap();
    stage.restart();
    assert_eq!(train(&stage).budget.request.as_permille(), 300);
    assert_eq!(process.ask("hold 1500000"), "out of memory");
    let mut other = stage.client();
    assert!(other.create(wish("other", 70)).is_ok(), "what was given back is free");
    assert_eq!(stage.client().create(wish("third", 1)).unwrap_err().code, "W0104", "and what is held is not");
}

#[test]
fn a_tenant_that_ended_stays_ended_and_one_whose_program_has_not_begun_stays() {
    let mut stage = Stage::new();
    let mut over = stage.client();
    over.create(wish("over", 30)).unwrap();
    drop(over);
    stage.until("over", "its end", |tenant| tenant.is_none());
    let mut run = stage.client(); // this test's process keeps it, and lives on
    let created = run.create(wish("train", 60)).unwrap();
    stage.restart();
    assert!(stage.tenant("over").is_none() && train(&stage).pids.is_empty());
    let (_process, first) = Actor::enter(&created);
    assert_eq!(first, "ready 0");
}

#[test]
fn a_program_that_called_exec_while_no_manager_was_there_is_no_process_any_more() {
    let mut stage = Stage::new();
    let (_run, created, mut process) = one_process(&stage);
    let survivor = Actor::ready(&created);
    stage.stop();
    process.tell("exec");
    process.until_it_is("sleep");
    stage.restart();
    stage.until("train", "the end of the registration", |t| t.is_some_and(|t| t.pids == [survivor.pid()]));
    assert_eq!(train(&stage).gpus[0].memory_held_bytes, 0);
}

#[test]
fn neighbours_learn_anew_of_each_other() {
    let mut stage = Stage::new();
    let (_run, _created, mut one) = one_process(&stage);
    let mut neighbour = stage.client();
    let created = neighbour.create(wish("serve", 30)).unwrap();
    let _other = Actor::ready(&created);
    stage.restart();
    assert_eq!(one.ask("back"), "rejoined");
    assert_eq!(one.ask("board"), "1 neighbours, as the page says");
}

#[test]
fn a_damaged_journal_is_said_and_nothing_of_it_is_believed() {
    let mut stage = Stage::new();
    let (_run, _created, _process) = one_process(&stage);
    stage.stop();
    let path = stage.place.base().join("node.journal");
    let mut text = std::fs::read(&path).unwrap();
    let at = text.len() / 2;
    text[at] ^= 1;
    std::fs::write(&path, text).unwrap();
    stage.restart();
    assert!(stage.stats().tenants.is_empty());
}

#[test]
fn whoever_comes_back_to_a_manager_that_does_not_know_him_is_shown_as_unreached() {
    let mut stage = Stage::new();
    let (_run, created, mut process) = one_process(&stage);
    stage.stop();
    std::fs::remove_file(stage.place.base().join("node.journal")).unwrap();
    stage.restart();
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    assert!(process.ask("back").contains("does not know"));
    stage.until("train", "the sight of it", |t| t.is_some_and(|t| t.state == "unreached"));
    assert_eq!(train(&stage).unreached_pids, [process.pid()]);
    let (_next, first) = Actor::enter(&created);
    assert!(first.contains("could not be taken over"), "{first}");
    process.kill();
    stage.until("train", "its end", |t| t.is_some_and(|t| t.unreached_pids.is_empty()));
    assert_eq!(Actor::enter(&created).1, "ready 0");
}

#[test]
fn a_journal_that_cannot_be_written_stops_nobody_and_shows() {
    let mut stage = Stage::new();
    let (_run, created, _process) = one_process(&stage);
    stage.restart();
    assert_eq!(stage.stats().node.journal, "kept");
    // A directory in the place of the file that is to replace it: that fails for root too.
    let path = stage.place.base().join("node.journal-new");
    std::fs::create_dir(&path).unwrap();
    for _ in 0..1_200 {
        stage.client().create(wish("short", 10)).unwrap();
        stage.until("short", "its end", |tenant| tenant.is_none());
    }
    stage.until("train", "the trouble", |_| stage.stats().node.journal == "degraded");
    let second = Actor::ready(&created);
    std::fs::remove_dir(&path).unwrap();
    stage.until("train", "the end of it", |_| stage.stats().node.journal == "kept");
    stage.restart();
    assert!(train(&stage).pids.contains(&second.pid()), "what happened meanwhile stands in the journal");
}
