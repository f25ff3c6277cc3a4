//! `weir-cluster simulate requests`: request traces under scaling policies.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use weir_protocol::units::Nanos;

use super::cannot_write;
use crate::cli::printer;
use crate::fault::{Fault, USAGE};
use crate::nearest::nearest;
use crate::place::POLICIES;
use crate::scale::{Row, SCALERS, scaler};
use crate::sim::requests::{Hosted, MODELS, Model, Outcome, Scenario, Summary, compare, model};
use crate::trace::requests::{Arrivals, Recorded, Shape, Size, Sizes, Trace, draw, drawn_from_rates, read};

/// Flags of the command.
#[derive(Args)]
pub struct Options {
    /// Recorded traces (Azure LLM 2023, Mooncake, Alibaba GenAI 2026), or `bursty`, `periodic`, `sporadic`, `steady`, each a service
    #[arg(required = true, value_name = "FILE|SHAPE")]
    traces: Vec<String>,
    /// Policies, in the order in which they are shown [default: all]
    #[arg(long, value_delimiter = ',')]
    policy: Vec<String>,
    /// What the services run [default: llama2-7b for tokens, diffusion for times, roberta-large for shapes]
    #[arg(long)]
    model: Option<String>,
    /// GPUs, all alike (1 to 100,000)
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    gpus: u32,
    /// Placement policy by which instances find their GPUs, or a sum of several
    #[arg(long, default_value = POLICIES[0].name)]
    place: String,
    /// Fewest instances of a service
    #[arg(long, default_value_t = 0)]
    floor: u32,
    /// Most instances of a service
    #[arg(long, default_value_t = 64)]
    ceiling: u32,
    /// How often it is simulated, each time with other starts and other draws (1 to 1,000)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Only the busiest stretch of so many seconds of a recorded trace
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    busiest: Option<u64>,
    /// Factor on the rates of shapes; the rate itself, in requests a second, of `steady`
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// No instance can be parked
    #[arg(long)]
    no_park: bool,
    /// What a GPU costs for an hour, in any currency
    #[arg(long, default_value_t = 2.0)]
    gpu_hour_cost: f64,
    /// Write each second's instances of each policy, service and seed into this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw what policies cost and miss, and the course of their instances, into this directory
    #[cfg(feature = "plot")]
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// Where a service's requests come from.
enum Source {
    Trace(Arc<Trace>),
    Rates(String, Vec<(Nanos, f64)>),
    Shape(Shape),
}

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    simulated: bool,
    gpus: u32,
    gpu_hour_cost: f64,
    summaries: &'a [Summary],
    outcomes: &'a [Vec<Outcome>],
}

/// Simulates and prints.
pub fn run(options: &Options, json: bool) -> Result<ExitCode, Fault> {
    if !(options.scale.is_finite() && options.scale > 0.0 && options.scale <= 1e6) {
        return Err(Fault::new(
            format!("a scale of {} is none", options.scale),
            "give one above 0, to 1000000",
        )
        .exit(USAGE));
    }
    if options.ceiling < options.floor.max(1) {
        let message =
            format!("the ceiling, {}, lies below the floor, {}, or below 1", options.ceiling, options.floor);
        return Err(Fault::new(message, "raise --ceiling, or lower --floor").exit(USAGE));
    }
    let policies = policies(&options.policy)?;
    let services = options.traces.iter().map(|name| service(name, options)).collect::<Result<Vec<_>, _>>()?;
    let outcomes = compare(&policies, options.seeds, |seed| scenario(&services, options, seed))?;
    let summaries: Vec<_> = outcomes.iter().map(|outcomes| Summary::of(outcomes)).collect();
    if let Some(path) = &options.csv {
        write_csv(path, &outcomes).map_err(|error| cannot_write(path, &error))?;
    }
    #[cfg(feature = "plot")]
    if let Some(dir) = &options.plot {
        crate::sim::plot::requests(dir, &summaries, &outcomes).map_err(|error| cannot_write(dir, &*error))?;
    }
    if json {
        let Options { gpus, gpu_hour_cost, .. } = *options;
        printer::json(&Document {
            simulated: true,
            gpus,
            gpu_hour_cost,
            summaries: &summaries,
            outcomes: &outcomes,
        });
    } else {
        printer::data(table(&summaries, options.gpu_hour_cost));
        printer::talk("simulated: latencies are a model's (docs/scaling.md says what is assumed)");
    }
    Ok(ExitCode::SUCCESS)
}

fn policies(names: &[String]) -> Result<Vec<&'static Row>, Fault> {
    if names.is_empty() {
        return Ok(SCALERS.iter().collect());
    }
    let find = |name: &String| {
        scaler(name).ok_or_else(|| unknown("policy", name, SCALERS.iter().map(|row| row.name)))
    };
    names.iter().map(find).collect()
}

