//! `weir-cluster fit` as an operator asks it: which services go together on which device, and each mistake with what to do. No GPU is
//! needed, and nothing is measured: slowdowns are *predicted*.

use std::path::PathBuf;

use serde_json::Value;
use weir_tests::asked::{assert_refused, told};

/// A calibration file of this text.
fn calibration(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("calibration.toml");
    std::fs::write(&path, text).expect("a temporary file");
    path
}

const THREE: [&str; 5] = ["--json", "fit", "BERT-base", "RoBERTa-large", "LLaMA2-7B:training"];

#[test]
fn services_are_divided_over_the_fewest_gpus_of_each_device() {
    let answers = told(&THREE);
    let devices = answers.as_array().expect("a list of devices");
    assert!(devices.len() > 3, "{answers}");
    for answer in devices.iter().filter(|answer| !answer["gpus"].is_null()) {
        let gpus = answer["gpus"].as_array().expect("a list of GPUs");
        let services: usize = gpus.iter().map(|gpu| gpu.as_array().map_or(0, Vec::len)).sum();
        assert_eq!(services, 3, "each once: {answer}");
        let rows = || gpus.iter().flat_map(|gpu| gpu.as_array().into_iter().flatten());
        assert!(rows().all(|row| row["predicted_slowdown"].as_f64().is_some_and(|slow| slow >= 1.0)));
        for gpu in gpus {
            let memory = |row: &Value| row["memory_bytes"].as_u64().unwrap_or(u64::MAX);
            let held: u64 = gpu.as_array().into_iter().flatten().map(memory).sum();
            assert!(held <= answer["memory_bytes"].as_u64().unwrap_or(0), "{answer}");
        }
    }
}

#[test]
fn of_devices_with_a_price_the_cheapest_that_suffices_is_named() {
    let devices = ["--device", "small=8GiB,1", "--device", "large=80GiB,2.5", "--device", "unpriced=80GiB"];
    let answers = told(
        &[&["--json", "fit", "BERT-base", "VGG19", "GPT2-large", "--ceiling", "3"][..], &devices].concat(),
    );
    let of = |at: usize| (&answers[at]["cost_per_hour"], &answers[at]["cheapest"]);
    assert_eq!(of(0), (&3.0.into(), &false.into()), "one GPU each, by memory: {answers}");
    assert_eq!(of(1), (&2.5.into(), &true.into()), "{answers}");
    assert!(answers[2]["cost_per_hour"].is_null() && !answers[2]["gpus"].is_null(), "{answers}");
}

#[test]
fn what_switches_cost_on_a_card_is_in_what_services_cost_each_other_there() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let slowdowns = |switch_us: u32| -> Vec<f64> {
        let file = calibration(&directory, &format!("switch_us = {switch_us}\n"));
        let file = file.to_str().expect("a plain name");
        let answers = told(&[
            "--json",
            "fit",
            "BERT-base",
            "BERT-base",
            "--ceiling",
            "9",
            "--device",
            "A=40GiB",
            "--calibration",
            file,
        ]);
        let rows = answers[0]["gpus"][0].as_array().expect("both on one GPU").clone();
        rows.iter().filter_map(|row| row["predicted_slowdown"].as_f64()).collect()
    };
    let (quick, slow) = (slowdowns(1), slowdowns(2_000));
    assert_eq!((quick.len(), slow.len()), (2, 2));
    assert!(quick.iter().zip(&slow).all(|(quick, slow)| slow > quick), "{quick:?} {slow:?}");
}

#[test]
fn what_cannot_be_asked_is_refused_and_says_what_can() {
    assert_refused(
        &["fit", "BERT-bse"],
        2,
        &["neither a profile file nor a known model", "did you mean `BERT-base`?"],
    );
    assert_refused(&["fit", "BERT-base", "--device", "A100"], 2, &["names no memory", "A100=40GiB"]);
    for (device, told) in [
        ("A=40GiB,x", "`x` is no price"),
        ("A=40GiB,1,0", "`0` is no speed"),
        ("A=40GiB,1,1,1", "nothing is known"),
    ] {
        assert_refused(&["fit", "BERT-base", "--device", device], 2, &[told, "T4=16GiB,0.35,0.4"]);
    }
    assert_refused(&["fit", "BERT-base", "--rate", "5"], 2, &["has an SLO", "weir-cluster profile"]);
    let many = [&["fit"][..], &["BERT-base"; 13]].concat();
    assert_refused(&many, 2, &["13 services are too many", "fewer"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |text: &str| calibration(&directory, text).to_str().expect("a plain name").to_owned();
    let with = |text: &str, message: &str| {
        assert_refused(
            &["fit", "BERT-base", "--calibration", &file(text)],
            2,
            &[message, "weir doctor --measure"],
        );
    };
    with("switch_us = 0\n", "from 1 to 1,000,000 us");
    with("sms = 108\n", "tells of no switch");
    with("switch_us =\n", "cannot be used");
    assert_refused(
        &["fit", "BERT-base", "--calibration", "/nowhere.toml"],
        2,
        &["/nowhere.toml", "weir doctor --measure"],
    );
}
