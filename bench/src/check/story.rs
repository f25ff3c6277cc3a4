//! The stories: their names, the call that each belongs to, and how long it may take.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::finding::Finding;
use super::setup::Setup;
use super::{
    bubbles, calibration, facts, illegal, kill, latency, liveness, lookup, memory, meter, mps, overhead,
    parity, park, resize, share, silence,
};

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Story {
    /// Which look-up routes are covered, and whether every launch is counted
    Lookup,
    /// What Weir costs a program that is alone
    Overhead,
    /// Whether programs compute the same with Weir and without
    Parity,
    /// Progress of each tenant against its own alone
    Share,
    /// Memory by every call to the limit and over, what programs are told of it, and changes of the limit
    Memory,
    /// A server's latency beside a training job, under each policy
    Latency,
    /// Gaps of a training job filled with other work
    Bubbles,
    /// How soon fillers are off the GPU when a latency tenant wakes
    Silence,
    /// Programs whose parts wait for each other, throttled
    Liveness,
    /// What is charged against what events say
    Meter,
    /// What the GPU is like: time slices, switches, copies; the node's calibration file
    Calibration,
    /// What the driver answers, against what the simulated one does
    Facts,
    /// From a changed budget to what follows
    Resize,
    /// An idle tenant's memory to the host and back
    Park,
    /// Programs killed at any moment beside others
    Kill,
    /// A program that writes where nothing is, beside others
    Illegal,
    /// The same pair of programs under MPS and under other interposers
    Mps,
}

/// All of them, with the call that each belongs to and its deadline in seconds. What a call's stories may take together is less than
/// ten minutes.
const ALL: [(Story, u8, u64); 17] = [
    (Story::Lookup, 1, 20),
    (Story::Overhead, 1, 130),
    (Story::Parity, 1, 90),
    (Story::Share, 1, 210),
    (Story::Memory, 1, 50),
    (Story::Latency, 2, 220),
    (Story::Silence, 2, 60),
    (Story::Liveness, 2, 60),
    (Story::Meter, 2, 90),
    (Story::Bubbles, 2, 140),
    (Story::Calibration, 3, 105),
    (Story::Facts, 3, 20),
    (Story::Resize, 3, 60),
    (Story::Park, 3, 70),
    (Story::Kill, 3, 70),
    (Story::Illegal, 3, 40),
    (Story::Mps, 3, 200),
];

/// What another interposer adds to a story that measures it beside ours, in seconds: all works of [`overhead`] once more, by both
/// sides, and in [`mps`] a pair that starts and is served. A call that measures some takes that much longer than ten minutes.
const OF_ANOTHER: [(Story, u64); 2] = [(Story::Overhead, 120), (Story::Mps, 60)];

impl Story {
    /// As the command line has it.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// All, or those of one call.
    pub fn of_call(call: Option<u8>) -> Vec<Self> {
        ALL.iter()
            .filter(|(_, of, _)| call.is_none_or(|call| call == *of))
            .map(|(story, ..)| *story)
            .collect()
    }

    /// Longest that it may take, if so many other interposers are measured beside ours.
    pub fn deadline(self, others: usize) -> Duration {
        let row = ALL.iter().find(|(story, ..)| *story == self);
        let each = OF_ANOTHER.iter().find(|(story, _)| *story == self).map_or(0, |(_, seconds)| *seconds);
        let others = u64::try_from(others).unwrap_or(u64::MAX);
        Duration::from_secs(
            row.map_or(60, |(_, _, seconds)| *seconds).saturating_add(each.saturating_mul(others)),
        )
    }

    /// Tells it.
    pub fn tell(self, setup: &Setup) -> io::Result<Finding> {
        match self {
            Self::Lookup => lookup::tell(setup),
            Self::Overhead => overhead::tell(setup),
            Self::Parity => parity::tell(setup),
            Self::Share => share::tell(setup),
            Self::Memory => memory::tell(setup),
            Self::Latency => latency::tell(setup),
            Self::Bubbles => bubbles::tell(setup),
            Self::Silence => silence::tell(setup),
            Self::Liveness => liveness::tell(setup),
            Self::Meter => meter::tell(setup),
            Self::Calibration => calibration::tell(setup),
            Self::Facts => facts::tell(setup),
            Self::Resize => resize::tell(setup),
            Self::Park => park::tell(setup),
            Self::Kill => kill::tell(setup),
            Self::Illegal => illegal::tell(setup),
            Self::Mps => mps::tell(setup),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_story_belongs_to_one_of_three_calls_that_take_less_than_ten_minutes_each() {
        assert_eq!(Story::of_call(None).len(), Story::value_variants().len());
        for call in 1..=3 {
            let sum: Duration = Story::of_call(Some(call)).into_iter().map(|story| story.deadline(0)).sum();
            assert!((60..=570).contains(&sum.as_secs()), "{call}: {sum:?}");
        }
        let of_calls = (1..=3).map(|call| Story::of_call(Some(call)).len()).sum::<usize>();
        assert_eq!(of_calls, Story::value_variants().len());
    }

    #[test]
    fn who_is_measured_beside_ours_takes_no_time_from_ours() {
        for story in Story::value_variants() {
            let own = story.deadline(0);
            let more = [1, 2].map(|others| (story.deadline(others) - own).as_secs());
            let each = if matches!(story, Story::Overhead | Story::Mps) { more[0] } else { 0 };
            assert_eq!(more, [each, 2 * each], "{story:?}");
            assert!(each > 0 || !matches!(story, Story::Overhead | Story::Mps), "{story:?}");
        }
    }
}
