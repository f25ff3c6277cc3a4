//! Tenants that stand in the configuration.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use weir_nodemgr::config::Persistent;
use weir_nodemgr::control::schema::{ClassName, CreateTenant, Created, SetBudget};

use crate::stage::{Actor, DEADLINE, Stage, wish};

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
    let created = Created {
        tenant: "serve".into(),
        dir: stage.place.tenant_dir("serve"),
        gpus: Vec::new(),
        gpu_indices: Vec::new(),
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

/// Rows of the file.
fn rows(rows: &[Persistent]) -> impl FnOnce(&mut weir_nodemgr::Options) {
    let rows = rows.to_vec();
    move |options| options.tenants = rows
}

/// What `weir run --name serve` is told.
fn joined(stage: &Stage) -> Created {
    stage.client().create(CreateTenant { name: "serve".into(), ..CreateTenant::default() }).unwrap()
}

fn set(stage: &Stage, request_percent: u16) {
    let request_permille = Some(request_percent * 10);
    let change = SetBudget { tenant: "serve".into(), request_permille, ..SetBudget::default() };
    stage.client().set(change).unwrap();
}

fn request_percent(stage: &Stage) -> u16 {
    stage.tenant("serve").unwrap().budget.request.as_permille() / 10
}

/// A process of its that launches once, and is gone.
fn launches_once(stage: &Stage) {
    let mut process = Actor::ready(&joined(stage));
    process.ask("launch");
    process.kill();
    stage.until("serve", "the end of its process", |t| t.is_some_and(|t| t.pids.is_empty()));
}

#[test]
fn what_an_operator_has_set_and_what_its_processes_did_stay_over_restarts_without_a_process() {
    let mut stage = Stage::with(rows(&[serve()]));
    launches_once(&stage);
    set(&stage, 45);
    for launches in 1..=3 {
        stage.restart_with(rows(&[serve()]));
        let tenant = stage.tenant("serve").unwrap();
        assert_eq!((request_percent(&stage), tenant.budget_at_start.request.as_permille()), (45, 600));
        assert_eq!((tenant.gpus[0].total.launches, tenant.processes_ever), (launches, launches));
        assert!(tenant.persistent);
        launches_once(&stage);
    }
}

#[test]
fn a_row_that_was_changed_since_goes_before_what_was_set_and_what_is_set_then_stays_again() {
    let mut stage = Stage::with(rows(&[serve()]));
    launches_once(&stage);
    set(&stage, 45);
    let changed =
        || Persistent { wanted: CreateTenant { request_permille: Some(500), ..serve().wanted }, ..serve() };
    stage.restart_with(rows(&[changed()]));
    assert_eq!(request_percent(&stage), 50);
    assert_eq!(stage.tenant("serve").unwrap().gpus[0].total.launches, 1, "it is the same tenant");
    set(&stage, 20);
    for _ in 0..2 {
        stage.restart_with(rows(&[changed()]));
        assert_eq!(request_percent(&stage), 20);
    }
    let mut process = Actor::ready(&joined(&stage));
    stage.restart_with(rows(&[serve()]));
    assert_eq!(process.ask("back"), "rejoined");
    assert_eq!(request_percent(&stage), 60, "also under a process that lives");
}

#[test]
fn of_two_rows_one_may_get_what_the_other_had_and_who_has_no_row_any_more_ends() {
    let of = |name: &str, percent: u16| Persistent { wanted: wish(name, percent), ..serve() };
    let mut stage = Stage::with(rows(&[of("a", 30), of("b", 70)]));
    stage.restart_with(rows(&[of("a", 70), of("b", 30)]));
    let requests = |stage: &Stage| {
        let tenants = stage.stats().tenants.into_iter();
        tenants.map(|tenant| (tenant.name, tenant.budget.request.as_permille())).collect::<Vec<_>>()
    };
    assert_eq!(requests(&stage), [("a".to_owned(), 700), ("b".to_owned(), 300)]);
    stage.restart_with(rows(&[of("b", 100)]));
    assert_eq!(requests(&stage), [("b".to_owned(), 1_000)]);
    stage.stop();
    let mut options = crate::stage::options(&stage.place);
    options.tenants = vec![of("b", 100), Persistent { at: "weir.toml:9:1".into(), ..of("c", 1) }];
    let Err(fault) = weir_nodemgr::Manager::start(options) else { panic!("it started") };
    assert_eq!((fault.code.as_str(), fault.at.as_deref()), ("W0104", Some("weir.toml:9:1")));
    stage.restart_with(rows(&[of("b", 100)]));
    assert_eq!(requests(&stage), [("b".to_owned(), 1_000)], "what was left to the next is there still");
}

#[test]
fn what_programs_are_told_when_they_start_changes_when_none_of_them_is_there() {
    let mut stage = Stage::with(rows(&[serve()]));
    launches_once(&stage);
    let process = Actor::ready(&joined(&stage));
    let wanted =
        CreateTenant { class: ClassName::Primary, gpus: vec!["0".into(), "1".into()], ..wish("serve", 40) };
    let changed = || Persistent { wanted: wanted.clone(), ..serve() };
    let shown = |stage: &Stage| {
        let tenant = stage.tenant("serve").unwrap();
        let launches = tenant.gpus.iter().map(|gpu| (gpu.index, gpu.total.launches));
        (tenant.class, tenant.budget.request.as_permille(), launches.collect::<Vec<_>>())
    };
    stage.restart_with(rows(&[changed()]));
    assert_eq!(shown(&stage), (ClassName::Latency, 400, vec![(1, 1)]), "its budget alone");
    drop(process);
    stage.until("serve", "the end of its process", |t| t.is_some_and(|t| t.pids.is_empty()));
    stage.restart_with(rows(&[changed()]));
    assert_eq!(shown(&stage), (ClassName::Primary, 400, vec![(0, 0), (1, 1)]));
}

/// A daemon of its own process, which finds its GPUs in the journal that the stage has left.
struct Daemon<'a> {
    stage: &'a Stage,
    file: std::path::PathBuf,
    child: Option<Child>,
}

