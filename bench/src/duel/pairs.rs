//! Who meets whom, and what the same pairs did on a card under the driver's own slices.

use serde::Serialize;

/// A program of `weir-player`.
#[derive(Debug, Serialize)]
pub struct Work {
    /// By this name.
    pub name: &'static str,
    /// Whether the GPU bounds it: its host has hardly anything to do.
    pub dense: bool,
    /// Its longest launch, us of the card.
    pub unit_us: f64,
    /// Of each of its cycles the GPU rests so long, us of the card.
    pub pause_us: f64,
    /// Whether it serves requests.
    pub serves: bool,
}

const fn dense(name: &'static str, unit_us: f64) -> Work {
    Work { name, dense: true, unit_us, pause_us: 0.0, serves: false }
}

const fn host_bound(name: &'static str, unit_us: f64) -> Work {
    Work { dense: false, ..dense(name, unit_us) }
}

const FLOOD: Work = dense("flood", 1_640.0);
const BIGTRAIN: Work = dense("bigtrain", 17.3);
const REPLAY: Work = dense("replay", 288.0);
const WAITS: Work = dense("waits", 300.0);
const SERVER: Work = Work { serves: true, ..dense("server", 254.4) };
const BURSTY: Work = Work { pause_us: 10_060.0, ..dense("bursty", 1_430.0) };
const LOADER: Work = Work { pause_us: 11_950.0, ..dense("loader", 1_430.0) };
const TRAIN: Work = host_bound("train", 5.05);
const DECODE: Work = host_bound("decode", 3.0);
const DECODE_SYNC: Work = host_bound("decode-sync", 3.0);
const LIGHT: Work = host_bound("light", 3.0);
const STEPS: Work = host_bound("steps", 200.0);
const STEPS_AHEAD: Work = host_bound("steps-ahead", 200.0);
const RARE_STEPS: Work = host_bound("rare-steps", 200.0);
const RARE_STEPS_AHEAD: Work = host_bound("rare-steps-ahead", 200.0);
const DENSE_STEPS: Work = dense("dense-steps", 200.0);
const LOOP: Work = dense("loop", 10.0);
const TICKS: Work = dense("ticks", 10.0);
const SEEN_5: Work = Work { pause_us: 5_000.0, ..dense("seen-5", 200.0) };
const UNSEEN_5: Work = Work { name: "unseen-5", ..SEEN_5 };
const SEEN_20: Work = Work { name: "seen-20", pause_us: 20_000.0, ..SEEN_5 };
const UNSEEN_20: Work = Work { name: "unseen-20", ..SEEN_20 };
const SEEN_50: Work = Work { name: "seen-50", pause_us: 50_000.0, ..SEEN_5 };
const UNSEEN_50: Work = Work { name: "unseen-50", ..SEEN_50 };
const WAKER: Work = Work { serves: true, ..dense("waker", 300.0) };
const FILL_5: Work = dense("fill-5", 5.0);
const FILL_100: Work = dense("fill-100", 100.0);
const FILL_1000: Work = dense("fill-1000", 1_000.0);
const EAGER_SERVER: Work = Work { serves: true, ..host_bound("eager-server", 3.0) };

/// What the programs of a row are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Primaries.
    Peers,
    /// The first serves requests.
    Online,
    /// The first serves requests of one kernel, the second fills.
    Starts,
    /// The first pauses, the second fills.
    Pauses,
    /// Primaries of which there is enough for all.
    Room,
    /// Primaries that want all of it, in the shortest of steps.
    Loops,
    /// Programs that keep their helpers at work, at the pace of a card; the second fills.
    Helpers,
}

/// A figure of a card: of the program at this position.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Card {
    /// Units a second.
    PerS(usize, f64),
    /// Half of the requests took at most so long, ms.
    P50(usize, f64),
    /// 99 of 100 requests took at most so long, ms.
    P99(usize, f64),
}

use Card::{P50, P99, PerS};

/// One row.
#[derive(Debug, Serialize)]
pub struct Pair {
    /// The programs.
    pub works: &'static [Work],
    /// What they are to each other.
    pub kind: Kind,
    /// Requests where they count alike, in percent.
    pub requests: &'static [u16],
    /// What plain slicing gave on a card. Source: an H200, driver 580, PyTorch 2.11; each from one run of 1 to 4 s.
    pub card: &'static [Card],
    /// Whether it is in the short form.
    pub quick: bool,
}

const fn pair(kind: Kind, works: &'static [Work], card: &'static [Card]) -> Pair {
    Pair { works, kind, requests: &[50, 50], card, quick: false }
}

const fn mix(works: &'static [Work], requests: &'static [u16]) -> Pair {
    Pair { requests, ..pair(Kind::Peers, works, &[]) }
}

const fn quick(pair: Pair) -> Pair {
    Pair { quick: true, ..pair }
}

