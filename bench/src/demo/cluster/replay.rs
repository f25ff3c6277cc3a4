//! Requests at their recorded times, whether those before were answered or not.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use weir_cluster::trace::requests::{Recorded, Trace, drawn_from_rates, read};
use weir_protocol::units::Nanos;

/// Requests a second from each second on, where no trace is named: quiet, a rush, quiet, nobody, and some again.
const RATES: [(u64, f64); 6] = [(0, 6.0), (12, 68.0), (37, 6.0), (47, 0.0), (65, 20.0), (80, 0.0)];
const SEED: u64 = 1;

/// Longest stretch of a recorded trace that is replayed: its busiest.
const STRETCH: Nanos = Nanos::from_secs(80);

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of one request.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sent {
    /// When it was sent, in seconds of the replay.
    pub at_s: f64,
    /// Until the last byte of its answer, in milliseconds.
    pub took_ms: f64,
    /// Whether it was answered well.
    pub answered: bool,
}

/// The trace in this file, its busiest stretch; or one that is drawn from [`RATES`], always the same.
pub fn trace(file: Option<&Path>) -> io::Result<Trace> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let rates = RATES.map(|(second, rate)| (Nanos::from_secs(second), rate));
    let Some(file) = file else { return Ok(drawn_from_rates("drawn", &rates, &[], &mut random)) };
    match read(file).map_err(|fault| io::Error::other(fault.to_string()))? {
        Recorded::Requests(trace) => Ok(trace.busiest(STRETCH)),
        Recorded::Rates(_) => {
            let message =
                format!("`{}` has rates and no requests\nhelp: give a trace of requests", file.display());
            Err(io::Error::other(message))
        }
    }
}

/// Sends all of it from now on, each request from a thread of its own; the end of each comes back.
pub fn replay(trace: Trace, url: String, begin: Instant) -> Receiver<Sent> {
    let (tell, hear) = channel();
    let agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().new_agent();
    thread::spawn(move || {
        for request in trace.requests {
            let at = Duration::from_nanos(request.at.0);
            thread::sleep(at.saturating_sub(begin.elapsed())); // what drives real processes goes by real time
            let (tell, agent, url) = (tell.clone(), agent.clone(), url.clone());
            thread::spawn(move || {
                let (at_s, start) = (begin.elapsed().as_secs_f64(), Instant::now());
                let answer = agent.get(&url).call();
                let answered = answer.is_ok_and(|mut answer| answer.body_mut().read_to_string().is_ok());
                let _ = tell.send(Sent { at_s, took_ms: start.elapsed().as_secs_f64() * 1e3, answered });
            });
        }
    });
    hear
}
