//! What holds of every policy, whatever arrives: a small world carries out what it wishes.

use proptest::prelude::*;
use weir_protocol::units::{Nanos, SmShare, Tokens};

use super::{Action, Row, Rules, SCALERS, Scaler, Seen, Service, Speed, Wish, actions, scaler};

fn service(floor: u32, ceiling: u32, parks: bool) -> Service {
    Service {
        floor,
        ceiling,
        shares: [SmShare::percent(10), SmShare::percent(60)],
        request: SmShare::percent(30),
        batch: 8,
        batch_slope: 0.1,
        speed: Speed::proportional(),
        mean_work: Tokens(50_000_000),
        patience: Nanos::from_secs(1),
        cold_start: Nanos::from_secs(23),
        unpark: parks.then_some(Nanos::from_secs(2)),
    }
}

/// Instances as counts, each start with its end.
struct World {
    policy: Box<dyn Scaler>,
    service: Service,
    now: u64,
    ready: u32,
    starting: Vec<u64>,
    parked: u32,
    share: SmShare,
    queued: f64, // in requests
}

impl World {
    fn new(row: &Row, service: Service) -> Self {
        let policy = (row.build)(&Rules::default());
        let share = service.request;
        Self { policy, service, now: 0, ready: 0, starting: Vec::new(), parked: 0, share, queued: 0.0 }
    }

