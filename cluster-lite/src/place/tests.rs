use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use weir_protocol::units::{Bytes, SmShare};

use super::index::Grade;
use super::*;
use crate::cluster::{
    Backbone, Bounds, ClassSet, Cluster, Demand, DeviceClass, Kind, MilliCpu, Name, NodeId, NodeSpec, Slice,
    Spot, piece,
};

pub(super) fn random() -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(1)
}

fn share(permille: u16) -> SmShare {
    SmShare::permille(permille)
}

/// Nodes of two classes, `sizes` GPUs each, in turn; large ones draw much, small ones little.
fn cluster(sizes: &[u8]) -> Cluster {
    let mut cluster = Cluster::new(Bounds::default());
    let class = |name: &str, memory, full_watts| DeviceClass {
        full_watts,
        idle_watts: 10.0,
        ..DeviceClass::new(name, Bytes::gib(memory))
    };
    let classes =
        [class("large", 80, 400.0), class("small", 16, 70.0)].map(|class| cluster.add_class(class).unwrap());
    for (number, gpus) in sizes.iter().enumerate() {
        let class = (*gpus > 0).then(|| classes[number % 2]);
        let name = format!("n{number}");
        let (cpu, memory) = (MilliCpu(16_000 * (1 + u32::from(*gpus))), Bytes::gib(128));
        cluster.add_node(NodeSpec { name, cpu, memory, gpus: *gpus, class, site: 0 }).unwrap();
    }
    cluster
}

fn workload(cluster: &Cluster) -> Workload {
    let demands = [
        Demand { cpu: MilliCpu(8_000), ..Demand::share(share(500)) },
        Demand { cpu: MilliCpu(2_000), ..Demand::share(share(300)) },
        Demand { cpu: MilliCpu(12_000), ..Demand::whole(1) },
        Demand { classes: ClassSet::NONE.with(cluster.class("small").unwrap()), ..Demand::share(share(200)) },
        Demand { cpu: MilliCpu(24_000), ..Demand::whole(2) },
        Demand { cpu: MilliCpu(4_000), ..Demand::default() },
    ];
    Workload::of(&demands).on(cluster)
}

fn placer(name: &str, cluster: &Cluster) -> Placer {
    Placer::new(Policy::parse(name, &workload(cluster)).unwrap())
}

/// Every policy, and a sum for each rule by which GPUs are taken.
fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|row| row.name).chain(["pwr*0.1+fgd*0.9", "packing*0.5+bestfit"])
}

/// The grade of every node, each rated by itself.
fn rated_one_by_one(placer: &Placer, cluster: &Cluster, demand: &Demand) -> Vec<(NodeId, Grade)> {
    let up = cluster.nodes().filter(|node| cluster.is_up(*node));
    let rated = up.filter_map(|node| {
        let (node_state, classes) = (cluster.state(node), cluster.classes());
        let (bounds, socket) = (cluster.bounds(), cluster.socket());
        let seen = Seen { node: node_state, demand, classes, bounds, socket };
        Some((node, Grade::of(best(placer.policy().score.as_ref(), &seen)?.rating)))
    });
    rated.collect()
}

#[test]
fn a_whole_gpu_is_never_split() {
    for name in names() {
        let mut cluster = cluster(&[2]);
        let mut placer = placer(name, &cluster);
        for tenant in ["x", "y"] {
            let spot = placer.decide(&cluster, &Demand::whole(1), &mut random()).unwrap();
            cluster.place(tenant, &Demand::whole(1), &spot).unwrap();
        }
        let refused = placer.decide(&cluster, &Demand::share(share(1)), &mut random());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.starts_with("no node that is up has room now"), "{name}: {refused}");
    }
}

#[test]
fn what_can_never_be_placed_is_told_from_what_cannot_be_placed_now() {
    let cluster = cluster(&[2, 2]);
    let refused = placer("weir", &cluster).decide(&cluster, &Demand::whole(3), &mut random());
    assert!(matches!(refused, Err(Refusal::Never(_))), "{refused:?}");
}

#[test]
fn packing_fills_a_used_gpu_before_a_free_one() {
    let mut cluster = cluster(&[2, 2]);
    let mut placer = placer("packing", &cluster);
    let demand = Demand::share(share(400));
    let first = placer.decide(&cluster, &demand, &mut random()).unwrap();
    cluster.place("x", &demand, &first).unwrap();
    assert_eq!(placer.decide(&cluster, &demand, &mut random()), Ok(first));
}

#[test]
fn pwr_wakes_the_gpu_that_draws_least() {
    let cluster = cluster(&[2, 2]);
    let spot = placer("pwr", &cluster).decide(&cluster, &Demand::share(share(400)), &mut random()).unwrap();
    assert_eq!(cluster.name(spot.node), "n1", "its GPUs draw 70 W, the others 400 W");
}

