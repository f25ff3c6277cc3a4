//! Two tenants whose every step may come between any two of the other's.

use super::*;
use crate::sync::relax;
use loom::sync::Arc;

#[test]
fn two_tenants_never_both_hold_the_turn() {
    never_both([Precedence::Nobodys; 2]);
}

#[test]
fn nor_do_they_where_one_goes_first() {
    never_both([Precedence::Ours, Precedence::Theirs]);
}

fn never_both(precedence: [Precedence; 2]) {
    loom::model(move || {
        let turns = Arc::new([Turn::default(), Turn::default()]);
        turns.iter().zip(1..).for_each(|(turn, tenant)| turn.init(tenant));
        let holders = Arc::new(AtomicU32::new(0));
        let take = move |me: usize, turns: &[Turn; 2], holders: &AtomicU32| {
            let (own, other) = (&turns[me], &turns[1 - me]);
            own.want(std::iter::once(other));
            let behind = || own.is_behind(other, precedence[me]);
            loop {
                if !behind() && own.step_up() {
                    if !behind() {
                        break;
                    }
                    own.step_back();
                }
                relax();
            }
            own.hold(Nanos(1));
            assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0, "both hold the turn");
            holders.fetch_sub(1, Ordering::Relaxed);
            own.end();
        };
        let thread = {
            let (turns, holders) = (turns.clone(), holders.clone());
            loom::thread::spawn(move || take(1, &turns, &holders))
        };
        take(0, &turns, &holders);
        thread.join().unwrap();
    });
}
