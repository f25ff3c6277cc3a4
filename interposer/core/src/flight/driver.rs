//! What marks need of the driver, the clock and the neighbours.

use weir_protocol::units::Nanos;

use crate::overlap::Weight;
use crate::price::Parts;
use crate::stall::Span;

/// The driver and the clock, as the marks need them. Events are the driver's handles, here mere numbers.
pub trait Driver {
    /// Puts an event into the stream at `place`; says whether the driver agreed.
    fn record(&mut self, event: u64, place: Place) -> bool;
    /// Lets the GPU write `value` at `address` behind the launch at hand; says whether the driver agreed.
    fn write(&mut self, address: u64, value: u64) -> bool;
    /// Has the stream of the launch at hand wait until the number at `address` is no less; says whether the driver agreed.
    fn wait(&mut self, address: u64, number: u64) -> bool;
    /// Whether an event was reached.
    fn reached(&mut self, event: u64) -> bool;
    /// Nanoseconds from one event to another, both reached; negative if they were the other way round.
    fn elapsed(&mut self, from: u64, to: u64) -> Option<f64>;
    /// The processor's clock.
    fn now(&mut self) -> Nanos;
    /// What the neighbours on the GPU have been up to.
    fn neighbours(&mut self) -> Neighbours;
    /// Whether tenants' kernels run at once (MPS) and not in turns.
    fn overlaps(&mut self) -> bool;
    /// If they do: what weighed on the GPU beside this process from one moment to another.
    fn beside(&mut self, time: (Nanos, Nanos)) -> Weight;
    /// If they do: the part of that time that belongs to this process, whose kernels have this weight.
    fn part(&mut self, weight: Weight, time: (Nanos, Nanos)) -> f64;
    /// The launches for which `charged` nanoseconds were charged on `stream` since its last mark, if they are known.
    fn launches(&mut self, stream: u64, charged: u64, parts: &mut Parts);
    /// The processor's time went to this, as far as the GPU goes.
    fn spent(&mut self, span: Span);
}

/// What the neighbours on a GPU have been up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The same number twice means that none of them had work there in between. `None`: one has work there now, or nobody can
    /// tell.
    pub quiet: Option<u64>,
    /// The same number twice means that none of them has come to an end in between. `None`: nobody can tell.
    pub ended: Option<u64>,
    /// As `quiet`, of the tenant's other processes alone.
    pub siblings: Option<u64>,
    /// One of them takes no turns, or this process takes none: parts of time slices are possible.
    pub pass: bool,
}

impl Neighbours {
    /// Whether none of them had work there since.
    pub fn were_quiet_since(&self, before: &Self) -> bool {
        self.quiet.is_some() && self.quiet == before.quiet
    }

    /// The same of the tenant's other processes.
    pub fn siblings_were_quiet_since(&self, before: &Self) -> bool {
        self.siblings.is_some() && self.siblings == before.siblings
    }

    /// Whether none of them has come to an end since: who has come is still there.
    pub fn have_stayed_since(&self, before: &Self) -> bool {
        self.ended.is_some() && self.ended == before.ended
    }
}

/// A stream as the driver's calls name it; [`Self::NOWHERE`] if nobody but its own launches may put a mark there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u64);

impl Place {
    /// A default stream (a mark in the legacy one would join all others), or a stream that is gone.
    pub const NOWHERE: Self = Self(u64::MAX);
    /// The stream of the launch at hand, whatever it is.
    pub const HERE: Self = Self(u64::MAX - 1);
}
