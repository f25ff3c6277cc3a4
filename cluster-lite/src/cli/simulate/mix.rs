//! `weir-cluster simulate mix`: Dilu's mix of small inference, language models and training under ways to share GPUs, generated
//! from seeds or read from a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::{FIRST_SEED, cannot_write, explain};
use crate::cli::{fit, printer};
use crate::fault::{CONFIG, Fault};
use crate::place::CEILING;
use crate::sim::in_parallel;
use crate::trace::mix::Mix;
use crate::trace::mix::replay::{Outcome, Way, replay_as};

/// Ways that are shown unless some are named: the benchmark's.
const WAYS: [&str; 5] = ["exclusive", "reserve-limit", "reserve-request", "dilu", "weir"];

/// Flags of the command.
#[derive(Args)]
pub struct Options {
    /// Events as `--write` writes them [default: generated, 60 % small inference, 20 % LLM, 20 % training]
    #[arg(value_name = "FILE", conflicts_with_all = ["instances", "write"])]
    file: Option<PathBuf>,
    /// How many instances come, one a second (1 to 20,000)
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    instances: u32,
    /// Placement policies and sums of them, which reserve requests; or exclusive, reserve-limit, reserve-request [default: these
    /// three, dilu, weir]
    #[arg(long, value_delimiter = ',')]
    policy: Vec<String>,
    /// How many mixes are generated, with seeds from 42 on; of a file, how often ties are drawn anew (1 to 1,000)
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Greatest slowdown of anybody under `interference`; 1 to 100
    #[arg(long, default_value_t = CEILING, value_parser = fit::ceiling)]
    ceiling: f64,
    /// Write the outcome of each policy and seed into this CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write why each instance of the first seed went where it went into this file: one JSON document a line
    #[arg(long, value_name = "FILE")]
    explain: Option<PathBuf>,
    /// Write the mix of the first seed into this CSV file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Serialize)]
struct Document<'a> {
    simulated: bool,
    instances: usize,
    seeds: u64,
    means: &'a [Row],
    outcomes: &'a [Row],
}

/// An outcome, or the mean of several.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    policy: String,
    /// Nothing of a mean.
    seed: Option<u64>,
    peak_gpus: f64,
    mean_gpus: f64,
    sm_fragmentation: f64,
    memory_fragmentation: f64,
    violations_percent: f64,
    cut: f64,
}

/// Simulates and prints.
pub fn run(options: &Options, json: bool) -> Result<ExitCode, Fault> {
    let names =
        if options.policy.is_empty() { WAYS.map(str::to_owned).to_vec() } else { options.policy.clone() };
    let ways = names.iter().map(|name| Way::named(name, options.ceiling)).collect::<Result<Vec<_>, _>>()?;
    let mixes = mixes(options)?;
    if let (Some(path), Some((_, mix))) = (&options.write, mixes.first()) {
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        mix.write(file).map_err(|error| cannot_write(path, &error))?;
    }
    if let Some((seed, mix)) = mixes.first() {
        explain(options.explain.as_deref(), &ways, |way, hearer| {
            replay_as(mix, way, &mut ChaCha12Rng::seed_from_u64(*seed), hearer).map(drop)
        })?;
    }
    let outcomes = outcomes(&ways, &mixes)?;
    let means: Vec<_> = outcomes.chunks(mixes.len()).map(mean).collect();
    if let Some(path) = &options.csv {
        write_csv(path, &outcomes).map_err(|error| cannot_write(path, &error))?;
    }
    let (instances, seeds) = (mixes.first().map_or(0, |(_, mix)| mix.instances.len()), options.seeds);
    if json {
        printer::json(&Document { simulated: true, instances, seeds, means: &means, outcomes: &outcomes });
    } else {
        printer::talk(format!("simulated: {instances} instances, {seeds} seeds; violations are predicted"));
        printer::data(table(&means));
    }
    Ok(ExitCode::SUCCESS)
}

