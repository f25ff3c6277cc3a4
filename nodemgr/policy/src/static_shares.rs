//! `static`: fixed shares, with the unused part lent. The smallest policy, kept as the template for others.
//!
//! *Problem.* Requests are guarantees; on most GPUs most of the time somebody does not use his.
//!
//! *Approach.* Every tenant keeps its request, idle or not, so that it starts at once when it wakes. What the
//! idle ones leave, and what nobody requested, is lent to the busy ones in proportion to their requests, up to
//! their limits. A loan ends with the tick in which its owner stirs.
//!
//! ```text
//!   free   = 100 % - sum of the busy tenants' requests
//!   repeat: lend `free` to the busy tenants below their limit, by weight; cut each at its limit
//!   until nobody was cut
//!   idle tenants: their request
//! ```
//!
//! *What always holds* (each is a test over random observations): nobody gets less than its request, nobody more
//! than its limit; busy tenants together get at most the GPU (and the floor of 1 % for each that requested
//! less, so that it never starves); a busy tenant alone without a limit gets all of it.
//! Class is recorded and ignored, but for how much a filler may queue: it must not lie in the way of one that wakes.

use weir_protocol::pages::Rate;

use crate::grants::{Beside, grant};
use crate::lend::{self, Claim, FULL};
use crate::{Class, Decision, Observation, Policy};

/// The policy and its buffers.
#[derive(Default)]
pub struct StaticShares {
    decisions: Vec<Decision>,
    claims: Vec<Claim>,
    rates: Vec<u32>,
}

/// Nothing to tell: this policy's only state.
pub const STEADY: &str = "STEADY";

impl Policy for StaticShares {
    fn decide(&mut self, seen: &Observation<'_>) -> &[Decision] {
        let tenants = seen.samples;
        self.claims.clear();
        self.claims.extend(tenants.iter().map(Claim::of));
        lend::begin(&self.claims, &mut self.rates);
        lend::lend(u64::from(FULL), &self.claims, &mut self.rates, |_| true, |_| true);
        let betters = tenants.iter().any(|sample| sample.class != Class::Filler);
        self.decisions.clear();
        self.decisions.extend(tenants.iter().zip(&self.rates).map(|(sample, rate)| {
            let gives_way = sample.class == Class::Filler && betters;
            let beside = Beside { tenants: tenants.len(), gives_way, switch: seen.switch() };
            let grant = grant(Rate::ppm(*rate), sample.request, sample.memory_limit, beside);
            Decision { grant, state: STEADY }
        }));
        &self.decisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_protocol::units::{Nanos, SmShare};

    use crate::grants::FLOOR;
    use crate::lend::{is_busy as busy, ppm};
    use crate::{Mode, Sample, Signals, story};

    fn tenant(request: u16, limit: u16, idle_ms: u64) -> Sample {
        let (request, limit) = (SmShare::percent(request), SmShare::percent(limit));
        Sample { request, limit, idle_for: Nanos::from_millis(idle_ms), ..story::tenant() }
    }

    fn seen(samples: &[Sample]) -> Observation<'_> {
        Observation { now: Nanos(0), mode: Mode::TimeSlicing, signals: Signals::default(), samples }
    }

    fn rates(samples: &[Sample]) -> Vec<u32> {
        let mut policy = StaticShares::default();
        policy.decide(&seen(samples)).iter().map(|d| d.grant.rate.as_ppm() / 10_000).collect()
    }

    #[test]
    fn request_equal_to_limit_means_exactly_that_rate() {
        // design 2: a request is guaranteed, a limit never exceeded.
        assert_eq!(rates(&[tenant(60, 60, 0), tenant(30, 30, 0)]), [60, 30]);
        assert_eq!(rates(&[tenant(60, 60, 0), tenant(30, 30, 900)]), [60, 30]);
    }

