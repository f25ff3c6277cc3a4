//! Profiles a program that runs: the searches, fed by measurements of a real process under Weir.
//!
//! ```text
//! training:   whole GPU: rate, memory, copies, stalls -> least shares, by live resize -> beside a neighbour
//! inference:  best batch and share -> whole GPU with that batch: the same figures -> least share that gains nothing more
//! ```
//!
//! A program is restarted only for another batch. It is profiled alone on its GPU, as a primary with request = limit = the share.

pub mod manager;
mod program;
pub mod rate;
mod session;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_protocol::units::{Bytes, SmShare};

use self::manager::Counters;
use self::rate::Window;
pub use self::session::{PLACEHOLDER, Session, Setup};
use super::inference::{self, Answer, Grid};
use super::training::{self, Rule};
use super::{
    Copies, Inference, Interference, Kind, Measured, PROFILE_VERSION, ProbeRow, Profile, Slo, Stalls,
    Throughput,
};
use crate::fault::Fault;

/// Windows of which the mean is one probe of inference, or the rate alone or beside a neighbour.
const WINDOWS: usize = 3;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What the program does.
    pub kind: Kind,
    /// How its shares are chosen.
    pub rule: Rule,
    /// Its promise, for inference.
    pub slo: Option<Slo>,
    /// Largest batch, where the command has a placeholder.
    pub largest_batch: u32,
    /// What a unit of work is called.
    pub unit: String,
    /// A neighbour to be measured beside, by a shell.
    pub beside: Option<String>,
    /// Today.
    pub date: String,
}

/// Is told of each measurement.
pub type Tell<'a> = &'a dyn Fn(&ProbeRow);

/// Profiles. Where the program could not be measured beside a neighbour, or does not end, its profile is none the worse: it comes with why.
///
/// # Errors
/// What the session says, and an SLO that cannot be kept.
pub fn profile(
    setup: &Setup,
    wanted: &Wanted,
    stop: Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<(Profile, Option<Fault>), Fault> {
    let mut work = Work { session: Session::open(setup, stop)?, wanted, tell, rows: Vec::new() };
    let found = match wanted.slo {
        None => work.shares(1)?,
        Some(slo) => work.batch_and_share(slo)?,
    };
    let beside = wanted.beside.as_deref().map(|command| work.interference(&found, command)).transpose();
    let (interference, unmeasured) = match beside {
        Ok(interference) => (interference, None),
        Err(fault) if fault.exit == session::INTERRUPTED => return Err(fault),
        Err(fault) => (None, Some(fault)),
    };
    let unmeasured = work.session.end().err().or(unmeasured);
    Ok((work.write(found, interference), unmeasured))
}

/// A profile in the making.
struct Work<'a> {
    session: Session<'a>,
    wanted: &'a Wanted,
    tell: Tell<'a>,
    rows: Vec<ProbeRow>,
}

/// What the searches have found.
struct Found {
    batch: u32,
    request: SmShare,
    limit: SmShare,
    at_request: f64,
    solo: Solo,
    inference: Option<Inference>,
}

/// The program with the whole GPU.
struct Solo {
    rate: f64,
    latency_ms: Option<f64>,
    memory: Bytes,
    gpu_ms: Option<f64>,
    copies: Copies,
    stalls: Stalls,
}

