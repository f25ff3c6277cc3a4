//! The benchmarks of the node manager and the simulator in their short forms: that all of it works, that what may never happen does
//! not, and that the documents have what is promised of them. Never how long anything takes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use weir_tests::dist::Dist;

/// What a benchmark prints.
fn printed(arguments: &[&str]) -> (Value, String) {
    let dist = Dist::find();
    let mut command = Command::new(dist.bench());
    command.args(arguments).arg("--json").env("WEIR_DIST", dist.root()).stdin(Stdio::null());
    let output = command.output().expect("weir-bench starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"));
    (document, said)
}

/// The same, of one that has these bars. One of time that fails is none of this file's business.
fn document(arguments: &[&str], bars: &[&str]) -> Value {
    let (document, said) = printed(arguments);
    assert_eq!((&document["bench"], &document["simulated"]), (&arguments[0].into(), &true.into()));
    let named: Vec<_> =
        list(&document["bars"]).iter().map(|bar| bar["name"].as_str().expect("a name")).collect();
    assert_eq!(named, bars, "{said}");
    assert!(list(&document["bars"]).iter().all(|bar| bar["value"].is_number() && bar["limit"].is_number()));
    document
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn bar(document: &Value, name: &str) -> f64 {
    let bar = list(&document["bars"]).iter().find(|bar| bar["name"] == name);
    number(&bar.expect("it was looked for")["value"])
}

#[test]
fn after_each_change_of_a_budget_a_launch_follows_under_it() {
    let bars = ["resize.first_launch_p99_us", "resize.unacknowledged"];
    let document = document(&["resize", "--quick"], &bars);
    assert!(bar(&document, bars[1]) == 0.0, "{document}");
    assert!(number(&document["figures"]["first_launch_us"]["changes"]) >= 10.0, "{document}");
}

#[test]
fn a_program_of_many_libraries_finds_the_drivers_functions_with_weir_and_without() {
    let document = document(&["startup", "--quick"], &["startup.added_ms"]);
    let figures = &document["figures"]["libraries_and_look_ups"];
    assert!(["bare_ms", "weir_ms"].iter().all(|of| number(&figures[of]["median"]) > 0.0), "{document}");
}

#[test]
fn a_thousand_processes_register_and_weir_ps_shows_them() {
    let bars = ["register.wall_ms", "register.rss_mib", "register.ps_ms"];
    let document = document(&["register", "--quick"], &bars);
    assert!(number(&document["figures"]["register"]["shape"]["processes"]) >= 1_000.0, "{document}");
    assert!(bar(&document, bars[1]) <= 16.0, "memory is no matter of time: {document}");
}

#[test]
fn wherever_the_manager_is_killed_no_call_of_sixteen_busy_clients_fails() {
    let bars = ["restart.recover_ms", "restart.failed_calls"];
    let document = document(&["restart", "--quick"], &bars);
    assert!(bar(&document, bars[1]) == 0.0, "{document}");
    let steps = document["figures"]["recover_ms_by_step"]["spread"].as_object().expect("one for each step");
    let places: BTreeSet<_> = weir_nodemgr::failpoint::PLACES.iter().copied().chain(["none"]).collect();
    assert_eq!(steps.keys().map(String::as_str).collect::<BTreeSet<_>>(), places);
}

#[test]
fn the_managers_own_part_of_a_processor_is_measured_for_fillers_primaries_and_both() {
    let document = document(&["manager", "--quick"], &["manager.core_percent", "manager.core_percent_asked"]);
    let figures = &document["figures"];
    assert!(number(&figures["core_percent"]["ticks"]) > 0.0, "{document}");
    for what in [&figures["core_percent"]["spread"], &figures["core_percent_of_primaries"]] {
        assert!((0.0..100.0).contains(&number(&what["median"])), "{document}");
    }
}

#[test]
fn the_simulator_and_real_processes_are_compared_tenant_by_tenant() {
    let (document, _) = printed(&["agree", "--seconds", "3"]);
    let tenants = list(&document["figures"]["tenants"]);
    assert!((2..=3).contains(&tenants.len()), "{document}");
    for side in ["simulated", "real"] {
        let share = |tenant: &Value| number(&tenant[side]["share_percent"]);
        assert!(tenants.iter().all(|tenant| share(tenant) > 0.0), "{side}: {document}");
        assert!(tenants.iter().map(share).sum::<f64>() <= 101.0, "{side}: {document}");
    }
}

#[test]
fn programs_like_pytorchs_meet_under_plain_slicing_and_under_weir() {
    let bars = [
        "duel.model_error_percent",
        "duel.model_host_error_percent",
        "duel.against_slicing_percent",
        "duel.entitled_percent",
        "duel.entitled_host_percent",
        "duel.latency_ratio",
        "duel.beside_percent",
        "duel.promise_percent",
        "duel.filled_percent",
        "duel.filled_loss_percent",
        "room.percent",
        "helper.steps_core_percent",
        "helper.pieces_core_percent",
    ];
    let document = document(&["duel", "--quick"], &bars);
    for row in list(&document["figures"]["rows"]) {
        let settings = row["settings"].as_object().expect("one for each setting");
        assert!(settings.contains_key("plain") && settings.len() >= 2, "{row}");
        for tenant in settings.values().flat_map(|setting| list(&setting["tenants"])) {
            assert!(number(&tenant["used_percent"]) > 0.0, "everybody has some of the GPU: {row}");
        }
    }
}

#[test]
fn every_policy_has_its_row_in_each_case_of_the_bars() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let plot = out.path().to_str().expect("a name in letters");
    let bars = [
        "policy.latency_ratio",
        "policy.primary_loss_percent",
        "policy.idle_filled_percent",
        "policy.slo_goodput_percent",
        "policy.frontier_points",
    ];
    let document = document(&["policy", "--quick", "--plot", plot], &bars);
    let frontier = list(&document["figures"]["frontier"]);
    assert!(frontier.len() > 10, "{document}");
    for case in list(&document["figures"]["latency"]) {
        let named: BTreeSet<_> =
            list(&case["rows"]).iter().filter_map(|row| row["policy"].as_str()).collect();
        for policy in weir_nodemgr::sim::policies().chain(["slicing", "mps"]) {
            assert!(named.contains(policy), "{policy}: {case}");
        }
        let work = |row: &Value| (0.0..=100.1).contains(&number(&row["filler_work_percent"]));
        assert!(list(&case["rows"]).iter().all(work), "{case}");
    }
    drawn(&out.path().join("policy.svg"));
}

