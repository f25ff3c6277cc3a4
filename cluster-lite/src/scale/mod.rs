//! How many instances of a service run, and how large each is: pure rules, asked once a second.
//!
//! ```text
//!   rules       every parameter, in one struct
//!   speed       how fast an instance is at a share of a GPU
//!   demand      arrivals and queue as work: GPU-time rather than a count, where sizes are known
//!   lately      so many of the last seconds: the lazy rule's memory
//!   forecast    what will arrive, from what has arrived
//!   horizontal, vertical, dilu, weir    one policy each
//!   act         from what is wished to what is to be done
//! ```
//!
//! A policy sees one service ([`Seen`]) and says what there should be ([`Wish`]); [`actions`] says what to do about it.
//! The same wish twice is the same as once, so that whoever carries it out may lose an answer. Work is in [`Tokens`]:
//! nanoseconds of a whole GPU with its batch full. Rates of work are in GPUs: tokens a nanosecond.

mod act;
mod demand;
mod dilu;
mod forecast;
mod horizontal;
mod lately;
mod rules;
mod speed;
#[cfg(test)]
mod tests;
mod vertical;
mod weir;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_protocol::units::{Nanos, SmShare, Tokens};

pub use self::act::{Action, Then, actions};
pub use self::demand::{Demand, gpus};
pub use self::forecast::{Forecast, Forecaster};
pub use self::lately::Lately;
pub use self::rules::Rules;
pub use self::speed::{Speed, SpeedError};

/// What a policy knows of a service beforehand.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Fewest instances; 0: it may go to zero.
    pub floor: u32,
    /// Most instances.
    pub ceiling: u32,
    /// Least and most share of one instance.
    pub shares: [SmShare; 2],
    /// The share with the most work per share that keeps the SLO, from its profile: what it has when nothing moves it.
    pub request: SmShare,
    /// How fast an instance is at a share.
    pub speed: Speed,
    /// Requests that an instance works on at the same time.
    pub batch: u32,
    /// How much each further request of a batch slows it: 0 nothing, 1 as much as the first takes.
    pub batch_slope: f64,
    /// Work of a mean request: what a count stands for.
    pub mean_work: Tokens,
    /// How long a request may wait beyond its own time before its SLO is broken.
    pub patience: Nanos,
    /// From the decision to start an instance to its first answer.
    pub cold_start: Nanos,
    /// The same for one that is parked; nothing: it cannot be parked.
    pub unpark: Option<Nanos>,
}

impl Service {
    /// Work that an instance does at this share, in GPUs.
    pub fn capacity(&self, share: SmShare) -> f64 {
        self.speed.at(share)
    }

    /// How much slower a batch of this many is than one request alone.
    pub fn stretch(&self, batch: u32) -> f64 {
        1.0 + self.batch_slope * f64::from(batch.clamp(1, self.batch.max(1)) - 1)
    }

    /// This many instances, within floor and ceiling.
    pub fn within(&self, instances: u32) -> u32 {
        instances.clamp(self.floor, self.ceiling.max(self.floor))
    }

    /// This share, within the range.
    pub fn share_within(&self, share: SmShare) -> SmShare {
        share.clamp(self.shares[0], self.shares[1].max(self.shares[0]))
    }
}

/// A service at the moment, and what has come since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The time.
    pub now: Nanos,
    /// Requests that have come since the last look.
    pub arrived: u64,
    /// Their predicted work, where sizes are known.
    pub arrived_work: Option<Tokens>,
    /// Requests that no instance has yet.
    pub queued: u64,
    /// Their predicted work, where sizes are known.
    pub queued_work: Option<Tokens>,
    /// Requests that instances work on.
    pub running: u64,
    /// Instances that answer.
    pub ready: u32,
    /// Instances that will: starting or coming back.
    pub starting: u32,
    /// Instances that finish what they have and get no more.
    pub draining: u32,
    /// Instances whose memory is on the host.
    pub parked: u32,
    /// The share of each instance that answers.
    pub share: SmShare,
    /// The most that each of them could have, with what its GPU has free.
    pub room: SmShare,
}

impl Seen {
    /// Instances that answer, or are about to.
    pub const fn serving(&self) -> u32 {
        self.ready + self.starting
    }

    /// Whether there is nothing to do and nothing has come.
    pub const fn is_idle(&self) -> bool {
        self.arrived == 0 && self.queued == 0 && self.running == 0
    }
}

/// What there should be of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wish {
    /// Instances that answer, within floor and ceiling.
    pub instances: u32,
    /// Instances kept parked beside them, of those that are there: loaded, without share.
    pub parked: u32,
    /// The share of each that answers, within the service's range.
    #[serde(rename = "share_permille")]
    pub share: SmShare,
    /// Why.
    pub why: &'static str,
}

/// A scaling policy for one service: it keeps its memory of the last seconds.
pub trait Scaler {
    /// What there should be now; asked once a second.
    fn wish(&mut self, service: &Service, seen: &Seen) -> Wish;

    /// All that it remembers, for one that goes on after it.
    fn memory(&self) -> Value;

    /// Goes on from what another one of the same policy remembered. By other rules that means something else: then from nothing.
    fn recall(&mut self, memory: Value);
}

/// A policy that is all that it remembers, and the rules that it goes by.
trait Policy: Serialize + DeserializeOwned {
    fn rules(&self) -> &Rules;

    /// What there should be now.
    fn decide(&mut self, service: &Service, seen: &Seen) -> Wish;
}

impl<P: Policy> Scaler for P {
    fn wish(&mut self, service: &Service, seen: &Seen) -> Wish {
        self.decide(service, seen)
    }

    fn memory(&self) -> Value {
        // A number that is none has no form in JSON: whoever goes on then goes on from nothing.
        serde_json::to_value(self).unwrap_or_default()
    }

    fn recall(&mut self, memory: Value) {
        if let Ok(other) = serde_json::from_value::<P>(memory)
            && other.rules() == self.rules()
        {
            *self = other;
        }
    }
}

/// One policy.
pub struct Row {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Whether it says how many instances are kept parked.
    pub parks: bool,
    /// A fresh one for one service.
    pub build: fn(&Rules) -> Box<dyn Scaler>,
}

/// Every policy, in the order in which help shows them. A new policy is one file and one row.
pub const SCALERS: &[Row] = &[
    Row {
        name: "weir",
        about: "shares first, then instances, by work, queue and forecast",
        parks: true,
        build: weir::boxed,
    },
    Row {
        name: "weir-by-count",
        about: "the same, with requests counted rather than sized",
        parks: true,
        build: weir::by_count,
    },
    Row {
        name: "weir-unforeseen",
        about: "the same as `weir`, without forecasts",
        parks: true,
        build: weir::unforeseen,
    },
    Row {
        name: "dilu",
        about: "lazy in instances, request or limit in shares, by count",
        parks: false,
        build: dilu::boxed,
    },
    Row {
        name: "horizontal",
        about: "instances by count, at a fixed share",
        parks: false,
        build: horizontal::boxed,
    },
    Row {
        name: "vertical",
        about: "one instance, shares only, by count",
        parks: false,
        build: vertical::boxed,
    },
];

/// The policy of that name.
pub fn scaler(name: &str) -> Option<&'static Row> {
    SCALERS.iter().find(|row| row.name == name)
}
