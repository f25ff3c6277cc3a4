//! The measured side: for each line on stdin a program works for about a second of GPU time, waits for
//! it, and says what each kernel of its mix is charged by now.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_abi::types::{CUfunction, CUgraphExec, CUstream};

use super::cases::{CASES, Case, KERNELS, Rhythm};
use crate::client::{ClientError, Driver, price_ns};

/// GPU time of one window, and at most so much of the clock's.
const WORK_US: f64 = 1e6;
const LONGEST: Duration = Duration::from_secs(3);

/// The host's own work between two steps.
const PAUSE: Duration = Duration::from_micros(500);

/// Most work that a program queues before it waits, in microseconds.
const AHEAD_US: f64 = 200_000.0;

struct Program {
    driver: Driver,
    case: Case,
    streams: Vec<CUstream>,
    mix: Vec<(CUfunction, u32, usize)>, // function, blocks, how many in a row
    graph: Option<CUgraphExec>,
    turn_us: f64,
}

/// Runs as one case's program.
pub fn run(case: usize) -> ExitCode {
    match serve(CASES[case.min(CASES.len() - 1)]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "pace: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(case: Case) -> Result<(), ClientError> {
    let program = Program::open(case)?;
    let mut stdout = std::io::stdout().lock();
    let mut say = |prices_ns: Vec<String>| {
        let _ = writeln!(stdout, "{}", prices_ns.join(" ")).and_then(|()| stdout.flush());
    };
    say(program.prices());
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        program.window()?;
        say(program.prices());
    }
    Ok(())
}

impl Program {
    fn open(case: Case) -> Result<Self, ClientError> {
        let names: Vec<&str> = case.mix.iter().map(|(name, _)| *name).collect();
        let driver = Driver::open(&names)?;
        let rows = case.mix.iter().enumerate();
        let blocks = |name: &str| KERNELS.iter().find(|k| k.name == name).map_or(1, |k| k.blocks);
        let mix: Result<Vec<_>, ClientError> =
            rows.map(|(n, (name, count))| Ok((driver.function(name, n)?, blocks(name), *count))).collect();
        let streams: Result<Vec<_>, _> = (0..case.streams).map(|_| driver.stream()).collect();
        let time = |name: &str| KERNELS.iter().find(|k| k.name == name).map_or(0.0, |k| k.time_us);
        let turn_us = case.mix.iter().map(|(name, count)| time(name) * *count as f64).sum();
        let mut program = Self { driver, case, streams: streams?, mix: mix?, graph: None, turn_us };
        if case.rhythm == Rhythm::Graph {
            let first = program.streams[0];
            program.graph = Some(program.driver.graph_of(first, || program.launch_all(first))?);
        }
        Ok(program)
    }

    fn window(&self) -> Result<(), ClientError> {
        let start = Instant::now();
        let (mut done_us, mut ahead_us, mut turn) = (0.0, 0.0, 0);
        while done_us < WORK_US && start.elapsed() < LONGEST {
            self.turn(self.streams[turn % self.streams.len()])?;
            turn += 1;
            done_us += self.turn_us;
            ahead_us += self.turn_us;
            if ahead_us > AHEAD_US {
                self.driver.synchronize()?;
                ahead_us = 0.0;
            }
        }
        self.driver.synchronize()
    }

    fn turn(&self, stream: CUstream) -> Result<(), ClientError> {
        match (self.case.rhythm, self.graph) {
            (Rhythm::Graph, Some(graph)) => self.driver.launch_graph(stream, graph),
            (Rhythm::Backlogged | Rhythm::Graph, _) => self.launch_all(stream),
            (Rhythm::Steps | Rhythm::Sparse, _) => {
                self.launch_all(stream)?;
                self.driver.synchronize()?;
                spin(PAUSE);
                Ok(())
            }
        }
    }

    fn launch_all(&self, stream: CUstream) -> Result<(), ClientError> {
        for (function, blocks, count) in &self.mix {
            (0..*count).try_for_each(|_| self.driver.launch_into(stream, *function, *blocks))?;
        }
        Ok(())
    }

    /// What each kernel of the mix is charged.
    fn prices(&self) -> Vec<String> {
        self.mix.iter().map(|(function, blocks, _)| price_ns(*function, *blocks).to_string()).collect()
    }
}

/// The host works, as a data loader does.
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
