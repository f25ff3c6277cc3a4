use std::collections::BTreeSet;

use super::learnt::{BELIEVED, FORGOTTEN_AFTER};
use super::*;
use crate::control::model::{Budget, InstanceId};
use crate::control::policies::tests::{profile, service};

fn room(node: &str, residents: &[(&str, Budget)]) -> Room {
    let resident = |(id, (name, budget)): (u64, &(&str, Budget))| (InstanceId(id), (*name).into(), *budget);
    let first = u64::from(node.as_bytes()[0]) * 100;
    Room {
        place: Place { node: node.into(), gpu: 0 },
        device: "A100".into(),
        memory: Bytes::gib(40),
        foreign_request: SmShare::ZERO,
        foreign_memory: Bytes(0),
        draw: None,
        backbones: Vec::new(),
        residents: (first..).zip(residents).map(resident).collect(),
    }
}

fn budget(request: u16, limit: u16) -> Budget {
    let [request, limit] = [request, limit].map(SmShare::percent);
    Budget { request, limit, memory: Bytes::gib(4) }
}

fn asking(name: &str, budget: Budget) -> Service {
    Service { budget, ..service(name) }
}

fn of_kind(name: &str, kind: profile::Kind) -> Service {
    Service { profile: Some(profile::Profile { kind, ..profile() }), ..service(name) }
}

/// The node that `policy` takes for the first of the services.
fn taken(policy: &str, services: &[Service], rooms: &[Room]) -> Result<String, String> {
    let mut placing = ByPolicy::new(policy, services, 1).unwrap();
    placing.place(&services[0], rooms).map(|(place, _)| place.node)
}

#[test]
fn the_card_that_was_calibrated_to_draw_less_is_woken_first() {
    let services = [service("s")];
    let room =
        |node: &str, busy_mw| Room { draw: Some(Draw { idle_mw: 55_000, busy_mw }), ..room(node, &[]) };
    let cases = ["pwr", "weir"].into_iter().flat_map(|policy| [(policy, "a", "b"), (policy, "b", "a")]);
    for (policy, thirsty, frugal) in cases {
        let rooms = [room(thirsty, 403_000), room(frugal, 298_000)];
        assert_eq!(taken(policy, &services, &rooms).unwrap(), frugal, "{policy}");
    }
    let unknown = Room { draw: None, ..room("c", 0) };
    let rooms = [room("b", 403_000), unknown];
    let rated = cluster_of(&rooms, &services).unwrap();
    assert!(rated.classes().iter().all(|class| class.waking_watts() == 0.0), "of one nothing is known");
    taken("pwr", &services, &rooms).unwrap();
    let class = class_of(&room("a", 403_000), true);
    assert_eq!((class.idle_watts, class.full_watts), (60.0, 400.0));
}

#[test]
fn dilu_knows_the_limits_of_who_is_there_and_bounds_their_sum() {
    let services = [asking("new", budget(30, 60)), service("old")];
    let beside = |limit| [room("a", &[("old", budget(30, limit))]), room("b", &[])];
    assert_eq!(taken("dilu", &services, &beside(90)).unwrap(), "a", "150 % are Dilu's gamma");
    assert_eq!(taken("dilu", &services, &beside(91)).unwrap(), "b", "one more");
    assert_eq!(taken("packing", &services, &beside(91)).unwrap(), "a", "limits are no promises to others");
    let full = [room("a", &[("old", budget(30, 91))])];
    assert!(taken("dilu", &services, &full).unwrap_err().contains("room"), "nowhere else");
}

#[test]
fn who_is_there_beyond_the_bound_is_there_all_the_same() {
    let services = [asking("new", budget(30, 60)), service("old")];
    let over = [("old", budget(30, 100)), ("old", budget(30, 100))];
    let rooms = [room("a", &over), room("b", &[])];
    assert_eq!(taken("dilu", &services, &rooms).unwrap(), "b");
    let huge = Budget { memory: Bytes::gib(60), ..budget(30, 30) };
    let rooms = [room("a", &[("old", huge)]), room("b", &[])];
    assert_eq!(taken("dilu", &services, &rooms).unwrap(), "b", "nothing is left of its memory");
}

