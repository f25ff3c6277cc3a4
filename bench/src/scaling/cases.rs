//! What is simulated: recorded traces, drawn ones, and several services on the same GPUs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weir_cluster::fault::Fault;
use weir_cluster::sim::requests::{Hosted, Model, Scenario, model};
use weir_cluster::trace::requests::{
    Arrivals, Recorded, Shape, Sizes, Trace, alibaba, draw, drawn_from_rates, read,
};
use weir_protocol::units::Nanos;

/// Most instances of a service: more than any of these needs.
const CEILING: u32 = 128;
/// Seconds of what has no length of its own.
const SECONDS: usize = 1800;
const DAY: Nanos = Nanos::from_secs(86_400);

/// Where a service's requests come from.
enum Source {
    Recorded(Arc<Trace>),
    Rates(Vec<(Nanos, f64)>, Vec<f64>),
    Drawn(Arrivals, Sizes),
}

/// One case.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Whether the sizes of its requests have a heavy tail.
    pub heavy_tailed: bool,
    /// GPUs.
    pub gpus: usize,
    services: Vec<(&'static str, Source)>,
}

/// All that there are.
pub struct Cases {
    /// The cases.
    pub cases: Vec<Case>,
    /// Recorded traces that are not there.
    pub absent: Vec<String>,
}

impl Case {
    /// Whether somebody recorded it.
    pub fn is_recorded(&self) -> bool {
        !self.services.iter().any(|(_, source)| matches!(source, Source::Drawn(..)))
    }

    /// It, with the draws of this seed.
    pub fn scenario(&self, seed: u64) -> Scenario {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(1); // the engine's own draws come from stream 0
        let mut hosted = |(model, source): &(&'static str, Source)| {
            let trace = match source {
                Source::Recorded(trace) => trace.clone(),
                Source::Rates(rates, times) => {
                    Arc::new(drawn_from_rates(self.name, rates, times, &mut random))
                }
                Source::Drawn(arrivals, sizes) => Arc::new(draw(self.name, *arrivals, *sizes, &mut random)),
            };
            Some(Hosted { model: found(model)?, trace, floor: 0, ceiling: CEILING })
        };
        Scenario::new(self.services.iter().filter_map(&mut hosted).collect(), self.gpus)
    }
}

fn found(name: &str) -> Option<&'static Model> {
    model(name)
}

/// Every case; a recorded one only where it is there.
pub fn all() -> Result<Cases, Fault> {
    let root = std::env::var_os("WEIR_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let (mut cases, mut absent) = (drawn(), Vec::new());
    for (name, model, gpus, files) in RECORDED {
        let paths: Vec<_> = files.iter().map(|file| root.join(file)).collect();
        match paths.iter().find(|path| !path.exists()) {
            Some(path) => absent.push(path.display().to_string()),
            None => cases.push(one(name, false, *gpus, model, source(&paths)?)),
        }
    }
    Ok(Cases { cases, absent })
}

type Entry = (&'static str, &'static str, usize, &'static [&'static str]);

/// Recorded traces: case, model, GPUs, files. The fleet of the last had 143.
const RECORDED: &[Entry] = &[
    ("azure-llm-2023", "llama2-7b", 16, &["azure-llm-2023/AzureLLMInferenceTrace_conv.csv"]),
    ("mooncake", "llama2-7b", 24, &["mooncake/conversation_trace.jsonl"]),
    ("alibaba-images", "diffusion", 16, &["alibaba-genai-2026/lora_request_trace.tar.gz"]),
    (
        "alibaba-fleet",
        "diffusion",
        143,
        &["alibaba-genai-2026/qps.tar.gz", "alibaba-genai-2026/pipeline_inference_data_anon.tar.gz"],
    ),
];

fn source(paths: &[PathBuf]) -> Result<Source, Fault> {
    Ok(match read(&paths[0])? {
        Recorded::Requests(trace) => Source::Recorded(Arc::new(trace.busiest(DAY))),
        Recorded::Rates(rates) => {
            // The samples are in milliseconds.
            let times = paths.get(1).map(|path| alibaba::samples(path)).transpose()?.unwrap_or_default();
            Source::Rates(rates, times.into_iter().map(|ms| ms / 1e3).collect())
        }
    })
}

fn one(name: &'static str, heavy_tailed: bool, gpus: usize, model: &'static str, source: Source) -> Case {
    Case { name, heavy_tailed, gpus, services: vec![(model, source)] }
}

fn drawn() -> Vec<Case> {
    let shaped =
        |shape, scale, sizes| Source::Drawn(Arrivals::Shaped { shape, seconds: SECONDS, scale }, sizes);
    let gamma = |rate, cv| Source::Drawn(Arrivals::Gamma { seconds: SECONDS, rate, cv }, Sizes::Equal);
    let small = "roberta-large";
    let large = "llama2-7b";
    let mixed = vec![
        (small, shaped(Shape::Bursty, 10.0, Sizes::Equal)),
        ("gpt2-large", shaped(Shape::Periodic, 10.0, Sizes::Equal)),
        ("bert-base", shaped(Shape::Sporadic, 10.0, Sizes::Equal)),
        (large, shaped(Shape::Steady, 0.5, Sizes::LogNormal(1.0))),
    ];
    vec![
        one("poisson", false, 8, small, shaped(Shape::Steady, 40.0, Sizes::Equal)),
        one("gamma-cv-4", false, 8, small, gamma(40.0, 4.0)),
        one("bursty", false, 8, small, shaped(Shape::Bursty, 10.0, Sizes::Equal)),
        one("periodic", false, 8, small, shaped(Shape::Periodic, 10.0, Sizes::Equal)),
        one("sporadic", false, 8, small, shaped(Shape::Sporadic, 1.0, Sizes::Equal)),
        one("sporadic-large", false, 8, large, shaped(Shape::Sporadic, 1.0, Sizes::Equal)),
        one("heavy-tail-lognormal", true, 16, large, shaped(Shape::Steady, 3.0, Sizes::LogNormal(1.5))),
        one("heavy-tail-pareto", true, 16, large, shaped(Shape::Bursty, 0.5, Sizes::Pareto(1.5))),
        Case { name: "four-services", heavy_tailed: false, gpus: 4, services: mixed },
    ]
}
