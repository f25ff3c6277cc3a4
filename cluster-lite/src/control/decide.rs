//! Where an instance goes and how many there are: what the state machine asks, and the plainest answer to each.

use serde_json::Value;
use weir_protocol::units::{Nanos, SmShare};

use super::measure::Measured;
use super::model::{Place, Service, WhenIdle};
use super::room::Room;

/// Finds a GPU for one more instance.
pub trait Placing {
    /// The GPU, and why; or why there is none. `rooms` are those that may take one; what does not fit is among them.
    ///
    /// # Errors
    /// Why there is none.
    fn place(&mut self, service: &Service, rooms: &[Room]) -> Result<(Place, String), String>;

    /// Hears in each turn how much slower instances were beside others since the last one. Most do not care.
    fn learn(&mut self, _now: Nanos, _measured: &[Measured]) {}

    /// All that it has learnt, for one that goes on after it.
    fn memory(&self) -> Value {
        Value::Null
    }

    /// Goes on from what another one had learnt, as far as it still means something.
    fn recall(&mut self, _memory: Value) {}
}

/// What a service's requests look like at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Whether no gateway has answered yet: the figures of requests below say nothing then.
    pub untold: bool,
    /// Requests that have come since the gateway started.
    pub arrived: u64,
    /// Their predicted work, in nanoseconds of a GPU; nothing where sizes are not told.
    pub arrived_work: Option<u64>,
    /// Requests that wait.
    pub queued: u64,
    /// Their predicted work, in nanoseconds of a GPU.
    pub queued_work: Option<u64>,
    /// Requests that instances have.
    pub outstanding: u64,
    /// Instances that answer.
    pub ready: u32,
    /// Instances that answer, or are about to.
    pub serving: u32,
    /// Instances that finish what they have.
    pub draining: u32,
    /// Instances whose memory is on the host.
    pub parked: u32,
    /// The request of each of them now.
    pub share: SmShare,
    /// The most that each of them could have, with what its GPU has free.
    pub room: SmShare,
}

/// How much of a service there is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Instances, within floor and ceiling.
    pub instances: u32,
    /// Instances kept parked beside them, of those that go; none of a service that is not to be parked.
    pub parked: u32,
    /// The request of each, within the service's range.
    pub share: SmShare,
    /// Why.
    pub why: String,
}

/// Says how much of each service there is to be.
pub trait Scaling {
    /// Asked about ten times a second for each service.
    fn wish(&mut self, now: Nanos, service: &Service, load: &Load) -> Wish;

    /// All that it remembers, for one that goes on after it.
    fn memory(&self) -> Value {
        Value::Null
    }

    /// Goes on from what another one remembered, as far as it still means something.
    fn recall(&mut self, _memory: Value) {}
}

/// The fullest GPU on which it fits; the first of equals.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestFit;

impl Placing for BestFit {
    fn place(&mut self, service: &Service, rooms: &[Room]) -> Result<(Place, String), String> {
        let fitting = rooms.iter().filter(|room| room.holds(&room.need(service)));
        let best = fitting.min_by_key(|room| room.free_request());
        best.map(|room| (room.place.clone(), "the fullest GPU on which it fits".into()))
            .ok_or_else(|| "no GPU has so much free".into())
    }
}

/// As many instances as the requests at hand fill, at the profiled share; one fewer only after a while of less.
#[derive(Clone, Debug, Default)]
pub struct ByQueue {
    less_since: std::collections::BTreeMap<String, Nanos>,
}

/// How long there must be less to do before an instance ends.
const LESS_FOR: Nanos = Nanos::from_secs(30);

impl Scaling for ByQueue {
    fn wish(&mut self, now: Nanos, service: &Service, load: &Load) -> Wish {
        let at_hand = load.queued + load.outstanding;
        let filled = at_hand.div_ceil(u64::from(service.concurrency.max(1)));
        let needed = u32::try_from(filled).unwrap_or(u32::MAX).clamp(service.floor, service.ceiling);
        let parked = |instances| u32::from(instances == 0 && service.when_idle == WhenIdle::Park);
        let share = service.budget.request;
        let wish = |instances, why: String| Wish { instances, parked: parked(instances), share, why };
        if needed >= load.serving {
            self.less_since.remove(&service.name);
            return wish(needed, format!("{at_hand} requests at hand"));
        }
        let since = *self.less_since.entry(service.name.clone()).or_insert(now);
        if now.since(since) < LESS_FOR {
            return wish(load.serving.min(service.ceiling), "not long enough with less to do".into());
        }
        self.less_since.remove(&service.name);
        wish(load.serving - 1, format!("{at_hand} requests at hand for {LESS_FOR:?}"))
    }
}
