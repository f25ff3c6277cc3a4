//! A tenant's process whose pages are its own, beside one neighbour.

use std::sync::atomic::Ordering;

use weir_protocol::pages::{BucketPage, Grant, GrantPage, Rate, Stand, UsagePage};
use zerocopy::FromZeros;

use super::*;
use crate::turn::Seen;

/// How long a process's own turn is.
const SOLO: Nanos = Nanos::from_millis(5);

struct Process {
    grant: Box<GrantPage>,
    bucket: Box<BucketPage>,
    usage: Box<UsagePage>,
    own: Box<Turn>,
    gate: Gate,
    better: Option<&'static str>,
    hold: Nanos,
    others: Vec<Other>,
    own_solo: Box<Turn>,
    siblings: Vec<Other>,
    progress: Progress,
    work: Work,
    beyond: Option<Nanos>,
}

struct Other(Box<Turn>, Seen);

impl Neighbour for Other {
    fn turn(&self) -> &Turn {
        &self.0
    }
    fn seen(&mut self) -> &mut Seen {
        &mut self.1
    }
}

impl Launching for Process {
    type Word = &'static str;
    type Neighbour = Other;
    type Sibling = Other;

    fn gate(&self) -> &Gate {
        &self.gate
    }
    fn pages(&self) -> Pages<'_> {
        Pages { grant: &self.grant, bucket: &self.bucket, usage: &self.usage, slot: &self.usage.slots[0] }
    }
    fn turn(&self) -> &Turn {
        &self.own
    }
    fn gives_way_to(&self) -> Option<&'static str> {
        self.better
    }
    fn beyond_share(&mut self, _now: Nanos) -> Option<Nanos> {
        self.beyond
    }
    fn held_back(&self, arrived: Nanos, now: Nanos) -> Option<Nanos> {
        let due = Nanos(arrived.0 + self.hold.0);
        (due > now).then(|| due.since(now))
    }
    fn is_alone(&self) -> bool {
        self.others.is_empty()
    }
    fn has_neighbours(&self) -> bool {
        !self.others.is_empty()
    }
    fn queue<R>(&mut self, ask: impl FnOnce(&Turn, &mut [Other]) -> R) -> Option<R> {
        Some(ask(&self.own, &mut self.others))
    }
    fn word(_: &Other, _: u32) -> &'static str {
        "the neighbour's turn"
    }
    fn is_busy(&self) -> bool {
        self.work.queued > 0
    }
    fn with_progress<R>(&mut self, look: impl FnOnce(&mut Progress) -> R) -> R {
        look(&mut self.progress)
    }
    fn work(&self) -> Work {
        self.work
    }
    fn turn_passed(&mut self) {}
    fn room(&self) -> Nanos {
        Nanos(0)
    }
    fn is_solo(&self) -> bool {
        !self.siblings.is_empty()
    }
    fn solo<R>(&mut self, ask: impl FnOnce(&Turn, &mut [Other]) -> R) -> Option<R> {
        (!self.siblings.is_empty()).then(|| ask(&self.own_solo, &mut self.siblings))
    }
    fn solo_turn(&self) -> Nanos {
        SOLO
    }
    fn sibling_word(_: &Other, _: u32) -> &'static str {
        "the sibling's turn"
    }
    fn solo_passed(&mut self) {}
}

fn zeroed<T: FromZeros>() -> Box<T> {
    Box::new(T::new_zeroed())
}

fn turn_of(tenant: u64) -> Box<Turn> {
    let turn: Box<Turn> = zeroed();
    turn.init(tenant);
    turn
}

/// One of 50 % beside another, whose turns are of 5 ms.
fn process() -> Process {
    let process = Process {
        grant: zeroed(),
        bucket: zeroed(),
        usage: zeroed(),
        own: turn_of(1),
        gate: Gate::default(),
        better: None,
        hold: Nanos(0),
        others: vec![Other(turn_of(2), Seen::default())],
        own_solo: turn_of(0),
        siblings: Vec::new(),
        progress: Progress::default(),
        work: Work { queued: 0, done: 0, beside: false },
        beyond: None,
    };
    process.grant.init(&Grant {
        rate: Rate::ppm(500_000),
        fallback_rate: Rate::ppm(10_000),
        capacity: Tokens(10_000_000),
        resume_at: Tokens(5_000_000),
        turn: Nanos(0),
        ..Grant::default()
    });
    process.bucket.init();
    process.bucket.refill(Nanos(1), Rate::FULL, Tokens(1)); // its clock starts
    process
}

fn one() -> Wanted {
    Wanted { price: Tokens(20_000), tokens: Tokens(100_000) }
}