/// Each seed with its mix.
fn mixes(options: &Options) -> Result<Vec<(u64, Mix)>, Fault> {
    let seeds = FIRST_SEED..FIRST_SEED + options.seeds;
    let Some(path) = &options.file else {
        let count = usize::try_from(options.instances).unwrap_or(usize::MAX);
        let mix = |seed| (seed, Mix::generate(count, &mut ChaCha12Rng::seed_from_u64(seed)));
        return Ok(seeds.map(mix).collect());
    };
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| {
        let help = "name a file of events; `weir-cluster simulate mix --write FILE` makes one";
        Fault::new(format!("cannot read `{name}`: {error}"), help).exit(CONFIG)
    })?;
    let mix = Mix::read(file, &name)?;
    if mix.events.is_empty() {
        return Err(Fault::input(&name, 1, "there is no event", "add a line for each that comes or goes"));
    }
    Ok(seeds.map(|seed| (seed, mix.clone())).collect())
}

/// In the order of the ways, and of the seeds in each.
fn outcomes(ways: &[Way], mixes: &[(u64, Mix)]) -> Result<Vec<Row>, Fault> {
    let jobs: Vec<_> =
        ways.iter().flat_map(|way| mixes.iter().map(move |(seed, mix)| (way, *seed, mix))).collect();
    let one = |(way, seed, mix): &(&Way, u64, &Mix)| {
        let outcome = replay_as(mix, way, &mut ChaCha12Rng::seed_from_u64(*seed), None)?;
        Ok(row(&way.name, *seed, &outcome))
    };
    in_parallel(&jobs, one).into_iter().collect()
}

fn row(policy: &str, seed: u64, outcome: &Outcome) -> Row {
    Row {
        policy: policy.to_owned(),
        seed: Some(seed),
        peak_gpus: f64::from(outcome.peak_gpus),
        mean_gpus: outcome.mean_gpus,
        sm_fragmentation: outcome.sm_fragmentation,
        memory_fragmentation: outcome.memory_fragmentation,
        violations_percent: outcome.violations_percent,
        cut: outcome.cut as f64,
    }
}

fn mean(rows: &[Row]) -> Row {
    let mean = |value: fn(&Row) -> f64| rows.iter().map(value).sum::<f64>() / rows.len().max(1) as f64;
    Row {
        policy: rows.first().map_or_else(String::new, |row| row.policy.clone()),
        seed: None,
        peak_gpus: mean(|row| row.peak_gpus),
        mean_gpus: mean(|row| row.mean_gpus),
        sm_fragmentation: mean(|row| row.sm_fragmentation),
        memory_fragmentation: mean(|row| row.memory_fragmentation),
        violations_percent: mean(|row| row.violations_percent),
        cut: mean(|row| row.cut),
    }
}

fn table(means: &[Row]) -> String {
    let heads = ["POLICY", "PEAK GPUS", "MEAN GPUS", "SM UNUSED %", "MEMORY UNUSED %", "SHORT %", "CUT"];
    let row = |row: &Row| {
        vec![
            row.policy.clone(),
            format!("{:.1}", row.peak_gpus),
            format!("{:.1}", row.mean_gpus),
            format!("{:.1}", 100.0 * row.sm_fragmentation),
            format!("{:.1}", 100.0 * row.memory_fragmentation),
            format!("{:.2}", row.violations_percent),
            format!("{:.1}", row.cut),
        ]
    };
    printer::table(&heads, &means.iter().map(row).collect::<Vec<_>>())
}