impl Work<'_> {
    /// The least shares with one batch.
    fn shares(&mut self, batch: u32) -> Result<Found, Fault> {
        let solo = self.solo(batch)?;
        let found = self.least_shares(batch)?;
        let at_request = found.samples.get(&found.request).map_or(0.0, training::Sample::mean);
        let is_filler = self.wanted.kind == Kind::Filler;
        let request = if is_filler { SmShare::ZERO } else { found.request };
        Ok(Found { batch, request, limit: found.limit, at_request, solo, inference: None })
    }

    fn least_shares(&mut self, batch: u32) -> Result<training::Found, Fault> {
        let rule = self.wanted.rule;
        training::search(&rule, |share| self.rate(batch, share)).map_err(|failure| match failure {
            training::Failure::NoRate(rate) => Fault::new(
                format!("the program's rate with the whole GPU is {rate}"),
                "give it work, or correct --rate",
            ),
            training::Failure::Probe(fault) => fault,
        })
    }

    /// The best batch and share, and beyond which share nothing is gained.
    fn batch_and_share(&mut self, slo: Slo) -> Result<Found, Fault> {
        let has_batch = self.session.setup.command.iter().any(|word| word.contains(PLACEHOLDER));
        let grid = Grid::dilu(if has_batch { self.wanted.largest_batch } else { 1 });
        let found = inference::search(&grid, slo.bound_ms(), inference::MOST_PROBES, |batch, share| {
            self.answer(slo, batch, share)
        });
        let best = found.map_err(|failure| late(slo, failure))?.best;
        let solo = self.solo(best.batch)?;
        let latency_alone_ms = self.latency_alone(slo, best.batch, &solo)?;
        let limit = self.least_shares(best.batch)?.limit.max(best.share);
        let latency_ms = best.answer.latency_ms;
        let inference = Inference { batch: best.batch, slo, latency_ms, latency_alone_ms };
        let at_request = best.answer.throughput;
        Ok(Found {
            batch: best.batch,
            request: best.share,
            limit,
            at_request,
            solo,
            inference: Some(inference),
        })
    }

    fn latency_alone(&mut self, slo: Slo, batch: u32, solo: &Solo) -> Result<f64, Fault> {
        match solo.latency_ms {
            Some(latency) => Ok(latency),
            None => Ok(self.answer(slo, batch, SmShare::FULL)?.latency_ms),
        }
    }

    /// What is lost beside a neighbour that never pauses.
    fn interference(&mut self, found: &Found, command: &str) -> Result<Interference, Fault> {
        let share = if found.request == SmShare::ZERO { found.limit } else { found.request };
        let (mut alone, mut beside) = (training::Sample::default(), training::Sample::default());
        for _ in 0..WINDOWS {
            alone.add(self.rate(found.batch, share)?);
        }
        let mut neighbour = self.session.beside(command)?;
        for _ in 0..WINDOWS {
            beside.add(self.rate(found.batch, share)?);
            self.session.look_at(&mut neighbour)?;
        }
        drop(neighbour);
        let (alone, beside) = (alone.mean(), beside.mean());
        let sensitivity = (1.0 - beside / alone).clamp(0.0, 1.0);
        Ok(Interference { sensitivity: rounded(sensitivity), reference: command.to_owned() })
    }

    fn rate(&mut self, batch: u32, share: SmShare) -> Result<f64, Fault> {
        let window = self.session.measure(batch, share)?;
        let rate = self.rate_of(&window, batch);
        let has_batch = self.wanted.slo.is_some();
        self.note(ProbeRow {
            share,
            batch: has_batch.then_some(batch),
            throughput: rate,
            deviation: None,
            latency_ms: None,
        });
        Ok(rate)
    }

    /// The mean of some windows, and the SLO's quantile of all their latencies; without latencies, what a batch takes.
    fn answer(&mut self, slo: Slo, batch: u32, share: SmShare) -> Result<Answer, Fault> {
        let (mut rates, mut latencies) = (training::Sample::default(), Vec::new());
        for _ in 0..WINDOWS {
            let window = self.session.measure(batch, share)?;
            rates.add(self.rate_of(&window, batch));
            latencies.extend(window.latencies);
        }
        let throughput = rates.mean();
        let measured = quantile(&mut latencies, slo.quantile());
        let latency_ms = match (measured, &self.session.setup.latency) {
            (Some(latency), _) => latency,
            (None, None) => f64::from(batch) * 1e3 / throughput,
            (None, Some(pattern)) => {
                let message = format!("no line of its stdout has a latency above zero for `{pattern}`");
                return Err(Fault::new(
                    message,
                    "correct --latency, or leave it out: then batch / rate counts",
                ));
            }
        };
        let deviation = rates.deviation();
        self.note(ProbeRow {
            share,
            batch: Some(batch),
            throughput,
            deviation: Some(deviation),
            latency_ms: Some(latency_ms),
        });
        Ok(Answer { throughput, latency_ms, noise: deviation / throughput })
    }

    /// Where lines are counted, each is a batch.
    fn rate_of(&self, window: &Window, batch: u32) -> f64 {
        let setup = self.session.setup;
        let rate = window.rate(&setup.rate).unwrap_or(0.0);
        if matches!(setup.rate, rate::Source::Lines) { rate * f64::from(batch) } else { rate }
    }

    fn note(&mut self, row: ProbeRow) {
        (self.tell)(&row);
        self.rows.push(row);
    }

    /// One window with the whole GPU, and what Weir counted in it.
    fn solo(&mut self, batch: u32) -> Result<Solo, Fault> {
        self.session.measure(batch, SmShare::FULL)?; // settled, and its kernels are known
        let before = self.session.counters()?;
        let began = std::time::Instant::now();
        let window = self.session.measure(batch, SmShare::FULL)?;
        let after = self.session.counters()?;
        let seconds = began.elapsed().as_secs_f64();
        let rate = self.rate_of(&window, batch);
        if after.launches == 0 {
            let message = "the program has launched nothing on the GPU under Weir";
            return Err(Fault::new(message, "look with `weir doctor` whether the program loads libweir.so"));
        }
        Ok(Solo::between(&before, &after, seconds, rate, &self.latencies_of(window)))
    }

    fn latencies_of(&self, window: Window) -> Option<f64> {
        let mut latencies = window.latencies;
        quantile(&mut latencies, self.wanted.slo?.quantile())
    }

    fn write(self, found: Found, interference: Option<Interference>) -> Profile {
        let Found { request, limit, at_request, solo, inference, .. } = found;
        let (setup, wanted) = (self.session.setup, self.wanted);
        Profile {
            version: PROFILE_VERSION,
            name: setup.name.clone(),
            kind: wanted.kind,
            request,
            limit,
            memory: solo.memory,
            throughput: Throughput {
                unit: wanted.unit.clone(),
                alone: solo.rate,
                at_request,
                gpu_ms: solo.gpu_ms,
            },
            inference,
            copies: solo.copies,
            stalls: solo.stalls,
            interference,
            measured: Measured {
                device: self.session.gpu.name.clone(),
                simulated: self.session.gpu.simulated,
                date: wanted.date.clone(),
                command: setup.command.clone(),
                confidence: Some(wanted.rule.confidence),
                probes: self.rows,
            },
        }
    }
}