fn asks(process: &mut Process, wanted: Option<Wanted>, at_ms: u64) -> Asked<&'static str> {
    let now = Nanos(1 + at_ms * 1_000_000);
    ask(process, wanted, Patience::Fresh, (now, now))
}

#[test]
fn a_burst_that_can_wait_is_put_off_before_anybody_else_is_asked_about() {
    let mut process = process();
    (process.hold, process.better) = (Nanos::from_micros(400), Some("better"));
    let Asked::Waits(held) = asks(&mut process, Some(one()), 1) else { panic!("it goes at once") };
    assert_eq!((held.at_most, held.neighbour), (Nanos::from_micros(400), None));
    process.hold = Nanos(0);
    let asked = asks(&mut process, Some(one()), 1);
    assert!(!matches!(asked, Asked::Waits(Held { neighbour: None, .. })), "{asked:?}");
}

#[test]
fn a_better_ones_work_comes_before_the_turn_and_ends_it() {
    let mut process = process();
    asks(&mut process, None, 0);
    assert!(has_turn(&process));
    process.better = Some("the better's work");
    assert!(!has_turn(&process));
    asks(&mut process, Some(one()), 1); // of what is left to it
    let Asked::Waits(held) = asks(&mut process, Some(one()), 1) else { panic!("its gate is closed") };
    assert_eq!((held.cause, held.neighbour), (Cause::Tokens, Some("the better's work")));
    assert_eq!(process.own.look().0, Stand::Away, "drained: whoever waits may go");
}

#[test]
fn a_neighbours_turn_is_waited_for_unless_the_budget_has_just_changed() {
    let mut process = process();
    let goes = asks(&mut process, Some(one()), 19);
    assert!(matches!(goes, Asked::Goes(..)), "the turn is free: {goes:?}");
    process.own.end();
    process.others[0].0.want(std::iter::empty());
    process.others[0].0.hold(Nanos::from_millis(5));
    let Asked::Waits(held) = asks(&mut process, Some(one()), 20) else { panic!("it is the other's turn") };
    assert_eq!((held.cause, held.neighbour), (Cause::Turn, Some("the neighbour's turn")));
    let generation = process.grant.generation();
    assert_eq!(held.patience_then(Patience::Fresh, generation), Patience::Fresh, "turns cost no patience");
    assert_eq!(held.patience_then(Patience::Fresh, generation + 1), Patience::Regranted);
    let mut asks_regranted = |change: fn(&mut Grant)| {
        let mut grant = process.grant.read();
        change(&mut grant);
        process.grant.publish(&grant);
        let wanted = Wanted { price: Tokens(10_000), tokens: Tokens(100_000) };
        ask(&mut process, Some(wanted), Patience::Regranted, (Nanos(1 + 20_000_000), Nanos(1 + 20_000_000)))
    };
    let lent = asks_regranted(|grant| grant.rate = Rate::ppm(700_000));
    assert!(matches!(lent, Asked::Waits(Held { cause: Cause::Turn, .. })), "the policy's loan: {lent:?}");
    let set = asks_regranted(|grant| grant.fallback_rate = Rate::ppm(20_000));
    assert_eq!(set, Asked::Goes(generation + 2, Tokens(10_000)), "one launch, and none behind it");
    let again = asks_regranted(|_| ());
    assert!(matches!(again, Asked::Waits(Held { cause: Cause::Turn, .. })), "{again:?}");
}

/// Its host's pauses would pass in its turn, while the other one's work waits.
#[test]
fn who_is_bound_by_its_host_and_beyond_its_share_waits_for_no_turn_but_for_its_share() {
    let mut process = process();
    process.others[0].0.want(std::iter::empty());
    process.others[0].0.hold(Nanos::from_millis(5));
    asks(&mut process, Some(one()), 1);
    assert!(process.own.waits());
    process.beyond = Some(Nanos::from_micros(700));
    let Asked::Waits(held) = asks(&mut process, Some(one()), 2) else { panic!("it is beyond its share") };
    assert_eq!((held.at_most, held.neighbour), (Nanos::from_micros(700), None));
    assert_eq!(process.own.look().0, Stand::Away, "no neighbour waits for it");
    let joins = ask(&mut process, Some(one()), Patience::None, (Nanos(1), Nanos(1 + 2_000_000)));
    assert!(matches!(joins, Asked::Goes(..)), "the other ranks of its gang go: {joins:?}");
    let (arrived, now) = (Nanos(1), Nanos(1 + LONGEST_WAY.0));
    ask(&mut process, Some(one()), Patience::Fresh, (arrived, now));
    assert!(process.own.waits(), "after so long it takes a turn all the same");
}

