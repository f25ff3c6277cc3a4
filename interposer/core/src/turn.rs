//! Taking turns with the neighbours: when a tenant queues up, when its turn is over, and for how long it waits for one
//! that does not move. The queue itself stands on the activity pages ([`weir_protocol::pages::Turn`]): latency tenants are let
//! in before primaries.
//!
//! A turn is an amount of predicted work, by default what accrues to the tenant in a round of some milliseconds, so that turns are
//! as long as shares are large. It only ends where somebody waits. What a turn took too much or too little counts for the next
//! (deficit round robin), and whoever owes a whole turn lets the others go first: so shares are kept whatever units of work are
//! like. A tenant that was drained gives its turn up at once; one that therefore has had less than it may is let in earlier
//! (`WantsSoon`), or programs that wait for each of their steps would lose to those that never wait. Whoever takes precedence is not cut short by those it goes before: under policy
//! `weir` its turns are as long as its bursts, and its bucket says how many may follow each other.

use weir_protocol::pages::{Precedence, SHORTEST, Stand, Turn, kept_by};
use weir_protocol::units::Nanos;

/// A neighbour that does not move is waited for so long, at least and at most; in between twice its turn.
const PATIENCE: (Nanos, Nanos) = (Nanos::from_millis(20), Nanos::from_millis(200));

/// Who launches something of which nothing is known asks to be waited for so long: only alone can it be measured, and once
/// its price is known, turns fit it.
pub const MEASURING: Nanos = PATIENCE.1;

/// How much longer than its length a turn may be in which something is launched that was never measured: the first unit in a turn has the
/// rest of the neighbour's work and a switch in it, the one behind it has not. Later turns are so much shorter.
pub const ROOM: Nanos = Nanos::from_millis(12);

/// No launch waits longer for its turn than this, whatever the neighbours say.
const LONGEST: Nanos = Nanos::from_millis(250);

/// So long before its work is done a tenant lets the next one in, whose first launches then arrive as the last ones of
/// the tenant run: to wake somebody takes about as long.
pub const LEAD: Nanos = Nanos::from_micros(150);

/// What a tenant remembers of a neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    word: u32,
    left: i64, // of its turn: it launches, however long that takes beside others who pass
    since: Nanos,
    given_up: bool,       // it did not move: not waited for until it does
    queued: (u32, Nanos), // our own number, and when it was first looked at with that
}

/// A neighbour in the queue.
pub trait Neighbour {
    /// Its word on the board.
    fn turn(&self) -> &Turn;
    /// What is remembered of it.
    fn seen(&mut self) -> &mut Seen;
    /// Which of the two goes first if both wait.
    fn precedence(&self) -> Precedence {
        Precedence::Nobodys
    }
}

/// What the tenant asks for.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long its turns are.
    pub length: Nanos,
    /// It has saved up more than a turn: it has had less than it may.
    pub saved: bool,
    /// So much more than its length a turn may take, which later ones lack: what is launched was never measured, and behind other work
    /// of its tenant it can be.
    pub beyond: Nanos,
}

/// Whether a launch may go, as far as turns are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may.
    Mine,
    /// The tenant's turn is over, once its work is done.
    Over,
    /// It has to wait for the neighbour at this position, whose word shows this.
    Behind(usize, u32),
    /// Another thread of the tenant is queueing up.
    Queueing,
}

/// Asks for a launch that has been waiting since `arrived`.
pub fn ask(own: &Turn, others: &mut [impl Neighbour], terms: Terms, arrived: Nanos, now: Nanos) -> Answer {
    if own.look().0 == Stand::Holds {
        watch(own, others, arrived, now);
        let over = is_over(own, others, terms);
        own.set_over(over);
        if over {
            return Answer::Over;
        }
        if is_used_up(own, terms) {
            own.renew(terms.length);
        }
        return Answer::Mine;
    }
    own.hear(others.iter().map(Neighbour::turn), terms.length);
    own.want(others.iter().map(Neighbour::turn));
    let waited = watch(own, others, arrived, now);
    if waited.is_none_or(|waited| waited > LONGEST) {
        own.reset();
        return Answer::Mine;
    }
    if terms.saved && own.was_drained() {
        own.want_soon();
    }
    if let Some(behind) = is_behind(own, others) {
        return behind;
    }
    if !own.step_up() {
        return Answer::Queueing;
    }
    if let Some(behind) = is_behind(own, others) {
        own.step_back();
        return behind;
    }
    own.hold(terms.length);
    if own.look().0 != Stand::Holds {
        return Answer::Queueing;
    }
    // It owes most of a turn, as a unit is longer than that: what is left is not worth a switch yet.
    let over = own.left() < Turn::worth(terms.length) && others.iter().any(|other| other.turn().waits());
    own.set_over(over);
    if over { Answer::Over } else { Answer::Mine }
}

