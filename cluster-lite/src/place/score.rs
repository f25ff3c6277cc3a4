//! What every way of scoring has in common.

use crate::cluster::{Bounds, Demand, DeviceClass, NodeState, Slice, Socket};

/// What a score looks at: a node as it is now, and a demand that would fit on it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The node, before.
    pub node: &'a NodeState,
    /// Who would come.
    pub demand: &'a Demand,
    /// The cluster's device classes.
    pub classes: &'a [DeviceClass],
    /// How far GPUs may be filled.
    pub bounds: &'a Bounds,
    /// What processors draw.
    pub socket: &'a Socket,
}

impl Seen<'_> {
    /// The class of the node's GPUs.
    pub fn class(&self) -> Option<&DeviceClass> {
        self.classes.get(self.node.class?.index())
    }
}

/// How good it is to place a demand so. Equal node states and equal demands have equal ratings: that is what the index of
/// [`super::Placer`] rests on.
pub trait Score: Send + Sync {
    /// The rating of `demand` on these slices of the node: higher is better. Differences below [`super::FINEST`] are none.
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64;

    /// Whether the demand may come to this GPU, which has room for it.
    fn admits(&self, _seen: &Seen<'_>, _slice: &Slice) -> bool {
        true
    }

    /// Which GPUs it admits, in words that follow "a GPU"; nothing where it admits all.
    fn condition(&self) -> Option<String> {
        None
    }

    /// Which GPUs of a node are taken.
    fn pick(&self) -> Pick {
        Pick::Rated
    }

    /// What the rating is made of; nothing when it is all one.
    fn parts(&self, _seen: &Seen<'_>, _slices: &[Slice]) -> Vec<Part> {
        Vec::new()
    }
}

/// Which of a node's GPUs are taken. Among equals always those with the smallest numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Those that the score itself rates highest, each alone.
    Rated,
    /// Those with the least free share that is enough.
    LeastFree,
    /// One of those with room, drawn; the first with room for several GPUs.
    Drawn,
}

impl Pick {
    /// Which GPUs, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Rated => "the GPU that it rates highest",
            Self::LeastFree => "the GPU with the least free share",
            Self::Drawn => "a drawn GPU",
        }
    }
}

/// A part of a rating.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Part {
    /// Which score.
    pub name: String,
    /// Its rating.
    pub rating: f64,
    /// What the rating is multiplied by.
    pub weight: f64,
}