/// Who was given up would else never be waited for again, and be sliced by the driver ever after.
#[test]
fn whoever_begins_another_turn_moves_unless_its_work_outlasts_everybodys_patience() {
    let mut process = process();
    asks(&mut process, Some(one()), 20);
    let mut used_up_with = |queued: u64| {
        let (before, left) = (process.own.look(), process.own.left());
        process.own.spend(left);
        process.work.queued = queued;
        asks(&mut process, Some(one()), 21);
        let now = process.own.look();
        assert_eq!((before.0, now.0), (Stand::Holds, Stand::Holds));
        now.1 != before.1
    };
    assert!(used_up_with(0) && used_up_with(5_000_000));
    assert!(!used_up_with(50_000_000));
}

#[test]
fn no_more_is_drawn_than_is_left_of_the_turn() {
    let mut process = process();
    asks(&mut process, Some(one()), 20);
    process.own.spend(process.own.left() - 30_000);
    assert_eq!(
        asks(&mut process, Some(one()), 40),
        Asked::Goes(process.grant.generation(), Tokens(30_000)),
        "100 us were wanted, 30 are left"
    );
}

/// Whoever is let in would else find that nobody waits, launch for more than its turn, and have the other's share.
#[test]
fn whoever_passes_its_turn_on_and_has_more_to_launch_waits_behind_whom_it_lets_in_at_once() {
    let mut process = process();
    asks(&mut process, None, 20);
    process.others[0].0.want([&*process.own].into_iter());
    process.own.spend(process.own.left());
    let Asked::Waits(held) = asks(&mut process, Some(one()), 21) else { panic!("its turn is over") };
    assert_eq!((held.cause, process.own.look().0), (Cause::Turn, Stand::Wants));
    assert!(process.own.is_behind(&process.others[0].0, Default::default()));
}

/// Whoever looks at what is done need not be the launch that waits.
#[test]
fn a_launch_that_waits_for_the_next_turn_is_in_the_queue_as_the_work_of_this_one_is_seen_to_be_done() {
    let mut process = process();
    asks(&mut process, None, 20);
    process.others[0].0.want([&*process.own].into_iter());
    process.own.spend(process.own.left());
    process.work.queued = 900_000;
    assert!(matches!(asks(&mut process, Some(one()), 20), Asked::Waits(_)));
    assert_eq!(process.own.look().0, Stand::Holds, "its work runs");
    drained(&mut process, Nanos(0));
    assert_eq!((process.own.look().0, process.own.was_drained()), (Stand::Wants, false));
    assert!(process.own.is_behind(&process.others[0].0, Default::default()));
}

#[test]
fn whoever_waits_for_no_turn_is_away_once_its_work_is_seen_to_be_done() {
    let mut process = process();
    asks(&mut process, None, 20);
    process.others[0].0.want([&*process.own].into_iter());
    process.own.spend(process.own.left());
    process.work.queued = 900_000;
    asks(&mut process, Some(one()), 20);
    process.bucket.charge(Tokens(50_000_000));
    process.others[0].0.reset();
    asks(&mut process, Some(one()), 20);
    assert!(process.pages().waits() && process.own.look().0 == Stand::Holds, "it waits for tokens");
    drained(&mut process, Nanos(0));
    assert_eq!((process.own.look().0, process.own.was_drained()), (Stand::Away, true));
}

#[test]
fn whoever_has_no_tokens_passes_the_turn_on_as_its_work_ends() {
    let mut process = process();
    asks(&mut process, None, 20);
    process.bucket.charge(Tokens(50_000_000));
    process.work.queued = 900_000;
    let Asked::Waits(held) = asks(&mut process, Some(one()), 20) else { panic!("it is in debt") };
    assert_eq!((held.cause, held.at_most), (Cause::Tokens, Nanos(900_000 - LEAD.0)));
    assert_eq!(process.own.look().0, Stand::Holds, "its work runs");
    asks(&mut process, Some(one()), 21);
    assert_eq!(process.own.look().0, Stand::Away, "a millisecond later it is done, as far as one can know");
}

/// What a launch hears `at_us`, when so much is queued and so much is done: what holds it up, and for how many us.
fn hears(process: &mut Process, at_us: u64, queued_us: u64, done_us: u64) -> Option<(Cause, u64)> {
    let (queued, done) = (queued_us * 1_000, done_us * 1_000);
    process.usage.slots[0].submitted_ns.store(queued + done, Ordering::Relaxed);
    process.usage.slots[0].completed_ns.store(done, Ordering::Relaxed);
    process.work = Work { queued, done, beside: false };
    match ask(process, Some(one()), Patience::Fresh, (Nanos(1), Nanos(1 + at_us * 1_000))) {
        Asked::Waits(held) => Some((held.cause, held.at_most.0 / 1_000)),
        Asked::Goes(..) => None,
    }
}

