//! Three tenants in the queue.

use super::*;

fn tenants() -> [Box<Turn>; 3] {
    std::array::from_fn(|n| {
        let turn: Box<Turn> = Box::new(zerocopy::FromZeros::new_zeroed());
        turn.init(n as u64 + 1);
        turn
    })
}

fn want(turns: &[Box<Turn>; 3], who: usize) {
    turns[who].want(turns.iter().map(|turn| &**turn));
}

fn goes(turns: &[Box<Turn>; 3], who: usize) -> bool {
    let behind = |other: &usize| turns[who].is_behind(&turns[*other], Precedence::Nobodys);
    !(0..3).filter(|other| *other != who).any(|other| behind(&other))
}

#[test]
fn turns_come_in_the_order_in_which_they_were_wanted() {
    let turns = tenants();
    [2, 0, 1].into_iter().for_each(|who| want(&turns, who));
    for who in [2, 0, 1] {
        let mut waiting = (0..3).filter(|other| turns[*other].waits());
        assert!(waiting.all(|other| goes(&turns, other) == (other == who)), "it is {who}'s turn");
        turns[who].hold(Nanos(100));
        assert!((0..3).all(|other| other == who || !goes(&turns, other)));
        assert!(turns[who].end() && !turns[who].end());
    }
}

#[test]
fn who_comes_back_stands_behind_those_who_wait_and_who_is_away_is_not_waited_for() {
    let turns = tenants();
    [0, 1].into_iter().for_each(|who| want(&turns, who));
    turns[0].hold(Nanos(100));
    turns[0].end();
    want(&turns, 0);
    assert!(goes(&turns, 1) && !goes(&turns, 0));
    turns[1].reset();
    assert!(goes(&turns, 0));
}

#[test]
fn who_passes_its_turn_on_and_has_more_to_launch_waits_behind_all_at_once() {
    let turns = tenants();
    let requeue = |who: usize| turns[who].requeue(turns.iter().map(|turn| &**turn));
    [0, 1, 2].into_iter().for_each(|who| want(&turns, who));
    assert!(!requeue(0), "it does not hold the turn");
    for who in [0, 1, 2, 0, 1] {
        assert!((0..3).all(|other| goes(&turns, other) == (other == who)), "it is {who}'s turn");
        turns[who].hold(Nanos(100));
        assert!(requeue(who) && turns[who].waits());
    }
}

#[test]
fn who_has_launched_out_of_turn_and_wants_nothing_more_is_not_waited_for() {
    let turns = tenants();
    [0, 1].into_iter().for_each(|who| want(&turns, who));
    assert!(!turns[0].drain(|| true) && !goes(&turns, 1), "another launch of its waits");
    assert!(turns[0].drain(|| false) && goes(&turns, 1));
    assert!(!turns[0].drain(|| false), "it is away");
    turns[1].hold(Nanos(100));
    assert!(
        turns[1].drain(|| true) && turns[1].was_drained(),
        "whoever holds the turn passes it on, come what may"
    );
}

/// Design 8: latency tenants come before primaries; gpu-truths, rule 8: nobody starves.
#[test]
fn whoever_takes_precedence_is_let_in_first_but_not_for_ever() {
    for first_number in [0, NUMBERS - 4] {
        let [primary, one, other] = &tenants();
        let at = first_number << STAND_BITS;
        [primary, one, other].into_iter().for_each(|turn| turn.word.store(at, Ordering::SeqCst));
        primary.want(std::iter::empty());
        let mut passed = 0;
        for latency in [one, other].into_iter().cycle() {
            latency.want([&**primary, &**one, &**other].into_iter());
            let goes = !latency.is_behind(primary, Precedence::Ours);
            assert_eq!(goes, primary.is_behind(latency, Precedence::Theirs), "both see it alike");
            if !goes {
                break;
            }
            passed += 1;
            latency.hold(Nanos(1));
            latency.end();
        }
        assert_eq!(passed, HEAD_START - 1, "then it is the primary's turn");
    }
}

#[test]
fn numbers_that_wrap_keep_their_order() {
    assert!(before(NUMBERS - 1, 0) && !before(0, NUMBERS - 1) && !before(7, 7));
    let turns = tenants();
    turns[0].word.store((NUMBERS - 1) << STAND_BITS, Ordering::SeqCst);
    want(&turns, 1);
    want(&turns, 2);
    assert!(goes(&turns, 1) && !goes(&turns, 2));
}

#[test]
fn what_is_launched_comes_out_of_what_is_left() {
    let turns = tenants();
    want(&turns, 0);
    turns[0].hold(Nanos(100));
    turns[0].spend(130);
    assert_eq!((turns[0].left(), turns[0].length()), (-30, Nanos(100)));
    turns[0].end();
    want(&turns, 0);
    turns[0].hold(Nanos(100));
    assert_eq!(turns[0].left(), 70, "what one turn took too much comes out of the next");
    turns[0].end();
    want(&turns, 0);
    turns[0].hold(Nanos(100));
    assert_eq!(turns[0].left(), 170, "and what it was cut short by is added");
    assert!(turns[0].drain(|| false));
    assert_eq!((turns[0].left(), turns[0].was_drained()), (170, true), "so is what it was drained before");
    want(&turns, 0);
    turns[0].forfeit();
    assert_eq!(turns[0].left(), 170, "it waits");
    turns[0].hold(Nanos(100));
    assert_eq!((turns[0].left(), turns[0].was_drained()), (200, false), "no more than a turn");
    turns[0].forfeit();
    assert_eq!(turns[0].left(), 0);
}
