//! Budgets that change while a tenant runs.

use weir_nodemgr::control::schema::SetBudget;

use crate::stage::{Actor, Stage, wish};

fn change(request_percent: u16) -> SetBudget {
    SetBudget { tenant: "train".into(), request_permille: Some(request_percent * 10), ..SetBudget::default() }
}

#[test]
fn a_change_tells_when_the_first_launch_came_under_it() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    process.ask("launch");
    let mut operator = stage.client();
    let setting = std::thread::spawn(move || operator.set(change(30)).unwrap());
    // Not by its generation: the policy makes new grants of its own.
    stage.until("train", "the new budget", |t| t.is_some_and(|t| t.budget.request.as_permille() == 300));
    process.ask("launch");
    let done = setting.join().unwrap();
    assert!(done.first_launch_us.is_some_and(|us| us > 0.0), "{done:?}");
    assert_eq!((done.old.request.as_permille(), done.new.request.as_permille()), (600, 300));
}

#[test]
fn a_tenant_that_launches_nothing_is_told_as_such() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let _process = Actor::ready(&created);
    assert_eq!(stage.client().set(change(30)).unwrap().first_launch_us, None);
}

#[test]
fn a_dry_run_changes_nothing() {
    let stage = Stage::new();
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    let done = stage.client().set(SetBudget { dry_run: true, ..change(30) }).unwrap();
    assert!(done.dry_run);
    assert_eq!(stage.tenant("train").unwrap().budget.request.as_permille(), 600);
}

#[test]
fn a_smaller_memory_limit_binds_at_once_and_says_what_is_held_beyond_it() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let mut process = Actor::ready(&created);
    assert_eq!(process.ask("hold 5000"), "held");
    let smaller = SetBudget { tenant: "train".into(), memory_bytes: Some(4000), ..SetBudget::default() };
    assert_eq!(stage.client().set(smaller).unwrap().over_limit_bytes, 1000);
    assert_eq!(process.ask("hold 1"), "out of memory");
}

#[test]
fn a_change_that_does_not_fit_changes_nothing() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.client(), stage.client());
    one.create(wish("train", 60)).unwrap();
    two.create(wish("serve", 40)).unwrap();
    assert_eq!(stage.client().set(change(61)).unwrap_err().code, "W0104");
    assert_eq!(stage.tenant("train").unwrap().budget.request.as_permille(), 600);
    let unknown = SetBudget { tenant: "trian".into(), ..change(10) };
    assert_eq!(stage.client().set(unknown).unwrap_err().code, "W0115");
    assert_eq!(
        stage.client().set(SetBudget { request_permille: None, ..change(0) }).unwrap_err().code,
        "W0118"
    );
}
