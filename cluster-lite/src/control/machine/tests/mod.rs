//! The controller in simulated time, with everything that can go wrong: nodes and controllers that die at any step, networks
//! that lose, delay, double and cut. A seed is a whole story; a failure prints it.

mod scenes;
mod shift;
mod world;

use weir_protocol::units::{Bytes, Nanos};
use world::World;

use crate::cluster::Backbone;
use crate::control::model::WhenIdle;

/// Stories that are told by each of the tests below. Each is four simulated minutes.
const SEEDS: u64 = 60;

fn tell(first: u64) {
    let mut told = world::Told::default();
    for seed in first..first + SEEDS {
        let mut world = World::new(seed);
        world.run();
        told.add(&world.told);
    }
    // What never happened was not tested.
    assert!(told.kills > SEEDS && told.answered > 100 * SEEDS && told.refused > SEEDS, "{told:?}");
    assert!(told.reboots > SEEDS / 8 && told.partitions > SEEDS / 4 && told.doubled > SEEDS, "{told:?}");
    assert!(told.late_starts > 0 && told.resized > SEEDS && told.parked > SEEDS / 4, "{told:?}");
}

#[test]
fn no_slice_has_two_owners_no_request_is_lost_and_all_comes_to_rest_whatever_fails() {
    tell(0);
}

#[test]
fn the_same_in_other_stories() {
    tell(1_000);
}

#[test]
fn the_same_in_further_stories() {
    tell(2_000);
}

#[test]
fn the_same_in_yet_more_stories() {
    tell(3_000);
}

#[test]
fn as_many_are_parked_as_are_wished_they_come_back_first_and_those_too_many_end() {
    let script = |now: Nanos| match now.0 / 1_000_000_000 {
        0..30 => [3, 0],
        30..60 => [1, 2],
        60..80 => [2, 2],
        80..100 => [0, 1],
        _ => [0, 0],
    };
    let expected = [(30, (3, 0)), (60, (1, 2)), (80, (2, 1)), (100, (0, 1)), (120, (0, 0))];
    for seed in 0..10 {
        let mut world = World::calm(seed, script);
        for (until, counts) in expected {
            world.run_until(Nanos::from_secs(until));
            assert_eq!(world.count("idle"), counts, "seed {seed}, after {until} s");
        }
    }
}

#[test]
fn shared_weights_are_held_once_on_each_gpu_and_are_handed_on_when_their_holder_is_gone() {
    let mut handed_on = 0;
    for seed in 0..10 {
        let mut world = World::calm(seed, |_| [3, 0]).with(|service| {
            service.when_idle = WhenIdle::Stop;
            service.backbone = Some(Backbone { name: "b".into(), memory: Bytes::gib(2) });
        });
        for until in [30, 60, 90] {
            world.run_until(Nanos::from_secs(until));
            let held = world.memory("idle");
            assert_eq!(held.values().map(Vec::len).sum::<usize>(), 3, "seed {seed}: {held:?}");
            for sizes in held.values() {
                let (holder, others) = sizes.split_last().unwrap();
                assert!(*holder == 6 && others.iter().all(|size| *size == 4), "seed {seed}: {held:?}");
            }
            handed_on += u32::from(until < 90 && held.values().any(|sizes| sizes.len() > 1));
            world.crash_largest("idle");
        }
    }
    assert!(handed_on > 5, "{handed_on}");
}
