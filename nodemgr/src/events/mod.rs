//! What has happened on the node, as people and scripts are told of it: who came and went, what was set, and whatever
//! was not as it should be.
//!
//! The last [`KEPT`] events are kept in memory, under numbers that only grow: whoever asks for what came after a number
//! can tell whether he missed some. Nothing here is written from the tick: forced launches are looked at ten times a second and
//! told with a count, states of policies once they have lasted for a second.

mod told;
mod what;

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub(crate) use told::{clock, drawn};
pub use what::What;

/// Events kept. A node that does nothing unusual fills this in days, a policy that changes its mind all the time in
/// minutes; it is about a mebibyte.
pub const KEPT: usize = 4096;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number: one more than that of the event before.
    pub seq: u64,
    /// When, in milliseconds since 1970 by the node's clock, which may jump: the order is that of `seq`.
    pub time_unix_ms: u64,
    /// To whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// On which GPU, by index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<usize>,
    /// What.
    #[serde(flatten)]
    pub what: What,
    /// The tenant's owner, who may see it; absent: everybody may.
    #[serde(skip)]
    pub owner: Option<u32>,
}

/// The last events.
#[derive(Debug, Default)]
pub struct Ring {
    events: VecDeque<Event>,
    last: u64,
}

impl Ring {
    /// Adds one.
    pub fn push(&mut self, about: About<'_>, what: What) {
        self.last += 1;
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        let About { tenant, owner, gpu } = about;
        let tenant = tenant.map(str::to_owned);
        self.events.push_back(Event { seq: self.last, time_unix_ms: unix_ms(), tenant, gpu, what, owner });
    }

    /// The number of the last one; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Those after number `after`, oldest first.
    pub fn after(&self, after: u64) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.seq > after)
    }

    /// How many after number `after` are no longer kept.
    pub fn missed(&self, after: u64) -> u64 {
        let first = self.events.front().map_or(self.last + 1, |event| event.seq);
        first.saturating_sub(after.saturating_add(1))
    }
}

/// To whom and where something happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct About<'a> {
    tenant: Option<&'a str>,
    owner: Option<u32>,
    gpu: Option<usize>,
}

impl<'a> About<'a> {
    /// The node as a whole.
    pub const NODE: About<'static> = About { tenant: None, owner: None, gpu: None };

    /// One GPU.
    pub fn gpu(gpu: usize) -> Self {
        Self { gpu: Some(gpu), ..Self::default() }
    }

    /// A process of a user, who may see it.
    pub fn user(uid: u32) -> Self {
        Self { owner: Some(uid), ..Self::default() }
    }

    /// A tenant of `owner`.
    pub fn tenant(name: &'a str, owner: u32) -> Self {
        Self { tenant: Some(name), owner: Some(owner), gpu: None }
    }

    /// The same, on one GPU.
    #[must_use]
    pub fn on(self, gpu: usize) -> Self {
        Self { gpu: Some(gpu), ..self }
    }
}

/// The node's clock, in milliseconds since 1970; 0 if it stands before that.
pub fn unix_ms() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Ring {
        let mut ring = Ring::default();
        for pid in 0..i32::try_from(KEPT).unwrap() + 10 {
            ring.push(About::tenant("a", 1), What::ProcessJoined { pid });
        }
        ring
    }

    #[test]
    fn the_ring_keeps_the_last_events_and_says_how_many_it_does_not_keep() {
        let ring = full();
        assert_eq!(ring.after(0).count(), KEPT);
        assert_eq!((ring.missed(0), ring.missed(10), ring.missed(ring.last())), (10, 0, 0));
        assert_eq!(ring.after(ring.last() - 2).map(|event| event.seq).collect::<Vec<_>>(), [4105, 4106]);
        assert_eq!(Ring::default().missed(0), 0, "nothing has happened yet");
    }

    #[test]
    fn an_event_reads_back_from_its_json_but_for_who_may_see_it() {
        let event = full().after(4105).next().cloned().unwrap();
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.contains(r#""event":"process_joined","pid":4105"#), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), Event { owner: None, ..event });
    }
}
