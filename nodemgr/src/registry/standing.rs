//! Who gives way to whom on a GPU, and who goes first (design 8): latency tenants before primaries, primaries before fillers.

use weir_protocol::message::Standing;

use crate::control::schema::ClassName;

/// How a neighbour stands to a tenant. `matter`: classes make a difference to the policy.
pub fn standing(matter: bool, own: ClassName, other: ClassName) -> Standing {
    use ClassName::{Filler, Latency};
    match (own, other) {
        _ if !matter || own == other => Standing::Equal,
        (Filler, _) => Standing::Better,
        (_, Filler) => Standing::Lesser,
        (Latency, _) => Standing::Later,
        (_, _) => Standing::Earlier,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ClassName::{Filler, Latency, Primary};

    #[test]
    fn latency_tenants_come_before_primaries_and_fillers_give_way_to_both() {
        assert_eq!(standing(true, Latency, Primary), Standing::Later);
        assert_eq!(standing(true, Primary, Latency), Standing::Earlier);
        for better in [Latency, Primary] {
            assert_eq!(standing(true, Filler, better), Standing::Better);
            assert_eq!(standing(true, better, Filler), Standing::Lesser);
        }
    }

    #[test]
    fn of_one_class_or_where_classes_do_not_matter_all_are_equal() {
        for own in [Latency, Primary, Filler] {
            assert_eq!(standing(true, own, own), Standing::Equal);
            assert!(
                [Latency, Primary, Filler]
                    .iter()
                    .all(|other| standing(false, own, *other) == Standing::Equal)
            );
        }
    }
}
