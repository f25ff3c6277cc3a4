//! Stories of whole runs.

use std::path::Path;

use super::compare::{Comparison, Outcome, TenantOutcome, compare, ruler};
use super::engine::{Rule, run};
use super::scenario::Scenario;
use weir_simgpu_model::Mode;

/// Two tenants that always have work.
const SHARES: &str = r#"
about = "shares"
seconds = 3
warm_up_seconds = 1
[[tenant]]
name = "six"
request = "60%"
limit = "60%"
offline = { batch_ms = 50, unit_us = 150 }
[[tenant]]
name = "three"
request = "30%"
limit = "30%"
offline = { batch_ms = 20, unit_us = 400 }
"#;

/// A server, a training loop and a filler.
const MIXED: &str = r#"
about = "mixed"
seconds = 3
warm_up_seconds = 0.5
[[tenant]]
name = "server"
class = "latency"
request = "30%"
slo = "p95 < 100ms"
[tenant.inference]
prefill_each_ms = 8
decode_ms = 4
tokens = 6
token_cv = 0.5
batch = 8
arrivals = { per_s = 6, cv = 2 }
[[tenant]]
name = "training"
request = "40%"
training = { parallel = "data", compute_ms = 40, bubble_ms = 30, jitter_percent = 10 }
[[tenant]]
name = "filler"
class = "filler"
offline = { batch_ms = 30 }
"#;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, Path::new("scenario.toml")).unwrap()
}

fn compared(text: &str, seed: u64, policies: &[&str]) -> Comparison {
    let scenario = Scenario { seed, ..scenario(text) };
    let rulers: Vec<_> = policies.iter().map(|name| ruler(name).unwrap()).collect();
    compare(&scenario, &rulers).unwrap()
}

fn tenant<'a>(outcome: &'a Outcome, name: &str) -> &'a TenantOutcome {
    outcome.tenants.iter().find(|tenant| tenant.tenant == name).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let names: Vec<_> =
        weir_policy::POLICIES.iter().map(|row| row.name).chain(["slicing", "mps", "mps-request"]).collect();
    let runs = [1, 1, 2].map(|seed| compared(MIXED, seed, &names));
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0].outcomes, runs[2].outcomes);
}

#[test]
fn every_nanosecond_of_the_window_is_busy_switching_or_idle() {
    let scenario = scenario(MIXED);
    let policies = weir_policy::POLICIES.iter().map(Rule::Policy);
    for rule in policies.chain([Mode::TimeSlice, Mode::Mps].map(Rule::Driver)) {
        let run = run(&scenario, &[0, 1, 2], rule).unwrap();
        let books = run.device;
        assert_eq!(books.busy + books.switch + books.idle, run.window.length());
        assert_eq!(run.tenants.iter().map(|tenant| tenant.used).sum::<u64>(), books.busy);
    }
}

#[test]
fn a_tenant_alone_has_its_own_latency_under_every_policy() {
    let text = MIXED.split("[[tenant]]").take(2).collect::<Vec<_>>().join("[[tenant]]");
    for policy in weir_policy::POLICIES {
        let comparison = compared(&text, 3, &["alone", policy.name]);
        let [alone, ruled] = [0, 1].map(|n| tenant(&comparison.outcomes[n], "server").request.unwrap());
        assert!((ruled.p50_ms / alone.p50_ms - 1.0).abs() < 0.01, "{}: {ruled:?}, {alone:?}", policy.name);
        assert!((ruled.p99_ms / alone.p99_ms - 1.0).abs() < 0.01, "{}: {ruled:?}, {alone:?}", policy.name);
    }
}

#[test]
fn shares_that_are_limits_are_kept_within_a_point() {
    let comparison = compared(SHARES, 1, &["static"]);
    for (name, share) in [("six", 60.0), ("three", 30.0)] {
        let got = tenant(&comparison.outcomes[0], name).share_percent;
        assert!((got - share).abs() < 1.0, "{name} got {got} %");
    }
}

#[test]
fn plain_slicing_divides_by_two_whatever_was_requested() {
    let comparison = compared(SHARES, 1, &["slicing"]);
    let outcome = &comparison.outcomes[0];
    let [six, three] = ["six", "three"].map(|name| tenant(outcome, name).share_percent);
    assert!((six - three).abs() < 1.0, "{six} and {three}");
    // gpu-truths, rule 2: each turn of 2 ms is followed by a switch of 0.1 ms.
    assert!((outcome.switch_percent.unwrap() - 100.0 * 0.1 / 2.1).abs() < 0.3, "{outcome:?}");
}