impl<'a> Daemon<'a> {
    fn of(stage: &'a Stage) -> Self {
        Self { stage, file: stage.path().join("weir.toml"), child: None }
    }

    fn weir(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("--dir").arg(self.stage.place.base()).args(words);
        command
    }

    /// Kills the one that runs, and starts the next with a row of this request.
    fn start(&mut self, request: &str) {
        self.kill();
        let row = "[[tenant]]\nname = \"serve\"\ngpu = [\"1\"]\nclass = \"latency\"\nmemory = \"10GiB\"\n";
        std::fs::write(&self.file, format!("{row}request = \"{request}\"\n")).unwrap();
        let mut command = self.weir(&["node", "--config"]);
        self.child = Some(command.arg(&self.file).stderr(Stdio::null()).spawn().unwrap());
        let start = Instant::now();
        while weir_nodemgr::control::Client::connect(&self.stage.place).is_err() {
            assert!(start.elapsed() < DEADLINE, "it does not come");
            std::thread::yield_now();
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// What `weir config show` says of the tenant.
    fn shown(&self) -> String {
        let output = self.weir(&["config", "show", "--config"]).arg(&self.file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let row = text.lines().find(|line| line.starts_with("tenant serve")).unwrap_or_default();
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_killed_daemon_leaves_what_was_set_to_the_next_and_config_show_says_where_it_comes_from() {
    let mut stage = Stage::with(rows(&[serve()]));
    stage.stop();
    let mut daemon = Daemon::of(&stage);
    daemon.start("60%");
    let at = format!("{}:1:1", daemon.file.display());
    assert!(daemon.shown().contains("request 60 %") && daemon.shown().ends_with(&at), "{}", daemon.shown());
    assert!(daemon.weir(&["set", "serve", "--request", "45%"]).status().unwrap().success());
    for _ in 0..2 {
        daemon.start("60%");
        assert_eq!(request_percent(&stage), 45);
        let shown = daemon.shown();
        assert!(
            shown.contains("request 45 %") && shown.ends_with(&format!("weir set, over {at}")),
            "{shown}"
        );
    }
    daemon.kill();
    assert!(daemon.shown().contains("request 45 %"), "the next one will have it: {}", daemon.shown());
    daemon.start("50%");
    assert_eq!(request_percent(&stage), 50);
    assert!(daemon.shown().contains("request 50 %") && daemon.shown().ends_with(&format!(" {at}")));
    assert!(!daemon.shown().contains("weir set"));
}