fn is_behind(own: &Turn, others: &mut [impl Neighbour]) -> Option<Answer> {
    let mut others = others.iter_mut().enumerate();
    others.find_map(|(at, other)| {
        let behind = !other.seen().given_up && own.is_behind(other.turn(), other.precedence());
        behind.then(|| Answer::Behind(at, other.turn().look().1))
    })
}

fn is_used_up(own: &Turn, terms: Terms) -> bool {
    own.left().saturating_add_unsigned(terms.beyond.0) <= 0
}

/// Whether a turn that the tenant holds is over: it is used up and somebody waits, somebody waits who has had less than it
/// may and over whom the tenant does not take precedence, or somebody who found that we do not move has taken the turn for
/// himself.
fn is_over<N: Neighbour>(own: &Turn, others: &mut [N], terms: Terms) -> bool {
    let used = i64::try_from(own.length().0).unwrap_or(i64::MAX).saturating_sub(own.left());
    let used_up = |other: &N| match other.precedence() {
        Precedence::Theirs => own.left() <= 0, // whoever goes before us waits for no measurement
        _ => is_used_up(own, terms),
    };
    let gives = used >= SHORTEST && !terms.saved;
    others.iter_mut().any(|other| {
        let ends = match other.turn().look().0 {
            Stand::Holds => true,
            Stand::Wants => used_up(other),
            Stand::WantsSoon => used_up(other) || (gives && other.precedence() != Precedence::Ours),
            Stand::Away | Stand::Arrives | Stand::StepsUp => false,
        };
        ends && !other.seen().given_up
    })
}

/// Goes on with a turn that is used up, if all who wait owe a turn: they would pass it on at once, and the GPU would idle while two of
/// them are woken. Says whether it does.
pub fn keep(own: &Turn, others: &mut [impl Neighbour], length: Nanos) -> bool {
    let kept = kept_by(others.iter().map(Neighbour::turn).chain([own]));
    let keeps = own.left() <= 0
        && own.look().0 == Stand::Holds
        && others.iter_mut().all(|other| match other.turn().look().0 {
            Stand::Away => true,
            Stand::Wants | Stand::WantsSoon => other.turn().owes(kept),
            Stand::Arrives | Stand::StepsUp | Stand::Holds => other.seen().given_up,
        });
    if keeps {
        own.keep(length);
        own.draw_again();
    }
    keeps
}

/// Notes which neighbours move, and gives those up that should and do not. Only time counts since the launch `arrived`, and
/// since the tenant queued up: before, nobody had a reason to move. A launch may have waited for tokens all that while, and its
/// tenant was away. Returns how long it has waited for its turn; `None`: there are no neighbours.
fn watch(own: &Turn, others: &mut [impl Neighbour], arrived: Nanos, now: Nanos) -> Option<Nanos> {
    let own_holds = own.look().0 == Stand::Holds;
    let mut moved = arrived; // anybody
    let mut queued = arrived;
    for other in &mut *others {
        let (word, left) = (other.turn().look().1, other.turn().left());
        let seen = other.seen();
        if seen.queued.0 != own.number() {
            seen.queued = (own.number(), now);
        }
        if (seen.word, seen.left) != (word, left) {
            *seen = Seen { word, left, since: now, given_up: false, ..*seen };
        }
        queued = queued.max(seen.queued.1);
        moved = moved.max(seen.since);
    }
    moved = moved.max(queued);
    for other in &mut *others {
        let (stand, patience) = (other.turn().look().0, patience(other.turn()));
        let seen = other.seen();
        // Who waits has no reason to move while others do.
        let still = match stand {
            Stand::Away => continue,
            Stand::Holds => now.since(seen.since.max(queued)),
            _ if own_holds => continue, // it waits for us
            _ => now.since(moved),
        };
        seen.given_up |= still > patience;
    }
    (!others.is_empty()).then(|| now.since(queued))
}

