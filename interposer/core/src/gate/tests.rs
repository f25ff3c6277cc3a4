//! A tenant whose pages are its own, asked at moments of the tests' choice.

use super::*;
use weir_protocol::units::Bytes;

struct Tenant {
    grant: Box<GrantPage>,
    bucket: Box<BucketPage>,
    usage: Box<UsagePage>,
    gate: Gate,
}

/// A launch that wants nothing and has not waited.
const FRESH: Request = Request {
    price: Tokens(0),
    tokens: Tokens(0),
    patience: Patience::Fresh,
    closed: false,
    runs_ahead: false,
    passes: false,
    piece: Nanos(0),
    ahead: Nanos(0),
};

fn zeroed<P: zerocopy::FromZeros>() -> Box<P> {
    Box::new(P::new_zeroed())
}

fn grant(rate_percent: u32) -> Grant {
    Grant {
        rate: Rate::ppm(rate_percent * 10_000),
        fallback_rate: Rate::ppm(100_000),
        capacity: Tokens(2_000_000),
        resume_at: Tokens(1_000_000),
        memory_limit: Bytes::gib(1),
        ..Grant::default()
    }
}

impl Tenant {
    fn new(first: &Grant) -> Self {
        let tenant = Self { grant: zeroed(), bucket: zeroed(), usage: zeroed(), gate: Gate::default() };
        tenant.grant.init(first);
        tenant.bucket.init();
        tenant.ask(0, 1, false);
        tenant
    }

    fn pages(&self) -> Pages<'_> {
        Pages { grant: &self.grant, bucket: &self.bucket, usage: &self.usage, slot: &self.usage.slots[0] }
    }

    fn ask(&self, now_us: u64, tokens: i64, waited: bool) -> Verdict {
        self.ask_where(now_us, tokens, waited, false)
    }

    /// As `ask`, perhaps while a better has work.
    fn ask_where(&self, now_us: u64, tokens: i64, waited: bool, closed: bool) -> Verdict {
        let patience = if waited { Patience::Turn } else { Patience::Fresh };
        let now = Nanos(1 + now_us * 1_000);
        let tokens = Tokens(tokens);
        self.gate.ask(self.pages(), now, Request { price: tokens, tokens, patience, closed, ..FRESH })
    }

    /// Launches units of `price` in virtual time until `end_us`; returns the tokens admitted.
    fn run(&self, from_us: u64, end_us: u64, price: i64) -> i64 {
        let (mut now, mut spent, mut waited) = (from_us, 0i64, false);
        while now < end_us {
            match self.ask(now, price, waited) {
                Verdict::Admitted { .. } => {
                    spent += price;
                    waited = false;
                }
                Verdict::Wait(wait) => {
                    now += wait.at_most.0.div_ceil(1_000);
                    waited = true;
                }
            }
        }
        spent
    }
}

#[test]
fn a_backlogged_tenant_gets_its_rate_whatever_its_kernels_cost() {
    for price in [5_000, 100_000, 5_000_000] {
        let tenant = Tenant::new(&grant(30));
        let spent = tenant.run(0, 900_000, price); // the manager is not silent yet
        let share = spent as f64 / 0.9e9;
        assert!((share - 0.30).abs() < 0.01, "{price} ns kernels got {share}");
    }
}

/// Design 2: a closed gate means that the rate falls to the request.
#[test]
fn behind_a_closed_gate_the_request_is_left_and_nothing_that_was_saved() {
    let tenant = Tenant::new(&grant(90));
    tenant.ask(50_000, 1, false);
    assert!(tenant.pages().bucket.balance() > Tokens(1_500_000), "saved up");
    let (mut spent, mut longest, mut waited) = (0, 0, false);
    for now in (50_100..850_100).step_by(50) {
        let mut at_once = 0;
        while let Verdict::Admitted { tokens, .. } = tenant.ask_where(now, 20_000, waited, true) {
            (at_once, waited) = (at_once + tokens.0, false);
        }
        (spent, longest, waited) = (spent + at_once, longest.max(at_once), true);
    }
    let share = spent as f64 / 0.8e9;
    assert!((share - 0.10).abs() < 0.002, "{share}");
    assert!(longest <= CLOSED_TURN.0 + 20_000, "{longest} ns at once");
    let open = tenant.run(850_100, 950_100, 20_000) / 1_000_000;
    assert!((85..=91).contains(&open), "open again: {open} ms of 100");
}