/// FGD, section 3: of two GPUs with room the one whose rest is of use to nobody.
#[test]
fn fgd_leaves_what_the_expected_demands_can_use() {
    let mut cluster = cluster(&[2]);
    let workload = Workload::of(&[Demand::share(share(500))]).on(&cluster);
    let mut placer = Placer::new(Policy::parse("fgd", &workload).unwrap());
    let taken = Demand::share(share(600));
    let spot = placer.decide(&cluster, &taken, &mut random()).unwrap();
    cluster.place("x", &taken, &spot).unwrap();
    let next = placer.decide(&cluster, &Demand::share(share(400)), &mut random()).unwrap();
    assert_eq!(next.slices[0].gpu, spot.slices[0].gpu, "400 permille there are too few for 500");
}

#[test]
fn a_gang_sits_on_gpus_of_one_node() {
    for name in names() {
        let cluster = cluster(&[1, 2, 4]);
        let spot = placer(name, &cluster).decide(&cluster, &Demand::whole(3), &mut random()).unwrap();
        assert_eq!(cluster.name(spot.node), "n2", "{name}");
        assert_eq!(spot.slices.len(), 3);
    }
}

#[test]
fn what_fits_on_no_single_gpu_is_cut_where_it_may_be() {
    let cluster = cluster(&[0, 2]);
    let demand = Demand { gpu_memory: Bytes::gib(30), fragments: 2, ..Demand::share(share(400)) };
    let spot = placer("weir", &cluster).decide(&cluster, &demand, &mut random()).unwrap();
    assert_eq!(spot.slices.len(), 2);
    assert_eq!(spot.slices[0].request, share(200));
    assert_eq!(spot.slices[1].memory, Bytes::gib(15));
}

#[test]
fn a_node_that_is_down_gets_nothing_and_comes_back() {
    let mut cluster = cluster(&[2, 2]);
    let mut placer = placer("bestfit", &cluster);
    let demand = Demand::share(share(400));
    let before = placer.decide(&cluster, &demand, &mut random()).unwrap();
    cluster.set_up(before.node, false).unwrap();
    assert_ne!(placer.decide(&cluster, &demand, &mut random()).unwrap().node, before.node);
    cluster.set_up(before.node, true).unwrap();
    assert_eq!(placer.decide(&cluster, &demand, &mut random()), Ok(before));
}

#[test]
fn a_decision_says_why() {
    let cluster = cluster(&[2, 2, 0]);
    let mut placer = placer("weir", &cluster);
    let demand = Demand::share(share(400));
    let (spot, why) = placer.explain(&cluster, &demand, &mut random(), 5).unwrap();
    assert_eq!(why.node, cluster.name(spot.node));
    assert_eq!(why.without_room, 1);
    assert_eq!(why.candidates.len(), 2);
    assert_eq!(why.candidates[0].rating, why.rating);
    let sum: f64 = why.parts.iter().map(|part| part.weight * part.rating).sum();
    assert!((sum - why.rating).abs() < 1e-6, "{why:?}");
}

#[test]
fn a_policy_or_a_weight_that_is_none_is_refused() {
    for text in ["best", "fgd*0", "fgd*-1", "fgd*NaN", "fgd*x", "fgd+", ""] {
        assert!(Policy::parse(text, &Workload::default()).is_err(), "{text}");
    }
}

#[test]
fn policies_that_contradict_each_other_are_not_added() {
    let refused = |text: &str| {
        let fault = Policy::parse(text, &Workload::default()).err().unwrap();
        format!("{} | {}", fault.message, fault.help)
    };
    let cases = [
        ("fgd+bestfit*2", ["`fgd` takes the GPU that it rates", "`bestfit` the GPU with the least", "`pwr`"]),
        ("pwr+fgd+interference", ["`fgd` counts points", "`interference` GPUs", "`pwr`"]),
        ("dilu*0.5+pwr", ["`dilu` counts tiers", "`pwr` points", "use `dilu` alone"]),
        ("packing+random", ["`packing` counts points", "`random` nothing", "`bestfit`"]),
    ];
    for (text, expected) in cases {
        let told = refused(text);
        assert!(expected.iter().all(|part| told.contains(part)), "{text}: {told}");
    }
}

/// Of two GPUs of one node the sum takes the one that its parts would take, though it rates the node alone.
#[test]
fn a_sum_takes_the_gpus_that_its_parts_take() {
    let mut cluster = cluster(&[2]);
    let light = Demand::share(share(100));
    let node = cluster.node("n0").unwrap();
    let spot = |gpu| Spot { node, slices: vec![Slice { gpu, ..piece(&light, 1) }] };
    cluster.place("x", &light, &spot(1)).unwrap();
    for name in ["bestfit", "packing*0.5+bestfit"] {
        let decided = placer(name, &cluster).decide(&cluster, &light, &mut random()).unwrap();
        assert_eq!(decided.slices[0].gpu, 1, "{name}");
    }
}

#[test]
fn random_ties_are_drawn_evenly() {
    let cluster = cluster(&[1; 4]);
    let mut placer = placer("random", &cluster);
    let mut random = random();
    let mut counts = [0; 4];
    for _ in 0..4000 {
        let spot = placer.decide(&cluster, &Demand::share(share(100)), &mut random).unwrap();
        counts[spot.node.index()] += 1;
    }
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
}

