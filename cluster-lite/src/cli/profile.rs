//! `weir-cluster profile`: what a program needs, measured while it runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use weir_protocol::units::{Bytes, SmShare};

use super::printer;
use crate::fault::{Fault, USAGE};
use crate::nearest::nearest;
use crate::profile::run::rate::{Source, pattern};
use crate::profile::run::{PLACEHOLDER, Setup, Wanted, profile};
use crate::profile::training::Rule;
use crate::profile::{Kind, ProbeRow, Profile, Slo};

#[derive(clap::Args)]
pub(super) struct Args {
    /// What the program does: training, inference, llm or filler
    #[arg(long, default_value = "training")]
    kind: String,
    /// What it promises its users, such as 'p95 < 40ms'; for inference and llm: the best batch and share under it are searched
    #[arg(long)]
    slo: Option<String>,
    /// A pattern whose group is the rate in lines of stdout, such as 'samples/s: ([0-9.]+)' [default: lines are counted, each as a batch]
    #[arg(long, value_name = "PATTERN", conflicts_with = "rate_from")]
    rate: Option<String>,
    /// A page of Prometheus text, and the metric on it: a counter by its growth, another by its value
    #[arg(long, num_args = 2, value_names = ["URL", "METRIC"])]
    rate_from: Option<Vec<String>>,
    /// A pattern whose group is a latency in milliseconds in lines of stdout [default: batch / rate is taken for it]
    #[arg(long, value_name = "PATTERN")]
    latency: Option<String>,
    /// What a unit of work is called
    #[arg(long, default_value = "units/s")]
    unit: String,
    /// Largest batch that is put for {batch} in the command, up to 1024; batches are powers of two
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_batch: u32,
    /// Part of the throughput with the whole GPU that the request keeps, 1% to 98%
    #[arg(long, value_name = "PART", default_value = "80%")]
    keep: String,
    /// With which confidence rates are told apart, 60% to 99.9%
    #[arg(long, value_name = "PART", default_value = "95%")]
    confidence: String,
    /// A command that runs as a filler beside the program for some windows, to see what a neighbour costs it
    #[arg(long, value_name = "COMMAND")]
    beside: Option<String>,
    /// What the tenant is called [default: the program's name]
    #[arg(long)]
    name: Option<String>,
    /// GPU by index or UUID
    #[arg(long, default_value = "0")]
    gpu: String,
    /// Memory on it, such as 2GiB [default: half of what is free]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// After a change of share so long is left out, such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    settle: String,
    /// So long is measured at least, each time
    #[arg(long, value_name = "TIME", default_value = "2s")]
    window: String,
    /// So long a rate is waited for
    #[arg(long, value_name = "TIME", default_value = "60s")]
    patience: String,
    /// The file to be written [default: NAME.profile.toml]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Directory of the node manager [default: $WEIR_NODE_DIR, else /run/weir for root, else $XDG_RUNTIME_DIR/weir]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The `weir` that runs the program [default: the one beside this program, else that of $PATH]
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// The program and its arguments; {batch} stands for the batch
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Profiles, writes the file and prints.
pub(super) fn run(args: &Args, json: bool) -> Result<ExitCode, Fault> {
    let (setup, wanted) = (setup(args)?, wanted(args)?);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Fault::new(format!("signals cannot be caught: {error}"), "run it again"))?;
    }
    let bar = if json { ProgressBar::hidden() } else { spinner() };
    let (profile, unmeasured) = profile(&setup, &wanted, stop, &|row| {
        bar.inc(1);
        bar.set_message(line(row, &wanted.unit));
    })?;
    bar.finish_and_clear();
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.profile.toml", setup.name)));
    profile.write(&out)?;
    if json {
        printer::json(&profile);
    } else {
        printer::data(summary(&profile));
        printer::talk(format!("written to {}", out.display()));
    }
    // The search took minutes: what it has found is kept.
    unmeasured.map_or(Ok(ExitCode::SUCCESS), |fault| {
        let message = format!("{}\nthe profile is written all the same: {}", fault.message, out.display());
        Err(Fault { message, ..fault })
    })
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} measurement {pos}: {msg}") {
        bar.set_style(style);
    }
    bar.set_message("waiting for the program's first rate");
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn line(row: &ProbeRow, unit: &str) -> String {
    let batch = row.batch.map_or(String::new(), |batch| format!(", batch {batch}"));
    let latency = row.latency_ms.map_or(String::new(), |ms| format!(", {ms:.1} ms"));
    format!("{}{batch}: {:.1} {unit}{latency}", row.share, row.throughput)
}

fn setup(args: &Args) -> Result<Setup, Fault> {
    let program = args.command.first().map(PathBuf::from).unwrap_or_default();
    let base = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let rate = match (&args.rate, args.rate_from.as_deref()) {
        (Some(text), _) => Source::Pattern(pattern("--rate", text)?),
        (None, Some([url, metric])) => Source::page(url, metric)?,
        _ => Source::Lines,
    };
    let memory = args.memory.as_ref().map(|text| {
        text.parse::<Bytes>()
            .map_err(|error| Fault::new(format!("--memory: {error}"), error.hint()).exit(USAGE))
    });
    Ok(Setup {
        command: args.command.clone(),
        weir: args.weir.clone().unwrap_or_else(weir_beside_us),
        dir: args.dir.clone().unwrap_or_else(standard_dir),
        name: args.name.clone().unwrap_or(base),
        gpu: args.gpu.clone(),
        memory: memory.transpose()?,
        rate,
        latency: args.latency.as_ref().map(|text| pattern("--latency", text)).transpose()?,
        settle: time("--settle", &args.settle)?,
        window: time("--window", &args.window)?,
        patience: time("--patience", &args.patience)?,
    })
}