fn drawn(path: &Path) {
    let picture = std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{}", path.display());
}

/// `weir sim` of a scenario that comes with Weir.
fn sim(scenario: &str, arguments: &[&str]) -> (String, String) {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/scenarios").join(scenario);
    let mut command = Command::new(Dist::find().weir());
    let output = command.arg("sim").arg(scenario).args(arguments).output().expect("weir starts");
    let [out, err] = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{err}");
    (out, err)
}

#[test]
fn the_table_of_a_simulation_has_a_row_for_each_tenant_under_each_rule_and_is_the_same_again() {
    let (table, said) = sim("inference-training.toml", &["--seconds", "3"]);
    assert!(table.contains("simulated") && said.contains("times real speed"), "{table}{said}");
    let rules = weir_nodemgr::sim::RULES.iter().map(|(name, _)| *name);
    for rule in rules.chain(weir_nodemgr::sim::policies()) {
        let rows = table.lines().filter(|line| line.split_whitespace().next() == Some(rule)).count();
        assert!(rows >= 1, "{rule}: {table}");
    }
    assert_eq!(sim("inference-training.toml", &["--seconds", "3"]).0, table);
}

#[test]
fn a_simulation_draws_what_it_says_that_it_has_drawn() {
    let out = tempfile::tempdir().expect("a temporary directory");
    let plot = out.path().to_str().expect("a name in letters");
    let (_, said) = sim("inference-filler.toml", &["--seconds", "3", "--plot", plot]);
    let named: BTreeSet<_> = said.lines().filter_map(|line| line.split_once("drawn: ")).collect();
    let named: BTreeSet<PathBuf> = named.into_iter().map(|(_, path)| path.into()).collect();
    let found = std::fs::read_dir(out.path()).expect("it was made").flatten().map(|entry| entry.path());
    assert_eq!(named, found.collect());
    assert!(named.contains(&out.path().join("frontier.svg")), "{named:?}");
    named.iter().for_each(|path| drawn(path));
}

#[test]
fn another_interposer_given_by_its_path_is_measured_beside_ours_in_the_same_run() {
    let other = Dist::find().root().join("test/libweir-failpoints.so");
    let other = other.to_str().expect("a path in UTF-8");
    let spawn = document(&["spawn", "--preload", other], &["spawn.added_us"]);
    assert!(number(&spawn["figures"]["other"]["us"]["median"]) > 0.0, "{spawn}");
    let alloc = document(&["alloc", "--preload", other], &["alloc.added_ns"]);
    for calls in ["alloc_and_free", "in_stream_order"] {
        let figures = &alloc["figures"][calls];
        let added = number(&figures["other_ns"]["median"]) - number(&figures["bare_ns"]["median"]);
        assert!((added - number(&figures["other_added_ns"])).abs() < 1e-6, "{figures}");
    }
}

#[test]
fn the_profilers_searches_keep_their_bars() {
    let document = document(&["profile"], &["profile.probes", "profile.loss_percent"]);
    assert!(
        list(&document["bars"]).iter().all(|bar| bar["holds"] == true),
        "no time is measured: {document}"
    );
}

/// With few seeds means scatter: what is held is what no seed of the short form breaks. Recorded clusters and tables are there only where
/// `../shared/data` is.
#[test]
fn placement_saves_gpus_and_wrongs_nobody_for_it() {
    let (document, said) = printed(&["placement", "--quick"]);
    assert_eq!(document["simulated"], true, "{said}");
    assert!(bar(&document, "placement.dilu_saves_against_exclusive_percent") >= 28.0, "{document}");
    assert!(bar(&document, "placement.dilu_saves_against_limit_percent") >= 22.0, "{document}");
    assert!(bar(&document, "placement.weir_saves_against_dilu_percent") > -2.0, "{document}");
    assert!(bar(&document, "placement.weir_violations_over_dilu_points") <= 0.0, "{document}");
    assert!(bar(&document, "placement.memory_mib") <= 1_024.0, "memory is no matter of time: {document}");
}

#[test]
fn scaling_policies_are_compared_on_every_case_and_lose_no_request() {
    let (document, said) = printed(&["scaling", "--quick"]);
    assert_eq!(document["simulated"], true, "{said}");
    let cases = list(&document["figures"]["cases"]);
    assert!(cases.len() >= 9, "the drawn ones: {document}");
    for case in cases {
        let policies = list(&case["policies"]);
        assert_eq!(policies.len(), weir_cluster::scale::SCALERS.len(), "{case}");
        let arrived: BTreeSet<_> = policies.iter().map(|policy| policy["arrived"].to_string()).collect();
        assert_eq!(arrived.len(), 1, "all of them got the same: {case}");
        assert!(policies.iter().all(|policy| number(&policy["gpu_seconds"]) > 0.0), "{case}");
    }
}
