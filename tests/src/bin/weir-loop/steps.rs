//! The loop: steps of a few launches, and an event behind each, so that a set number of steps is always queued.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_abi::types::{CUevent, CUfunction, CUgraphExec, CUstream};
use weir_tests::client::Driver;
use weir_tests::driver::DriverError;

use crate::progress::Tally;
use crate::telling::Telling;
use crate::{Cli, Until};

/// A loop that is ready to run.
pub struct Steps<'a> {
    driver: &'a Driver,
    functions: Vec<CUfunction>,
    streams: Vec<CUstream>,
    /// For each step that may be queued one event per stream, used in turn.
    marks: Vec<Vec<CUevent>>,
    /// A whole step, if steps are graphs.
    graph: Option<CUgraphExec>,
    blocks: u32,
    launches_per_step: u32,
    churn_bytes: Option<u64>,
    rest: Duration,
    telling: Option<Telling>,
    launched: usize,
}

impl<'a> Steps<'a> {
    /// Makes kernels, streams and events.
    pub fn prepare(driver: &'a Driver, cli: &Cli) -> Result<Self, DriverError> {
        let functions = cli.kernels.iter().map(|name| driver.function(name)).collect::<Result<_, _>>()?;
        let streams = (0..cli.streams).map(|_| driver.stream()).collect::<Result<Vec<_>, _>>()?;
        let row = || streams.iter().map(|_| driver.event()).collect::<Result<Vec<_>, _>>();
        let marks = (0..=cli.ahead).map(|_| row()).collect::<Result<_, _>>()?;
        let (blocks, launches_per_step) = (cli.blocks, cli.step);
        let churn_bytes = cli.churn.map(|bytes| bytes.0);
        let mut steps = Self {
            driver,
            functions,
            streams,
            marks,
            graph: None,
            blocks,
            launches_per_step,
            churn_bytes,
            rest: Duration::from_millis(cli.rest_ms),
            telling: cli.tell.as_deref().map(Telling::by),
            launched: 0,
        };
        if cli.graph {
            let stream = steps.streams[0];
            steps.graph = Some(driver.capture(stream, || steps.launches(|| ()))?);
        }
        Ok(steps)
    }

    /// Runs until told otherwise; then waits for what is queued.
    pub fn run(&mut self, tally: &Tally, until: &Until, stop: &AtomicBool) -> Result<(), DriverError> {
        let mut last_ns = tally.now_ns();
        let limit_ns = u64::try_from(until.time.as_nanos()).unwrap_or(u64::MAX);
        let slots = self.marks.len();
        for step in 0.. {
            if step >= slots {
                self.marks[step % slots].iter().try_for_each(|event| self.driver.wait(*event))?;
                if let Some(telling) = &mut self.telling {
                    telling.ended(tally);
                }
            }
            let over = tally.launches() >= until.launches || tally.now_ns() >= limit_ns;
            if over || stop.load(Ordering::Relaxed) {
                break;
            }
            if !self.rest.is_zero() {
                std::thread::sleep(self.rest);
            }
            last_ns = self.step(tally, last_ns)?;
            let marks = &self.marks[step % slots];
            marks
                .iter()
                .zip(&self.streams)
                .try_for_each(|(event, stream)| self.driver.record(*event, *stream))?;
        }
        self.driver.synchronize()
    }

    /// One step's launches; returns when the last one came back.
    fn step(&mut self, tally: &Tally, mut last_ns: u64) -> Result<u64, DriverError> {
        if let Some(bytes) = self.churn_bytes {
            let pointer = self.driver.allocate(bytes)?;
            self.driver.free(pointer)?;
        }
        let mut launched = || {
            let now_ns = tally.now_ns();
            tally.launched(now_ns - last_ns);
            last_ns = now_ns;
        };
        match self.graph {
            Some(graph) => self.driver.launch_graph(graph, self.streams[0]).map(|()| launched())?,
            None => self.launches(launched)?,
        }
        Ok(last_ns)
    }

    /// The launches of one step, each followed by `launched`.
    fn launches(&mut self, mut launched: impl FnMut()) -> Result<(), DriverError> {
        for _ in 0..self.launches_per_step {
            let function = self.functions[self.launched % self.functions.len()];
            let stream = self.streams[self.launched % self.streams.len()];
            self.driver.launch(function, self.blocks, stream)?;
            self.launched += 1;
            launched();
        }
        Ok(())
    }
}
