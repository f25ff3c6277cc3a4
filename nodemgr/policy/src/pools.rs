//! How a GPU is divided between fillers and their betters, and the grants that follow.
//!
//! ```text
//!   fillers   their requests; of what busy betters did not request as much as the policy opens, by weight
//!   betters   their requests; what busy fillers have beyond their floors is taken from the rest, the rest is lent by request
//! ```
//!
//! In a bubble nobody but the fillers uses anything, so the two are divided each by itself. The floor of a filler that
//! requested nothing comes on top of the GPU: nobody is throttled for it.

use weir_protocol::pages::{Gate, Grant, Rate};
use weir_protocol::units::{Nanos, SmShare, Tokens};

use crate::grants::{Beside, FLOOR, SHORT_CAP, grant, piece};
use crate::lend::{self, Claim, FULL, ppm};
use crate::{Class, Decision, Observation, Sample};

/// The buffers of one GPU's division.
#[derive(Default)]
pub struct Pools {
    /// What each tenant may claim.
    pub claims: Vec<Claim>,
    /// What each gets, in millionths.
    pub rates: Vec<u32>,
    decisions: Vec<Decision>,
}

impl Pools {
    /// Claims as the budgets have them. A policy may change them before [`Self::divide`].
    pub fn begin(&mut self, seen: &Observation<'_>) {
        self.claims.clear();
        self.claims.extend(seen.samples.iter().map(Claim::of));
    }

    /// What busy betters have not requested, in millionths.
    pub fn unrequested(&self, seen: &Observation<'_>) -> u64 {
        let rows = self.claims.iter().zip(seen.samples);
        let requested = rows
            .filter(|(claim, sample)| claim.busy && !is_filler(sample))
            .map(|(claim, _)| u64::from(claim.has));
        u64::from(FULL).saturating_sub(requested.sum())
    }

    /// Divides the GPU; the fillers are opened up to `opened`. Among fillers, and among betters, those for whom `first`
    /// holds borrow first.
    pub fn divide(&mut self, seen: &Observation<'_>, opened: Opened, first: impl Fn(&Sample) -> bool) {
        let fillers = |at: usize| is_filler(&seen.samples[at]);
        let betters = |at: usize| !fillers(at);
        let best_effort = u64::from(seen.signals.best_effort_permille) * 1_000;
        let pool = match opened {
            Opened::Beside(ppm) => ppm.min(self.unrequested(seen)),
            Opened::Bubble(ppm) | Opened::BetweenBursts(ppm) => ppm,
        };
        let (claims, rates) = (&self.claims, &mut self.rates);
        lend::begin(claims, rates);
        let requested = lend::taken(claims, rates, fillers);
        let first = |at: usize| first(&seen.samples[at]);
        lend::lend(pool.min(best_effort), claims, rates, fillers, |at| fillers(at) && first(at));
        lend::lend(pool.min(best_effort), claims, rates, fillers, fillers);
        let lent = match opened {
            Opened::Beside(_) => lend::taken(claims, rates, fillers),
            Opened::BetweenBursts(_) => requested,
            Opened::Bubble(_) => 0,
        };
        let left = u64::from(FULL).saturating_sub(lent.saturating_sub(floors(claims, seen.samples)));
        lend::lend(left, claims, rates, betters, |at| betters(at) && first(at));
        lend::lend(left, claims, rates, betters, betters);
    }

    /// The decisions of the last division, for whoever asks for the same again.
    pub fn last(&self) -> &[Decision] {
        &self.decisions
    }

    /// The grants of this division. `fillers` says for each filler whether its gate is open, how much it may queue, and
    /// its state; `betters` says the state of the others.
    pub fn answer(
        &mut self,
        seen: &Observation<'_>,
        filler: impl Fn(usize) -> Opening,
        better: impl Fn(usize) -> &'static str,
    ) -> &mut [Decision] {
        self.decisions.clear();
        let switch = seen.switch();
        let beside = Beside { tenants: seen.samples.len(), gives_way: false, switch };
        let waited_for = seen.samples.iter().any(|sample| sample.class == Class::Latency);
        let piece = piece(waited_for, switch);
        for (at, (sample, rate)) in seen.samples.iter().zip(&self.rates).enumerate() {
            let granted = |request: SmShare| grant(Rate::ppm(*rate), request, sample.memory_limit, beside);
            self.decisions.push(if is_filler(sample) {
                let Opening { gate, in_flight_cap, back_at, state } = filler(at);
                let left = SmShare::permille(u16::try_from(self.claims[at].has / 1_000).unwrap_or(u16::MAX));
                let grant = Grant { gate, in_flight_cap, back_at, ..granted(sample.request.max(left)) };
                Decision { grant: if gate == Gate::Closed { in_pieces(grant, piece) } else { grant }, state }
            } else {
                Decision { grant: granted(sample.request), state: better(at) }
            });
        }
        &mut self.decisions
    }
}

/// Behind a closed gate a filler saves up for a piece.
fn in_pieces(grant: Grant, piece: Nanos) -> Grant {
    let piece = Tokens(piece.0.cast_signed());
    Grant { resume_at: grant.resume_at.max(piece), capacity: grant.capacity.max(piece), ..grant }
}

/// How much fillers get together, in millionths of the GPU, if they want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Of what busy betters did not request.
    Beside(u64),
    /// As in a bubble, although a better works: they keep off by the board until it is drained, but for their requests.
    BetweenBursts(u64),
    /// While all betters are drained. What these have been granted is not taken back for that: it holds when they wake.
    Bubble(u64),
}

/// How far a filler is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Whether more than the request holds.
    pub gate: Gate,
    /// How much it may queue.
    pub in_flight_cap: Nanos,
    /// When a better is expected back; 0: that is not known.
    pub back_at: Nanos,
    /// Why, as people see it.
    pub state: &'static str,
}

impl Opening {
    /// What is not open at all.
    pub const fn closed(state: &'static str) -> Self {
        Self { gate: Gate::Closed, ..Self::open(SHORT_CAP, state) }
    }

    /// What is open beside betters that work.
    pub const fn beside() -> Self {
        Self { gate: Gate::Lent, ..Self::open(SHORT_CAP, "BESIDE") }
    }

    /// What is open, and may queue so much.
    pub const fn open(in_flight_cap: Nanos, state: &'static str) -> Self {
        Self { gate: Gate::Open, in_flight_cap, back_at: Nanos(0), state }
    }
}

/// Whether it gives way to the others.
pub fn is_filler(sample: &Sample) -> bool {
    sample.class == Class::Filler
}

/// What busy fillers have beyond their requests only so that they never starve.
fn floors(claims: &[Claim], samples: &[Sample]) -> u64 {
    let rows = claims.iter().zip(samples).filter(|(claim, sample)| claim.busy && is_filler(sample));
    let floor =
        |claim: &Claim, sample: &Sample| claim.has.min(ppm(FLOOR)).saturating_sub(ppm(sample.request));
    rows.map(|(claim, sample)| u64::from(floor(claim, sample))).sum()
}