fn write_csv(path: &Path, outcomes: &[Row]) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_path(path)?;
    outcomes.iter().try_for_each(|row| writer.serialize(row))?;
    Ok(writer.flush()?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        Line::try_parse_from([&["mix"], words].concat()).unwrap().options
    }

    fn means(options: &Options) -> Vec<Row> {
        let ways: Vec<_> = WAYS.iter().map(|name| Way::named(name, options.ceiling).unwrap()).collect();
        let mixes = mixes(options).unwrap();
        outcomes(&ways, &mixes).unwrap().chunks(mixes.len()).map(mean).collect()
    }

    #[test]
    fn sharing_needs_fewer_gpus_than_one_task_on_each_and_a_written_mix_comes_to_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (mix, csv) = (folder.path().join("mix.csv"), folder.path().join("out.csv"));
        let generated = options(&["--instances", "60", "--seeds", "1", "--write", mix.to_str().unwrap()]);
        assert_eq!(run(&Options { csv: Some(csv.clone()), ..generated }, true).unwrap(), ExitCode::SUCCESS);
        let again = means(&options(&[mix.to_str().unwrap(), "--seeds", "1"]));
        let peaks: Vec<_> = again.iter().map(|row| row.peak_gpus).collect();
        assert!(peaks[0] > peaks[1] && peaks[1] > peaks[3] && peaks[1] > peaks[4], "{peaks:?}");
        let written = std::fs::read_to_string(csv).unwrap();
        let written: Vec<_> = written.lines().skip(1).map(|line| line.split(',').nth(2).unwrap()).collect();
        let written: Vec<f64> = written.iter().map(|peak| peak.parse().unwrap()).collect();
        assert_eq!(written, peaks);
    }

    #[test]
    fn everybody_is_explained_by_the_parts_of_his_rating_and_nothing_else_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("why.jsonl");
        let words = ["--instances", "60", "--seeds", "1", "--policy", "weir,dilu"];
        let explained = Options { explain: Some(file.clone()), ..options(&words) };
        assert_eq!(run(&explained, true).unwrap(), ExitCode::SUCCESS);
        let lines: Vec<serde_json::Value> = std::fs::read_to_string(file)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2 * 60);
        for placed in lines.iter().map(|line| &line["placed"]) {
            let parts = placed["parts"].as_array().unwrap();
            let number = |value: &serde_json::Value| value.as_f64().unwrap();
            let sum: f64 = parts.iter().map(|part| number(&part["rating"]) * number(&part["weight"])).sum();
            let rating = number(&placed["rating"]);
            assert!(placed["policy"] == "dilu" || (sum - rating).abs() < 1e-6, "{placed}");
            assert!(
                placed["candidates"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|other| number(&other["rating"]) <= rating)
            );
        }
        let (heard, alone) = (mixes(&explained).unwrap(), Way::named("weir", CEILING).unwrap());
        let (seed, mix) = &heard[0];
        let replayed = |hearer: crate::place::Hearer<'_>| {
            replay_as(mix, &alone, &mut ChaCha12Rng::seed_from_u64(*seed), hearer).unwrap()
        };
        assert_eq!(replayed(Some(&mut |_| ())), replayed(None));
    }

    #[test]
    fn interference_keeps_its_ceiling_by_taking_more_gpus() {
        let peak = |ceiling: f64| {
            let way = Way::named("interference", ceiling).unwrap();
            let mixes = mixes(&options(&["--instances", "80", "--seeds", "1"])).unwrap();
            outcomes(&[way], &mixes).unwrap()[0].peak_gpus
        };
        assert!(peak(1.0) > peak(1.3) && peak(1.3) > peak(3.0));
    }

    #[test]
    fn every_policy_finds_room_for_all() {
        let mixes = mixes(&options(&["--instances", "100", "--seeds", "3"])).unwrap();
        for policy in crate::place::POLICIES {
            let way = Way::named(policy.name, CEILING).unwrap();
            let outcomes =
                outcomes(&[way], &mixes).map_err(|fault| format!("{}: {fault}", policy.name)).unwrap();
            assert!(
                outcomes.iter().all(|row| row.peak_gpus >= row.mean_gpus && row.mean_gpus > 0.0),
                "{outcomes:?}"
            );
        }
    }

    #[test]
    fn what_is_no_way_and_what_is_no_mix_is_refused() {
        let told = Way::named("dilo", 1.5).unwrap_err();
        assert!(told.message.contains("`dilo`") && told.help.contains("reserve-limit"), "{told}");
        assert!(mixes(&options(&["/nowhere.csv"])).unwrap_err().help.contains("--write"));
        assert!(Line::try_parse_from(["mix", "some.csv", "--instances", "5"]).is_err());
    }
}