/// A floor is for those who would starve: not on top of what was had while the gate was open.
#[test]
fn what_was_had_while_the_gate_was_open_pays_for_the_time_behind_it() {
    let tenant = Tenant::new(&Grant { fallback_rate: Rate::ppm(10_000), ..grant(90) });
    let closed_for = |from_us: u64, had_ns: u64| {
        tenant.usage.slots[0].submitted_ns.fetch_add(had_ns, Ordering::Relaxed);
        tenant.ask(from_us - 20, 1, false);
        let goes = |at: &u64| matches!(tenant.ask_where(*at, 20_000, true, true), Verdict::Admitted { .. });
        let first = (from_us..from_us + 2_000_000).step_by(500).find(goes).unwrap() - from_us;
        tenant.ask(from_us + first + 100, 1, false); // opens again
        first / 1_000
    };
    let turn_ms = CLOSED_TURN.0 as u64 / 10_000;
    let about = |ms: u64| ms - 1..ms + 2;
    assert!(about(turn_ms).contains(&closed_for(1_000, 0)), "nothing was had: a turn accrues at 1 %");
    assert!(about(turn_ms + 200).contains(&closed_for(100_000, 2_000_000)), "2 ms are 200 ms of 1 %");
    assert!(about(turn_ms + 1_000).contains(&closed_for(1_000_000, 500_000_000)), "a second at most");
}

/// Design 10, policy.primary_loss_percent: the fewer and longer a floor's pieces, the fewer switches it costs.
#[test]
fn a_floor_goes_into_gaps_at_once_and_beside_a_better_in_long_pieces() {
    let piece = Tokens(5_000_000);
    let closed = Grant { gate: GateWord::Closed, capacity: piece, resume_at: piece, ..grant(90) };
    let tenant = Tenant::new(&Grant { fallback_rate: Rate::ppm(10_000), ..closed });
    let goes = |at_us: u64, beside: bool| {
        matches!(tenant.ask_where(at_us, 100_000, true, beside), Verdict::Admitted { .. })
    };
    let first = |from_us: u64, beside: bool| (from_us..).step_by(1_000).find(|at| goes(*at, beside));
    let run = |from_us: u64, beside: bool| 1 + (0..100).take_while(|_| goes(from_us, beside)).count();
    let beside = first(1_000, true).unwrap();
    assert!((500_000..502_000).contains(&beside), "5 ms of 1 % beside a better: {beside}");
    assert_eq!(run(beside, true), 50, "and all of it at once");
    let in_a_gap = first(beside + 1_000, false).unwrap();
    assert!((549_000..555_000).contains(&in_a_gap), "half a millisecond in a gap: {in_a_gap}");
    assert_eq!(run(in_a_gap, false), 5);
    assert!(goes(in_a_gap + 300_000, false), "3 ms are saved by then");
    assert!(!goes(in_a_gap + 300_000, true), "the gap is over, and with it what was begun there");
}

#[test]
fn a_throttled_tenant_comes_in_turns() {
    let tenant = Tenant::new(&grant(10));
    while matches!(tenant.ask(100, 100_000, false), Verdict::Admitted { .. }) {}
    let early = tenant.ask(5_000, 100_000, true);
    assert!(matches!(early, Verdict::Wait(Wait { cause: Cause::Tokens, .. })), "{early:?}");
    assert!(matches!(tenant.ask(12_000, 100_000, true), Verdict::Admitted { .. }), "a turn has accrued");
}

#[test]
fn a_changed_grant_takes_effect_at_any_balance_above_zero() {
    let tenant = Tenant::new(&grant(10));
    while matches!(tenant.ask(100, 100_000, false), Verdict::Admitted { .. }) {}
    let ask = |now_us: u64| regranted(&tenant, Tokens(1), now_us);
    let Verdict::Wait(wait) = ask(101) else { panic!("the bucket is in debt") };
    assert!(wait.at_most < Nanos::from_millis(2), "only until the debt is paid: {wait:?}");
    assert!(matches!(ask(101 + wait.at_most.0 / 1_000 + 1), Verdict::Admitted { .. }));
}

#[test]
fn under_a_new_budget_one_launch_goes_at_once_as_debt_and_none_while_another_is_owed() {
    let tenant = Tenant::new(&grant(10));
    while matches!(tenant.ask(100, 100_000, false), Verdict::Admitted { .. }) {}
    let price = Tokens(200_000);
    let ask_under = |percent: u32| {
        tenant.grant.publish(&Grant { fallback_rate: Rate::ppm(percent * 10_000), ..grant(percent) });
        regranted(&tenant, price, 101)
    };
    let before = tenant.bucket.balance();
    assert!(before < Tokens(1));
    assert!(matches!(ask_under(5), Verdict::Admitted { tokens, .. } if tokens == price));
    assert_eq!(tenant.bucket.balance(), Tokens(before.0 - price.0));
    assert!(matches!(regranted(&tenant, price, 101), Verdict::Wait(_)), "one, and none behind it");
    assert!(matches!(ask_under(6), Verdict::Wait(_)), "who owes one pays first");
}

