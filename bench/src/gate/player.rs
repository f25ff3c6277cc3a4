//! The two programs: one that wakes now and then, one that always launches.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{BURST, Hold, SHORT, UNIT, WAKES, Wake};
use crate::client::{ClientError, Driver};

/// Who a player is.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Part {
    /// Wakes, and sleeps again
    Waker,
    /// Launches kernels of 1 us
    Short,
    /// Launches kernels of 100 us
    Unit,
}

/// The waker sleeps so long, from and to: fillers are let in after a millisecond, and nobody can foretell when they must go.
const SLEEP_US: (u64, u64) = (6_000, 16_000);

/// The filler of short kernels launches one in so long: as fast as it can it would keep the simulated GPU's own process busy,
/// and there may be two cores.
const PACE_NS: u64 = 5_000;

/// A launch call that took so long was held back by the gate, and not by the system.
const HELD_NS: u64 = 1_000_000;

/// A launch call that lasts so long is looked after: when does the GPU fall silent?
const LATE_NS: u64 = 30_000;

impl Part {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waker => "waker",
            Self::Short => "short",
            Self::Unit => "unit",
        }
    }
}

/// Plays, and says on stdout what was seen.
pub fn run(part: Part) -> ExitCode {
    let told = match part {
        Part::Waker => wake().map(|wakes| serde_json::to_string(&wakes)),
        Part::Short => fill(SHORT.name).map(|holds| serde_json::to_string(&holds)),
        Part::Unit => fill(UNIT.name).map(|holds| serde_json::to_string(&holds)),
    };
    match told {
        Ok(Ok(line)) => {
            let _ = writeln!(std::io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => complain(&error),
        Err(error) => complain(&error),
    }
}

fn complain(error: &dyn std::error::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "gate: {error}");
    ExitCode::FAILURE
}

fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn wake() -> Result<Vec<Wake>, ClientError> {
    let driver = Driver::open(&[BURST.name])?;
    let (stream, burst) = (driver.stream()?, driver.function(BURST.name, 0)?);
    let mut random = 1u64;
    (0..WAKES)
        .map(|_| {
            // Numerical Recipes' generator: the same wakes in each run.
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32);
            let sleep = SLEEP_US.0 + random % (SLEEP_US.1 - SLEEP_US.0);
            std::thread::sleep(Duration::from_micros(sleep)); // what a service does between two requests
            let launched = now();
            driver.launch_into(stream, burst, 1)?;
            driver.synchronize()?;
            Ok(Wake { launched, ended: now() })
        })
        .collect()
}

/// What the two threads of a filler know of each other.
#[derive(Default)]
struct Filler {
    stop: AtomicBool,
    launching: AtomicU64, // since when, or 0
    silent: AtomicU64,    // since then
}

fn fill(kernel: &str) -> Result<Vec<Hold>, ClientError> {
    let filler: &'static Filler = Box::leak(Box::default());
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        filler.stop.store(true, Ordering::Relaxed);
    });
    let driver = Driver::open(&[kernel])?;
    let (stream, function) = (driver.stream()?, driver.function(kernel, 0)?);
    let mut holds = Vec::new();
    std::thread::scope(|scope| {
        let (handle, driver) = (stream.expose_provenance(), &driver);
        scope.spawn(move || watch(filler, driver, handle));
        let mut next = 0;
        while !filler.stop.load(Ordering::Relaxed) {
            let began = now();
            if began < next {
                std::hint::spin_loop();
                continue;
            }
            next = began + PACE_NS;
            filler.launching.store(began, Ordering::Release);
            driver.launch_into(stream, function, 1)?;
            filler.launching.store(0, Ordering::Release);
            let ended = now();
            if ended - began > HELD_NS {
                // Seen to be silent in this call, or it never was.
                let silent = filler.silent.load(Ordering::Acquire).clamp(began, ended);
                holds.push(Hold { began, ended, silent });
            }
        }
        Ok(holds)
    })
}

/// Looks when the stream is drained while a launch is held back.
fn watch(filler: &Filler, driver: &Driver, stream: usize) {
    let stream = std::ptr::with_exposed_provenance_mut(stream);
    let mut seen = 0;
    while !filler.stop.load(Ordering::Relaxed) {
        let launching = filler.launching.load(Ordering::Acquire);
        if launching == seen || launching == 0 || now() < launching + LATE_NS {
            std::thread::sleep(Duration::from_micros(20)); // between two looks
        } else if driver.enter().is_ok_and(|()| driver.is_drained(stream)) {
            filler.silent.store(now(), Ordering::Release);
            seen = launching;
        }
    }
}
