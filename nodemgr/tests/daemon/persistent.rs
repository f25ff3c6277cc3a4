//! Tenants that stand in the configuration.

use weir_nodemgr::config::Persistent;
use weir_nodemgr::control::schema::{ClassName, CreateTenant};

use crate::stage::{Actor, Stage, wish};

fn serve() -> Persistent {
    let wanted = CreateTenant { class: ClassName::Latency, gpus: vec!["1".into()], ..wish("serve", 60) };
    Persistent { wanted, owner: rustix::process::geteuid().as_raw(), at: "weir.toml:3:1".into() }
}

#[test]
fn it_is_there_from_the_start_and_stays_when_its_processes_have_gone() {
    let stage = Stage::with(|options| options.tenants = vec![serve()]);
    let tenant = stage.tenant("serve").unwrap();
    assert!(tenant.persistent && tenant.class == ClassName::Latency && tenant.gpus[0].index == 1);
    // Its door is open before anybody has asked for it.
    let created = weir_nodemgr::control::schema::Created {
        tenant: "serve".into(),
        dir: stage.place.tenant_dir("serve"),
        gpus: Vec::new(),
        budget: tenant.budget,
        joined: true,
        simulated: false,
        mps: None,
    };
    let mut process = Actor::ready(&created);
    process.kill();
    stage.until("serve", "the end of its process", |t| t.is_some_and(|t| t.pids.is_empty()));
    assert!(stage.tenant("serve").is_some());
}

#[test]
fn a_run_that_names_it_need_not_say_its_budget_and_one_that_says_another_is_refused() {
    let stage = Stage::with(|options| options.tenants = vec![serve()]);
    let mut run = stage.client();
    let bare = CreateTenant { name: "serve".into(), ..CreateTenant::default() };
    let created = run.create(bare.clone()).unwrap();
    assert!(created.joined && created.budget.request.as_permille() == 600);
    let filler = CreateTenant { class: ClassName::Filler, ..bare.clone() };
    assert_eq!(stage.client().create(filler).unwrap_err().code, "W0106", "it says something of its own");
    let other = CreateTenant { gpus: vec!["1".into()], class: ClassName::Latency, ..wish("serve", 50) };
    assert_eq!(stage.client().create(other).unwrap_err().code, "W0116");
    drop(run);
    assert!(stage.tenant("serve").is_some(), "the run's end is not the tenant's");
    let unknown = CreateTenant { name: "absent".into(), ..CreateTenant::default() };
    assert_eq!(stage.client().create(unknown).unwrap_err().code, "W0106");
}

#[test]
fn one_that_does_not_fit_on_these_gpus_keeps_the_manager_from_starting_and_says_where_it_stands() {
    let dir = tempfile::Builder::new().prefix("weir").tempdir_in("/tmp").unwrap();
    let place = weir_nodemgr::Place::at(&dir.path().join("node")).unwrap();
    let mut options = crate::stage::options(&place);
    let mut large = serve();
    large.wanted.memory_bytes = Some(101 << 30);
    options.tenants = vec![large];
    let Err(fault) = weir_nodemgr::Manager::start(options) else { panic!("it started") };
    assert_eq!((fault.code.as_str(), fault.at.as_deref()), ("W0108", Some("weir.toml:3:1")));
}