/// Names of one sort, or none.
fn some_name(names: &'static [&'static str]) -> impl Strategy<Value = Option<Name>> {
    prop::option::of(prop::sample::select(names).prop_map(Name::from))
}

/// By what scores know a tenant: kind, service, profile, backbone.
fn who() -> impl Strategy<Value = Demand> {
    let kinds = prop::sample::select(&[Kind::Training, Kind::Inference, Kind::Llm, Kind::Filler][..]);
    let names = (some_name(&["web", "chat"]), some_name(&["small", "large"]), some_name(&["llama", "bert"]));
    (kinds, names).prop_map(|(kind, (service, profile, weights))| {
        let memory = |name: &Name| Bytes::gib(if &**name == "llama" { 13 } else { 1 });
        let backbone = weights.map(|name| Backbone { memory: memory(&name), name });
        Demand { kind, service, profile, backbone, ..Demand::default() }
    })
}

/// What comes in a random history, and how old the one is that leaves then, if one leaves.
fn histories() -> impl Strategy<Value = Vec<(Demand, Option<usize>)>> {
    let size = (0u8..3, 1u16..=1000, 0u16..=1000, 0u32..20_000, 0u64..20, 1u8..4);
    let demand = (size, any::<bool>(), prop::option::of(who()));
    let demand = demand.prop_map(|((gpus, permille, more, cpu, memory, pieces), any_class, who)| {
        let coarse = |permille: u16| permille.div_ceil(250) * 250;
        let permille = if gpus > 1 { 1000 } else { coarse(permille) };
        let classes =
            if any_class { ClassSet::ANY } else { cluster(&[1, 1]).class("small").into_iter().collect() };
        let plain = Demand { classes, cpu: MilliCpu(cpu / 2000 * 2000), ..who.unwrap_or_default() };
        if gpus == 0 {
            return Demand { backbone: None, ..plain };
        }
        let (request, limit) = (share(permille), share(coarse(permille + more).min(1000)));
        let fragments = if gpus == 1 && plain.kind == Kind::Llm { pieces } else { 1 };
        Demand { gpus, request, limit, gpu_memory: Bytes::gib(memory), fragments, ..plain }
    });
    prop::collection::vec((demand, prop::option::weighted(0.3, 0usize..20)), 1..60)
}

proptest! {
    #[test]
    fn the_index_decides_as_rating_every_node_anew_does(history in histories(), which in 0..names().count()) {
        let name = names().nth(which).unwrap();
        let mut cluster = cluster(&[4, 2, 4, 2, 1, 8, 0]);
        let mut placer = placer(name, &cluster);
        let mut random = random();
        for (number, (demand, leaves)) in history.iter().enumerate() {
            let rated = rated_one_by_one(&placer, &cluster, demand);
            let most = rated.iter().map(|(_, grade)| *grade).max();
            match placer.decide(&cluster, demand, &mut random) {
                Ok(spot) => {
                    let taken = rated.iter().find(|(node, _)| *node == spot.node).map(|(_, grade)| *grade);
                    prop_assert_eq!(taken, most, "{}: another node is better", name);
                    cluster.place(&number.to_string(), demand, &spot).unwrap();
                }
                Err(_) => prop_assert_eq!(most, None),
            }
            if let Some(age) = leaves {
                cluster.remove(&number.saturating_sub(*age).to_string());
            }
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_decisions(history in histories(), which in 0..names().count(), seed in any::<u64>()) {
        let decide_all = || {
            let mut cluster = cluster(&[4, 2, 4, 2]);
            let mut placer = placer(names().nth(which).unwrap(), &cluster);
            let mut random = ChaCha12Rng::seed_from_u64(seed);
            let decide = |(number, (demand, _)): (usize, &(Demand, Option<usize>))| -> Option<Spot> {
                let spot = placer.decide(&cluster, demand, &mut random).ok()?;
                cluster.place(&number.to_string(), demand, &spot).unwrap();
                Some(spot)
            };
            history.iter().enumerate().map(decide).collect::<Vec<_>>()
        };
        prop_assert_eq!(decide_all(), decide_all());
    }

    /// What is useless plus what is of use is what is free: never less than nothing, never more than all.
    #[test]
    fn fragmentation_lies_between_nothing_and_all_that_is_free(history in histories()) {
        let mut cluster = cluster(&[4, 2, 4, 2]);
        let fragments = Fragments::new(&workload(&cluster));
        let mut placer = placer("random", &cluster);
        for (number, (demand, _)) in history.iter().enumerate() {
            let Ok(spot) = placer.decide(&cluster, demand, &mut random()) else { continue };
            cluster.place(&number.to_string(), demand, &spot).unwrap();
            let (state, free) = (cluster.state(spot.node), Free::of(cluster.state(spot.node)));
            for useless in [fragments.of(&free), fragments.when_alone(&free), fragments.by_both_views(&free)] {
                prop_assert!((-1e-6..=f64::from(state.gpu_free()) + 1e-6).contains(&useless), "{}", useless);
            }
        }
    }
}
