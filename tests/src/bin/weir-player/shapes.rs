//! The programs by their shapes. Source of all figures: what the same PyTorch programs did alone on an H200 (units a
//! second, percentiles of latency). Nothing here comes from what two of them did together.

use clap::ValueEnum;
use serde::Serialize;

/// The kernels, by names that the simulated GPU's configuration prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A product of two 8192 x 8192 matrices.
    Product,
    /// The same on a card that rests between bursts, whose clocks are higher.
    BurstProduct,
    /// One of a training step that the host bounds.
    Train,
    /// One of the same step with four times the data.
    BigTrain,
    /// One of a decoding step of one token.
    Decode,
    /// The same on a card that rests between requests.
    RequestDecode,
    /// Work that is waited for each time.
    Wait,
    /// A step of a program that leaves the GPU idle for most of the time.
    Step,
    /// The shortest step.
    Short,
    /// Fillers' of three lengths.
    Fill5,
    /// The same.
    Fill100,
    /// The same.
    Fill1000,
}

impl Kernel {
    /// All of them, in the order of their positions.
    pub const ALL: [Self; 12] = [
        Self::Product,
        Self::BurstProduct,
        Self::Train,
        Self::BigTrain,
        Self::Decode,
        Self::RequestDecode,
        Self::Wait,
        Self::Step,
        Self::Short,
        Self::Fill5,
        Self::Fill100,
        Self::Fill1000,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Product => "duel_product",
            Self::BurstProduct => "duel_burst_product",
            Self::Train => "duel_train",
            Self::BigTrain => "duel_bigtrain",
            Self::Decode => "duel_decode",
            Self::RequestDecode => "duel_request_decode",
            Self::Wait => "duel_wait",
            Self::Step => "duel_step",
            Self::Short => "duel_short",
            Self::Fill5 => "duel_fill_5",
            Self::Fill100 => "duel_fill_100",
            Self::Fill1000 => "duel_fill_1000",
        }
    }

    /// GPU time of one launch on the card, us.
    pub const fn time_us(self) -> f64 {
        match self {
            Self::Product => 1_640.0,      // 609 a second
            Self::BurstProduct => 1_430.0, // 53.6 bursts of six a second, 10 ms of rest each
            Self::Train => 5.05,           // 0.49 of 17.5 ms in 1,700 launches
            Self::BigTrain => 17.3,        // 34 steps a second of 1,700 launches
            Self::Decode => 3.0,           // 3,430 graphs of 96 a second
            Self::RequestDecode => 2.65,   // four graphs of 96 in 1.05 ms
            Self::Wait => 300.0,           // 3,179 a second
            Self::Step => 200.0,           // ours, as the next one: no program of the card's
            Self::Short => 10.0,
            Self::Fill5 => 5.0,
            Self::Fill100 => 100.0,
            Self::Fill1000 => 1_000.0,
        }
    }
}

/// What a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Everything, after so many units.
    Each(usize),
    /// The launch so many before, by an event, ahead of each.
    Behind(usize),
    /// Nothing.
    Never,
}

/// One unit of a program; times of a card, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What it launches.
    pub kernel: Kernel,
    /// How often.
    pub launches: u32,
    /// Whether these are one graph.
    pub graph: bool,
    /// The host's time for each launch, the call included.
    pub host_us: f64,
    /// What it waits for.
    pub waits: Waits,
    /// How long it sleeps then.
    pub pause_us: f64,
}

const fn eager(kernel: Kernel, launches: u32, host_us: f64, waits: Waits) -> Shape {
    Shape { kernel, launches, graph: false, host_us, waits, pause_us: 0.0 }
}

/// Launches of a training step, and its host's time for each, us: 57 steps a second.
const STEP: (u32, f64) = (1_700, 10.3);

/// Kernels of a decoding step, and the host's time for each, us: 860 steps a second.
const TOKEN: (u32, f64) = (96, 12.1);

/// One decoding step as a graph; the host's time is that of a replay in Python, us.
const fn graph(kernel: Kernel) -> Shape {
    Shape { graph: true, ..eager(kernel, TOKEN.0, 6.0, Waits::Each(4)) }
}

/// A step, and how long the host sleeps behind it, us.
const fn step(waits: Waits, pause_us: f64) -> Shape {
    Shape { pause_us, ..eager(Kernel::Step, 1, 1.0, waits) }
}

/// Kernels of a burst, and what they take, us.
const BURST: (u32, f64) = (50, 10_000.0);

/// A burst, its end waited for, and a pause, us.
const fn seen(pause_us: f64) -> Shape {
    Shape { pause_us, ..eager(Kernel::Step, BURST.0, 1.0, Waits::Each(1)) }
}

/// The same without a call until the next one.
const fn unseen(pause_us: f64) -> Shape {
    Shape { pause_us: BURST.1 + pause_us, ..eager(Kernel::Step, BURST.0, 1.0, Waits::Never) }
}