impl Solo {
    fn between(
        before: &Counters,
        after: &Counters,
        seconds: f64,
        rate: f64,
        latency_ms: &Option<f64>,
    ) -> Self {
        let part = |word: &str| {
            let of = |counters: &Counters| counters.stalls_ns.get(word).copied().unwrap_or(0);
            of(after).saturating_sub(of(before)) as f64
        };
        let all: f64 = STALLS.iter().map(|word| part(word)).sum();
        let part = |word: &str| rounded(part(word) / all.max(1.0));
        let [compute, communication, copies, neighbour, gate] = STALLS_BUT_HOST.map(part);
        let host = rounded(1.0 - compute - communication - copies - neighbour - gate).max(0.0);
        let bubble = rounded(copies + host);
        let copied = |way: &str| {
            let of = |counters: &Counters| counters.copies.get(way).map_or(0, |copied| copied.bytes);
            rounded(of(after).saturating_sub(of(before)) as f64 / seconds / 1e9)
        };
        let charged = after.charged_ns.saturating_sub(before.charged_ns) as f64;
        Self {
            rate,
            latency_ms: *latency_ms,
            memory: Bytes(after.memory_peak_bytes.max(1)),
            gpu_ms: (charged > 0.0).then(|| charged / 1e6 / seconds / rate),
            copies: Copies {
                host_to_device_gb_s: copied("host_to_device"),
                device_to_host_gb_s: copied("device_to_host"),
            },
            stalls: Stalls { compute, communication, copies, neighbour, gate, host, bubble },
        }
    }
}

/// The words of `weir ps --stalls`.
const STALLS: [&str; 6] = ["compute", "communication", "copies", "neighbour", "gate", "host"];
const STALLS_BUT_HOST: [&str; 5] = ["compute", "communication", "copies", "neighbour", "gate"];

/// To four decimals: more is noise.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The smallest value that so large a part of all does not pass (nearest rank).
fn quantile(values: &mut [f64], part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among those that are there"
    )]
    let rank = (part * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().filter(|value| *value > 0.0)
}

fn late(slo: Slo, failure: inference::Failure<Fault>) -> Fault {
    match failure {
        inference::Failure::Probe(fault) => fault,
        inference::Failure::Late { batch, share, latency_ms } => {
            let message = format!(
                "the SLO {slo} cannot be kept: batch {batch} with {share} of the GPU takes {latency_ms:.1} ms"
            );
            Fault::new(
                message,
                "promise more time, make the program faster, or profile it on a faster device class",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_was_measured() {
        let mut values: Vec<_> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.95), Some(95.0));
        assert_eq!(quantile(&mut [7.0], 0.99), Some(7.0));
        assert_eq!(quantile(&mut [], 0.5), None);
    }

    #[test]
    fn what_happened_between_two_looks_is_told_as_parts_and_rates() {
        let counters = |charged_ns, compute: u64, host: u64, bytes| Counters {
            launches: 1,
            charged_ns,
            memory_peak_bytes: 5 << 30,
            copies: [("host_to_device".to_owned(), manager::Copied { bytes })].into(),
            stalls_ns: [("compute".to_owned(), compute), ("host".to_owned(), host)].into(),
        };
        let (before, after) =
            (counters(100, 50, 10, 7), counters(1_000_000_100, 1_000_000_050, 1_000_000_010, 4_000_000_007));
        let solo = Solo::between(&before, &after, 2.0, 100.0, &None);
        assert_eq!((solo.stalls.compute, solo.stalls.host, solo.stalls.bubble), (0.5, 0.5, 0.5));
        assert_eq!((solo.copies.host_to_device_gb_s, solo.gpu_ms), (2.0, Some(5.0)));
    }
}
