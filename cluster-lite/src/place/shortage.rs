//! How often a latency tenant would get less than it wants: the predicted SLO violations of a GPU.
//!
//! A *stated model*, the same for all policies: each inference tenant wants its request for most of the time and its limit in
//! [`BURST`] of it, each at its own times. Requests are kept; what is nobody's request goes to the bursting ones. If that is
//! less than they want together, all of them are short. Training has no SLO and takes what is left. A language model that is cut
//! into pieces has its request as limit and is short in all its bursts.

use crate::cluster::{GpuState, Kind};

/// Part of the time in which an inference tenant wants its limit.
pub const BURST: f64 = 0.2;
/// Steps in which shares are added up, in permille.
const STEP: u32 = 25;
const STEPS: usize = 1 + 1_000 / STEP as usize;

/// A latency tenant on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Share beyond its request in a burst, in permille.
    pub more: u32,
}

/// Expected number of tenants that are short at a moment, where `spare` permille of a GPU are nobody's request.
pub fn short(spare: u32, tenants: impl IntoIterator<Item = Wants>) -> f64 {
    let tenants: Vec<_> = tenants.into_iter().filter(|tenant| tenant.more > 0).collect();
    if tenants.iter().map(|tenant| tenant.more).sum::<u32>() <= spare {
        return 0.0;
    }
    (0..tenants.len()).map(|at| BURST * beyond(spare, &tenants, at)).sum()
}

/// Chance that the others' bursts and that of `own` pass what is spare.
fn beyond(spare: u32, tenants: &[Wants], own: usize) -> f64 {
    let Some(room) = spare.checked_sub(tenants[own].more) else { return 1.0 };
    // How likely the others want so many steps more; what passes the whole GPU is not kept.
    let mut wanted = [0.0; STEPS];
    wanted[0] = 1.0;
    for (_, other) in tenants.iter().enumerate().filter(|(at, _)| *at != own) {
        let steps = (other.more.div_ceil(STEP) as usize).min(STEPS);
        for at in (0..STEPS).rev() {
            let burst = if at >= steps { wanted[at - steps] } else { 0.0 };
            wanted[at] = (1.0 - BURST) * wanted[at] + BURST * burst;
        }
    }
    let fits = (room / STEP) as usize;
    1.0 - wanted.iter().take(fits + 1).sum::<f64>()
}

/// The latency tenants of a GPU.
pub fn wants(gpu: &GpuState) -> impl Iterator<Item = Wants> + '_ {
    let latency =
        gpu.residents.iter().filter(|resident| matches!(resident.kind, Kind::Inference | Kind::Llm));
    latency.map(|resident| Wants {
        more: u32::from(resident.limit.as_permille() - resident.request.as_permille()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_short_where_all_bursts_fit_together() {
        assert_eq!(short(600, [Wants { more: 300 }, Wants { more: 300 }]), 0.0);
    }

    #[test]
    fn two_are_short_when_they_burst_at_once_and_the_spare_is_for_one() {
        let both = short(400, [Wants { more: 300 }, Wants { more: 300 }]);
        assert!((both - 2.0 * BURST * BURST).abs() < 1e-12, "{both}");
    }

    #[test]
    fn who_alone_wants_more_than_is_spare_is_short_in_each_burst() {
        assert!((short(100, [Wants { more: 300 }]) - BURST).abs() < 1e-12);
        assert_eq!(short(0, [Wants { more: 0 }]), 0.0);
    }
}
