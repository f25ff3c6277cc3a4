//! The ways to look a driver function up: the table that `weir doctor` prints is the table that is promised.

use serde::Deserialize;
use weir_tests::program::Program;
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

#[derive(Deserialize)]
struct Report {
    unlisted: Option<Vec<String>>,
    routes: Vec<Route>,
}

#[derive(Debug, Deserialize)]
struct Route {
    route: String,
    caught: Option<bool>,
    expected: bool,
    note: String,
}

fn probe(gpu: &SimGpu) -> Program {
    Program::bare(gpu, env!("CARGO_BIN_EXE_weir-probe")).arg("--json")
}

fn routes(stdout: &[String]) -> Vec<Route> {
    serde_json::from_str::<Report>(&stdout.concat()).expect("one JSON document").routes
}

#[test]
fn every_route_to_the_driver_is_caught_or_missed_as_promised() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let run = probe(&gpu).env("LD_PRELOAD", gpu.dist().preload()).run();
    let routes = routes(&run.stdout);
    let broken: Vec<_> = routes.iter().filter(|route| route.caught != Some(route.expected)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(run.status.success(), "{}", run.status);
    assert!(routes.iter().filter(|route| route.expected).count() >= 11);
}

#[test]
fn weir_doctor_prints_the_same_table_and_names_the_simulated_gpu() {
    #[derive(Deserialize)]
    struct Promise {
        preload: bool,
        proxy: bool,
        ld_so_preload: bool,
    }
    #[derive(Deserialize)]
    struct Row {
        #[serde(flatten)]
        route: Route,
        caught_by_proxy: Option<bool>,
        promise: Promise,
    }
    #[derive(Deserialize)]
    struct Doctor {
        simulated: bool,
        routes: Vec<Row>,
    }
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let run = Program::bare(&gpu, gpu.dist().weir()).args(["--json", "doctor"]).run();
    let doctor: Doctor = serde_json::from_str(&run.stdout.concat()).expect("one JSON document");
    let probed = probe(&gpu).env("LD_PRELOAD", gpu.dist().preload()).run();
    let row = |route: &Route| (route.route.clone(), route.caught);
    let probed: Vec<_> = routes(&probed.stdout).iter().map(row).collect();
    assert_eq!(doctor.routes.iter().map(|shown| row(&shown.route)).collect::<Vec<_>>(), probed);
    for Row { route, caught_by_proxy, promise } in &doctor.routes {
        let tried = (route.caught, *caught_by_proxy);
        assert_eq!(tried, (Some(promise.preload), Some(promise.proxy)), "{route:?}");
    }
    // It cannot be tried without a mount; the story `proxy` does that.
    assert_eq!(doctor.routes.iter().filter(|shown| shown.promise.ld_so_preload).count(), 14);
    assert!(doctor.simulated);
}

#[test]
fn without_us_nothing_is_caught() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let routes = routes(&probe(&gpu).run().well().stdout);
    // Who asks for a version finds nothing, with us or without.
    let strange: Vec<_> =
        routes.iter().filter(|r| (r.caught != Some(false)) != (r.route == "dlvsym(handle)")).collect();
    assert!(strange.is_empty(), "{strange:#?}");
}

#[test]
fn without_a_driver_the_probe_says_so() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let run = probe(&gpu).without_environment().run();
    assert_eq!(run.status.code(), Some(3));
    assert!(
        routes(&run.stdout).iter().all(|route| route.caught.is_none() && route.note.contains("libcuda.so.1"))
    );
}

#[test]
fn functions_of_the_driver_that_our_list_lacks_are_named() {
    let gpu = SimGpu::new(EVERY_KERNEL_20_US);
    let unlisted = |program: Program| {
        serde_json::from_str::<Report>(&program.run().stdout.concat()).expect("one JSON document").unlisted
    };
    assert_eq!(unlisted(probe(&gpu)), Some(vec![]), "the simulated driver exports what the list has");
    let younger = tempfile::tempdir().expect("a temporary directory");
    let source = younger.path().join("younger.c");
    let functions =
        "int cuInit(void) { return 0; }\nint cuOfTomorrow_v2(void) { return 0; }\nint cudbgHelper;\n";
    std::fs::write(&source, functions).expect("a file in it");
    weir_tests::compile::c(&["-shared", "-fPIC"], &source, &younger.path().join("libcuda.so.1"));
    let probe = probe(&gpu).env("LD_LIBRARY_PATH", younger.path());
    assert_eq!(unlisted(probe), Some(vec!["cuOfTomorrow_v2".to_owned()]));
    let doctor =
        Program::bare(&gpu, gpu.dist().weir()).arg("doctor").env("LD_LIBRARY_PATH", younger.path()).run();
    let told = "1 functions of the driver are not on our list: cuOfTomorrow_v2";
    assert!(doctor.stdout.iter().any(|line| line.starts_with("warn") && line.ends_with(told)), "{doctor:?}");
}