fn unknown(what: &str, name: &str, known: impl Iterator<Item = &'static str>) -> Fault {
    let words: Vec<_> = known.collect();
    let help = nearest(name, words.iter().copied()).map_or_else(
        || format!("choose from: {}", words.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    Fault::new(format!("there is no {what} `{name}`"), help).exit(USAGE)
}

fn service(name: &str, options: &Options) -> Result<(Source, &'static Model), Fault> {
    let source = match name {
        "steady" => Source::Shape(Shape::Steady),
        "bursty" => Source::Shape(Shape::Bursty),
        "periodic" => Source::Shape(Shape::Periodic),
        "sporadic" => Source::Shape(Shape::Sporadic),
        file => recorded(Path::new(file), options.busiest)?,
    };
    let usual = match &source {
        Source::Trace(trace) if matches!(trace.requests.first(), Some(first) if matches!(first.size, Size::Tokens { .. })) => {
            "llama2-7b"
        }
        Source::Trace(_) | Source::Rates(..) => "diffusion",
        Source::Shape(_) => "roberta-large",
    };
    let chosen = options.model.as_deref().unwrap_or(usual);
    let model =
        model(chosen).ok_or_else(|| unknown("model", chosen, MODELS.iter().map(|model| model.name)))?;
    Ok((source, model))
}

fn recorded(path: &Path, busiest: Option<u64>) -> Result<Source, Fault> {
    Ok(match (read(path)?, busiest) {
        (Recorded::Requests(trace), None) => Source::Trace(Arc::new(trace)),
        (Recorded::Requests(trace), Some(seconds)) => {
            Source::Trace(Arc::new(trace.busiest(Nanos::from_secs(seconds))))
        }
        (Recorded::Rates(_), Some(_)) => {
            let message = format!("`{}` has rates, of which --busiest takes no stretch", path.display());
            return Err(Fault::new(message, "leave --busiest out").exit(USAGE));
        }
        (Recorded::Rates(rates), None) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Source::Rates(name.split('.').next().unwrap_or_default().to_owned(), rates)
        }
    })
}

/// Seconds of a steady load.
const STEADY_S: usize = 1800;

fn scenario(services: &[(Source, &'static Model)], options: &Options, seed: u64) -> Scenario {
    // A stream of its own: the engine's starts do not depend on how much was drawn here.
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(1);
    let mut hosted = |(source, model): &(Source, &'static Model)| {
        let trace = match source {
            Source::Trace(trace) => trace.clone(),
            Source::Rates(name, rates) => Arc::new(drawn_from_rates(name, rates, &[], &mut random)),
            Source::Shape(shape) => {
                let arrivals = Arrivals::Shaped { shape: *shape, seconds: STEADY_S, scale: options.scale };
                Arc::new(draw(&format!("{shape:?}").to_lowercase(), arrivals, Sizes::Equal, &mut random))
            }
        };
        Hosted { model, trace, floor: options.floor, ceiling: options.ceiling }
    };
    let hosted = services.iter().map(&mut hosted).collect();
    let scenario = Scenario::new(hosted, usize::try_from(options.gpus).unwrap_or(usize::MAX));
    Scenario {
        unpark: scenario.unpark.filter(|_| !options.no_park),
        place: options.place.clone(),
        ..scenario
    }
}

fn table(summaries: &[Summary], gpu_hour: f64) -> String {
    let heads = [
        "POLICY",
        "REQUESTS",
        "VIOLATIONS",
        "%",
        "COLD STARTS",
        "UNPARKS",
        "GPU-S",
        "COST",
        "P50 MS",
        "P95 MS",
        "P99 MS",
        "INSTANCES",
        "MOST",
    ];
    let row = |summary: &Summary| {
        vec![
            summary.policy.to_owned(),
            format!("{:.0}", summary.arrived),
            format!("{:.1}", summary.violations),
            format!("{:.2}", summary.violation_percent),
            format!("{:.1}", summary.cold_starts),
            format!("{:.1}", summary.unparks),
            format!("{:.0}", summary.gpu_seconds),
            format!("{:.2}", summary.cost(gpu_hour)),
            format!("{:.1}", summary.latency.p50_ms),
            format!("{:.1}", summary.latency.p95_ms),
            format!("{:.1}", summary.latency.p99_ms),
            format!("{:.2}", summary.mean_instances),
            summary.most_instances.to_string(),
        ]
    };
    printer::table(&heads, &summaries.iter().map(row).collect::<Vec<_>>())
}

fn write_csv(path: &Path, outcomes: &[Vec<Outcome>]) -> Result<(), csv::Error> {
    let mut file = csv::Writer::from_path(path)?;
    file.write_record(["policy", "seed", "service", "second", "instances"])?;
    for outcome in outcomes.iter().flatten() {
        for service in &outcome.services {
            for (second, instances) in service.instances.iter().enumerate() {
                let numbers = [outcome.seed.to_string(), second.to_string(), instances.to_string()];
                file.write_record([outcome.policy, &numbers[0], &service.name, &numbers[1], &numbers[2]])?;
            }
        }
    }
    Ok(file.flush()?)
}