/// Asks for a launch under another grant than that of the last one.
fn regranted(tenant: &Tenant, price: Tokens, now_us: u64) -> Verdict {
    let request = Request { price, tokens: price, patience: Patience::Regranted, ..FRESH };
    tenant.gate.ask(tenant.pages(), Nanos(1 + now_us * 1_000), request)
}

#[test]
fn the_whole_gpu_is_not_metered() {
    let tenant = Tenant::new(&grant(100));
    assert!((0..1_000).all(|_| matches!(tenant.ask(1, i64::MAX / 2, false), Verdict::Admitted { .. })));
}

#[test]
fn a_silent_manager_leaves_the_tenant_its_request() {
    let tenant = Tenant::new(&grant(60));
    tenant.grant.tick();
    let lent = tenant.run(0, 900_000, 100_000) as f64 / 0.9e9;
    let alone = tenant.run(2_000_000, 4_000_000, 100_000) as f64 / 2e9;
    assert!((lent - 0.60).abs() < 0.01 && (alone - 0.10).abs() < 0.01, "{lent} then {alone}");
    assert!(tenant.gate.is_stale());
    let silence = |ms| tenant.gate.silence(tenant.pages(), Nanos::from_millis(ms));
    assert_eq!(silence(700_000).0 - silence(100_000).0, Nanos::from_secs(600).0, "it is known for how long");
    tenant.grant.tick();
    assert_eq!(silence(700_001), Nanos(0));
    tenant.grant.tick();
    tenant.ask(4_000_001, 1, false);
    assert!(!tenant.gate.is_stale(), "the manager is back");
}

#[test]
fn a_manager_that_has_not_ticked_yet_is_not_silent() {
    let tenant = Tenant::new(&grant(60));
    tenant.ask(5_000_000, 1, false);
    let late = Gate::default();
    late.ask(tenant.pages(), Nanos::from_secs(77), Request { price: Tokens(1), tokens: Tokens(1), ..FRESH });
    assert!(!late.is_stale());
}

#[test]
fn queued_work_beyond_the_cap_waits_and_an_empty_queue_never_does() {
    let tenant = Tenant::new(&Grant { in_flight_cap: Nanos::from_millis(2), ..grant(100) });
    assert!(matches!(tenant.ask(1, 50_000_000, false), Verdict::Admitted { .. }), "one unit of any size");
    let slot = tenant.pages().slot;
    slot.submitted_ns.store(3_000_000, Ordering::Relaxed);
    assert!(matches!(tenant.ask(2, 1, false), Verdict::Wait(Wait { cause: Cause::InFlight, .. })));
    slot.completed_ns.store(2_000_000, Ordering::Relaxed);
    assert!(matches!(tenant.ask(3, 1, false), Verdict::Admitted { .. }));
}

#[test]
fn what_would_not_be_done_when_somebody_is_back_goes_as_if_the_gate_was_closed() {
    let back_at = Nanos::from_millis(10);
    let tenant = Tenant::new(&Grant { back_at, ..grant(100) });
    let admitted = |now_us: u64, ahead_us: u64, price: i64, tokens: i64| {
        let ahead = Nanos::from_micros(ahead_us);
        let (price, tokens) = (Tokens(price), Tokens(tokens));
        let request = Request { price, tokens, ahead, ..FRESH };
        match tenant.gate.ask(tenant.pages(), Nanos(now_us * 1_000), request) {
            Verdict::Admitted { tokens, .. } => tokens.0,
            Verdict::Wait(_) => 0,
        }
    };
    assert_eq!(admitted(2_000, 0, 1_640_000, 9_000_000), 8_000_000, "as many as will be done");
    assert_eq!([1_640, 100].map(|ahead_us| admitted(7_000, ahead_us, 1_640_000, 1_640_000)), [0, 1_640_000]);
    assert_eq!(admitted(8_300, 1_640, 17_000, 17_000), 17_000, "a short one fits");
    let late = tenant.run(20_000, 1_020_000, 100_000) as f64 / 1e9;
    assert!((late - 0.10).abs() < 0.01, "its request, until somebody comes: {late}");
}

