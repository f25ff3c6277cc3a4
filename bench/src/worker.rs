//! The measured side: what this same binary does when it is started as a client of a driver, with or without a
//! preload library. Figures go to stdout, one line for each round.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Instant;

use crate::client::{ClientError, Driver};

/// What a worker does.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Task {
    /// Launches over 8 functions x 8 grids.
    Launch,
    /// Allocates 1 MiB and frees it.
    Alloc,
    /// As above, in stream order, from a pool that has it.
    AllocAsync,
    /// Allocates until it is refused, then frees everything; the figure is the number of pieces.
    Fill,
}

/// Size of one allocation of [`Task::Fill`], in bytes.
pub const PIECE: usize = 64 << 20;

/// Launches that a worker has made after `rounds` rounds: one more, to get warm.
pub const fn launches_of_rounds(rounds: usize) -> u64 {
    (CALLS * (rounds + 1)) as u64
}

/// Calls between two looks at the clock.
pub const CALLS: usize = 100_000;

/// Distinct functions, and distinct grids for each.
const VARIETY: usize = 8;

/// Runs one task: for each line on stdin one round, then a line of figures. The caller paces the rounds, so that
/// two workers can take turns or run at once.
pub fn run(task: Task) -> ExitCode {
    let outcome = match task {
        Task::Fill => fills(),
        _ => rounds(task),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn rounds(task: Task) -> Result<(), ClientError> {
    let names: Vec<String> = (0..VARIETY).map(|n| format!("bench_{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let driver = Driver::open(&names)?;
    let functions: Result<Vec<_>, _> =
        names.iter().enumerate().map(|(n, name)| driver.function(name, n)).collect();
    let functions = functions?;
    let call = |n: usize| match task {
        Task::Launch => {
            let blocks = u32::try_from(1 + n / VARIETY % VARIETY).unwrap_or(1);
            driver.launch(functions[n % VARIETY], blocks)
        }
        Task::Alloc | Task::Fill => driver.alloc_free(1 << 20),
        Task::AllocAsync => driver.alloc_free_async(1 << 20),
    };
    let calls = if matches!(task, Task::Alloc | Task::AllocAsync) { CALLS / 10 } else { CALLS };
    (0..calls).for_each(|n| {
        call(n); // warm: price cache, token slices, pages
    });
    let mut stdout = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        let before = Sums::read();
        let pace_before = pace_ns();
        mark();
        let start = Instant::now();
        for n in 0..calls {
            call(n);
        }
        let ns = start.elapsed().as_secs_f64() * 1e9 / calls as f64;
        mark();
        let counted = before.map(|before| before.until_now(calls));
        let line = counted.unwrap_or_else(|| format!("{ns} {}", pace_before.max(pace_ns())));
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
    Ok(())
}

fn fills() -> Result<(), ClientError> {
    let driver = Driver::open(&[])?;
    let mut stdout = std::io::stdout().lock();
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        let pieces = driver.fill(PIECE)?;
        let _ = writeln!(stdout, "{pieces}").and_then(|()| stdout.flush());
    }
    Ok(())
}

/// Steps of the eight generators of [`pace`]: some 50 us.
const STEPS: u32 = 20_000;

/// What the processor takes for a step of [`pace`] now, ns: one that somebody else holds up, too, is slower.
fn pace_ns() -> f64 {
    let start = Instant::now();
    std::hint::black_box(pace(STEPS));
    start.elapsed().as_secs_f64() * 1e9 / f64::from(STEPS)
}

/// Shifts in registers, as many at once as a processor does: it meets no memory and no library, and so takes longer only where
/// the processor itself is slower.
fn pace(steps: u32) -> u64 {
    let mut states: [u64; 8] = std::hint::black_box([1, 2, 3, 4, 5, 6, 7, 8]);
    for _ in 0..steps {
        for state in &mut states {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
        }
    }
    states.into_iter().fold(0, |sum, state| sum ^ state)
}

/// The counting library's sums, if it is preloaded and wanted.
struct Sums {
    allocations: u64,
    locks: u64,
}

impl Sums {
    fn read() -> Option<Self> {
        std::env::var_os("WEIR_BENCH_COUNT")?;
        let counter = |name: &std::ffi::CStr| {
            // SAFETY: a C string; the counting library exports this name with this type, or nobody does.
            unsafe {
                let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
                (!address.is_null())
                    .then(|| std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> u64>(address)())
            }
        };
        Some(Self {
            allocations: counter(c"weir_counter_allocations")?,
            locks: counter(c"weir_counter_locks")?,
        })
    }

    fn until_now(&self, calls: usize) -> String {
        // Reading the sums looks names up, which itself takes a lock or two: read twice, and take off the difference.
        let (Some(now), Some(again)) = (Self::read(), Self::read()) else { return String::new() };
        let by_reading = (again.allocations - now.allocations, again.locks - now.locks);
        let allocations = now.allocations - self.allocations - by_reading.0;
        format!("{calls} {allocations} {}", now.locks - self.locks - by_reading.1)
    }
}

/// A system call that does nothing and that a tracer recognizes: the measured part lies between two of them.
fn mark() {
    // SAFETY: an option that no kernel knows: the call fails and changes nothing.
    unsafe { libc::prctl(MARK, 0, 0, 0, 0) };
}

/// The first argument of [`mark`]'s call.
pub const MARK: i32 = 0x5745_4952;
