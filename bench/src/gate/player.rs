//! The programs: one that wakes now and then, one that always launches, and one that only keeps a processor busy.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{BURST, Filled, HELD_NS, Hold, SHORT, UNIT, WAKES, Wake, cores, now};
use crate::client::{ClientError, Driver};
use crate::events::Events;

/// Who a player is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Wakes, and sleeps again
    Waker,
    /// Wakes, and rings a bare bell half a sleep before
    Ringer,
    /// Launches kernels of 1 us
    Short,
    /// Launches kernels of 100 us
    Unit,
    /// Runs, and does nothing
    Busy,
}

/// The waker sleeps so long, from and to: fillers are let in after a millisecond, and nobody can foretell when they must go.
const SLEEP_US: (u64, u64) = (6_000, 16_000);

/// The filler of short kernels launches one in so long: as fast as it can it would keep the simulated GPU's own process busy,
/// and there may be two cores.
const PACE_NS: u64 = 5_000;

impl Part {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waker => "waker",
            Self::Ringer => "ringer",
            Self::Short => "short",
            Self::Unit => "unit",
            Self::Busy => "busy",
        }
    }

    /// Whether it is a filler.
    pub fn fills(self) -> bool {
        matches!(self, Self::Short | Self::Unit)
    }
}

/// Plays, on this processor if one is named, and says on stdout what was seen.
pub fn run(part: Part, core: Option<usize>) -> ExitCode {
    if let Some(Err(error)) = core.map(cores::run_on) {
        return complain(&error);
    }
    let told = match part {
        Part::Waker => wake(false).map(|wakes| serde_json::to_string(&wakes)),
        Part::Ringer => wake(true).map(|wakes| serde_json::to_string(&wakes)),
        Part::Short => fill(SHORT.name, false).map(|filled| serde_json::to_string(&filled)),
        Part::Unit => fill(UNIT.name, true).map(|filled| serde_json::to_string(&filled)),
        Part::Busy => loop {
            std::hint::spin_loop();
        },
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

/// The sleeps of the latency tenant: the same in each run.
pub fn sleeps() -> impl Iterator<Item = Duration> {
    let next = |random: &u64| {
        // Numerical Recipes' generator.
        Some(random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32))
    };
    let sleep = |random: u64| Duration::from_micros(SLEEP_US.0 + random % (SLEEP_US.1 - SLEEP_US.0));
    std::iter::successors(next(&1), next).take(WAKES).map(sleep)
}

/// With `ring` stdin is a socket, over which each bare bell says when it was rung.
fn wake(ring: bool) -> Result<Vec<Wake>, ClientError> {
    let driver = Driver::open(&[BURST.name])?;
    let (stream, burst) = (driver.stream()?, driver.function(BURST.name, 0)?);
    sleeps()
        .map(|sleep| {
            let half = sleep / 2; // what a service does between two requests
            std::thread::sleep(half);
            if ring {
                let _ = rustix::io::write(std::io::stdin(), &now().to_ne_bytes()); // unheard it is not counted
            }
            std::thread::sleep(half);
            let launched = now();
            driver.launch_into(stream, burst, 1)?;
            driver.synchronize()?;
            Ok(Wake { launched, ended: now() })
        })
        .collect()
}

/// Launches until stdin ends; with `timed` an event stands behind each launch.
fn fill(kernel: &str, timed: bool) -> Result<Filled, ClientError> {
    let stop: &'static AtomicBool = Box::leak(Box::default());
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Ordering::Relaxed);
    });
    let driver = Driver::open(&[kernel])?;
    let (stream, function) = (driver.stream()?, driver.function(kernel, 0)?);
    let mut events = if timed { Some(Events::new(&driver, stream)?) } else { None };
    let mut filled = Filled::default();
    let (mut next, mut returned, mut last) = (0, u64::MAX, None);
    while !stop.load(Ordering::Relaxed) {
        let began = now();
        if began < next {
            std::hint::spin_loop();
            continue;
        }
        next = began + PACE_NS;
        if began.saturating_sub(returned) > HELD_NS {
            filled.away.push((returned, began));
        }
        driver.launch_into(stream, function, 1)?;
        returned = now();
        if let Some((called, passed)) = last.filter(|_| returned - began > HELD_NS) {
            driver.synchronize()?; // or the rest of what a floor let through may be under way
            let silent = events.as_ref().map_or(Ok(passed), Events::last)?;
            filled.holds.push(Hold { called, passed, ended: returned, silent });
        }
        if let Some(events) = &mut events {
            events.record()?;
        }
        last = Some((began, now()));
    }
    Ok(filled)
}
