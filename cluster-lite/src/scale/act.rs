//! From what is wished to what is to be done: the cheapest way first, and nothing twice.

use serde::Serialize;
use weir_protocol::units::SmShare;

use super::{Seen, Wish};

/// What becomes of an instance that has finished its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It ends.
    Stop,
    /// Its memory goes to the host.
    Park,
}

/// One thing to do, in the order in which they are to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Give each instance that answers this share.
    Resize(SmShare),
    /// Let so many that drain answer again.
    Keep(u32),
    /// Bring so many back from the host.
    Unpark(u32),
    /// Start so many.
    Start(u32),
    /// Give so many no new requests; the newest first, those that are starting before those that answer.
    Drain(u32, Then),
    /// End so many that are parked.
    Forget(u32),
}

/// What to do so that there is what is wished. An instance that drains comes back for nothing, one that is parked in
/// seconds, one that is started in tens of them.
pub fn actions(seen: &Seen, wish: &Wish) -> Vec<Action> {
    let serving = seen.serving();
    let lacking = wish.instances.saturating_sub(serving);
    let kept = lacking.min(seen.draining);
    let unparked = (lacking - kept).min(seen.parked);
    let started = lacking - kept - unparked;
    let surplus = serving.saturating_sub(wish.instances);
    // Those that drain already are taken to end parked as far as that was wished for.
    let on_their_way = seen.parked - unparked + (seen.draining - kept);
    let to_park = surplus.min(wish.parked.saturating_sub(on_their_way));
    let forgotten = (seen.parked - unparked).saturating_sub(wish.parked);
    let resized = (wish.share != seen.share && seen.ready > 0).then_some(Action::Resize(wish.share));
    let counted = [
        (kept, Action::Keep(kept)),
        (unparked, Action::Unpark(unparked)),
        (started, Action::Start(started)),
        (to_park, Action::Drain(to_park, Then::Park)),
        (surplus - to_park, Action::Drain(surplus - to_park, Then::Stop)),
        (forgotten, Action::Forget(forgotten)),
    ];
    resized
        .into_iter()
        .chain(counted.into_iter().filter(|(count, _)| *count > 0).map(|(_, action)| action))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: SmShare = SmShare::percent(30);

    fn seen(ready: u32, starting: u32, draining: u32, parked: u32) -> Seen {
        Seen { ready, starting, draining, parked, share: SHARE, room: SHARE, ..Seen::default() }
    }

    fn wish(instances: u32, parked: u32) -> Wish {
        Wish { instances, parked, share: SHARE, why: "" }
    }

    #[test]
    fn nothing_is_done_when_there_is_what_is_wished() {
        assert_eq!(actions(&seen(2, 1, 0, 1), &wish(3, 1)), []);
    }

    #[test]
    fn what_drains_comes_back_before_what_is_parked_and_that_before_a_start() {
        let done = actions(&seen(1, 0, 1, 1), &wish(4, 0));
        assert_eq!(done, [Action::Keep(1), Action::Unpark(1), Action::Start(1)]);
    }

    #[test]
    fn the_last_one_is_parked_and_no_more_than_are_wished() {
        assert_eq!(
            actions(&seen(3, 0, 0, 0), &wish(0, 1)),
            [Action::Drain(1, Then::Park), Action::Drain(2, Then::Stop)]
        );
        assert_eq!(actions(&seen(1, 0, 1, 0), &wish(0, 1)), [Action::Drain(1, Then::Stop)]);
    }

    #[test]
    fn a_parked_one_that_nobody_wishes_for_ends() {
        assert_eq!(actions(&seen(0, 0, 0, 2), &wish(0, 1)), [Action::Forget(1)]);
    }
}