#[test]
fn small_kernels_overlap_where_all_run_at_once() {
    let text = SHARES.replace("offline =", "kernel = { sm_percent = 50 }\noffline =");
    let comparison = compared(&text, 1, &["mps"]);
    for name in ["six", "three"] {
        let of_alone = tenant(&comparison.outcomes[0], name).of_alone_percent.unwrap();
        assert!(of_alone > 99.0, "{name} does {of_alone} % of what it does alone");
    }
}

#[test]
fn a_partition_that_is_smaller_than_a_kernel_makes_it_as_much_longer_and_a_larger_one_changes_nothing() {
    // Papers 1.3: latency against MPS share.
    let text = SHARES.replace("offline =", "kernel = { sm_percent = 40 }\noffline =");
    let comparison = compared(&text, 1, &["mps-request", "mps-limit"]);
    for outcome in &comparison.outcomes {
        let [six, three] = ["six", "three"].map(|name| tenant(outcome, name).of_alone_percent.unwrap());
        assert!((six - 100.0).abs() < 1.0 && (three - 75.0).abs() < 1.0, "{six} and {three}");
    }
}

#[test]
fn under_a_policy_a_tenant_has_a_partition_as_large_as_its_limit_where_kernels_run_at_once() {
    let text = SHARES.replacen("[[tenant]]", "[device]\nmode = \"mps\"\n[[tenant]]", 1);
    let comparison = compared(&text, 1, &["static"]);
    for (name, share) in [("six", 60.0), ("three", 30.0)] {
        let of_alone = tenant(&comparison.outcomes[0], name).of_alone_percent.unwrap();
        assert!((of_alone - share).abs() < 1.0, "{name} does {of_alone} % of what it does alone");
    }
}

#[test]
fn gaps_are_what_nobody_better_uses_and_a_filler_alone_leaves_none_of_them() {
    let text = MIXED.replace("arrivals = { per_s = 6, cv = 2 }", "arrivals = { per_s = 0.001 }");
    let comparison = compared(&text, 1, &["static"]);
    let outcome = &comparison.outcomes[0];
    // Of each iteration of 70 ms 30 are a bubble; the filler, which static lets run beside, stretches the rest.
    assert!((20.0..45.0).contains(&outcome.idle_percent.unwrap()), "{outcome:?}");
    assert!(outcome.fillable_percent < outcome.idle_percent);
    assert!(outcome.idle_filled_percent.unwrap() > 50.0, "{outcome:?}");
}

#[test]
fn what_a_filler_does_in_bubbles_is_bounded_by_their_sum() {
    let comparison = compared(MIXED, 1, &["slicing", "static"]);
    for outcome in &comparison.outcomes {
        assert!(outcome.idle_filled_percent.unwrap() <= 100.0);
        assert!(outcome.fillable_filled_percent.unwrap() <= 100.0);
    }
}

/// A server whose promise leaves time, and a filler.
const SLACK: &str = r#"
about = "slack"
seconds = 20
warm_up_seconds = 10
[[tenant]]
name = "server"
class = "latency"
request = "50%"
slo = "p95 < 60ms"
slo_on = "per-token"
inference = { prefill_each_ms = 20, decode_ms = 20, tokens = 50, batch = 8, arrivals = { per_s = 1 } }
[[tenant]]
name = "filler"
class = "filler"
offline = { batch_ms = 30 }
"#;

#[test]
fn what_a_promise_leaves_goes_to_fillers_and_the_promise_is_kept() {
    // gpu-truths 2a; design 10, policy.slo_goodput_percent.
    let [plain, promised] = [SLACK.replace("slo = ", "# "), SLACK.to_owned()]
        .map(|text| compared(&text, 1, &["weir"]).outcomes.remove(0));
    let [without, with] = [&plain, &promised].map(|outcome| tenant(outcome, "filler").work_ms_per_s);
    assert!(with > without + 150.0, "{with} and {without} ms in a second");
    assert_eq!(tenant(&promised, "server").slo_kept, Some(true), "{promised:?}");
}

