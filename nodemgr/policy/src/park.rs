//! Whom to park: idle tenants whose memory another one wants (design 6, gpu-truths rule 15).
//!
//! **Problem.** The memory limits on a card sum to no more than it has, so a tenant that is idle for an hour keeps another one
//! out. TensorFusion freezes whoever has been idle for long (peers, `auto_freeze.rs`); but what nobody wants is better left
//! where it is, since the first call after a park waits until all of it is back, seconds on a large card.
//!
//! **Approach.** Only under pressure: when somebody wants memory (bytes) that is not free. Then whoever has been idle for longest
//! (ns) goes first, and as few as suffice; if all of them together do not suffice, nobody goes.
//!
//! ```text
//!   may    = candidates that are no primary, idle for at least `idle_after`, by idle time, longest first
//!   chosen = the first of them whose sum is at least what is lacking, else none
//!   from the least idle on: drop whoever the others can do without
//! ```
//!
//! **Always.** A primary is never chosen, nor whoever has worked within `idle_after`; what is chosen suffices, and none of it is
//! spare; without pressure nobody is chosen.

use weir_protocol::units::{Bytes, Nanos};

use crate::Class;

/// A tenant that could be parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which: the manager's number.
    pub tenant: u64,
    /// Its class.
    pub class: Class,
    /// How long nothing of it has moved, on whichever of its GPUs moved last.
    pub idle_for: Nanos,
    /// What others may have once it is parked: its memory limit.
    pub gives: Bytes,
}

/// Who is to be parked so that `lacking` bytes become free.
pub fn choose(candidates: &[Candidate], lacking: Bytes, idle_after: Nanos) -> Vec<u64> {
    let may = |candidate: &&Candidate| {
        candidate.class != Class::Primary && candidate.idle_for >= idle_after && candidate.gives > Bytes(0)
    };
    let mut idle: Vec<&Candidate> = candidates.iter().filter(may).collect();
    idle.sort_by_key(|candidate| (std::cmp::Reverse(candidate.idle_for), candidate.tenant));
    let mut sum = 0u64;
    let mut chosen: Vec<&Candidate> = idle
        .into_iter()
        .take_while(|candidate| {
            let wanted = sum < lacking.0;
            sum = if wanted { sum.saturating_add(candidate.gives.0) } else { sum };
            wanted
        })
        .collect();
    if sum < lacking.0 {
        return Vec::new();
    }
    for at in (0..chosen.len()).rev() {
        let without = sum - chosen[at].gives.0;
        if without >= lacking.0 {
            sum = without;
            chosen.remove(at);
        }
    }
    chosen.into_iter().map(|candidate| candidate.tenant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Nanos = Nanos::from_secs(60);

    fn filler(tenant: u64, idle_s: u64, gib: u64) -> Candidate {
        Candidate { tenant, class: Class::Filler, idle_for: Nanos::from_secs(idle_s), gives: Bytes::gib(gib) }
    }

    /// design 6, gpu-truths 15: only idle tenants, only under pressure.
    #[test]
    fn whoever_has_been_idle_for_longest_goes_first_and_no_more_than_are_needed() {
        let candidates = [filler(1, 70, 4), filler(2, 600, 4), filler(3, 300, 4), filler(4, 10, 40)];
        assert_eq!(choose(&candidates, Bytes::gib(3), MINUTE), [2]);
        assert_eq!(choose(&candidates, Bytes::gib(8), MINUTE), [2, 3]);
        assert_eq!(choose(&candidates, Bytes(0), MINUTE), [0u64; 0], "nobody wants any");
    }

    /// design 6, gpu-truths 15: only idle tenants, only under pressure.
    #[test]
    fn a_small_one_stays_where_a_larger_one_suffices() {
        assert_eq!(choose(&[filler(1, 900, 1), filler(2, 300, 8)], Bytes::gib(8), MINUTE), [2]);
    }

    /// design 6, gpu-truths 15: only idle tenants, only under pressure.
    #[test]
    fn nobody_goes_where_all_of_them_would_not_suffice() {
        assert_eq!(choose(&[filler(1, 900, 1), filler(2, 300, 8)], Bytes::gib(10), MINUTE), [0u64; 0]);
    }

    #[test]
    fn a_primary_is_never_parked() {
        // gpu-truths, rule 15: never on `primary`.
        let primary = Candidate { class: Class::Primary, ..filler(1, 9_000, 40) };
        assert_eq!(choose(&[primary], Bytes::gib(1), MINUTE), [0u64; 0]);
        let latency = Candidate { class: Class::Latency, ..primary };
        assert_eq!(choose(&[latency], Bytes::gib(1), MINUTE), [1]);
    }

    proptest! {
        /// design 6, gpu-truths 15: only idle tenants, only under pressure.
        #[test]
        fn what_is_chosen_suffices_and_none_of_it_is_spare(
            rows in prop::collection::vec((0u64..200, 0u64..20, 0u8..3), 0..12),
            lacking in 0u64..60,
        ) {
            let candidates: Vec<_> = (0..).zip(&rows).map(|(tenant, (idle, gib, class))| {
                let class = [Class::Latency, Class::Primary, Class::Filler][usize::from(*class)];
                Candidate { class, ..filler(tenant, *idle, *gib) }
            }).collect();
            let chosen = choose(&candidates, Bytes::gib(lacking), MINUTE);
            let of = |tenant: &u64| candidates[usize::try_from(*tenant).unwrap()];
            let given: u64 = chosen.iter().map(|tenant| of(tenant).gives.0).sum();
            prop_assert!(chosen.is_empty() || given >= Bytes::gib(lacking).0);
            for tenant in &chosen {
                prop_assert!(of(tenant).class != Class::Primary && of(tenant).idle_for >= MINUTE);
                prop_assert!(given - of(tenant).gives.0 < Bytes::gib(lacking).0, "{tenant} was spare");
            }
            let may = candidates.iter().filter(|c| c.class != Class::Primary && c.idle_for >= MINUTE);
            let all: u64 = may.map(|candidate| candidate.gives.0).sum();
            prop_assert_eq!(chosen.is_empty(), lacking == 0 || all < Bytes::gib(lacking).0);
        }
    }
}
