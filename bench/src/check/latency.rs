//! Latency beside a training job: a server that is asked at random moments, alone, beside the job under the driver's own time slices,
//! and under Weir with each policy. What the job still gets done stands beside it: the two together are the frontier. The server is a
//! decode loop of a transformer (PyTorch), of kernels of the same shape (twin), and vLLM where it is installed.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use weir_nodemgr::control::policy::AskPolicy;
use weir_nodemgr::control::schema::ClassName;

use super::finding::{Figure, Finding};
use super::overhead;
use super::setup::{Setup, Wanted, tenant};
use super::share;
use super::side::{Player, Side, Way, numbers};
use crate::live::Random;
use crate::rig::{Control, Rig};
use crate::sample::{most, quantile};

/// What the server does for a request: some words by a model of the check's own, or by vLLM, where it is installed; and what the job
/// does.
pub const DECODE: &str = "decode";
const VLLM: &str = "vllm";
const JOB: &str = "train";

/// How much of the time requests take alone.
const LOAD: f64 = 0.4;

/// Weir's default.
const OURS: &str = "weir";

/// A promise of so many times the p99 alone, for `weir` with one.
const PROMISED: f64 = 2.0;

/// Requests beside the job by one rule.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    /// Who plays.
    pub side: &'static str,
    /// By which rule.
    pub rule: String,
    /// Requests served.
    pub requests: usize,
    /// Their latencies, in microseconds.
    pub p50_us: f64,
    /// As above.
    pub p95_us: f64,
    /// As above.
    pub p99_us: f64,
    /// By p99 alone.
    pub p99_ratio: f64,
    /// What the job got done, of what it gets done alone, in percent; nothing if it was not there.
    pub job_percent: f64,
}

/// Measures all of it.
pub fn tell(setup: &Setup) -> io::Result<Finding> {
    let (mut points, sides) = (Vec::new(), setup.sides());
    let vllm_is_there = sides.iter().any(|side| setup.has_vllm(side));
    for side in sides.into_iter().rev() {
        // PyTorch first, where it is: what users run is judged
        let rig = setup.rig()?;
        let (request, mut bare) = first_pair(setup, &rig, &side)?;
        let scene = Scene::open(setup, &side, request, &mut bare)?;
        points.push(scene.alone.clone());
        points.push(scene.beside(&mut bare, "plain slicing")?);
        drop(bare);
        setup.note(&found(&points, &setup.without_torch()))?;
        // vLLM takes its time to start, which the twin and the promise then lack.
        let few = setup.quick || (vllm_is_there && side == Side::Twin);
        // Ours first: it is judged, and the others are what it is compared with.
        let all = [OURS, "static", "dilu", "specinf", "tgs"];
        scene.under_policies(if few { &all[..2] } else { &all }, &mut points)?;
        if !setup.quick && !vllm_is_there {
            points.push(scene.under_promise()?);
        }
    }
    Ok(found(&points, &setup.without_torch()))
}

/// Both with nothing between them and the driver, and what the server does: vLLM where it is installed and starts.
fn first_pair(setup: &Setup, rig: &Rig, side: &Side) -> io::Result<(&'static str, Pair)> {
    let bare = (Way::Bare, Way::Bare);
    if setup.has_vllm(side) {
        match Pair::start(rig, side, VLLM, bare) {
            Ok(pair) => return Ok((VLLM, pair)),
            Err(why) => {
                writeln!(io::stderr(), "gpu-check: vLLM does not start, a decode loop serves: {why}")?
            }
        }
    }
    Ok((DECODE, Pair::start(rig, side, DECODE, bare)?))
}

/// The server and the job, which wait for orders.
pub struct Pair {
    server: Player,
    job: Player,
}