#[test]
fn interference_knows_the_profiles_of_who_is_there_and_keeps_the_ceiling() {
    let busy = profile::Stalls { compute: 0.9, host: 0.1, ..profile::Stalls::default() };
    let of = |name: &str, stalls| {
        let measured = profile();
        let inference = profile::Throughput {
            at_request: measured.throughput.alone / 9.0,
            ..measured.throughput.clone()
        };
        let profile = profile::Profile { stalls, throughput: inference, ..measured };
        Service { profile: Some(profile), ..asking(name, budget(10, 100)) }
    };
    let services =
        [of("new", busy), of("busy", busy), of("rare", profile::Stalls { compute: 0.1, host: 0.9, ..busy })];
    let rooms = [room("a", &[("busy", budget(10, 100))]), room("b", &[("rare", budget(10, 100))])];
    assert_eq!(
        taken("interference", &services, &rooms).unwrap(),
        "b",
        "beside 0.9 it would run 1.81 times slower"
    );
    let mut strict = ByPolicy::new("interference", &services, 1).unwrap().with_ceiling(1.05);
    let told = strict.place(&services[0], &rooms).unwrap_err();
    assert!(told.contains("slowed more than 1.05 times"), "{told}");
}

#[test]
fn a_gpu_that_holds_the_backbone_is_preferred_and_it_is_counted_once() {
    let shares = |name: &str| Service {
        backbone: Some(Backbone { name: "llama".into(), memory: Bytes::gib(13) }),
        ..asking(name, budget(30, 30))
    };
    let services = [shares("new"), shares("old"), service("plain")];
    let holder = services[1].with_backbone();
    assert_eq!(holder.memory, Bytes::gib(17));
    let plain = Budget { memory: holder.memory, ..holder };
    let rooms = [room("a", &[("plain", plain)]), room("b", &[("old", holder)])];
    assert_eq!(taken("weir", &services, &rooms).unwrap(), "b");
    let without = [asking("new", budget(30, 30)), services[1].clone(), services[2].clone()];
    let drawn = (0..20).map(|seed| {
        let mut placing = ByPolicy::new("weir", &without, seed).unwrap();
        placing.place(&without[0], &rooms).unwrap().0.node
    });
    assert_eq!(drawn.collect::<BTreeSet<_>>(), BTreeSet::from(["a".into(), "b".into()]), "equals");
    let small = |memory| Budget { memory: Bytes::gib(memory), ..budget(30, 30) };
    let light =
        [Service { budget: small(1), ..services[0].clone() }, services[1].clone(), services[2].clone()];
    let full = [room("a", &[("plain", small(26))]), room("b", &[("old", small(17))])];
    assert_eq!(taken("weir", &light, &full).unwrap(), "b", "a second copy fills a GPU, and is no better fit");
    // 40 GiB hold 13 + 4 for the first and 4 for each further one, and 13 + 3 x 4 + 13 + 4 are more.
    let others = Budget { request: SmShare::percent(5), limit: SmShare::percent(5), memory: Bytes::gib(4) };
    let crowd = [("old", Budget { memory: Bytes::gib(17), ..others }), ("old", others), ("old", others)];
    let crowded = cluster_of(&[room("b", &crowd)], &services).unwrap();
    let memory = crowded.nodes().map(|node| crowded.state(node).gpus[0].memory).next();
    assert_eq!(memory, Some(Bytes::gib(25)));
    assert_eq!(taken("weir", &services, &[room("b", &crowd)]).unwrap(), "b");
    let strange = [("plain", Budget { memory: Bytes::gib(25), ..others })];
    assert!(taken("weir", &services, &[room("b", &strange)]).is_err(), "17 GiB more would be needed");
}

#[test]
fn the_default_knows_the_bursts_and_the_kind_of_who_is_there() {
    use profile::Kind::{Inference, Training};
    let new = asking("new", budget(30, 70));
    let rooms = [room("a", &[("one", budget(30, 80))]), room("b", &[("two", budget(30, 80))])];
    for (one, two, better) in [(Inference, Training, "b"), (Training, Inference, "a")] {
        let services = [new.clone(), of_kind("one", one), of_kind("two", two)];
        assert_eq!(taken("weir", &services, &rooms).unwrap(), better, "training can wait");
    }
    let services = [new, of_kind("one", Inference), of_kind("two", Inference)];
    for (one, two, better) in [(80, 30, "b"), (30, 80, "a")] {
        let rooms = [room("a", &[("one", budget(30, one))]), room("b", &[("two", budget(30, two))])];
        assert_eq!(taken("weir", &services, &rooms).unwrap(), better, "it never bursts");
    }
}