fn wanted(args: &Args) -> Result<Wanted, Fault> {
    let kind = kind(&args.kind)?;
    let slo = args.slo.as_ref().map(|text| text.parse::<Slo>()).transpose()?;
    let usage = |message: String, help: &str| Fault::new(message, help).exit(USAGE);
    match (kind, slo) {
        (Kind::Inference, None) => {
            return Err(usage("kind inference needs an SLO".into(), "give --slo 'p95 < 40ms'"));
        }
        (Kind::Training | Kind::Filler, Some(_)) => {
            return Err(usage(
                format!("kind {kind} has no SLO"),
                "give --kind inference, or leave --slo out",
            ));
        }
        _ => {}
    }
    if slo.is_none() && args.command.iter().any(|word| word.contains(PLACEHOLDER)) {
        let message = format!("{PLACEHOLDER} in the command, and no SLO under which a batch could be chosen");
        return Err(usage(message, "give --kind inference --slo 'p95 < 40ms', or write the batch"));
    }
    let rule = Rule {
        request_keeps: part("--keep", &args.keep, 0.01..=0.98)?,
        confidence: part("--confidence", &args.confidence, 0.6..=0.999)?,
        ..Rule::default()
    };
    let (unit, beside) = (args.unit.clone(), args.beside.clone());
    let date = time::OffsetDateTime::now_utc().date().to_string();
    Ok(Wanted { kind, rule, slo, largest_batch: args.max_batch, unit, beside, date })
}

fn kind(text: &str) -> Result<Kind, Fault> {
    let names = Kind::ALL.map(|(name, _)| name);
    let found = Kind::ALL.into_iter().find(|(name, _)| *name == text).map(|(_, kind)| kind);
    found.ok_or_else(|| {
        let help = nearest(text, names).map_or_else(
            || format!("choose from: {}", names.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        Fault::new(format!("there is no kind `{text}`"), help).exit(USAGE)
    })
}

/// A part of one, typed as a percentage.
fn part(flag: &str, text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, Fault> {
    let wrong = |message: String, help: String| Fault::new(format!("{flag}: {message}"), help).exit(USAGE);
    let share = text.parse::<SmShare>().map_err(|error| wrong(error.to_string(), error.hint().into()))?;
    let part = share.as_percent() / 100.0;
    if range.contains(&part) {
        return Ok(part);
    }
    let (least, most) = (range.start() * 100.0, range.end() * 100.0);
    Err(wrong(format!("`{text}` is out of range"), format!("choose {least}% to {most}%")))
}

/// A time of 1 ms to an hour, such as `2s` or `500ms`.
fn time(flag: &str, text: &str) -> Result<Duration, Fault> {
    let bound = format!("p50 < {text}").parse::<Slo>().ok().map(|slo| Duration::from_nanos(slo.bound.0));
    bound.filter(|time| *time >= Duration::from_millis(1)).ok_or_else(|| {
        let message = format!("{flag}: `{text}` is no time of 1 ms to an hour");
        Fault::new(message, "write it as `500ms` or `2s`").exit(USAGE)
    })
}

fn weir_beside_us() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("weir"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| "weir".into())
}

fn standard_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("WEIR_NODE_DIR") {
        return dir.into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !rustix::process::getuid().is_root() => PathBuf::from(dir).join("weir"),
        _ => "/run/weir".into(),
    }
}

/// What was found, for people.
fn summary(profile: &Profile) -> String {
    let Profile { throughput, stalls, copies, measured, .. } = profile;
    let unit = &throughput.unit;
    let mut rows = vec![
        ("request", profile.request.to_string()),
        ("limit", profile.limit.to_string()),
        ("memory", profile.memory.to_string()),
        ("alone", format!("{:.1} {unit}", throughput.alone)),
        ("at the request", format!("{:.1} {unit}", throughput.at_request)),
        ("bubbles", format!("{:.1} % of the time", stalls.bubble * 100.0)),
        (
            "copies",
            format!("{} GB/s in, {} GB/s out", copies.host_to_device_gb_s, copies.device_to_host_gb_s),
        ),
    ];
    if let Some(inference) = &profile.inference {
        rows.push(("batch", inference.batch.to_string()));
        rows.push(("latency", format!("{:.1} ms ({})", inference.latency_ms, inference.slo)));
    }
    if let Some(interference) = &profile.interference {
        rows.push(("beside a neighbour", format!("{:.1} % slower", interference.sensitivity * 100.0)));
    }
    let simulated = if measured.simulated { " (simulated)" } else { "" };
    rows.push(("measured on", format!("{}{simulated}, {} times", measured.device, measured.probes.len())));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    printer::table(&[&profile.name, &profile.kind.to_string()], &rows)
}