    #[test]
    fn an_idle_tenants_share_is_lent_and_taken_back_in_the_tick_in_which_it_stirs() {
        // design 8: each tick unused share is lent.
        let mut tenants = [tenant(60, 100, 900), tenant(40, 100, 0)];
        assert_eq!(rates(&tenants), [60, 100]);
        tenants[0].idle_for = Nanos(0);
        assert_eq!(rates(&tenants), [60, 40]);
    }

    #[test]
    fn unused_share_goes_out_in_proportion_to_requests_up_to_the_limits() {
        // design 8: in proportion to requests, up to the limits.
        assert_eq!(rates(&[tenant(30, 100, 0), tenant(10, 100, 0)]), [75, 25]);
        assert_eq!(rates(&[tenant(30, 40, 0), tenant(10, 100, 0)]), [40, 60]);
    }

    #[test]
    fn a_filler_without_a_request_lives_on_what_is_left_and_never_starves_when_the_manager_dies() {
        // design 5 and 7: a floor of 1 %, and a fallback rate of no less.
        let tenants = [tenant(100, 100, 0), tenant(0, 100, 0)];
        assert_eq!(rates(&tenants), [100, 1]);
        let mut policy = StaticShares::default();
        let decisions = policy.decide(&seen(&tenants));
        assert_eq!(decisions[1].grant.fallback_rate, Rate::ppm(10_000));
    }

    #[test]
    fn a_tenant_alone_without_a_limit_is_not_held_back_at_all() {
        // design 8: up to the limit, and that is the whole GPU.
        let mut policy = StaticShares::default();
        let samples = [tenant(30, 100, 0)];
        assert_eq!(policy.decide(&seen(&samples))[0].grant.rate, Rate::FULL);
    }

    #[test]
    fn a_filler_queues_little_where_somebody_may_wake() {
        // design 5: 400 us of predicted work when a primary may wake, else 5 to 20 ms.
        let filler = Sample { class: Class::Filler, ..tenant(0, 100, 0) };
        let caps = |samples: &[Sample]| {
            let mut policy = StaticShares::default();
            let decisions = policy.decide(&seen(samples)).iter();
            decisions.map(|decision| decision.grant.in_flight_cap.0 / 1_000).collect::<Vec<_>>()
        };
        assert_eq!(caps(&[tenant(50, 100, 900), filler]), [20_000, 400]);
        assert_eq!(caps(&[filler, filler]), [20_000, 20_000]);
    }

    prop_compose! {
        fn any_gpu()(rows in prop::collection::vec((0u16..=1000, 0u16..=1000, 0u64..10), 1..12)) -> Vec<Sample> {
            let mut left = 1000;
            rows.into_iter().map(|(request, limit, idle)| {
                let request = request.min(left);
                left -= request;
                let (request, limit) = (SmShare::permille(request), SmShare::permille(limit.max(request)));
                Sample { request, limit, ..tenant(0, 0, idle) }
            }).collect()
        }
    }

    proptest! {
        /// design 8, `static`: unused share is lent in proportion to requests, up to the limits.
        #[test]
        fn requests_are_kept_limits_hold_and_the_gpu_is_never_granted_twice(samples in any_gpu()) {
            let mut policy = StaticShares::default();
            let decisions = policy.decide(&seen(&samples));
            prop_assert_eq!(decisions.len(), samples.len());
            let mut sum = 0;
            for (sample, Decision { grant, .. }) in samples.iter().zip(decisions) {
                prop_assert!(grant.rate >= Rate::from(sample.request) && grant.rate <= Rate::from(sample.limit));
                prop_assert!(grant.resume_at <= grant.capacity && grant.resume_at.0 > 0);
                sum += if busy(sample) { grant.rate.as_ppm() } else { 0 };
            }
            let floors = samples.iter().map(|s| ppm(s.request.max(FLOOR)) - ppm(s.request)).sum::<u32>();
            prop_assert!(sum <= Rate::FULL.as_ppm() + floors);
        }
    }
}