#[test]
fn behind_a_kernel_longer_than_the_cap_a_launch_goes_as_that_is_about_to_end() {
    let mut process = process();
    process.others.clear();
    process.grant.init(&Grant { rate: Rate::FULL, in_flight_cap: Nanos(300_000), ..Grant::default() });
    assert_eq!(hears(&mut process, 0, 0, 0), None);
    assert_eq!(hears(&mut process, 0, 700, 0), Some((Cause::InFlight, 400)));
    assert_eq!(hears(&mut process, 400, 700, 0), Some((Cause::InFlight, 150)), "150 us are left of it then");
    assert_eq!(hears(&mut process, 560, 700, 0), None);
    assert_eq!(hears(&mut process, 560, 1_400, 0), Some((Cause::InFlight, 690)));
    assert_eq!(
        hears(&mut process, 1_240, 700, 700),
        Some((Cause::InFlight, 30)),
        "the second one began at 700"
    );
    assert_eq!(hears(&mut process, 1_260, 700, 700), None);
    assert_eq!(hears(&mut process, 1_260, 1_400, 700), Some((Cause::InFlight, 690)));
    assert_eq!(
        hears(&mut process, 5_000, 1_400, 700),
        Some((Cause::InFlight, 550)),
        "it lasts: no third one goes"
    );
}

/// A tenant of two processes without neighbours, which take turns: this one, and one that holds a turn of its own.
fn process_beside_a_sibling() -> Process {
    let sibling = turn_of(1);
    sibling.want(std::iter::empty());
    sibling.hold(SOLO);
    let mut process = process();
    process.others.clear();
    process.siblings = vec![Other(sibling, Seen::default())];
    process
}

#[test]
fn while_a_process_asks_for_it_the_tenants_processes_launch_in_turns() {
    let mut process = process_beside_a_sibling();
    assert!(!has_turn(&process));
    let Asked::Waits(held) = asks(&mut process, Some(one()), 1) else { panic!("it goes beside its sibling") };
    assert_eq!((held.cause, held.neighbour), (Cause::Turn, Some("the sibling's turn")));
    process.siblings[0].0.end();
    assert!(matches!(asks(&mut process, Some(one()), 2), Asked::Goes(..)));
    assert_eq!(process.own_solo.left(), SOLO.0.cast_signed() - 100_000, "what it drew");
    process.siblings[0].0.want([&*process.own_solo].into_iter());
    process.own_solo.spend(SOLO.0.cast_signed());
    process.work.queued = 1_000_000;
    let Asked::Waits(held) = asks(&mut process, Some(one()), 2) else { panic!("its turn is over") };
    assert_eq!((held.cause, held.neighbour), (Cause::Turn, None), "until its work is done");
    assert!(holds(&process.own_solo));
    process.work = Work { queued: 0, done: 1_000_000, beside: false };
    assert!(matches!(asks(&mut process, Some(one()), 3), Asked::Waits(_)));
    assert_eq!(process.own_solo.look().0, Stand::Wants);
    process.siblings.clear();
    assert!(matches!(asks(&mut process, Some(one()), 4), Asked::Goes(..)) && has_turn(&process));
}

#[test]
fn whoever_waits_for_tokens_or_for_the_tenants_turn_in_its_own_turn_shows_its_siblings_that_it_moves() {
    let mut process = process_beside_a_sibling();
    process.siblings[0].0.end();
    let number = |process: &Process| process.own_solo.number();
    assert!(matches!(asks(&mut process, Some(one()), 1), Asked::Goes(..)));
    process.bucket.charge(Tokens(1_000_000_000));
    let before = number(&process);
    assert!(matches!(asks(&mut process, Some(one()), 2), Asked::Waits(Held { cause: Cause::Tokens, .. })));
    assert!(number(&process) > before);
    process.others.push(Other(turn_of(2), Seen::default()));
    process.others[0].0.want(std::iter::empty());
    process.others[0].0.hold(Nanos::from_millis(5));
    let before = number(&process);
    let Asked::Waits(held) = asks(&mut process, Some(one()), 3) else {
        panic!("it is another tenant's turn")
    };
    assert_eq!(held.neighbour, Some("the neighbour's turn"));
    assert!(number(&process) > before);
}

#[test]
fn a_sibling_that_does_not_move_is_waited_for_no_longer_than_a_neighbour() {
    let mut process = process_beside_a_sibling();
    let arrived = Nanos(1);
    let goes = |at: &u64| {
        let asked = ask(&mut process, Some(one()), Patience::Fresh, (arrived, Nanos(1 + at * 1_000_000)));
        matches!(asked, Asked::Goes(..))
    };
    assert_eq!((0..100).find(goes), Some(21));
}
