//! Units of work one behind the other, and how many of them come to a second.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_abi::types::{CUevent, CUfunction, CUgraphExec};
use weir_tests::client::Driver;
use weir_tests::driver::DriverError;

use crate::host::Host;
use crate::shapes::{Kernel, Shape, Waits, Work};

/// Blocks of each launch: more than any GPU has SMs.
const BLOCKS: u32 = 1_024;

/// Events in the ring, as many as the deepest program needs.
const RING: usize = 8;

/// What came of a time of work, as on the card.
#[derive(Debug, Serialize)]
pub struct Rate {
    /// Units a second.
    pub per_s: f64,
    /// Half of them took at most so long, ms.
    pub p50_ms: f64,
    /// The longest, ms.
    pub max_ms: f64,
    /// How many there were.
    pub units: usize,
}

/// A program that is ready to work. Everything goes into the legacy stream, as PyTorch's default.
pub struct Player {
    pub driver: Driver,
    pub host: Host,
    functions: Vec<CUfunction>,
    ring: Vec<CUevent>,
    graphs: Vec<(Kernel, CUgraphExec)>,
}

impl Player {
    /// Loads kernels, captures graphs.
    pub fn open(slow: f64) -> Result<Self, DriverError> {
        let names = Kernel::ALL.map(|kernel| kernel.name().to_owned());
        let driver = Driver::open(0, &names)?;
        let functions = names.iter().map(|name| driver.function(name)).collect::<Result<Vec<_>, _>>()?;
        let ring = (0..RING).map(|_| driver.event()).collect::<Result<_, _>>()?;
        let mut player = Self { driver, host: Host::slower(slow), functions, ring, graphs: Vec::new() };
        for work in [Work::Replay, Work::Server] {
            let graph = player.capture(work.shape())?;
            player.graphs.push((work.shape().kernel, graph));
        }
        Ok(player)
    }

    fn capture(&self, unit: Shape) -> Result<CUgraphExec, DriverError> {
        let (stream, function) = (self.driver.stream()?, self.function(unit.kernel));
        self.driver.capture(stream, || {
            (0..unit.launches).try_for_each(|_| self.driver.launch(function, BLOCKS, stream))
        })
    }

    fn function(&self, kernel: Kernel) -> CUfunction {
        let at = Kernel::ALL.iter().position(|other| *other == kernel);
        at.and_then(|at| self.functions.get(at)).copied().unwrap_or(null_mut())
    }

    /// Works for so long, waits for the last of it, and says how much it was.
    pub fn count(&mut self, work: Work, time: Duration) -> Result<Rate, DriverError> {
        let (shape, start) = (work.shape(), Instant::now());
        let (mut spans, mut last) = (Vec::new(), start);
        while last - start < time {
            self.unit(shape, spans.len())?;
            let now = Instant::now();
            spans.push(now - last);
            last = now;
        }
        self.driver.synchronize()?;
        let (slow, took) = (self.host.slow(), start.elapsed().as_secs_f64());
        spans.sort_unstable();
        let ms = |span: Option<&Duration>| span.map_or(f64::NAN, |span| span.as_secs_f64() * 1e3 / slow);
        let units = spans.len();
        Ok(Rate {
            per_s: units as f64 * slow / took,
            p50_ms: ms(spans.get(units / 2)),
            max_ms: ms(spans.last()),
            units,
        })
    }

    /// One unit, the `n`th.
    fn unit(&mut self, shape: Shape, n: usize) -> Result<(), DriverError> {
        let mark = match shape.waits {
            Waits::Behind(depth) => self.ring.get(n % depth).copied(),
            _ => None,
        };
        mark.map_or(Ok(()), |mark| self.driver.wait(mark))?;
        self.launch(shape)?;
        mark.map_or(Ok(()), |mark| self.driver.record(mark, null_mut()))?;
        if let Waits::Each(units) = shape.waits
            && n % units == units - 1
        {
            self.driver.synchronize()?;
        }
        if shape.pause_us > 0.0 {
            self.host.spend(self.host.time(shape.pause_us));
        }
        Ok(())
    }

    /// What a unit launches, in its host's time.
    pub fn launch(&mut self, shape: Shape) -> Result<(), DriverError> {
        let graph = self.graphs.iter().find(|(kernel, _)| shape.graph && *kernel == shape.kernel);
        if let Some(&(_, graph)) = graph {
            let began = Instant::now();
            self.driver.launch_graph(graph, null_mut())?;
            self.host.spend_on_launch(shape.host_us, began);
            return Ok(());
        }
        let function = self.function(shape.kernel);
        for _ in 0..shape.launches {
            let began = Instant::now();
            self.driver.launch(function, BLOCKS, null_mut())?;
            self.host.spend_on_launch(shape.host_us, began);
        }
        Ok(())
    }
}
