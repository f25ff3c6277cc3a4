//! The GPU's clock: when events were reached, there and on the processor's.

use weir_protocol::units::Nanos;

use super::Driver;

/// Event times are `f32` milliseconds: measured against an event no older than this, in nanoseconds, they are exact to
/// 30 ns.
const ANCHOR_NS: f64 = 200e6;

/// Between what the clocks are apart at least and at most there may be so much, for what lies between not to matter, ns.
const CLOSE_NS: f64 = 50_000.0;

/// Where an event was seen that, as far as is known, nothing held up: some drivers tell so late what was reached, ns. Whatever is
/// further apart was held up all the same, by a host function or by work that nobody has told of.
const TELLS_LATE_NS: f64 = 2e6;

/// Clocks drift apart by no more than this part of the time.
const DRIFT: f64 = 1e-5;

/// What is known of a context's clock.
#[derive(Debug, Default)]
pub(super) struct Clock {
    anchor: Option<(u64, f64)>, // an event that was reached, and when
    ahead: Option<(f64, f64)>, // the processor's clock less the GPU's, ns: at least, as far as is known, and when that was seen
    most: Option<(f64, f64)>,  // the same, at most, and when that was seen
    prompt: bool,              // an event was among them that nothing held up, as far as is known
}

impl Clock {
    /// When an event was reached, on the GPU's clock; it is kept as the anchor or goes, as an older anchor does, to `spare`.
    pub fn time_of(&mut self, event: u64, spare: &mut Vec<u64>, driver: &mut impl Driver) -> Option<f64> {
        let Some((anchor, zero)) = self.anchor else {
            self.anchor = Some((event, 0.0));
            return Some(0.0);
        };
        let time = driver.elapsed(anchor, event).map(|ns| zero + ns);
        match time {
            Some(time) if time - zero > ANCHOR_NS => {
                spare.push(anchor);
                self.anchor = Some((event, time));
            }
            _ => spare.push(event),
        }
        time
    }

    /// An event is reached after its record began, and before that is seen; right away if it is `prompt`, since nothing holds it up.
    pub fn compare(&mut self, time: Option<f64>, (recorded_from, prompt): (Nanos, bool), now: Nanos) {
        let Some(time) = time else { return };
        self.prompt |= prompt;
        let (least, most) = (recorded_from.0 as f64 - time, now.0 as f64 - time);
        let (before, at) = self.ahead.unwrap_or((least, time));
        let ahead = before.min(most).max(least);
        self.ahead = Some((ahead, if ahead > least && ahead < most { at } else { time }));
        let before = self.most.map_or(most, |(before, at)| before + DRIFT * (time - at).abs());
        self.most = Some((most.min(before), time));
    }

    /// When an event was reached, on the processor's clock, if the two are known to be close; else when at the latest. Before
    /// the first event that nothing held up the clocks seem apart by as much more as its stream was behind.
    pub fn reached_by(&self, time: f64) -> Nanos {
        let most = self.most.map_or(f64::INFINITY, |(most, _)| most);
        let close = most - self.ahead() < if self.prompt { TELLS_LATE_NS } else { CLOSE_NS };
        moment(time + if close { self.ahead() } else { most })
    }

    /// The same at the earliest.
    pub fn reached_from(&self, time: f64) -> Nanos {
        let (ahead, at) = self.ahead.unwrap_or((f64::NEG_INFINITY, time));
        moment(time + ahead - DRIFT * (time - at).abs())
    }

    /// The processor's clock less the GPU's, in nanoseconds.
    pub fn ahead(&self) -> f64 {
        self.ahead.map_or(0.0, |(ahead, _)| ahead)
    }

    /// A moment of the GPU's clock on the processor's.
    pub fn here(&self, time: f64) -> Nanos {
        moment(time + self.ahead())
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a moment is never negative; beyond the range of u64 it saturates"
)]
pub(super) fn moment(ns: f64) -> Nanos {
    Nanos(ns as u64)
}