impl Pair {
    /// Starts both.
    pub fn start(
        rig: &Rig,
        side: &Side,
        request: &str,
        (server, job): (Way<'_>, Way<'_>),
    ) -> io::Result<Self> {
        if request == VLLM {
            // One after the other: it looks at what is free on the whole card while it starts.
            let server = Player::start(rig, side, request, server)?;
            return Ok(Self { server, job: Player::start(rig, side, JOB, job)? });
        }
        let mut players = Player::start_all(rig, side, &[(request, server), (JOB, job)])?;
        let (server, job) = (players.swap_remove(0), players.swap_remove(0));
        Ok(Self { server, job })
    }
}

/// What is the same by every rule.
pub struct Scene<'a> {
    setup: &'a Setup,
    side: &'a Side,
    request: &'static str,
    offsets_us: Vec<u64>,
    job_alone_per_s: f64,
    /// The server with nothing beside it.
    pub alone: Point,
}

impl<'a> Scene<'a> {
    /// Finds out how long a request takes, and how much either gets done alone, by a pair that nobody holds back.
    pub fn open(
        setup: &'a Setup,
        side: &'a Side,
        request: &'static str,
        bare: &mut Pair,
    ) -> io::Result<Self> {
        bare.server.round(10)?;
        let request_s = bare.server.round(50)? / 50.0;
        let job_alone_per_s = share::alone_of(setup, &mut bare.job)?;
        let offsets_us = arrivals(request_s / LOAD, setup.time(7, 1_200));
        let nobody = Point::default();
        let mut scene = Self { setup, side, request, offsets_us, job_alone_per_s, alone: nobody };
        let took_us = scene.serve(&mut bare.server)?;
        scene.alone = Point { p99_ratio: 1.0, ..scene.point("alone", &took_us, f64::NAN) };
        Ok(scene)
    }

    /// Both at once.
    pub fn beside(&self, pair: &mut Pair, rule: &str) -> io::Result<Point> {
        pair.job.go("")?;
        self.serve_for(&mut pair.server, self.setup.time(2, 500))?; // prices are learnt, rates found
        let before = pair.job.look()?;
        let took_us = self.serve(&mut pair.server)?;
        let now = pair.job.look()?;
        let rate = if now.at_ns > before.at_ns { now.rate_since(before) } else { 0.0 }; // it came to no end of a unit
        pair.job.stop()?;
        Ok(self.point(rule, &took_us, 100.0 * rate / self.job_alone_per_s))
    }

    /// Under Weir, with one policy after the other.
    fn under_policies(&self, policies: &[&str], points: &mut Vec<Point>) -> io::Result<()> {
        let rig = self.setup.rig()?;
        let mut control = Control::of(&rig)?;
        let mut pair = self.managed(&rig, &mut control, None)?;
        for policy in policies {
            let wanted = AskPolicy { name: Some((*policy).to_owned()), ..AskPolicy::default() };
            control.client().policy(wanted).map_err(|fault| io::Error::other(fault.to_string()))?;
            points.push(self.beside(&mut pair, policy)?);
            self.setup.note(&found(points, &self.setup.without_torch()))?;
        }
        Ok(())
    }

    /// Under `weir`, with a promise that leaves slack.
    fn under_promise(&self) -> io::Result<Point> {
        let rig = self.setup.rig_with("", &format!("policy = \"{OURS}\"\n"))?;
        let promise = format!("p99 < {:.0}us", (PROMISED * self.alone.p99_us).ceil());
        let mut pair = self.managed(&rig, &mut Control::of(&rig)?, Some(&promise))?;
        self.beside(&mut pair, &format!("{OURS}, {PROMISED}x promised"))
    }

    fn managed(&self, rig: &Rig, control: &mut Control, slo: Option<&str>) -> io::Result<Pair> {
        let wanted = Wanted { slo, ..Wanted::class("server", ClassName::Latency, Some(50)) };
        let server = tenant(control, wanted)?;
        let job = tenant(control, Wanted::class("job", ClassName::Filler, None))?;
        Pair::start(rig, self.side, self.request, (Way::Preload(&server), Way::Preload(&job)))
    }

    fn serve(&self, server: &mut Player) -> io::Result<Vec<f64>> {
        self.serve_for(server, Duration::MAX)
    }

