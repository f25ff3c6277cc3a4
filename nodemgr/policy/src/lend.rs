//! Lending: who keeps what, and how what is left goes out.
//!
//! ```text
//!   free   = the pool - what the busy ones have
//!   repeat: lend `free` to those who may take and are below their limit, by weight; cut each at its limit
//!   until nobody was cut
//! ```

use weir_protocol::pages::Rate;
use weir_protocol::units::{Nanos, SmShare};

use crate::Sample;
use crate::grants::FLOOR;

/// A tenant that has not moved for so long is idle: longer than the gap between two launches of a program that
/// works, far shorter than a person notices.
pub const IDLE_AFTER: Nanos = Nanos::from_millis(5);

/// The whole GPU, in millionths.
pub const FULL: u32 = Rate::FULL.as_ppm();

/// What a tenant may have, in millionths.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// What it has in any case: its request, or the floor.
    pub has: u32,
    /// Its limit.
    pub most: u32,
    /// A tenant that requested nothing still takes part in loans.
    pub weight: u64,
    /// Whether it uses what it has.
    pub busy: bool,
}

impl Claim {
    /// What `sample` may claim.
    pub fn of(sample: &Sample) -> Self {
        let weight = sample.request.max(FLOOR);
        Self {
            has: ppm(weight.min(sample.limit)),
            most: ppm(sample.limit),
            weight: u64::from(ppm(weight)),
            busy: is_busy(sample),
        }
    }
}

/// Whether the tenant uses its share.
pub fn is_busy(sample: &Sample) -> bool {
    sample.idle_for < IDLE_AFTER
}

/// A share in millionths.
pub fn ppm(share: SmShare) -> u32 {
    Rate::from(share).as_ppm()
}

/// Gives everybody what it has in any case.
pub fn begin(claims: &[Claim], rates: &mut Vec<u32>) {
    rates.clear();
    rates.extend(claims.iter().map(|claim| claim.has));
}

/// Lends what is free of `pool` to the busy ones for whom `takes` holds, after what those have for whom `counts` holds.
pub fn lend(
    pool: u64,
    claims: &[Claim],
    rates: &mut [u32],
    counts: impl Fn(usize) -> bool,
    takes: impl Fn(usize) -> bool,
) {
    // Each round lends all that is free or brings somebody to its limit, so there are at most as many as tenants.
    for _ in claims {
        let free = pool.saturating_sub(taken(claims, rates, &counts));
        if !lend_once(free, claims, rates, &takes) {
            break;
        }
    }
}

/// What the busy ones have together, of those for whom `counts` holds.
pub fn taken(claims: &[Claim], rates: &[u32], counts: impl Fn(usize) -> bool) -> u64 {
    let rows = claims.iter().zip(rates).enumerate();
    rows.filter(|(at, (claim, _))| claim.busy && counts(*at)).map(|(_, (_, rate))| u64::from(*rate)).sum()
}

/// Lends what is free by weight and says whether a limit left some of it over.
fn lend_once(free: u64, claims: &[Claim], rates: &mut [u32], takes: impl Fn(usize) -> bool) -> bool {
    let takes = |at: usize, claim: &Claim, rate: u32| claim.busy && rate < claim.most && takes(at);
    let rows = claims.iter().zip(&*rates).enumerate();
    let weights: u64 = rows
        .filter(|(at, (claim, rate))| takes(*at, claim, **rate))
        .map(|(_, (claim, _))| claim.weight)
        .sum();
    if free == 0 || weights == 0 {
        return false;
    }
    let mut cut = false;
    for (at, (claim, rate)) in claims.iter().zip(rates).enumerate() {
        if takes(at, claim, *rate) {
            let loan = u32::try_from(free * claim.weight / weights).unwrap_or(u32::MAX);
            let wanted = rate.saturating_add(loan);
            cut |= wanted > claim.most;
            *rate = wanted.min(claim.most);
        }
    }
    cut
}
