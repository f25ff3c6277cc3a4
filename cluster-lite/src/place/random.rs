//! `random`: any node with room, any GPU of it with room; both drawn.

use super::score::{Pick, Score, Seen};
use crate::cluster::Slice;

/// Any place with room.
#[derive(Clone, Copy, Debug)]
pub struct Random;

impl Score for Random {
    fn rate(&self, _seen: &Seen<'_>, _slices: &[Slice]) -> f64 {
        0.0
    }

    fn pick(&self) -> Pick {
        Pick::Drawn
    }
}