    /// All requests, or those of the first so and so long.
    fn serve_for(&self, server: &mut Player, most: Duration) -> io::Result<Vec<f64>> {
        let within = |offset: &&u64| Duration::from_micros(**offset) < most;
        let offsets: Vec<u64> = self.offsets_us.iter().take_while(within).copied().collect();
        let takes = Duration::from_micros(offsets.last().copied().unwrap_or(0));
        numbers(&server.ask(&format!("serve {}", json!(offsets)), takes)?, "us")
    }

    fn point(&self, rule: &str, took_us: &[f64], job_percent: f64) -> Point {
        let mut sorted = took_us.to_vec();
        sorted.sort_by(f64::total_cmp);
        let p99_us = quantile(&sorted, 0.99);
        Point {
            side: if self.request == VLLM { VLLM } else { overhead::name(self.side) },
            rule: rule.into(),
            requests: sorted.len(),
            p50_us: quantile(&sorted, 0.5),
            p95_us: quantile(&sorted, 0.95),
            p99_us,
            p99_ratio: p99_us / self.alone.p99_us,
            job_percent,
        }
    }
}

/// Moments of requests that come at random (Poisson), so far apart on average: the same in each run.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "microseconds of a run")]
fn arrivals(mean_s: f64, length: Duration) -> Vec<u64> {
    let mut random = Random(5);
    let mut next = || {
        let even = ((random.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64; // above 0, up to 1
        -even.ln() * mean_s
    };
    let mut at = 0.0;
    let moments = std::iter::repeat_with(|| {
        at += next();
        at
    });
    moments.take_while(|at| *at < length.as_secs_f64()).map(|at| (at * 1e6) as u64).collect()
}

fn found(points: &[Point], without_torch: &str) -> Finding {
    let judged = |points: &[Point]| {
        let twin = overhead::name(&Side::Twin);
        let all = || points.iter().filter(|point| point.rule == OURS);
        let users = all().any(|point| point.side != twin); // what users run counts, where it is
        let ours = all().filter(|point| !users || point.side != twin);
        most(ours.map(|point| point.p99_ratio))
    };
    let told = points.iter().map(|point| {
        let Point { side, rule, p99_us, p99_ratio, job_percent, .. } = point;
        let job = if job_percent.is_nan() { String::new() } else { format!(", job {job_percent:.0} %") };
        format!("{side} {rule}: p99 {:.2} ms ({p99_ratio:.2}x){job}", p99_us / 1e3)
    });
    // Beside a job that got nothing a server is as good as alone: then no latency says anything.
    let both = points.iter().filter(|point| point.rule == OURS).all(|point| point.job_percent > 0.0);
    let served = points.iter().all(|point| point.requests > 0 && point.p99_us > 0.0);
    Finding {
        holds: Some(served && both && points.iter().any(|point| point.rule == OURS)),
        line: told.collect::<Vec<_>>().join("; ") + without_torch,
        bars: vec![Figure::of("gpu.latency_ratio", judged(points))],
        figures: json!({"load": LOAD, "points": points}),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_at_random_and_as_often_as_they_should() {
        let moments = arrivals(0.001, Duration::from_secs(10));
        assert!((9_500..10_500).contains(&moments.len()), "{}", moments.len());
        assert!(moments.is_sorted() && moments == arrivals(0.001, Duration::from_secs(10)));
    }

    #[test]
    fn beside_a_job_that_got_nothing_no_latency_holds_on_any_gpu() {
        let point = |rule: &str, job_percent| Point {
            rule: rule.into(),
            requests: 9,
            p99_us: 1.0,
            p99_ratio: 1.0,
            job_percent,
            ..Point::default()
        };
        let holds = |points: &[Point]| found(points, "").holds;
        let alone = point("alone", f64::NAN);
        assert_eq!(holds(&[alone.clone(), point(OURS, 40.0)]), Some(true));
        assert_eq!(holds(&[alone.clone(), point(OURS, 0.0)]), Some(false));
        assert_eq!(holds(&[alone]), Some(false), "nothing of ours was measured");
    }
}