#[test]
fn a_promise_is_kept_as_well_by_what_buckets_tell_of_it() {
    // design 8: a hint for those who tell; its buckets are an eighth of an octave wide.
    let told = SLACK.replace("slo_on =", "slo_by = \"hint\"\nslo_on =");
    let [exact, told] = [SLACK.to_owned(), told].map(|text| compared(&text, 1, &["weir"]).outcomes.remove(0));
    let filled = |outcome: &Outcome| tenant(outcome, "filler").share_percent;
    assert_eq!(tenant(&told, "server").slo_kept, Some(true), "{told:?}");
    assert!(filled(&told) > 0.9 * filled(&exact), "{} % by buckets, {} %", filled(&told), filled(&exact));
}

#[test]
fn a_server_that_answers_in_many_rounds_keeps_what_it_promises_of_whole_answers() {
    // design 8: the most filler work subject to the SLO. Put off by all that the promise leaves, 5.7 and 8.6 % would be late.
    let text =
        include_str!("../../../bench/scenarios/llm-filler.toml").replace("seconds = 60", "seconds = 200");
    let text = text.replace("p95 < 60ms", "p95 < 12s").replace("per-token", "request");
    for seed in [30, 33] {
        let outcomes = compared(&text, seed, &["weir", "static"]).outcomes;
        assert_eq!(tenant(&outcomes[0], "llama").slo_kept, Some(true), "{:?}", outcomes[0]);
        let [weir, plain] = [0, 1].map(|at| tenant(&outcomes[at], "offline").share_percent);
        assert!(weir > plain + 5.0, "{weir} and {plain} % for the filler");
    }
}

#[test]
fn beside_another_better_whoever_promised_something_keeps_it_where_plain_slices_do_not() {
    // design 8: latency against SLO first.
    for text in [
        include_str!("../../../bench/scenarios/inference-training.toml"),
        include_str!("../../../bench/scenarios/inference-inference.toml"),
    ] {
        let outcomes = compared(text, scenario(text).seed, &["weir", "slicing"]).outcomes;
        let kept = |at: usize| outcomes[at].tenants.iter().all(|tenant| tenant.slo_kept != Some(false));
        assert!(kept(0) && !kept(1), "{}", outcomes[0].tenants[0].tenant);
    }
}

#[test]
fn a_server_that_has_more_to_do_than_its_share_takes_nothing_of_what_training_is_guaranteed() {
    // design 5: a request is guaranteed whatever the class.
    let text = include_str!("../../../bench/scenarios/inference-training.toml");
    let flooded = text.replace("per_s = 12", "per_s = 160").replace("bubble_ms = 30", "bubble_ms = 0.1");
    let outcomes = compared(&flooded, 7, &["weir"]).outcomes;
    let share = tenant(&outcomes[0], "bert-training").share_percent;
    assert!(share > 48.0, "{share} %: a request of 50 %, and switches take their part");
}

#[test]
fn of_ten_seconds_with_work_throughout_a_server_that_is_put_off_has_its_request() {
    // Design 5: a guarantee over a long run, to a point (design 10, share.error_points); its promise alone would leave it a
    // third.
    let text = SLACK.replace("per_s = 1", "per_s = 2").replace("seconds = 20", "seconds = 60");
    let outcome = compared(&text, 1, &["weir"]).outcomes.remove(0);
    let least = tenant(&outcome, "server").least_share_percent.unwrap();
    assert!((49.0..70.0).contains(&least), "{least} %");
}

