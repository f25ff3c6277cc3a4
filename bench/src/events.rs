//! Events of the driver's on the monotonic clock: when the GPU was done with a launch.

use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use weir_abi::fns;
use weir_abi::types::*;

use crate::client::{ClientError, Driver, check};
use crate::clock::now;

/// Events in a ring: more than can be under way.
const RING: usize = 64;

/// Looks for the moment of the first event; the shortest one counts.
const LOOKS: usize = 50;

/// A stream's events.
pub struct Events {
    create: fns::cuEventCreate,
    record: fns::cuEventRecord,
    elapsed: fns::cuEventElapsedTime,
    synchronize: fns::cuEventSynchronize,
    stream: CUstream,
    base: (CUevent, u64),
    ring: [CUevent; RING],
    next: usize,
}

impl Events {
    /// For an idle stream of the current context.
    pub fn new(driver: &Driver, stream: CUstream) -> Result<Self, ClientError> {
        // SAFETY: each symbol is given the type that weir-abi's table has for it; the driver stays open.
        let (create, record, elapsed, synchronize) = unsafe {
            let library = Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_LOCAL)?;
            let create: fns::cuEventCreate = *library.get(b"cuEventCreate\0")?;
            let elapsed: fns::cuEventElapsedTime = *library.get(b"cuEventElapsedTime\0")?;
            (create, *library.get(b"cuEventRecord\0")?, elapsed, *library.get(b"cuEventSynchronize\0")?)
        };
        let ring = [null_mut(); RING];
        let mut events =
            Self { create, record, elapsed, synchronize, stream, base: (null_mut(), 0), ring, next: 0 };
        for place in 0..RING {
            events.ring[place] = events.make()?;
        }
        events.base = events.find_base(driver)?;
        Ok(events)
    }

    /// An event, and its moment as late as it can have been.
    fn find_base(&self, driver: &Driver) -> Result<(CUevent, u64), ClientError> {
        let mut best = (null_mut(), 0, u64::MAX);
        for _ in 0..LOOKS {
            let (event, before) = (self.make()?, now());
            self.put(event)?;
            driver.synchronize()?;
            let after = now();
            if after - before < best.2 {
                best = (event, after, after - before);
            }
        }
        Ok((best.0, best.1))
    }

    fn make(&self) -> Result<CUevent, ClientError> {
        let mut event = null_mut();
        // SAFETY: a place for the answer.
        check("cuEventCreate", unsafe { (self.create)(&raw mut event, 0) }).map(|()| event)
    }

    /// What a moment of [`Self::at`] is by the monotonic clock: the GPU's own may be some millionths slower or faster, which is known
    /// once both have gone on for a while. Of an idle stream.
    pub fn corrected(&self, driver: &Driver, moments: &[u64]) -> Result<Vec<u64>, ClientError> {
        let (event, now) = self.find_base(driver)?;
        let by_events = self.elapsed_ms(self.base.0, event)? * 1e6;
        let by_clock = now.saturating_sub(self.base.1) as f64;
        Ok(moments.iter().map(|moment| scaled(*moment, self.base.1, by_clock / by_events)).collect())
    }

    fn put(&self, event: CUevent) -> Result<(), ClientError> {
        // SAFETY: an event and a stream of the driver's.
        check("cuEventRecord", unsafe { (self.record)(event, self.stream) })
    }

    /// Puts one behind what was launched.
    pub fn record(&mut self) -> Result<(), ClientError> {
        self.next = (self.next + 1) % RING;
        self.put(self.ring[self.next])
    }

    /// The same; its place in the ring.
    pub fn mark(&mut self) -> Result<usize, ClientError> {
        self.record().map(|()| self.next)
    }

    /// One of its own, behind what was launched: it stays while the ring goes round.
    pub fn make_one(&self) -> Result<CUevent, ClientError> {
        let event = self.make()?;
        self.put(event).map(|()| event)
    }

    /// Waits until the GPU has come to the one at this place.
    pub fn wait(&self, place: usize) -> Result<(), ClientError> {
        // SAFETY: an event of the driver's.
        check("cuEventSynchronize", unsafe { (self.synchronize)(self.ring[place]) })
    }

    /// When the GPU came to the last one, ns of the monotonic clock. It has.
    pub fn last(&self) -> Result<u64, ClientError> {
        self.at(self.next)
    }

    /// The same of the one at this place.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds of a run")]
    pub fn at(&self, place: usize) -> Result<u64, ClientError> {
        let milliseconds = self.elapsed_ms(self.base.0, self.ring[place])?;
        Ok(self.base.1 + (milliseconds.max(0.0) * 1e6) as u64)
    }

    /// From one to another, in milliseconds: the GPU has come to both.
    pub fn between_ms(&self, first: usize, second: usize) -> Result<f64, ClientError> {
        self.elapsed_ms(self.ring[first], self.ring[second])
    }

    /// The same of two events of [`Self::make_one`].
    pub fn elapsed_ms(&self, first: CUevent, second: CUevent) -> Result<f64, ClientError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events were recorded.
        check("cuEventElapsedTime", unsafe { (self.elapsed)(&raw mut milliseconds, first, second) })?;
        Ok(f64::from(milliseconds))
    }
}

/// Clocks differ by a thousandth at most: more is no clock's doing, and left alone.
const MOST_APART: f64 = 1e-3;

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds of a run")]
fn scaled(moment: u64, base: u64, scale: f64) -> u64 {
    match (scale - 1.0).abs() < MOST_APART {
        true => base + (moment.saturating_sub(base) as f64 * scale) as u64,
        false => moment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_slower_is_corrected_and_nonsense_is_not() {
        let (base, moment) = (1_000_000, 1_000_000 + 5_000_000_000);
        assert_eq!(scaled(moment, base, 1.000_02), moment + 100_000);
        assert_eq!((scaled(moment, base, 2.0), scaled(moment, base, f64::NAN)), (moment, moment));
    }
}
