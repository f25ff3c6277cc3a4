//! Who gets a budget, and of what size.

use weir_nodemgr::Manager;
use weir_nodemgr::control::history::AskEvents;
use weir_nodemgr::control::schema::{ClassName, CreateTenant, SetBudget};
use weir_nodemgr::events::What;

use crate::stage::{Actor, Stage, options, wish};

#[test]
fn a_process_registers_and_is_shown_with_its_tenant() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    assert_eq!(created.gpus, ["GPU-00000000-0000-0000-0000-000000000000"]);
    let mut process = Actor::ready(&created);
    assert_eq!(process.ask("hold 4096"), "held");
    process.ask("launch");
    let tenant = stage.tenant("train").unwrap();
    assert_eq!((tenant.state.as_str(), tenant.pids.as_slice()), ("enforced", [process.pid()].as_slice()));
    assert_eq!(tenant.gpus[0].memory_held_bytes, 4096);
    assert_eq!(tenant.gpus[0].total.calls["cuLaunchKernel"], 1);
}

#[test]
fn what_is_guaranteed_to_one_is_not_guaranteed_to_another_and_the_refusal_says_who_has_it() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.client(), stage.client());
    one.create(wish("train", 60)).unwrap();
    let refused = two.create(wish("serve", 50)).unwrap_err();
    assert_eq!(refused.code, "W0104");
    assert!(
        refused.message.contains("`train` holds 60 %") && refused.help.contains("at most 40 %"),
        "{refused}"
    );
    let on_the_other_gpu = CreateTenant { gpus: vec!["1".into()], ..wish("serve", 50) };
    assert!(two.create(on_the_other_gpu).is_ok());
}

#[test]
fn the_same_name_and_budget_join_another_budget_is_refused() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.client(), stage.client());
    assert!(!one.create(wish("train", 60)).unwrap().joined);
    assert!(two.create(wish("train", 60)).unwrap().joined);
    assert_eq!(two.create(wish("train", 50)).unwrap_err().code, "W0116");
    let unique = CreateTenant { unique: true, ..wish("train", 10) };
    assert_eq!(two.create(unique).unwrap().tenant, "train-2");
}

#[test]
fn a_filler_needs_no_request_and_everybody_else_does() {
    let stage = Stage::new();
    let mut run = stage.client();
    let without = CreateTenant { request_permille: None, ..wish("batch", 0) };
    let refused = run.create(without.clone()).unwrap_err();
    assert_eq!((refused.code.as_str(), refused.help.as_str()), ("W0103", "add --request; 100 % are free"));
    assert!(run.create(CreateTenant { class: ClassName::Filler, ..without }).is_ok());
}

#[test]
fn a_second_manager_of_the_same_directory_names_the_first_and_leaves_it_alone() {
    let stage = Stage::new();
    let refused = Manager::start(options(&stage.place)).err().unwrap();
    assert_eq!(refused.code, "W0131");
    assert!(refused.message.contains(&std::process::id().to_string()), "{refused}");
    assert!(stage.client().create(wish("train", 60)).is_ok());
}

#[test]
fn a_manager_notices_that_its_control_socket_or_its_lock_was_stolen_and_leaves_the_thiefs_alone() {
    for path in [weir_nodemgr::Place::control, weir_nodemgr::Place::lock] {
        let mut stage = Stage::new();
        let path = path(&stage.place);
        assert!(!stage.was_replaced());
        std::fs::remove_file(&path).unwrap();
        let _thief = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(stage.was_replaced(), "{}", path.display());
        stage.stop();
        assert!(path.exists(), "it is not ours to remove");
    }
}

#[test]
fn a_tenant_has_as_many_processes_as_its_page_has_slots_and_no_more() {
    let stage = Stage::new();
    let mut run = stage.client();
    let created = run.create(wish("train", 60)).unwrap();
    let processes: Vec<_> =
        (0..weir_protocol::pages::PROCESS_SLOTS).map(|_| Actor::ready(&created)).collect();
    let (_one_more, answer) = Actor::enter(&created);
    assert!(answer.contains("refused: tenant `train` already has 32 processes"), "{answer}");
    drop(processes);
}

#[test]
fn a_tenant_is_as_old_as_its_first_run() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.client(), stage.client());
    one.create(wish("train", 60)).unwrap();
    let before = stage.tenant("train").unwrap().age_ns;
    assert!(two.create(wish("train", 60)).unwrap().joined);
    assert!(stage.tenant("train").unwrap().age_ns > before, "a second run does not begin its time anew");
}

#[test]
fn the_mark_of_a_strict_tenant_of_old_is_no_mark_on_a_new_one() {
    let stage = Stage::new();
    let mark = stage.place.tenant_dir("train").join("strict");
    std::fs::create_dir(stage.place.tenant_dir("train")).unwrap();
    std::fs::write(&mark, "").unwrap();
    let mut run = stage.client();
    run.create(wish("train", 60)).unwrap();
    assert!(!mark.exists(), "the manager is not strict");
}

#[test]
fn who_leaves_contexts_no_room_to_grow_is_shown_as_overcommitted_and_not_refused() {
    let stage = Stage::new();
    let (mut one, mut two) = (stage.client(), stage.client());
    let of = |gib: u64, wish: CreateTenant| CreateTenant { memory_bytes: Some(gib << 30), ..wish };
    let first = one.create(of(60, wish("train", 50))).unwrap();
    two.create(of(40, wish("serve", 50))).unwrap();
    let shown = |name: &str| stage.tenant(name).map(|tenant| tenant.gpus[0].clone()).unwrap();
    // Each has a process, or will: 272 MiB for each of two, on a card that is full.
    stage.until("serve", "the mark", |tenant| tenant.is_some_and(|tenant| tenant.gpus[0].overcommitted));
    assert_eq!(
        (shown("train").overcommitted, shown("serve").growth_uncovered_bytes),
        (false, 2 * (272 << 20))
    );
    let told = one.events(AskEvents::default()).unwrap().events;
    let told = told.iter().filter(|event| matches!(event.what, What::GrowthUncovered { .. })).count();
    assert_eq!(told, 1);
    let _processes = [Actor::ready(&first), Actor::ready(&first)];
    stage.until("serve", "one process more", |tenant| {
        tenant.is_some_and(|tenant| tenant.gpus[0].growth_uncovered_bytes == 3 * (272 << 20))
    });
    one.set(SetBudget { tenant: "train".into(), memory_bytes: Some(50 << 30), ..SetBudget::default() })
        .unwrap();
    stage.until("serve", "room", |tenant| tenant.is_some_and(|tenant| !tenant.gpus[0].overcommitted));
}