/// How requests are served; times of a card, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Mean time between two arrivals.
    pub gap_us: f64,
    /// Units of a request.
    pub units: u32,
    /// What each of them is.
    pub unit: Shape,
    /// The host's time after each of them, which has been waited for then; none: only the last is waited for.
    pub between_us: Option<f64>,
}

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Products, four deep
    Flood,
    /// A training step that the GPU bounds
    Bigtrain,
    /// The same with less data, which the host bounds
    Train,
    /// Decoding, twenty tokens before each wait
    Decode,
    /// Decoding, each token waited for
    DecodeSync,
    /// Decoding as graphs, four before each wait
    Replay,
    /// Six products, a wait, 10 ms of sleep
    Bursty,
    /// Six products, then 20 ms without a call
    Loader,
    /// A kernel of 300 us and a wait
    Waits,
    /// A millisecond and a half of launches, a wait, a millisecond of sleep
    Light,
    /// Requests of four graphs
    Server,
    /// Requests of eight eager steps with 0.3 ms between them
    EagerServer,
    /// A kernel of 200 us, a wait, 0.3 ms of sleep
    Steps,
    /// The same without waiting for more than the one eight before
    StepsAhead,
    /// As `steps`, with a sleep of 0.8 ms
    RareSteps,
    /// As `steps-ahead`, with a sleep of 1 ms
    RareStepsAhead,
    /// Kernels of 200 us, eight deep
    DenseSteps,
    /// Kernels of 10 us, each of which waits for the one eight before
    Loop,
    /// A kernel of 10 us and a wait
    Ticks,
    /// Requests of one kernel of 300 us
    Waker,
    /// Kernels of 5 us, 64 deep
    #[value(name = "fill-5")]
    Fill5,
    /// The same of 100 us
    #[value(name = "fill-100")]
    Fill100,
    /// The same of 1 ms
    #[value(name = "fill-1000")]
    Fill1000,
    /// Work for 10 ms, a wait, 5 ms of sleep
    #[value(name = "seen-5")]
    Seen5,
    /// The same without a call: it sleeps from its last launch on
    #[value(name = "unseen-5")]
    Unseen5,
    /// As `seen-5`, with a sleep of 20 ms
    #[value(name = "seen-20")]
    Seen20,
    /// As `unseen-5`, of 20 ms
    #[value(name = "unseen-20")]
    Unseen20,
    /// As `seen-5`, of 50 ms
    #[value(name = "seen-50")]
    Seen50,
    /// As `unseen-5`, of 50 ms
    #[value(name = "unseen-50")]
    Unseen50,
}

impl Work {
    /// One unit of it.
    pub const fn shape(self) -> Shape {
        match self {
            Self::Flood => eager(Kernel::Product, 1, 10.0, Waits::Behind(4)),
            Self::Bigtrain => eager(Kernel::BigTrain, STEP.0, STEP.1, Waits::Each(10)),
            Self::Train => eager(Kernel::Train, STEP.0, STEP.1, Waits::Each(10)),
            Self::Decode => eager(Kernel::Decode, TOKEN.0, TOKEN.1, Waits::Each(20)),
            Self::DecodeSync | Self::EagerServer => eager(Kernel::Decode, TOKEN.0, TOKEN.1, Waits::Each(1)),
            Self::Replay => graph(Kernel::Decode),
            Self::Server => graph(Kernel::RequestDecode),
            // 53.6 a second.
            Self::Bursty => {
                Shape { pause_us: 10_060.0, ..eager(Kernel::BurstProduct, 6, 10.0, Waits::Each(1)) }
            }
            // 48.7 a second: its host is late by 0.4 ms besides.
            Self::Loader => {
                Shape { pause_us: 20_470.0, ..eager(Kernel::BurstProduct, 6, 10.0, Waits::Never) }
            }
            Self::Waits | Self::Waker => eager(Kernel::Wait, 1, 1.0, Waits::Each(1)),
            Self::Steps => step(Waits::Each(1), 300.0),
            Self::StepsAhead => step(Waits::Behind(8), 500.0),
            Self::RareSteps => step(Waits::Each(1), 800.0),
            Self::RareStepsAhead => step(Waits::Behind(8), 1_000.0),
            Self::DenseSteps => step(Waits::Behind(8), 0.0),
            Self::Loop => eager(Kernel::Short, 1, 1.0, Waits::Behind(8)),
            Self::Ticks => eager(Kernel::Short, 1, 1.0, Waits::Each(1)),
            Self::Fill5 => eager(Kernel::Fill5, 1, 1.0, Waits::Behind(64)),
            Self::Fill100 => eager(Kernel::Fill100, 1, 1.0, Waits::Behind(64)),
            Self::Fill1000 => eager(Kernel::Fill1000, 1, 1.0, Waits::Behind(64)),
            Self::Seen5 => seen(5_000.0),
            Self::Unseen5 => unseen(5_000.0),
            Self::Seen20 => seen(20_000.0),
            Self::Unseen20 => unseen(20_000.0),
            Self::Seen50 => seen(50_000.0),
            Self::Unseen50 => unseen(50_000.0),
            // 387.9 a second: its host takes longer for a launch than where it never sleeps.
            Self::Light => {
                Shape { pause_us: 1_060.0, ..eager(Kernel::Decode, TOKEN.0, 15.8, Waits::Each(1)) }
            }
        }
    }

    /// Of a program that serves requests, how.
    pub const fn service(self) -> Option<Service> {
        let unit = self.shape();
        match self {
            Self::Server => Some(Service { gap_us: 8_000.0, units: 4, unit, between_us: None }),
            Self::Waker => Some(Service { gap_us: 10_000.0, units: 1, unit, between_us: None }),
            Self::EagerServer => Some(Service { gap_us: 40_000.0, units: 8, unit, between_us: Some(300.0) }),
            _ => None,
        }
    }
}
