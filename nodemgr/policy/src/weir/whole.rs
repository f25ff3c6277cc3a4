//! Buckets and turns of latency tenants: their bursts go through whole.
//!
//! *Beside fillers*, which give way, the bucket holds the request of a long run: no debt delays a burst in their favour
//! (gpu-truths, rule 4).
//!
//! *Beside another better* time is shared by turns, and short turns stretch every burst to as long as the sum of all that are
//! under way: a batch of 26 ms in turns of 5 ms beside training takes 60 ms. Whoever has promised something therefore has turns as
//! long as its bound, in which a burst that can keep it goes through whole, and is let in before who has promised nothing
//! (`weir-core::turn`). What it takes ahead of its share is in its bucket, and no more than [`AHEAD`]: then the others'
//! share comes first again (a deferrable server: Strosnider, Lehoczky and Sha, 1995). What the others have queued when a burst comes
//! runs before it, so that they queue little.

use weir_protocol::units::{Nanos, Tokens};

use crate::grants::LONG_CAP;
use crate::pools::is_filler;
use crate::{Class, Decision, Mode, Observation, Sample};

/// A latency tenant's request is a guarantee over this long (gpu-truths, rule 4).
const LONG_RUN: Nanos = Nanos::from_secs(10);

/// What a promise may take ahead of its share: a few batches that come at once, and a tenth of what another better is
/// guaranteed of a second.
const AHEAD: Tokens = Tokens(100_000_000);

/// Longest turn: of five tenants that hold one each nobody waits so long that it takes the others for dead (`weir-core::turn`).
const LONGEST_TURN: Nanos = Nanos::from_millis(50);

/// How long the turns of a tenant are at least that shares the GPU with other betters.
pub fn turn(sample: &Sample) -> Nanos {
    match sample.slo {
        Some(slo) if sample.class == Class::Latency => slo.target.min(LONGEST_TURN),
        _ => Nanos(0),
    }
}

/// Gives latency tenants their buckets and turns; their bursts are put off for `hold`.
pub fn widen(seen: &Observation<'_>, hold: Nanos, decisions: &mut [Decision]) {
    let betters = || seen.samples.iter().filter(|sample| !is_filler(sample));
    let fillers = seen.samples.iter().any(is_filler);
    let several = seen.mode == Mode::TimeSlicing && betters().nth(1).is_some();
    let promised = several && betters().any(|sample| turn(sample) > Nanos(0));
    for (sample, Decision { grant, .. }) in seen.samples.iter().zip(decisions) {
        if promised && !is_filler(sample) {
            grant.in_flight_cap = grant.in_flight_cap.min(LONG_CAP);
        }
        if sample.class != Class::Latency || !(fillers || sample.slo.is_some()) {
            continue;
        }
        grant.hold = hold;
        let saved = if several && sample.slo.is_some() {
            grant.turn = turn(sample);
            AHEAD
        } else {
            Tokens(i64::try_from(grant.rate.over(LONG_RUN)).unwrap_or(i64::MAX))
        };
        grant.capacity = grant.capacity.max(saved);
    }
}
