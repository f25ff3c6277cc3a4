//! Who gives way to whom on a GPU, and who goes first (design 8): latency tenants before primaries, primaries before fillers. Of
//! two latency tenants that have promised something the one with the tighter bound: the other can bear its bursts in between
//! better than the reverse (deadline-monotonic order).

use weir_protocol::message::Standing;
use weir_protocol::units::Nanos;

use crate::control::schema::ClassName;

/// What a tenant's standing depends on: its class, and the bound of what it has promised.
pub type Rank = (ClassName, Option<Nanos>);

/// How a neighbour stands to a tenant. `matter`: classes make a difference to the policy.
pub fn standing(matter: bool, own: Rank, other: Rank) -> Standing {
    use ClassName::{Filler, Latency};
    match (own, other) {
        _ if !matter => Standing::Equal,
        ((Latency, Some(own)), (Latency, Some(other))) if own < other => Standing::Later,
        ((Latency, Some(own)), (Latency, Some(other))) if own > other => Standing::Earlier,
        ((own, _), (other, _)) if own == other => Standing::Equal,
        ((Filler, _), _) => Standing::Better,
        (_, (Filler, _)) => Standing::Lesser,
        ((Latency, _), _) => Standing::Later,
        _ => Standing::Earlier,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ClassName::{Filler, Latency, Primary};

    fn classes(matter: bool, own: ClassName, other: ClassName) -> Standing {
        standing(matter, (own, None), (other, None))
    }

    #[test]
    fn latency_tenants_come_before_primaries_and_fillers_give_way_to_both() {
        assert_eq!(classes(true, Latency, Primary), Standing::Later);
        assert_eq!(classes(true, Primary, Latency), Standing::Earlier);
        for better in [Latency, Primary] {
            assert_eq!(classes(true, Filler, better), Standing::Better);
            assert_eq!(classes(true, better, Filler), Standing::Lesser);
        }
    }

    #[test]
    fn of_two_latency_tenants_the_one_with_the_tighter_bound_goes_first() {
        let promised = |ms: u64| Some(Nanos::from_millis(ms));
        let stands = |own, other| standing(true, (Latency, own), (Latency, other));
        assert_eq!(stands(promised(80), promised(120)), Standing::Later);
        assert_eq!(stands(promised(120), promised(80)), Standing::Earlier);
        assert_eq!(stands(promised(80), promised(80)), Standing::Equal);
        assert_eq!(stands(promised(80), None), Standing::Equal, "who promised nothing is not late");
        let online = |class| standing(true, (class, promised(80)), (class, promised(120)));
        assert_eq!([online(Filler), online(Primary)], [Standing::Equal; 2]);
    }

    #[test]
    fn of_one_class_or_where_classes_do_not_matter_all_are_equal() {
        for own in [Latency, Primary, Filler] {
            assert_eq!(classes(true, own, own), Standing::Equal);
            assert!(
                [Latency, Primary, Filler].iter().all(|other| classes(false, own, *other) == Standing::Equal)
            );
        }
    }
}