#[test]
fn a_key_that_is_none_is_named_with_its_line_and_the_nearest_one() {
    let text = MIXED.replace("bubble_ms", "buble_ms");
    let fault = Scenario::parse(&text, Path::new("x.toml")).unwrap_err();
    assert!(fault.help.contains("`bubble_ms`"), "{fault}");
    assert!(fault.at.as_deref().is_some_and(|at| at.starts_with("x.toml:20:")), "{fault}");
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused_with_what_to_do() {
    for (from, to, help) in [
        ("p95 < 100ms", "p95 > 100ms", "p95 < 200ms"),
        ("request = \"40%\"", "request = \"0.4\"", "30%"),
        ("offline = { batch_ms = 30 }", "", "[tenant.offline]"),
        ("decode_ms = 4", "decode_ms = 0", "decode_ms"),
        ("seconds = 3", "seconds = 0", "more than nothing"),
    ] {
        let text = MIXED.replacen(from, to, 1);
        let fault = Scenario::parse(&text, Path::new("x.toml")).expect_err(to);
        assert!(fault.help.contains(help), "{fault}");
        assert_eq!(fault.exit_code(), 78);
    }
}

#[test]
fn budgets_that_do_not_fit_are_refused_as_the_daemon_refuses_them() {
    let scenario = scenario(&MIXED.replace("request = \"40%\"", "request = \"90%\""));
    let fault = compare(&scenario, &[ruler("static").unwrap()]).unwrap_err();
    assert_eq!(fault.code, crate::codes::SHARE_TAKEN.code);
}

#[test]
fn the_scenarios_that_come_with_weir_can_be_simulated() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/scenarios");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    names.sort();
    assert!(names.len() >= 4, "{names:?}");
    for path in names {
        let scenario = Scenario { seconds: 0.5, ..Scenario::read(&path).unwrap() };
        compare(&scenario, &[ruler("static").unwrap()]).unwrap();
        assert!(!scenario.source.is_empty(), "{}: where its figures come from", path.display());
    }
}

/// A server of single passes that promised something, and batches, for 200 s.
fn server_of(per_s: f64, seed: u64) -> (TenantOutcome, f64) {
    let text = format!(
        r#"
about = "a server of single passes, and batches"
seconds = 200
[[tenant]]
name = "server"
class = "latency"
request = "50%"
slo = "p95 < 100ms"
[tenant.inference]
prefill_ms = 26.2
batch = 4
arrivals = {{ per_s = {per_s} }}
[[tenant]]
name = "filler"
class = "filler"
offline = {{ batch_ms = 25.8, unit_us = 150 }}
"#
    );
    let outcomes = compared(&text, seed, &["weir"]).outcomes;
    (tenant(&outcomes[0], "server").clone(), tenant(&outcomes[0], "filler").of_alone_percent.unwrap())
}

#[test]
fn a_server_of_a_few_requests_in_a_second_is_late_with_no_more_of_them_than_it_promised() {
    // p95 of the last five seconds is the second slowest of twenty: by that alone 6 % were late on each of 24 seeds.
    let (server, filler) = server_of(4.0, 30);
    assert_eq!((server.slo_kept, server.unserved), (Some(true), 0), "{:?} %", server.slo_violations_percent);
    assert!(filler > 85.0, "{filler} %");
}

#[test]
fn nor_is_one_of_a_request_in_two_seconds_of_which_most_readings_are_old() {
    // Each second in which no request ended raised the hold anew: 6.2 % were late.
    let (server, filler) = server_of(0.5, 35);
    assert_eq!((server.slo_kept, server.unserved), (Some(true), 0), "{:?} %", server.slo_violations_percent);
    assert!(filler > 95.0, "{filler} %");
}

/// Design 5: shares, whatever units of work are like. All of the GPU is requested, so that switching takes its part from everybody.
#[test]
fn those_who_never_lack_work_share_as_they_requested_whatever_their_kernels_are_like() {
    let pair = |first: u32, unit_us: u32| {
        let tenant = |name: &str, percent: u32| {
            format!(
                "[[tenant]]\nname = '{name}'\nclass = 'primary'\nrequest = '{percent}%'\nlimit = '{percent}%'\n\
                 [tenant.offline]\nbatch_ms = 3_000\nunit_us = {unit_us}\n"
            )
        };
        let head = "about = 'a'\nsource = 'b'\nseed = 3\nseconds = 20\nwarm_up_seconds = 5\n";
        [head.to_owned(), tenant("first", first), tenant("second", 100 - first)].concat()
    };
    for first in [50, 70, 80] {
        for unit_us in [100, 400, 2_500, 5_000] {
            let outcome = compared(&pair(first, unit_us), 1, &["static"]).outcomes.remove(0);
            let [one, two] = ["first", "second"].map(|name| tenant(&outcome, name).share_percent);
            let off = 100.0 * one / (one + two) - f64::from(first);
            assert!(off.abs() < 0.1, "{first} %, units of {unit_us} us: {off:+.2} points");
            assert!(one + two > 94.0, "{first} %, units of {unit_us} us: {one} and {two} % of the GPU");
        }
    }
}