    /// One second in which so many requests come.
    fn second(&mut self, arrived: u16) -> Wish {
        self.now += 1;
        let before = self.starting.len();
        self.starting.retain(|at| *at > self.now);
        self.ready += u32::try_from(before - self.starting.len()).unwrap();
        let done = f64::from(self.ready) * self.service.capacity(self.share) / 0.05;
        self.queued = (self.queued + f64::from(arrived) - done).max(0.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousand requests")]
        let queued = self.queued as u64;
        let seen = Seen {
            now: Nanos::from_secs(self.now),
            arrived: arrived.into(),
            queued,
            running: u64::from(self.ready > 0 && arrived > 0),
            ready: self.ready,
            starting: u32::try_from(self.starting.len()).unwrap(),
            parked: self.parked,
            share: self.share,
            room: SmShare::percent(60),
            ..Seen::default()
        };
        let wish = self.policy.wish(&self.service, &seen);
        for action in actions(&seen, &wish) {
            self.carry_out(action);
        }
        wish
    }

    fn seconds(&mut self, count: usize, arrived: u16) {
        for _ in 0..count {
            self.second(arrived);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Resize(share) => self.share = share,
            Action::Start(count) => self.starting.extend((0..count).map(|_| self.now + 23)),
            Action::Unpark(count) => {
                self.parked -= count;
                self.starting.extend((0..count).map(|_| self.now + 2));
            }
            Action::Drain(count, then) => {
                let cancelled = count.min(u32::try_from(self.starting.len()).unwrap());
                self.starting.truncate(self.starting.len() - usize::try_from(cancelled).unwrap());
                self.ready -= count - cancelled;
                self.parked += if then == super::Then::Park { count } else { 0 };
            }
            Action::Forget(count) => self.parked -= count,
            Action::Keep(_) => unreachable!("nothing drains for longer than it takes"),
        }
    }

    fn serving(&self) -> u32 {
        self.ready + u32::try_from(self.starting.len()).unwrap()
    }
}

/// Silence, a trickle, or a rush, for a while each.
fn arrivals() -> impl Strategy<Value = Vec<u16>> {
    let stretch = (prop_oneof![Just(0u16), 1..5u16, 5..60u16], 1..90usize);
    prop::collection::vec(stretch, 1..12)
        .prop_map(|all| all.into_iter().flat_map(|(rate, length)| vec![rate; length]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_policy_goes_below_the_floor_over_the_ceiling_or_out_of_the_shares(
        arrivals in arrivals(), floor in 0..3u32, more in 0..4u32, parks: bool,
    ) {
        for row in SCALERS {
            let mut world = World::new(row, service(floor, floor + more, parks));
            for &arrived in &arrivals {
                let wish = world.second(arrived);
                let [least, most] = world.service.shares;
                prop_assert!((floor..=floor + more).contains(&wish.instances), "{}: {wish:?}", row.name);
                prop_assert!(wish.share >= least && wish.share <= most, "{}: {wish:?}", row.name);
                prop_assert_eq!(world.serving(), wish.instances, "what is wished is done");
            }
        }
    }

    #[test]
    fn an_instance_that_has_come_stays_for_the_cool_down(arrivals in arrivals()) {
        for row in SCALERS.iter().filter(|row| row.name.starts_with("weir") || row.name == "dilu") {
            let mut world = World::new(row, service(0, 6, false));
            let (mut last, mut before) = (None, 0);
            for &arrived in &arrivals {
                let wish = world.second(arrived);
                if wish.instances > before {
                    last = Some(world.now);
                }
                if wish.instances < before && wish.instances > 0 {
                    let since = world.now - last.unwrap();
                    prop_assert!(since >= 30, "{}: in {since} s after out", row.name);
                }
                before = wish.instances;
            }
        }
    }

    #[test]
    fn what_is_at_zero_comes_back_with_the_first_request(silence in 0..900usize, parks: bool) {
        for row in SCALERS {
            let mut world = World::new(row, service(0, 4, parks));
            world.seconds(60, 20);
            world.seconds(silence, 0);
            let wish = world.second(1);
            prop_assert!(wish.instances >= 1, "{} after {silence} s of silence", row.name);
        }
    }
}

#[test]
fn a_service_that_nobody_asks_ends_parked_and_comes_back_from_there() {
    let mut world = World::new(scaler("weir").unwrap(), service(0, 4, true));
    world.seconds(60, 4);
    world.seconds(60, 0);
    assert_eq!((world.serving(), world.parked), (0, 1), "nothing runs, one is kept on the host");
    world.second(1);
    assert_eq!((world.serving(), world.parked), (1, 0), "it comes back rather than that one is started");
}

#[test]
fn dilu_scales_out_in_the_twentieth_second_of_too_much_and_in_in_the_thirtieth_of_too_little() {
    let mut world = World::new(scaler("dilu").unwrap(), service(1, 4, false));
    world.second(0); // the first one starts
    let out = (1..=60).find(|_| world.second(9).instances == 2);
    assert_eq!(out, Some(20), "papers.md 1.6: 20 of 40 s");
    let back = (1..=60).find(|_| world.second(1).instances == 1);
    assert_eq!(back, Some(30), "papers.md 1.6: 30 of 40 s, history cleared after an action");
}

#[test]
fn weir_raises_the_share_in_the_second_in_which_more_comes_and_starts_nothing() {
    let mut world = World::new(scaler("weir").unwrap(), service(1, 4, false));
    world.seconds(90, 2);
    let before = world.share;
    let wish = world.second(12);
    assert!(wish.share > before, "{before} -> {}", wish.share);
    assert_eq!(wish.instances, 1);
}

#[test]
fn weir_believes_a_rush_the_sooner_the_less_a_start_takes() {
    let seconds_until_out = |cold_start: u64| {
        let service = Service { cold_start: Nanos::from_secs(cold_start), ..service(1, 4, false) };
        let mut world = World::new(scaler("weir").unwrap(), service);
        world.seconds(120, 1);
        (1..60).find(|_| world.second(14).instances > 1).expect("one instance does 12 a second at the most")
    };
    let [short, long] = [3, 23].map(seconds_until_out);
    assert!(short <= 5 && short < long, "{short} and {long}");
}

/// What is wished at the first look at one instance, with so many requests of twenty GPU-seconds together.
fn wished_for_twenty_gpu_seconds(policy: &str, running: u64, queued: u64) -> u32 {
    let mut policy = (scaler(policy).unwrap().build)(&Rules::default());
    let large = Some(Tokens(20_000_000_000));
    let share = SmShare::percent(30);
    let seen =
        Seen { arrived: queued, arrived_work: large, queued, queued_work: large, running, ..Seen::default() };
    policy.wish(&service(1, 8, false), &Seen { ready: 1, share, room: share, ..seen }).instances
}

#[test]
fn weir_counts_the_work_of_large_requests_and_a_count_does_not() {
    assert_eq!(wished_for_twenty_gpu_seconds("weir-by-count", 8, 12), 1, "twelve mean requests are nothing");
    assert!(wished_for_twenty_gpu_seconds("weir", 8, 12) > 1, "they outlast the start of another instance");
}

#[test]
fn no_instance_starts_that_the_requests_at_hand_would_not_fill() {
    assert_eq!(wished_for_twenty_gpu_seconds("weir", 0, 2), 1, "two requests have room in one batch");
}