#[test]
fn a_standstill_lets_one_launch_pass() {
    let tenant = Tenant::new(&grant(10));
    let stands = |now_us: u64| {
        tenant.gate.stands_still(tenant.pages(), (0, 0), Nanos(0), Nanos(1), Nanos(1 + now_us * 1_000))
    };
    assert!(!stands(0) && !stands(60_000), "nothing is queued: nobody spins for us");
    tenant.pages().slot.submitted_ns.store(1_000_000, Ordering::Relaxed);
    assert!(!stands(60_001) && !stands(64_000));
    assert!(stands(66_000));
    assert!(!stands(66_001), "one launch, not a flood");
    tenant.pages().slot.completed_ns.store(500_000, Ordering::Relaxed);
    assert!(!stands(90_000), "work moves");
}

#[test]
fn work_that_stood_still_is_not_waited_for_again() {
    let tenant = Tenant::new(&grant(10));
    let stands = |now_us: u64| {
        tenant.gate.stands_still(tenant.pages(), (0, 0), Nanos(0), Nanos(1), Nanos(1 + now_us * 1_000))
    };
    let queued = &tenant.pages().slot.submitted_ns;
    queued.store(40_000_000, Ordering::Relaxed);
    assert!(!stands(0) && !stands(119_000) && stands(121_000), "three times what is outstanding");
    queued.store(41_000_000, Ordering::Relaxed);
    assert!(!stands(126_000) && stands(127_000), "one launch later: 5 ms, not 123");
    queued.store(61_000_000, Ordering::Relaxed);
    assert!(!stands(180_000) && stands(188_000), "what came since might take its time");
}

#[test]
fn work_that_stands_still_on_another_gpu_lets_a_launch_pass() {
    let tenant = Tenant::new(&grant(10));
    let stands = |now_us: u64, elsewhere: (u64, u64)| {
        tenant.gate.stands_still(tenant.pages(), elsewhere, Nanos(0), Nanos(1), Nanos(1 + now_us * 1_000))
    };
    let spins = (1_000_000, 0);
    assert!(!stands(0, spins) && !stands(4_000, spins) && stands(6_000, spins));
    assert!(!stands(30_000, (1_000_000, 1_000_000)), "it has moved");
}

#[test]
fn a_sibling_that_stands_still_lets_a_launch_pass_and_matters_less_each_time() {
    let tenant = Tenant::new(&grant(10));
    let sibling = &tenant.usage.slots[3];
    let mut now_us = 1;
    let mut next = |most_us: u64| {
        let from = now_us;
        while !tenant.gate.stands_still(tenant.pages(), (0, 0), Nanos(0), Nanos(1), Nanos(now_us * 1_000)) {
            now_us += 1_000;
            assert!(now_us - from <= most_us, "nothing passed for {most_us} us");
        }
        now_us - from
    };
    sibling.submitted_ns.store(1_000_000, Ordering::Relaxed);
    assert!(next(10_000) >= 5_000, "a collective of the sibling spins for this process");
    let waits: Vec<u64> = (0..10).map(|_| next(3_000_000)).collect();
    assert!(waits.is_sorted() && waits[9] > 1_000_000, "a sibling that nobody looks after: {waits:?}");
    sibling.completed_ns.store(500_000, Ordering::Relaxed);
    assert!(next(20_000) >= 5_000, "it goes on: from the beginning");
}

#[test]
fn the_first_launch_under_a_new_grant_has_no_patience_and_a_newcomer_s_first_one_is_as_any_other() {
    assert_eq!(Patience::under(7, 8), Patience::Regranted);
    assert_eq!((Patience::under(8, 8), Patience::under(0, 8)), (Patience::Fresh, Patience::Fresh));
}

#[test]
fn a_launch_of_any_process_of_the_tenant_waits_until_it_is_let_in() {
    let tenant = Tenant::new(&grant(50));
    let sibling = Pages { slot: &tenant.usage.slots[1], ..tenant.pages() };
    assert!(!tenant.pages().waits());
    sibling.put_off();
    sibling.put_off();
    assert!(tenant.pages().waits() && sibling.waits());
    tenant.pages().let_in();
    assert!(tenant.pages().waits(), "it is the other one's");
    sibling.let_in();
    assert!(!tenant.pages().waits());
}

#[test]
fn a_queue_that_no_program_can_have_holds_nothing_up() {
    let tenant = Tenant::new(&Grant { in_flight_cap: Nanos::from_millis(2), ..grant(100) });
    tenant.usage.slots[0].submitted_ns.store(u64::MAX, Ordering::Relaxed);
    assert!(matches!(tenant.ask(1, 1_000, false), Verdict::Admitted { .. }), "a wild write");
    tenant.usage.slots[0].submitted_ns.store(LONGEST_QUEUE.0, Ordering::Relaxed);
    assert!(matches!(tenant.ask(2, 1_000, false), Verdict::Wait(Wait { cause: Cause::InFlight, .. })));
}
