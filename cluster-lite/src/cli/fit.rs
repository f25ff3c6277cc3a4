//! `weir-cluster fit`: which services fit together on which device, and what it would cost each. *Predicted.*

mod explain;
mod serving;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use weir_nodemgr::calibration::Calibration;
use weir_protocol::units::{Bytes, Nanos};

use self::explain::{Explained, Refused};
use self::serving::{Served, Serving};
use super::printer;
use crate::cluster::DeviceClass;
use crate::fault::{Fault, USAGE};
use crate::nearest::nearest;
use crate::place::Solo;
use crate::place::fit::{Candidate, Group, MOST, Question};
use crate::profile::Profile;
use crate::trace::mix::{MODELS, Model};

/// Devices that are looked at unless some are named, by their memory in GiB.
const DEVICES: [(&str, u64); 6] =
    [("T4", 16), ("A10", 24), ("A100-40GB", 40), ("A100-80GB", 80), ("H100-80GB", 80), ("H200", 141)];

/// Flags of the command.
#[derive(Args)]
pub struct Options {
    /// Profile files, or models such as `BERT-base` or `LLaMA2-7B:training`; 1 to 12
    #[arg(required = true, value_name = "PROFILE")]
    services: Vec<String>,
    /// A device and its memory, with what it costs an hour and how fast it is against the profiled one if that is known: `A100=40GiB`
    /// or `T4=16GiB,0.35,0.4`, several times if need be [default: common ones]
    #[arg(long, value_name = "NAME=MEMORY[,COST[,SPEED]]")]
    device: Vec<String>,
    /// Requests a second to each service that has an SLO: say how many GPUs of which device keep it for the least money
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Greatest slowdown that anybody may have; 1 to 100
    #[arg(long, default_value_t = 1.5, value_parser = ceiling)]
    ceiling: f64,
    /// The card's calibration file, as `weir doctor --measure` writes it: what its switches cost those who share it
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Say why what does not fit together does not, and with `--rate` why each device is taken for a service or not
    #[arg(long)]
    explain: bool,
}

pub(super) fn ceiling(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (1.0..=100.0).contains(value));
    value.ok_or_else(|| format!("`{text}` is no slowdown: 1 to 100"))
}

fn rate(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (1e-6..=1e6).contains(value));
    value.ok_or_else(|| format!("`{text}` is no rate: 0.000001 to 1000000 requests a second"))
}

#[derive(Serialize)]
struct Answer {
    device: String,
    memory_bytes: u64,
    /// Nothing if some service does not fit alone.
    gpus: Option<Vec<Vec<Row>>>,
    /// Of all of them, where the device's price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_per_hour: Option<f64>,
    /// Whether no other priced device costs less.
    #[serde(skip_serializing_if = "Option::is_none")]
    cheapest: Option<bool>,
    /// What services with an SLO need at the rate that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    serving: Vec<Serving>,
    /// Why a device is taken or not, for each service with an SLO.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    explained: Vec<Explained>,
    /// Why services do not fit, alone or together, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
    /// The same in numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Row {
    service: String,
    request_percent: f64,
    limit_percent: f64,
    memory_bytes: u64,
    predicted_slowdown: f64,
}