/// All rows.
pub const PAIRS: [Pair; 35] = [
    quick(pair(Kind::Peers, &[FLOOD, FLOOD], &[PerS(0, 282.0), PerS(1, 282.0)])),
    pair(Kind::Peers, &[BIGTRAIN, BIGTRAIN], &[PerS(0, 15.5), PerS(1, 15.5)]),
    pair(Kind::Peers, &[TRAIN, TRAIN], &[PerS(0, 44.0), PerS(1, 44.0)]),
    quick(pair(Kind::Peers, &[DECODE, DECODE], &[PerS(0, 870.0), PerS(1, 835.0)])),
    pair(Kind::Peers, &[REPLAY, REPLAY], &[PerS(0, 1_556.0), PerS(1, 1_557.0)]),
    // No figure of decoding: it had between 490 and 860 alone in that run.
    pair(Kind::Peers, &[DECODE, TRAIN], &[PerS(1, 56.0)]),
    pair(Kind::Peers, &[DECODE, FLOOD], &[PerS(0, 871.0), PerS(1, 409.0)]),
    pair(Kind::Peers, &[WAITS, FLOOD], &[PerS(0, 376.0), PerS(1, 475.0)]),
    pair(Kind::Peers, &[DECODE_SYNC, FLOOD], &[]),
    pair(Kind::Peers, &[LIGHT, LIGHT], &[PerS(0, 331.0), PerS(1, 354.0)]),
    mix(&[TRAIN, TRAIN, TRAIN], &[40, 30, 30]),
    mix(&[BIGTRAIN, TRAIN, DECODE, FLOOD], &[25, 25, 25, 25]),
    quick(pair(Kind::Online, &[SERVER, FLOOD], &[P50(0, 3.0), P99(0, 11.5), PerS(1, 527.0)])),
    pair(Kind::Online, &[SERVER, BIGTRAIN], &[P50(0, 2.9), P99(0, 11.8), PerS(1, 28.6)]),
    pair(Kind::Online, &[EAGER_SERVER, FLOOD], &[]),
    pair(Kind::Online, &[EAGER_SERVER, BIGTRAIN], &[]),
    pair(Kind::Starts, &[WAKER, FILL_5], &[]),
    pair(Kind::Starts, &[WAKER, FILL_100], &[]),
    pair(Kind::Starts, &[WAKER, FILL_1000], &[]),
    quick(pair(Kind::Pauses, &[BURSTY, FLOOD], &[PerS(0, 32.0), PerS(1, 375.0)])),
    pair(Kind::Pauses, &[BURSTY, BIGTRAIN], &[]),
    pair(Kind::Pauses, &[LOADER, FLOOD], &[PerS(0, 48.0), PerS(1, 285.0)]),
    pair(Kind::Pauses, &[LOADER, BIGTRAIN], &[]),
    pair(Kind::Pauses, &[SEEN_5, DENSE_STEPS], &[]),
    pair(Kind::Pauses, &[UNSEEN_5, DENSE_STEPS], &[]),
    pair(Kind::Pauses, &[SEEN_20, DENSE_STEPS], &[]),
    pair(Kind::Pauses, &[UNSEEN_20, DENSE_STEPS], &[]),
    pair(Kind::Pauses, &[SEEN_50, DENSE_STEPS], &[]),
    pair(Kind::Pauses, &[UNSEEN_50, DENSE_STEPS], &[]),
    pair(Kind::Room, &[STEPS, STEPS], &[]),
    pair(Kind::Room, &[STEPS_AHEAD, STEPS_AHEAD], &[]),
    quick(pair(Kind::Room, &[STEPS, STEPS_AHEAD], &[])),
    Pair {
        requests: &[25; 4],
        ..pair(Kind::Room, &[RARE_STEPS, RARE_STEPS_AHEAD, RARE_STEPS, RARE_STEPS_AHEAD], &[])
    },
    pair(Kind::Loops, &[LOOP, LOOP], &[]),
    quick(pair(Kind::Helpers, &[TICKS, DENSE_STEPS], &[])),
];

/// How many times slower programs are that the GPU bounds. Their hosts have little to do, and Weir's longest turn, 20 ms,
/// is then the card's 5 ms.
const SLOW_DENSE: f64 = 4.0;

/// The same of all others, and where a host waits for each unit: between two launches there are then 100 us and more, which a host can
/// sleep through.
const SLOW: f64 = 10.0;

impl Pair {
    /// `flood+flood`.
    pub fn name(&self) -> String {
        self.works.iter().map(|work| work.name).collect::<Vec<_>>().join("+")
    }

    /// Whether the GPU bounds all of them.
    pub fn is_dense(&self) -> bool {
        self.works.iter().all(|work| work.dense)
    }

    /// How many times longer everything takes than on the card.
    pub fn slow(&self) -> f64 {
        match self.kind {
            Kind::Helpers => 1.0,
            _ if self.is_dense() && !self.works.iter().any(|work| work.name == WAITS.name) => SLOW_DENSE,
            _ => SLOW,
        }
    }
}