/// For how long whoever holds this turn is waited for though it does not move.
pub fn patience(turn: &Turn) -> Nanos {
    Nanos(turn.length().0.saturating_mul(2)).max(turn.asks()).clamp(PATIENCE.0, PATIENCE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A neighbour, as one of the tenants sees it.
    struct Other<'a>(&'a Turn, Seen);

    impl Neighbour for Other<'_> {
        fn turn(&self) -> &Turn {
            self.0
        }
        fn seen(&mut self) -> &mut Seen {
            &mut self.1
        }
    }

    const TERMS: Terms = Terms { length: Nanos::from_millis(5), saved: false, beyond: Nanos(0) };
    const SAVED: Terms = Terms { saved: true, ..TERMS };

    fn turns() -> [Box<Turn>; 2] {
        std::array::from_fn(|n| {
            let turn: Box<Turn> = Box::new(zerocopy::FromZeros::new_zeroed());
            turn.init(n as u64 + 1);
            turn
        })
    }

    fn ms(ms: u64) -> Nanos {
        Nanos(1 + ms * 1_000_000)
    }

    #[test]
    fn who_is_alone_needs_no_turn() {
        let [own, _] = turns();
        assert_eq!(ask(&own, &mut [] as &mut [Other<'_>], TERMS, ms(0), ms(0)), Answer::Mine);
        assert_eq!(own.look().0, Stand::Away);
    }

    #[test]
    fn a_turn_ends_only_where_somebody_waits() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(0)), Answer::Mine);
        one.spend(9_000_000);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(9)), Answer::Mine);
        one.spend(5_000_000);
        assert!(matches!(ask(&two, &mut of_two, TERMS, ms(9), ms(9)), Answer::Behind(0, _)));
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(9)), Answer::Over);
        one.end();
        assert_eq!(ask(&two, &mut of_two, TERMS, ms(9), ms(9)), Answer::Mine);
        assert!(matches!(ask(&one, &mut of_one, TERMS, ms(9), ms(9)), Answer::Behind(0, _)));
        two.spend(4_999_999);
        assert_eq!(ask(&two, &mut of_two, TERMS, ms(9), ms(13)), Answer::Mine, "a nanosecond is left");
    }

    #[test]
    fn what_was_never_measured_may_take_a_turn_beyond_its_length_and_later_ones_lack_it() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        let measuring = Terms { beyond: Nanos::from_millis(10), ..TERMS };
        assert_eq!(ask(&one, &mut of_one, measuring, ms(0), ms(0)), Answer::Mine);
        assert!(matches!(ask(&two, &mut of_two, TERMS, ms(0), ms(0)), Answer::Behind(0, _)));
        one.spend(14_000_000);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(14)), Answer::Over);
        assert_eq!(ask(&one, &mut of_one, measuring, ms(0), ms(14)), Answer::Mine);
        one.spend(1_000_000);
        assert_eq!(ask(&one, &mut of_one, measuring, ms(0), ms(15)), Answer::Over);
        assert_eq!(one.left(), -10_000_000);
    }

    /// Its last turn ended as it had nothing to launch.
    fn was_drained(turn: &Turn) {
        turn.want(std::iter::empty());
        turn.hold(Nanos(0));
        turn.drain(|| false);
    }

    #[test]
    fn whoever_owes_a_turn_lets_the_others_go_first() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(0)), Answer::Mine);
        one.spend(12_000_000);
        let mut owes = Vec::new();
        for at in 1..4 {
            assert!(matches!(ask(&two, &mut of_two, TERMS, ms(at), ms(at)), Answer::Behind(0, _)));
            assert_eq!(ask(&one, &mut of_one, TERMS, ms(at), ms(at)), Answer::Over);
            owes.push(one.left() / 1_000_000);
            one.end();
            one.want([&*two].into_iter());
            assert_eq!(ask(&two, &mut of_two, TERMS, ms(at), ms(at)), Answer::Mine);
            two.end();
            if at == 2 {
                assert_eq!(ask(&one, &mut of_one, TERMS, ms(at), ms(at)), Answer::Mine, "3 ms are left");
                break;
            }
        }
        assert_eq!((owes, one.left()), (vec![-7, -2], 3_000_000));
        one.spend(20_000_000);
        two.end();
        one.end();
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(5), ms(5)), Answer::Mine, "nobody waits");
    }

    #[test]
    fn a_turn_is_kept_while_all_who_wait_would_pass_it_on_and_counts_as_theirs() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(0)), Answer::Mine);
        one.spend(18_000_000);
        assert!(matches!(ask(&two, &mut of_two, TERMS, ms(0), ms(0)), Answer::Behind(0, _)));
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(13)), Answer::Over);
        one.end();
        assert!(matches!(ask(&two, &mut of_two, TERMS, ms(0), ms(13)), Answer::Mine));
        let mut at = 13;
        let mut waits = |at| {
            assert!(matches!(ask(&one, &mut of_one, TERMS, ms(13), ms(at)), Answer::Behind(0, _)));
            one.left() / 1_000_000
        };
        assert_eq!(waits(at), -13);
        for owed in [-8, -3] {
            two.spend(6_000_000);
            at += 6;
            assert_eq!(ask(&two, &mut of_two, TERMS, ms(13), ms(at)), Answer::Over);
            assert!(keep(&two, &mut of_two, TERMS.length), "it owes: {owed}");
            assert_eq!(ask(&two, &mut of_two, TERMS, ms(13), ms(at)), Answer::Mine);
            assert_eq!((waits(at), waits(at)), (owed, owed), "one turn it has had");
        }
        assert_eq!(two.left(), 3_000_000, "what it took too much counts");
        two.spend(3_000_000);
        assert_eq!(ask(&two, &mut of_two, TERMS, ms(13), ms(at)), Answer::Over);
        assert!(!keep(&two, &mut of_two, TERMS.length), "it would go");
    }

    #[test]
    fn whoever_waits_for_this_tenant_is_not_given_up_for_standing_still() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(0)), Answer::Mine);
        assert!(matches!(ask(&two, &mut of_two, TERMS, ms(0), ms(0)), Answer::Behind(0, _)));
        for at in 1..200 {
            assert_eq!(
                ask(&one, &mut of_one, TERMS, ms(0), ms(at)),
                Answer::Mine,
                "it does not use it up: {at}"
            );
        }
        one.spend(5_000_000);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(200)), Answer::Over);
    }

    #[test]
    fn who_has_had_less_than_it_may_is_let_in_early_but_not_at_once() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        was_drained(&two);
        ask(&one, &mut of_one, TERMS, ms(0), ms(0));
        ask(&two, &mut of_two, SAVED, ms(0), ms(0));
        one.spend(SHORTEST - 1);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(1)), Answer::Mine);
        one.spend(1);
        assert_eq!(ask(&one, &mut of_one, SAVED, ms(0), ms(1)), Answer::Mine, "so has this one");
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(1)), Answer::Over);
    }

    #[test]
    fn whoever_never_lacks_work_waits_for_the_end_of_a_turn_however_much_it_has_saved() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        ask(&one, &mut of_one, TERMS, ms(0), ms(0));
        ask(&two, &mut of_two, SAVED, ms(0), ms(0));
        one.spend(4_999_999);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(1)), Answer::Mine);
    }

    #[test]
    fn who_takes_precedence_is_not_cut_short_by_those_it_goes_before() {
        let [latency, primary] = turns();
        let mut of_latency = [Ranked(&primary, Seen::default(), Precedence::Ours)];
        let mut of_primary = [Ranked(&latency, Seen::default(), Precedence::Theirs)];
        ask(&latency, &mut of_latency, TERMS, ms(0), ms(0));
        ask(&primary, &mut of_primary, SAVED, ms(0), ms(0));
        latency.spend(4_999_999);
        assert_eq!(ask(&latency, &mut of_latency, TERMS, ms(0), ms(5)), Answer::Mine);
        latency.spend(1);
        assert_eq!(ask(&latency, &mut of_latency, TERMS, ms(0), ms(5)), Answer::Over, "used up");
        latency.drain(|| false);
        ask(&primary, &mut of_primary, TERMS, ms(5), ms(5));
        ask(&latency, &mut of_latency, SAVED, ms(5), ms(5));
        primary.spend(SHORTEST);
        assert_eq!(ask(&primary, &mut of_primary, TERMS, ms(5), ms(6)), Answer::Over, "the reverse");
    }

    /// A neighbour that goes first, or after the tenant.
    struct Ranked<'a>(&'a Turn, Seen, Precedence);

    impl Neighbour for Ranked<'_> {
        fn turn(&self) -> &Turn {
            self.0
        }
        fn seen(&mut self) -> &mut Seen {
            &mut self.1
        }
        fn precedence(&self) -> Precedence {
            self.2
        }
    }

    /// Design 8: latency tenants come before primaries.
    #[test]
    fn a_latency_tenant_that_comes_later_has_the_next_turn() {
        let [holds, primary] = turns();
        let latency: Box<Turn> = Box::new(zerocopy::FromZeros::new_zeroed());
        latency.init(3);
        let mut of_primary = [
            Ranked(&holds, Seen::default(), Precedence::Nobodys),
            Ranked(&latency, Seen::default(), Precedence::Theirs),
        ];
        let mut of_latency = [
            Ranked(&holds, Seen::default(), Precedence::Ours),
            Ranked(&primary, Seen::default(), Precedence::Ours),
        ];
        holds.want(std::iter::empty());
        holds.hold(Nanos::from_millis(5));
        assert!(matches!(ask(&primary, &mut of_primary, TERMS, ms(0), ms(0)), Answer::Behind(0, _)));
        assert!(matches!(ask(&latency, &mut of_latency, TERMS, ms(1), ms(1)), Answer::Behind(0, _)));
        holds.end();
        assert!(matches!(ask(&primary, &mut of_primary, TERMS, ms(0), ms(2)), Answer::Behind(1, _)));
        assert_eq!(ask(&latency, &mut of_latency, TERMS, ms(1), ms(2)), Answer::Mine);
        latency.end();
        assert_eq!(ask(&primary, &mut of_primary, TERMS, ms(0), ms(3)), Answer::Mine);
    }

    #[test]
    fn a_neighbour_that_does_not_move_is_given_up_until_it_does() {
        let [one, dead] = turns();
        ask(&dead, &mut [Other(&one, Seen::default())], TERMS, ms(0), ms(0));
        let mut others = [Other(&dead, Seen::default())];
        let mut first = |arrived: u64| {
            let goes = |at: &u64| ask(&one, &mut others, TERMS, ms(arrived), ms(*at)) == Answer::Mine;
            let at = (arrived..arrived + 300).find(goes);
            one.end();
            at
        };
        assert_eq!((first(1_000), first(2_000)), (Some(1_021), Some(2_000)));
        dead.end();
        ask(&dead, &mut [Other(&one, Seen::default())], TERMS, ms(0), ms(0));
        assert_eq!(first(3_000), Some(3_021), "it lives, or somebody else in its place");
    }

    #[test]
    fn who_was_away_for_want_of_tokens_has_not_waited_for_anybody() {
        let [one, poor] = turns();
        let (mut of_one, mut of_poor) = ([Other(&poor, Seen::default())], [Other(&one, Seen::default())]);
        assert_eq!(ask(&poor, &mut of_poor, TERMS, ms(0), ms(0)), Answer::Mine);
        poor.end(); // it has no tokens left, and the next launch has arrived
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(0)), Answer::Mine);
        for at in (0..1_000).step_by(4) {
            one.spend(4_000_000);
            assert_eq!(ask(&one, &mut of_one, TERMS, ms(at), ms(at)), Answer::Mine, "nobody waits: {at}");
        }
        let asks = |at: &u64| ask(&poor, &mut of_poor, TERMS, ms(0), ms(*at)) == Answer::Mine;
        assert_eq!((1_000..2_000).find(asks), Some(1_021), "tokens, and somebody who holds the turn rightly");
    }

    #[test]
    fn who_measures_something_new_is_waited_for_longer() {
        let [one, new] = turns();
        let mut others = [Other(&new, Seen::default())];
        let waited = |others: &mut [Other<'_>; 1], from: u64| {
            (0..300).find(|at| ask(&one, others, TERMS, ms(from), ms(from + at)) == Answer::Mine)
        };
        ask(&new, &mut [Other(&one, Seen::default())], TERMS, ms(0), ms(0));
        new.ask_for(MEASURING);
        assert_eq!(waited(&mut others, 1_000), Some(201));
        one.end();
        new.end();
        ask(&new, &mut [Other(&one, Seen::default())], TERMS, ms(0), ms(0));
        assert_eq!(waited(&mut others, 2_000), Some(21), "the next turn is as any other");
    }

    /// Beside others who pass a turn takes as long again as its work.
    #[test]
    fn who_launches_in_its_turn_is_waited_for_however_long_that_takes() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(0)), Answer::Mine);
        for at in (0..60).step_by(15) {
            assert!(matches!(ask(&two, &mut of_two, TERMS, ms(0), ms(at)), Answer::Behind(0, _)), "{at} ms");
            one.spend(1_000_000);
        }
        let taken = (46..100).find(|at| ask(&two, &mut of_two, TERMS, ms(0), ms(*at)) == Answer::Mine);
        assert_eq!(taken, Some(67), "it was stopped");
    }

    #[test]
    fn who_was_given_up_and_goes_on_gives_way() {
        let [one, two] = turns();
        let (mut of_one, mut of_two) = ([Other(&two, Seen::default())], [Other(&one, Seen::default())]);
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(0)), Answer::Mine);
        let taken = (0..100).find(|at| ask(&two, &mut of_two, TERMS, ms(0), ms(*at)) == Answer::Mine);
        assert_eq!(taken, Some(21), "it was stopped");
        assert_eq!(ask(&one, &mut of_one, TERMS, ms(0), ms(22)), Answer::Over);
        assert_eq!(ask(&two, &mut of_two, TERMS, ms(0), ms(22)), Answer::Mine);
        one.end();
        assert!(matches!(ask(&one, &mut of_one, TERMS, ms(22), ms(23)), Answer::Behind(0, _)));
    }

    #[test]
    fn who_waits_for_many_others_is_not_given_up() {
        let [one, two] = turns();
        let third: Box<Turn> = Box::new(zerocopy::FromZeros::new_zeroed());
        third.init(3);
        two.want(std::iter::empty());
        third.want([&*two].into_iter());
        third.hold(Nanos::from_millis(5));
        let mut others = [Other(&two, Seen::default()), Other(&third, Seen::default())];
        for at in 0..200 {
            if at % 10 == 0 {
                third.end();
                third.want([&*two].into_iter());
                third.hold(Nanos::from_millis(5));
            }
            assert!(matches!(ask(&one, &mut others, TERMS, ms(0), ms(at)), Answer::Behind(0, _)), "{at}");
        }
    }

    #[test]
    fn a_neighbour_that_lies_costs_a_launch_a_quarter_of_a_second_at_most() {
        let [one, liar] = turns();
        let mut others = [Other(&liar, Seen::default())];
        let goes = |at: &u64| {
            liar.end();
            liar.want(std::iter::empty());
            liar.hold(Nanos(*at)); // ever again, in front of everybody
            ask(&one, &mut others, TERMS, ms(0), ms(*at)) == Answer::Mine
        };
        assert_eq!((0..).find(goes), Some(251));
    }

    #[test]
    fn a_neighbour_whose_page_is_nonsense_costs_a_launch_no_more() {
        for byte in 0..=u8::MAX {
            let page = [byte; size_of::<Turn>()];
            let Ok(nonsense) = <Turn as zerocopy::FromBytes>::read_from_bytes(&page) else {
                panic!("{byte}")
            };
            let [one, _] = turns();
            let mut others = [Other(&nonsense, Seen::default())];
            let mut asks = |arrived, at| ask(&one, &mut others, TERMS, ms(arrived), ms(at));
            assert!((0..=251).any(|at| asks(0, at) == Answer::Mine), "a page of {byte:#x}");
            one.spend(TERMS.length.0.cast_signed());
            let after = asks(252, 252);
            assert!(matches!(after, Answer::Mine | Answer::Over), "a page of {byte:#x}: {after:?}");
        }
    }
}
