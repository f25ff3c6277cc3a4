//! The bell: fillers' gates close when a tenant to which they give way rings, and not before the next tick; and whoever has slept
//! ends the control loop's rest.

use std::time::{Duration, Instant};

use weir_nodemgr::control::schema::{ClassName, CreateTenant};
use weir_protocol::units::Nanos;

use crate::stage::{Actor, DEADLINE, Stage, wish};

/// No tick comes in between what the stories do.
const TICK: Nanos = Nanos::from_millis(500);

/// A latency tenant and a filler whose gate is open.
fn beside_each_other(stage: &Stage, story: impl FnOnce(&mut Actor, &mut Actor)) {
    let (mut one, mut two) = (stage.client(), stage.client());
    let online = CreateTenant { class: ClassName::Latency, ..wish("online", 50) };
    let filler = CreateTenant { class: ClassName::Filler, request_permille: None, ..wish("filler", 0) };
    let (online, filler) = (one.create(online).unwrap(), two.create(filler).unwrap());
    let (mut online, mut filler) = (Actor::ready(&online), Actor::ready(&filler));
    assert_eq!(filler.ask("gate Open"), "Open", "nobody works");
    story(&mut online, &mut filler);
}

#[test]
fn a_fillers_gate_closes_when_a_better_one_rings_whatever_the_books_say() {
    let stage = Stage::with(|options| options.tick = TICK);
    beside_each_other(&stage, |online, filler| {
        // It has launched nothing that a tick could see: only the bell can close the gate.
        assert_eq!(online.ask("begin"), "rang");
        assert_eq!(filler.ask("gate Closed"), "Closed");
        assert_eq!(filler.ask("gate Open"), "Open", "the next tick decides by what it sees");
    });
}

#[test]
fn whoever_rings_without_work_closes_nothing() {
    let stage = Stage::with(|options| options.tick = TICK);
    beside_each_other(&stage, |online, _filler| {
        assert_eq!(online.ask("ring"), "rang");
        let stats = stage.tenant("filler").unwrap(); // answered by the thread that hears the bell, and after it
        assert!(!stats.gpus[0].gate_closed);
    });
}

#[test]
fn a_member_that_never_stops_ringing_is_listened_to_once_in_a_tick() {
    let stage = Stage::with(|options| options.tick = TICK);
    beside_each_other(&stage, |online, filler| {
        assert_eq!(online.ask("flood"), "full", "what it sends lies in its own socket");
        assert_eq!(stage.tenant("online").unwrap().pids, [online.pid()]);
        assert_eq!(filler.ask("gate Open"), "Open");
    });
}

#[test]
fn a_member_that_sends_anything_else_is_a_member_no_more_and_keeps_its_slot() {
    let stage = Stage::with(|options| options.tick = TICK);
    beside_each_other(&stage, |online, _filler| {
        assert_eq!(online.ask("nonsense"), "hung up");
        assert_eq!(stage.tenant("online").unwrap().pids, [online.pid()]);
    });
}

/// Ticks in so long.
fn ticks(stage: &Stage, window: Duration) -> u64 {
    let before = stage.stats().node.epoch;
    std::thread::sleep(window); // how often the loop runs by the clock is the question
    stage.stats().node.epoch - before
}

#[test]
fn a_sleeper_is_asked_to_ring_although_nobody_gives_way_to_it() {
    let stage = Stage::new();
    let mut client = stage.client();
    let created = client.create(wish("alone", 50)).unwrap();
    assert_eq!(Actor::ready(&created).ask("begin"), "rang", "once it sleeps");
}

#[test]
fn the_loop_rests_while_all_sleep_and_whoever_rings_ends_that() {
    let (tick, window) = (Nanos::from_millis(10), Duration::from_millis(600));
    let stage = Stage::with(|options| options.tick = tick);
    let mut client = stage.client();
    let created = client.create(wish("alone", 50)).unwrap();
    let mut actor = Actor::ready(&created);
    let rarely = 600 / 40 + 2; // every fourth tick, and what begins and ends beside the window
    let start = Instant::now();
    // On a machine that has no time for the loop it runs as rarely as if it rested: one try of some is enough.
    while {
        while ticks(&stage, window) > rarely {
            assert!(start.elapsed() < 2 * DEADLINE, "the loop does not rest");
        }
        assert_eq!(actor.ask("ring"), "rang");
        ticks(&stage, window) < 2 * rarely
    } {
        assert!(start.elapsed() < 2 * DEADLINE, "nobody has heard the bell");
    }
}
