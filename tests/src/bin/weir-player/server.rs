//! Requests that come when they come (Poisson), are served one after the other, and are timed from their arrival.

use std::ffi::{CStr, c_char, c_int};
use std::time::{Duration, Instant};

use libloading::os::unix::Library;
use serde::Serialize;
use weir_tests::driver::DriverError;

use crate::shapes::Service;
use crate::steps::Player;

/// By this name Weir is told of latencies (`interposer/include/weir.h`).
const METRIC: &CStr = c"request";

type Tell = unsafe extern "C" fn(*const c_char, u64) -> c_int;

/// What came of a time of service, as on the card.
#[derive(Debug, Serialize)]
pub struct Latencies {
    requests: usize,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// For so much of the time some of its work was not done.
    undrained_percent: f64,
}

impl Latencies {
    fn of(mut took: Vec<Duration>, undrained: Duration, time: Duration, slow: f64) -> Self {
        took.sort_unstable();
        let requests = took.len();
        let pick = |percent: usize| {
            let at = (requests * percent / 100).min(requests.saturating_sub(1));
            took.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3 / slow)
        };
        Self {
            requests,
            p50_ms: pick(50),
            p90_ms: pick(90),
            p99_ms: pick(99),
            max_ms: pick(100),
            undrained_percent: 100.0 * undrained.as_secs_f64() / time.as_secs_f64(),
        }
    }
}

/// Moments at which requests come: the same in each run from one seed.
pub struct Arrivals(u64);

impl Arrivals {
    /// From this seed.
    pub fn from(seed: u64) -> Self {
        Self(seed)
    }

    /// The time to the next one, of a mean of one (exponential), by a draw of splitmix64.
    fn gap(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let part = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - part).ln()
    }
}

/// Serves all requests that come within so long.
pub fn serve(
    player: &mut Player,
    service: Service,
    arrivals: &mut Arrivals,
    time: Duration,
) -> Result<Latencies, DriverError> {
    // SAFETY: what is preloaded is in everybody's scope and never unloaded; the type is the header's.
    let tell: Option<Tell> =
        unsafe { Library::this().get::<Tell>(b"weir_latency\0").ok().map(|found| *found) };
    let (slow, start) = (player.host.slow(), Instant::now());
    let (mut due, mut undrained, mut took) = (Duration::ZERO, Duration::ZERO, Vec::new());
    loop {
        due += player.host.time(service.gap_us * arrivals.gap());
        if due > time {
            return Ok(Latencies::of(took, undrained, start.elapsed(), slow));
        }
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        undrained += answer(player, service)?;
        let latency = start.elapsed().saturating_sub(due);
        if let Some(tell) = tell {
            let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            // SAFETY: a C string that outlives the call.
            unsafe { tell(METRIC.as_ptr(), ns) };
        }
        took.push(latency);
    }
}

/// One request; for how long it had work that was not done.
fn answer(player: &mut Player, service: Service) -> Result<Duration, DriverError> {
    let (mut undrained, mut began) = (Duration::ZERO, Instant::now());
    for _ in 0..service.units {
        player.launch(service.unit)?;
        if let Some(between_us) = service.between_us {
            player.driver.synchronize()?;
            undrained += began.elapsed();
            player.host.spend(player.host.time(between_us));
            began = Instant::now();
        }
    }
    player.driver.synchronize()?;
    Ok(undrained + began.elapsed())
}
