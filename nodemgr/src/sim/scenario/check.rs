//! What a scenario may say: numbers within their ranges, each tenant once, something to do for each. What passes comes to its
//! end: every part of a program takes time, and no more requests come than can be held.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::values::share;
use super::{Arrivals, Device, Inference, Offline, Scenario, Tenant, Training};

/// What is wrong, and what to do about it.
pub type Wrong = (String, String);

/// A number by its key, and where it has to lie.
type Number = (&'static str, f64, RangeInclusive<f64>);

/// A time, in milliseconds: up to an hour.
const TIME_MS: RangeInclusive<f64> = 0.0..=3_600_000.0;

/// A kernel or graph, and the driver's slice, in microseconds: up to an hour.
const UNIT_US: RangeInclusive<f64> = 1.0..=3_600e6;

/// Least work of a part of a program, in milliseconds: a microsecond.
const LEAST_MS: f64 = 0.001;

/// A coefficient of variation.
const VARIATION: RangeInclusive<f64> = 0.0..=100.0;

/// Requests in a second.
const RATE: RangeInclusive<f64> = 0.0..=100_000.0;

impl Scenario {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        seconds(self.seconds)?;
        numbers(&[("warm_up_seconds", self.warm_up_seconds, 0.0..=86_400.0)])?;
        device(&self.device)?;
        if self.tenant.is_empty() {
            return Err(("no tenants".into(), "add a [[tenant]]".into()));
        }
        let mut names = BTreeSet::new();
        for tenant in &self.tenant {
            let name = tenant.name.escape_debug();
            let of_tenant = |(what, help): Wrong| (format!("a tenant `{name}` with {what}"), help);
            if !names.insert(&tenant.name) {
                return Err((format!("two tenants `{name}`"), "give each a name of its own".into()));
            }
            check_tenant(tenant).map_err(of_tenant)?;
        }
        Ok(())
    }
}

/// How long a scenario may be simulated.
///
/// # Errors
/// What is wrong.
pub fn seconds(seconds: f64) -> Result<(), Wrong> {
    if seconds > 0.0 && seconds <= 86_400.0 {
        return Ok(());
    }
    Err((format!("seconds = {seconds}"), "simulate more than nothing and at most a day".into()))
}

fn numbers(numbers: &[Number]) -> Result<(), Wrong> {
    let outside = |(_, value, range): &&Number| !range.contains(value); // what is no number is in no range
    numbers.iter().find(outside).map_or(Ok(()), |(key, value, range)| {
        Err((format!("{key} = {value:?}"), format!("choose {} to {}", range.start(), range.end())))
    })
}

fn device(device: &Device) -> Result<(), Wrong> {
    let slice = device.slice_us.map(|us| ("slice_us", us, UNIT_US));
    let switch = device.switch_us.map(|us| ("switch_us", us, 0.0..=*UNIT_US.end()));
    numbers(&slice.into_iter().chain(switch).collect::<Vec<Number>>())
}

fn check_tenant(tenant: &Tenant) -> Result<(), Wrong> {
    let kinds = [tenant.inference.is_some(), tenant.training.is_some(), tenant.offline.is_some()];
    if kinds.into_iter().filter(|kind| *kind).count() != 1 {
        let help = "give it exactly one of [tenant.inference], [tenant.training] and [tenant.offline]";
        return Err(("nothing to run, or several programs".into(), help.into()));
    }
    if tenant.slo.is_some() && tenant.promise().is_none() {
        return Err(("an slo that is none".into(), "write a quantile and its bound: \"p95 < 200ms\"".into()));
    }
    for (key, text) in [("request", &tenant.request), ("limit", &tenant.limit)] {
        let help = || "write a percentage with its sign, such as \"30%\"".to_owned();
        share(key, text.as_deref()).map_err(|fault| (fault.message, help()))?;
    }
    numbers(&[
        ("sm_percent", tenant.kernel.sm_percent.into(), 1.0..=100.0),
        ("bandwidth_percent", tenant.kernel.bandwidth_percent.into(), 0.0..=100.0),
    ])?;
    let programs = (&tenant.inference, &tenant.training, &tenant.offline);
    match programs {
        (Some(inference), ..) => check_inference(inference),
        (_, Some(training), _) => check_training(training),
        (.., Some(offline)) => check_offline(offline),
        _ => Ok(()),
    }
}

/// Of a part that takes so long.
fn works(key: &str, ms: f64) -> Result<(), Wrong> {
    if ms >= LEAST_MS {
        return Ok(());
    }
    Err((format!("no work in {key}"), format!("give it {key} of {LEAST_MS} or more")))
}

fn check_inference(inference: &Inference) -> Result<(), Wrong> {
    numbers(&[
        ("prefill_ms", inference.prefill_ms, TIME_MS),
        ("prefill_each_ms", inference.prefill_each_ms, TIME_MS),
        ("decode_ms", inference.decode_ms, TIME_MS),
        ("tokens", inference.tokens, 1.0..=1e6),
        ("token_cv", inference.token_cv, VARIATION),
        ("batch", inference.batch as f64, 1.0..=1e6),
        ("unit_us", inference.unit_us, UNIT_US),
    ])?;
    works("prefill_ms or prefill_each_ms", inference.prefill_ms + inference.prefill_each_ms)?;
    if inference.tokens > 1.0 {
        works("decode_ms", inference.decode_ms)?;
    }
    check_arrivals(&inference.arrivals)
}

fn check_arrivals(arrivals: &Arrivals) -> Result<(), Wrong> {
    let of_trace =
        arrivals.trace_per_s.iter().flatten().map(|rate| ("trace_per_s", rate * arrivals.times, RATE));
    let rate = arrivals.per_s.map(|rate| ("per_s", rate, RATE));
    numbers(&[("cv", arrivals.cv, VARIATION), ("times", arrivals.times, RATE)])?;
    numbers(&of_trace.chain(rate).collect::<Vec<Number>>())?;
    let comes = |rates: &[f64]| rates.iter().any(|rate| rate * arrivals.times > 0.0);
    match (arrivals.per_s, &arrivals.trace_per_s, &arrivals.trace) {
        (Some(rate), None, None) if rate > 0.0 => Ok(()),
        (None, Some(rates), None) if comes(rates) => Ok(()),
        (None, None, Some(_)) if arrivals.times > 0.0 => Ok(()),
        _ => Err((
            "no arrivals, or several kinds".into(),
            "give arrivals one of per_s, trace_per_s and trace, above 0".into(),
        )),
    }
}

fn check_training(training: &Training) -> Result<(), Wrong> {
    numbers(&[
        ("compute_ms", training.compute_ms, TIME_MS),
        ("bubble_ms", training.bubble_ms, TIME_MS),
        ("micro_batches", training.micro_batches as f64, 1.0..=1_000.0),
        ("jitter_percent", training.jitter_percent, 0.0..=1_000.0),
        ("unit_us", training.unit_us, UNIT_US),
    ])?;
    works("compute_ms for each micro-batch", training.compute_ms / training.micro_batches as f64)
}

fn check_offline(offline: &Offline) -> Result<(), Wrong> {
    numbers(&[("batch_ms", offline.batch_ms, TIME_MS), ("unit_us", offline.unit_us, UNIT_US)])?;
    works("batch_ms", offline.batch_ms)
}