#[test]
fn the_default_keeps_the_ceiling_of_who_has_a_profile_and_refuses_nobody_for_limits() {
    let busy = profile::Stalls { compute: 0.9, host: 0.1, ..profile::Stalls::default() };
    let measured = profile();
    let throughput =
        profile::Throughput { at_request: measured.throughput.alone / 9.0, ..measured.throughput.clone() };
    let known = |name: &str| Service {
        profile: Some(profile::Profile { stalls: busy, throughput: throughput.clone(), ..measured.clone() }),
        ..asking(name, budget(10, 100))
    };
    let (crowd, rooms) =
        ([("old", budget(10, 100)); 2], |crowd: &[(&str, Budget)]| [room("a", crowd), room("b", &[])]);
    let profiled = [known("new"), known("old")];
    assert_eq!(taken("weir", &profiled, &rooms(&crowd)).unwrap(), "b", "three would be slowed 2.7 times");
    let told = taken("weir", &profiled, &[room("a", &crowd)]).unwrap_err();
    assert!(told.contains("slowed more than 1.5 times"), "{told}");
    // Of whom no profile is known nobody says that he is slowed, and limits are no promises.
    let plain = [asking("new", budget(10, 100)), service("old")];
    assert_eq!(taken("weir", &plain, &rooms(&crowd)).unwrap(), "b", "limits would sum to 300 %");
    assert_eq!(taken("weir", &plain, &[room("a", &crowd)]).unwrap(), "a");
    // Whoever has no profile counts by what he requests, and fillers have what the others leave.
    let beside_known = [room("a", &[("old", budget(10, 100))])];
    let filler = Service { class: ClassName::Filler, ..known("new") };
    for new in [asking("new", budget(10, 100)), filler] {
        assert_eq!(taken("weir", &[new, known("old")], &beside_known).unwrap(), "a");
    }
}

#[test]
fn what_was_measured_beside_each_other_corrects_what_profiles_predict() {
    let stalls = |compute| profile::Stalls { compute, host: 1.0 - compute, ..profile::Stalls::default() };
    let of = |name: &str, compute| {
        let measured = profile();
        let throughput = profile::Throughput {
            at_request: measured.throughput.alone / 9.0,
            ..measured.throughput.clone()
        };
        let profile = profile::Profile { stalls: stalls(compute), throughput, ..measured };
        Service { profile: Some(profile), ..asking(name, budget(10, 30)) }
    };
    let services = [of("new", 0.5), of("quiet", 0.2), of("loud", 0.4)];
    let rooms = [room("a", &[("quiet", budget(10, 30))]), room("b", &[("loud", budget(10, 30))])];
    for policy in ["interference", "weir"] {
        assert_eq!(taken(policy, &services, &rooms).unwrap(), "a", "by their profiles");
        let mut placing = ByPolicy::new(policy, &services, 1).unwrap();
        let measured = |victim: &str, beside: &str, slowdown| Measured {
            victim: victim.into(),
            beside: vec![beside.into()],
            slowdown,
        };
        for windows in 1..=BELIEVED {
            let node = placing.place(&services[0], &rooms).unwrap().0.node;
            assert_eq!(node, "a", "{policy}: {windows} windows are not believed");
            placing.learn(Nanos(1), &[measured("new", "quiet", 1.3), measured("new", "loud", 1.01)]);
        }
        let place = |placing: &mut ByPolicy, rooms: &[Room]| placing.place(&services[0], rooms);
        assert_eq!(place(&mut placing, &rooms).unwrap().0.node, "b", "{policy}");
        (0..20).for_each(|_| placing.learn(Nanos(2), &[measured("new", "loud", 1.8)]));
        assert_eq!(place(&mut placing, &rooms).unwrap().0.node, "a", "{policy}: it was not always so");
        let mut next = ByPolicy::new(policy, &services, 2).unwrap();
        assert!(place(&mut next, &rooms[1..]).is_ok(), "{policy}: by profiles they get along");
        next.recall(placing.memory());
        let told = place(&mut next, &rooms[1..]).unwrap_err();
        assert!(told.contains("slowed more than 1.5 times"), "{policy}: {told}");
        next.learn(FORGOTTEN_AFTER, &[]);
        assert!(place(&mut next, &rooms[1..]).is_err(), "{policy}: it was seen within the hour");
        next.learn(Nanos(2 + FORGOTTEN_AFTER.0), &[]);
        assert!(place(&mut next, &rooms[1..]).is_ok(), "{policy}: and is tried again after it");
    }
}
