//! One instance: what it works on, and how fast.
//!
//! All requests of a batch advance alike, so that one number says how far each has come: the work that everyone in it was
//! given so far. A request that joins ends when that number has grown by its own work.

use weir_protocol::units::{Nanos, SmShare};

use super::{float, nanos};
use crate::scale::{Service, Then};

/// Where an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It answers from this time on.
    Starting(Nanos),
    /// It answers.
    Ready,
    /// It finishes what it has.
    Draining(Then),
    /// Its memory is on the host.
    Parked,
    /// It has ended.
    Gone,
}

/// A request in the batch.
#[derive(Clone, Copy, Debug)]
struct Running {
    ends_at: f64,
    request: usize,
}

/// One instance.
#[derive(Debug)]
pub struct Instance {
    /// Its service.
    pub service: usize,
    /// Its GPU.
    pub gpu: usize,
    /// Its share.
    pub share: SmShare,
    /// Where it stands.
    pub state: State,
    /// Changes with each new plan for its next end: events of an older one mean nothing.
    pub plan: u64,
    running: Vec<Running>,
    given: f64, // ns of work alone on a whole GPU, to everyone in the batch
    since: Nanos,
    held: f64, // GPU-ns
    held_since: Nanos,
}

impl Instance {
    /// One that answers from `ready` on.
    pub const fn starting(service: usize, gpu: usize, share: SmShare, now: Nanos, ready: Nanos) -> Self {
        Self {
            service,
            gpu,
            share,
            state: State::Starting(ready),
            plan: 0,
            running: Vec::new(),
            given: 0.0,
            since: now,
            held: 0.0,
            held_since: now,
        }
    }

    /// Requests that it works on.
    pub const fn load(&self) -> usize {
        self.running.len()
    }

    /// Whether it holds a share.
    pub const fn holds(&self) -> bool {
        !matches!(self.state, State::Parked | State::Gone)
    }

    fn rate(&self, service: &Service) -> f64 {
        let batch = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        service.capacity(self.share) / service.stretch(batch)
    }

    /// Gives everyone in the batch what the time since the last change was worth.
    fn advance(&mut self, service: &Service, now: Nanos) {
        self.given += float(Nanos(now.since(self.since).0)) * self.rate(service);
        self.since = now;
    }

    /// One more request, with its time alone on a whole GPU in nanoseconds.
    pub fn join(&mut self, service: &Service, now: Nanos, request: usize, work: f64) {
        debug_assert_eq!(self.state, State::Ready, "only one that answers gets requests");
        self.advance(service, now);
        self.running.push(Running { ends_at: self.given + work, request });
    }

    /// Requests that have ended by now.
    pub fn leave(&mut self, service: &Service, now: Nanos, mut ended: impl FnMut(usize)) {
        self.advance(service, now);
        // A nanosecond of work: what rounding to whole nanoseconds leaves.
        let done = self.given + 1.0;
        self.running.retain(|running| {
            let stays = running.ends_at > done;
            if !stays {
                ended(running.request);
            }
            stays
        });
    }

    /// Another share from now on; another state, if there is one, too.
    pub fn change(&mut self, service: &Service, now: Nanos, share: SmShare, state: State) {
        self.advance(service, now);
        self.book(now);
        (self.share, self.state) = (share, state);
    }

    /// When its next request ends, under a new plan.
    pub fn next_end(&mut self, service: &Service) -> Option<Nanos> {
        self.plan += 1;
        let next = self.running.iter().map(|running| running.ends_at).reduce(f64::min)?;
        let wait = ((next - self.given) / self.rate(service)).ceil().max(0.0);
        Some(Nanos(self.since.0 + nanos(wait).0))
    }

    fn book(&mut self, now: Nanos) {
        if self.holds() {
            self.held +=
                float(Nanos(now.since(self.held_since).0)) * f64::from(self.share.as_permille()) / 1000.0;
        }
        self.held_since = now;
    }

    /// GPU-seconds that it has held by now.
    pub fn gpu_seconds(&mut self, now: Nanos) -> f64 {
        self.book(now);
        self.held / 1e9
    }
}
