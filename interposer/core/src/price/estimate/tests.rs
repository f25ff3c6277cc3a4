//! What makes a price, and how far it is known.

use super::super::bounds::WINDOW;
use super::*;

#[test]
fn the_operators_price_is_good_enough_to_go_by() {
    let estimate = Estimate::told(5_000);
    assert!(estimate.is_learnt() && !estimate.wants_bracket(false) && !estimate.wants_bracket(false));
    assert_eq!(estimate.price(), 5_000);
}

#[test]
fn a_program_may_run_ahead_of_a_guess_by_some_launches_and_is_waited_for_once() {
    let estimate = Estimate::guess(1);
    let waits = |estimate: &Estimate| {
        estimate.wants_bracket(false);
        estimate.runs_ahead()
    };
    let waited = (1..100).filter(|_| waits(&estimate)).count();
    assert_eq!((waited, estimate.launches.load(Ordering::Relaxed)), (1, 99));
    let known = Estimate::guess(1);
    known.bound(5.0, Bound::Most);
    assert_eq!((1..100).filter(|_| waits(&known)).count(), 0);
}

#[test]
fn what_has_run_for_long_is_guessed_to_take_no_less_until_it_is_seen() {
    let estimate = Estimate::guess(5_000);
    estimate.takes_at_least(20_000_000);
    estimate.takes_at_least(1_000);
    assert_eq!((estimate.price(), estimate.known()), (20_000_000, Known::Nothing));
    estimate.correct(400.0, 1.0, 1.0);
    estimate.takes_at_least(20_000_000);
    assert_eq!(estimate.price(), 400, "the first measurement replaces it");
}

#[test]
fn a_guess_wants_its_second_to_fourth_launch_measured() {
    let estimate = Estimate::guess(1);
    assert!(!estimate.wants_bracket(false), "the first launch may load code");
    assert!(Estimate::guess(1).wants_bracket(true), "on an idle stream the call says how long that took");
    for _ in 0..LEARNT {
        assert!(estimate.wants_bracket(false));
        estimate.correct(400.0, 1.0, 1.0);
    }
    assert!(estimate.is_learnt() && !estimate.wants_bracket(false));
}

#[test]
fn where_that_undoes_overlaps_three_launches_in_64_are_measured_until_they_tell() {
    let estimate = Estimate::guess(1);
    let measured: Vec<_> =
        (1..=128).filter(|_| !estimate.spares() && estimate.wants_bracket(false)).collect();
    assert_eq!(measured, [2, 3, 4, 66, 67, 68]);
    for _ in 0..LEARNT {
        estimate.correct(400.0, 1.0, 1.0);
    }
    assert!((0..128).all(|_| estimate.spares()));
}

#[test]
fn a_tenant_that_is_never_alone_pays_by_bounds_until_something_was_measured() {
    let estimate = Estimate::guess(1);
    let owed: f64 = [900.0, 400.0, 700.0].into_iter().map(|ns| estimate.bound(ns, Bound::Most)).sum();
    assert_eq!(owed, 0.0, "nobody was charged by guess");
    estimate.bound(2_000_000.0, Bound::Waited);
    assert_eq!((estimate.price(), estimate.known()), (666, Known::Bounds));
    estimate.correct(800.0, 1.0, 1.0);
    estimate.bound(5.0, Bound::Most);
    assert_eq!(estimate.price(), 800, "what was measured counts for more");
}

#[test]
fn a_collective_is_learnt_but_never_leaves_the_long_way() {
    let estimate = Estimate::told(5_000);
    estimate.set_collective(true);
    estimate.correct(400.0, 1.0, 1.0);
    assert_eq!((estimate.price(), estimate.is_learnt(), estimate.learnt_price()), (400, true, None));
    estimate.set_collective(false);
    assert_eq!(estimate.learnt_price(), Some(400), "the handle stands for another kernel now");
}

#[test]
fn a_wild_price_is_never_negative() {
    assert!(Estimate::guess(u64::MAX).price() >= 1);
    assert_eq!(Estimate::guess(0).price(), 1);
    let estimate = Estimate::guess(7);
    estimate.correct(f64::NAN, 1.0, 1.0);
    assert_eq!(estimate.price(), 7);
    estimate.correct(-5.0, 1.0, 1.0);
    assert_eq!(estimate.price(), 1);
}

#[test]
fn what_was_bounded_a_few_times_goes_the_long_way_until_it_was_often_or_a_long_time_has_passed() {
    for how in [Bound::Timed, Bound::AtOnce] {
        let often = Estimate::guess(5_000);
        for n in 1..=WINDOW {
            assert!(often.learnt_price().is_none(), "{how:?} after {n}");
            often.bound(100_000.0, how);
            often.waits_for_bounds();
        }
        assert_eq!(often.learnt_price(), Some(100_000), "{how:?}");
    }
    let overlaps = Estimate::guess(5_000);
    (0..LEARNT).for_each(|_| assert!(overlaps.bound(100_000.0, Bound::Timed) >= 0.0));
    let launches = (0..).take_while(|_| {
        overlaps.waits_for_bounds();
        overlaps.learnt_price().is_none()
    });
    assert_eq!(launches.count(), PATIENCE as usize);
    assert_eq!(overlaps.price(), 100_000);
}