/// Runs it.
///
/// # Errors
/// A profile that is none, a model or device that is unknown.
pub fn run(options: &Options, json: bool) -> Result<ExitCode, Fault> {
    if options.services.len() > MOST {
        let told = format!("{} services are too many: at most {MOST}", options.services.len());
        return Err(Fault::new(told, "ask for fewer at once").exit(USAGE));
    }
    let asked = options.services.iter().map(|name| asked(name)).collect::<Result<Vec<_>, _>>()?;
    let (candidates, profiles): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let profiles: Vec<_> = profiles.into_iter().flatten().collect();
    let named = options.device.iter().map(|text| device(text)).collect::<Result<Vec<_>, _>>()?;
    let common = || DEVICES.map(|(name, gib)| DeviceClass::new(name, Bytes::gib(gib))).to_vec();
    let devices = if named.is_empty() { common() } else { named };
    let switch = switch(options)?;
    let mut answers: Vec<_> =
        devices.iter().map(|device| answer(&candidates, device, switch, options)).collect();
    mark_cheapest(&mut answers);
    if let Some(rate) = options.rate {
        let serving = serving::serving(&devices, &profiles, rate)?;
        for (answer, Served { rows, explained }) in answers.iter_mut().zip(serving) {
            answer.serving = rows;
            answer.explained = if options.explain { explained } else { Vec::new() };
        }
    }
    if json {
        printer::json(&answers);
    } else {
        answers.iter().for_each(print);
        printer::talk(
            "Predicted from solo profiles by queueing; what shares a GPU is looked at as if devices differed by memory alone.",
        );
    }
    let fits = answers.iter().any(|answer| answer.gpus.is_some());
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What a switch takes by the calibration file; nothing without one.
fn switch(options: &Options) -> Result<Nanos, Fault> {
    let Some(path) = &options.calibration else { return Ok(Nanos(0)) };
    let wrong = |(message, help): (String, String)| Fault::new(message, help).exit(USAGE);
    let measured = Calibration::read(path).map_err(wrong)?.switch();
    measured.ok_or_else(|| {
        wrong((
            format!("`{}` tells of no switch", path.display()),
            "measure it: `weir doctor --measure`".into(),
        ))
    })
}

fn answer(candidates: &[Candidate], device: &DeviceClass, switch: Nanos, options: &Options) -> Answer {
    let question = Question::new(candidates, device.memory, options.ceiling).with_switches(switch);
    let groups = question.divide();
    let mut refused = explain::alone(&question, candidates);
    if options.explain {
        refused.extend(explain::together(&question, candidates));
    }
    let gpus =
        groups.ok().map(|groups| groups.iter().map(|group| rows(candidates, group)).collect::<Vec<_>>());
    let priced = gpus.as_ref().filter(|_| device.cost_per_hour > 0.0);
    let cost_per_hour = priced.map(|gpus| gpus.len() as f64 * device.cost_per_hour);
    Answer {
        device: device.name.clone(),
        memory_bytes: device.memory.0,
        gpus,
        cost_per_hour,
        cheapest: None,
        serving: Vec::new(),
        explained: Vec::new(),
        reasons: refused.iter().map(Refused::line).collect(),
        refused,
    }
}

/// Of the devices whose price is known, those that cost least.
fn mark_cheapest(answers: &mut [Answer]) {
    let least = answers.iter().filter_map(|answer| answer.cost_per_hour).fold(f64::INFINITY, f64::min);
    for answer in answers {
        answer.cheapest = answer.cost_per_hour.map(|cost| cost <= least);
    }
}

fn rows(candidates: &[Candidate], group: &Group) -> Vec<Row> {
    let row = |(at, slowdown): (&usize, &f64)| {
        let candidate = &candidates[*at];
        Row {
            service: candidate.name.clone(),
            request_percent: candidate.request.as_percent(),
            limit_percent: candidate.limit.as_percent(),
            memory_bytes: candidate.memory.0,
            predicted_slowdown: *slowdown,
        }
    };
    group.members.iter().zip(&group.slowdowns).map(row).collect()
}

fn print(answer: &Answer) {
    let memory = Bytes(answer.memory_bytes);
    match &answer.gpus {
        None => printer::data(format!("{} ({memory}): does not fit", answer.device)),
        Some(gpus) => {
            let best = if answer.cheapest == Some(true) { ", the cheapest" } else { "" };
            let cost =
                answer.cost_per_hour.map(|cost| format!(", {cost:.2} an hour{best}")).unwrap_or_default();
            printer::data(format!("{} ({memory}): {} GPUs{cost}", answer.device, gpus.len()));
            let lines = (1..).zip(gpus).flat_map(|(gpu, rows)| rows.iter().map(move |row| line(gpu, row)));
            let heads = ["GPU", "SERVICE", "REQUEST", "LIMIT", "MEMORY", "SLOWDOWN"];
            printer::data(printer::table(&heads, &lines.collect::<Vec<_>>()));
        }
    }
    answer.serving.iter().for_each(|serving| printer::data(serving::line(serving)));
    answer.explained.iter().for_each(|explained| printer::data(format!("  {}", explained.line())));
    answer.reasons.iter().for_each(|reason| printer::data(format!("  {reason}")));
}

fn line(gpu: usize, row: &Row) -> Vec<String> {
    let percent = |value: f64| format!("{value:.0} %");
    let (request, limit) = (percent(row.request_percent), percent(row.limit_percent));
    let (memory, slowdown) = (Bytes(row.memory_bytes).to_string(), format!("{:.2}", row.predicted_slowdown));
    vec![gpu.to_string(), row.service.clone(), request, limit, memory, slowdown]
}

fn device(text: &str) -> Result<DeviceClass, Fault> {
    let wrong =
        |told: String| Fault::new(told, "write it as `A100=40GiB`, or `T4=16GiB,0.35,0.4`").exit(USAGE);
    let (name, values) = text.split_once('=').ok_or_else(|| wrong(format!("`{text}` names no memory")))?;
    let mut values = values.split(',').map(str::trim);
    let memory = values.next().unwrap_or_default();
    let memory = memory.parse::<Bytes>().map_err(|error| wrong(format!("{text}: {error}")))?;
    let mut number = |what: &str, default: f64| match values.next() {
        None => Ok(default),
        Some(value) => {
            let known = value.parse().ok().filter(|value| (1e-6..=1e6).contains(value));
            known.ok_or_else(|| wrong(format!("{text}: `{value}` is no {what}: 0.000001 to 1000000")))
        }
    };
    let (cost_per_hour, speed) = (number("price", 0.0)?, number("speed", 1.0)?);
    match values.next() {
        None => Ok(DeviceClass { cost_per_hour, speed, ..DeviceClass::new(name, memory) }),
        Some(more) => Err(wrong(format!("{text}: nothing is known that `{more}` could be"))),
    }
}

/// A profile file where there is one of that name, else a model.
fn asked(name: &str) -> Result<(Candidate, Option<Profile>), Fault> {
    let path = Path::new(name);
    if path.exists() || path.extension().is_some() {
        return Profile::read(path).map(|profile| (profiled(&profile), Some(profile)));
    }
    let (model, work) = name.split_once(':').map_or((name, None), |(model, work)| (model, Some(work)));
    let found = MODELS
        .iter()
        .find(|known| known.name == model && work.is_none_or(|work| known.work.to_string() == work));
    found.map(|model| (published(model), None)).ok_or_else(|| {
        let near = nearest(model, MODELS.iter().map(|known| known.name));
        let help =
            near.map_or_else(|| "name a profile file".to_owned(), |near| format!("did you mean `{near}`?"));
        Fault::new(format!("`{name}` is neither a profile file nor a known model"), help).exit(USAGE)
    })
}

fn profiled(profile: &Profile) -> Candidate {
    let (name, request, limit) = (profile.name.clone(), profile.request, profile.limit);
    let Solo { uses, worst } = Solo::of(profile);
    Candidate { name, request, limit, memory: profile.memory, uses, worst }
}

/// Of a model no more than shares and memory is published.
fn published(model: &Model) -> Candidate {
    let Model { request, limit, memory, .. } = *model;
    let Solo { uses, worst } = Solo::of_shares(request, limit);
    Candidate { name: format!("{}:{}", model.name, model.work), request, limit, memory, uses, worst }
}
