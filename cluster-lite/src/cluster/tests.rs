use proptest::prelude::*;

use super::*;

fn gib(count: u64) -> Bytes {
    Bytes::gib(count)
}

fn share(permille: u16) -> SmShare {
    SmShare::permille(permille)
}

/// Two nodes of four GPUs with 80 GiB, one with two of 16 GiB, one without.
fn small() -> Cluster {
    let mut cluster = Cluster::new(Bounds::default());
    let large = cluster.add_class(DeviceClass::new("A100", gib(80))).unwrap();
    let little = cluster.add_class(DeviceClass::new("T4", gib(16))).unwrap();
    for (name, gpus, class) in
        [("a0", 4, Some(large)), ("a1", 4, Some(large)), ("t0", 2, Some(little)), ("c0", 0, None)]
    {
        let spec =
            NodeSpec { name: name.into(), cpu: MilliCpu(64_000), memory: gib(256), gpus, class, site: 0 };
        cluster.add_node(spec).unwrap();
    }
    cluster
}

fn on(cluster: &Cluster, node: &str, demand: &Demand, gpus: &[u8]) -> Spot {
    let pieces = if demand.gpus == 1 { u8::try_from(gpus.len()).unwrap() } else { 1 };
    let slices = gpus.iter().map(|gpu| Slice { gpu: *gpu, ..piece(demand, pieces) }).collect();
    Spot { node: cluster.node(node).unwrap(), slices }
}

#[test]
fn a_tenant_that_is_placed_twice_is_placed_once() {
    let mut cluster = small();
    let demand = Demand::share(share(600));
    let spot = on(&cluster, "a0", &demand, &[0]);
    assert_eq!(cluster.place("x", &demand, &spot), Ok(Change::Done));
    assert_eq!(cluster.place("x", &demand, &spot), Ok(Change::Already));
    assert_eq!(cluster.totals().requests, 600);
    let elsewhere = on(&cluster, "a1", &demand, &[0]);
    assert!(matches!(cluster.place("x", &demand, &elsewhere), Err(ClusterError::Elsewhere { .. })));
    assert_eq!(cluster.remove("x").map(|placement| placement.spot), Some(spot));
    assert_eq!(cluster.remove("x"), None);
    assert_eq!(cluster.totals(), small().totals());
}

#[test]
fn no_slice_has_two_owners() {
    let mut cluster = small();
    let demand = Demand::share(share(600));
    let spot = on(&cluster, "a0", &demand, &[0]);
    cluster.place("x", &demand, &spot).unwrap();
    assert!(matches!(cluster.place("y", &demand, &spot), Err(ClusterError::NoRoom { .. })));
    let rest = Demand::share(share(400));
    assert_eq!(cluster.place("y", &rest, &on(&cluster, "a0", &rest, &[0])), Ok(Change::Done));
}

#[test]
fn limits_may_pass_one_gpu_but_not_gamma() {
    let mut cluster = small();
    let demand = Demand { request: share(200), limit: share(500), ..Demand::share(share(200)) };
    for tenant in ["x", "y", "z"] {
        cluster.place(tenant, &demand, &on(&cluster, "a0", &demand, &[0])).unwrap();
    }
    assert!(
        cluster.place("w", &demand, &on(&cluster, "a0", &demand, &[0])).is_err(),
        "2000 permille of limits"
    );
}

#[test]
fn memory_is_never_oversubscribed_and_a_backbone_counts_once() {
    let mut cluster = small();
    let backbone = Some(Backbone { name: "llama".into(), memory: gib(40) });
    let demand = Demand { gpu_memory: gib(15), backbone, ..Demand::share(share(100)) };
    for tenant in ["x", "y"] {
        cluster.place(tenant, &demand, &on(&cluster, "a0", &demand, &[0])).unwrap();
    }
    let held = |cluster: &Cluster| cluster.state(cluster.node("a0").unwrap()).gpus[0].memory;
    assert_eq!(held(&cluster), gib(70));
    assert!(cluster.place("z", &demand, &on(&cluster, "a0", &demand, &[0])).is_err());
    cluster.remove("x");
    assert_eq!(held(&cluster), gib(55), "the other still holds the backbone");
    cluster.remove("y");
    assert_eq!(held(&cluster), Bytes(0));
}

#[test]
fn what_no_node_could_ever_hold_is_told_with_what_there_is() {
    let cluster = small();
    let refusal = |demand: Demand| cluster.could_hold(&demand).unwrap_err().to_string();
    let never = "no node could ever hold it, not even an empty one: it asks for ";
    assert_eq!(
        refusal(Demand::whole(5)),
        format!("{never}5 GPUs of one node, the most that a node has is 4")
    );
    let t4 = ClassSet::NONE.with(cluster.class("T4").unwrap());
    let demand = Demand { gpu_memory: gib(20), classes: t4, ..Demand::share(share(500)) };
    let asked = "a request of 50 %, a limit of 50 % and 20 GiB on one GPU";
    let most = "requests of 100 %, limits of 150 % and 16 GiB";
    assert_eq!(refusal(demand), format!("{never}{asked}, the most that a node has is {most}"));
    let demand = Demand { cpu: MilliCpu(65_000), ..Demand::default() };
    assert_eq!(
        refusal(demand),
        format!("{never}65000 thousandths of a processor, the most that a node has is 64000")
    );
    assert_eq!(cluster.could_hold(&Demand::whole(4)), Ok(()));
}

#[test]
fn a_demand_that_contradicts_itself_is_refused() {
    let wrong = [
        Demand { limit: share(100), ..Demand::share(share(200)) },
        Demand { gpus: 0, ..Demand::share(share(200)) },
        Demand { limit: SmShare::ZERO, ..Demand::share(SmShare::ZERO) },
        Demand { fragments: 2, ..Demand::whole(2) },
        Demand { fragments: 0, ..Demand::whole(1) },
    ];
    for demand in wrong {
        assert!(matches!(small().could_hold(&demand), Err(ClusterError::Demand { .. })), "{demand:?}");
    }
}

#[test]
fn impossible_classes_and_nodes_are_refused() {
    let mut cluster = small();
    let class = |speed, full_watts| DeviceClass { speed, full_watts, ..DeviceClass::new("X", gib(1)) };
    for wrong in [class(0.0, 1.0), class(f64::NAN, 1.0), class(1.0, -1.0), class(1.0, f64::INFINITY)] {
        assert!(matches!(cluster.add_class(wrong), Err(ClusterError::Class { .. })));
    }
    assert!(matches!(
        cluster.add_class(DeviceClass::new("T4", gib(1))),
        Err(ClusterError::ClassTwice { .. })
    ));
    let twice = cluster.spec(cluster.node("a0").unwrap()).clone();
    assert!(matches!(cluster.add_node(twice.clone()), Err(ClusterError::NodeTwice { .. })));
    let of_no_class = NodeSpec { name: "n".into(), class: None, ..twice };
    assert!(matches!(cluster.add_node(of_no_class), Err(ClusterError::Node { .. })));
}

#[test]
fn nothing_is_placed_on_a_node_that_is_down_and_what_sits_there_stays() {
    let mut cluster = small();
    let demand = Demand::share(share(500));
    let spot = on(&cluster, "a0", &demand, &[0]);
    cluster.place("x", &demand, &spot).unwrap();
    assert_eq!(cluster.set_up(spot.node, false), Ok(Change::Done));
    assert_eq!(cluster.set_up(spot.node, false), Ok(Change::Already));
    assert!(cluster.place("y", &demand, &spot).is_err());
    assert_eq!(cluster.totals().gpus, 6);
    cluster.set_up(spot.node, true).unwrap();
    assert_eq!(cluster.totals().requests, 500);
    assert!(cluster.placement("x").is_some());
}

#[test]
fn a_cut_tenant_sits_on_equal_pieces_or_not_at_all() {
    let mut cluster = small();
    let demand = Demand { gpu_memory: gib(30), fragments: 2, kind: Kind::Llm, ..Demand::share(share(500)) };
    let spot = on(&cluster, "t0", &demand, &[0, 1]);
    assert_eq!(spot.slices[0].memory, gib(15));
    assert_eq!(cluster.place("x", &demand, &spot), Ok(Change::Done));
    let uneven = Spot { slices: spot.slices[..1].to_vec(), ..on(&cluster, "a0", &demand, &[0, 1]) };
    assert!(cluster.place("y", &demand, &uneven).is_err());
}

#[test]
fn dead_states_are_cleared_and_nothing_is_lost_by_it() {
    let mut cluster = small();
    for round in 0..20_000u32 {
        let demand = Demand { cpu: MilliCpu(round % 50_000), ..Demand::share(share(500)) };
        cluster.place("x", &demand, &on(&cluster, "a0", &demand, &[0])).unwrap();
        cluster.remove("x");
    }
    assert!(cluster.states().alive().count() <= 4);
    assert_eq!(cluster.states().count(), cluster.states().alive().count());
    assert!(cluster.placement("x").is_none());
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Place { tenant: u8, demand: Demand, node: u8, gpus: Vec<u8> },
    Remove(u8),
    Up(u8, bool),
}

fn demands() -> impl Strategy<Value = Demand> {
    (0u8..4, 0u16..=1000, 0u16..=1000, 0u64..50, 0u32..40_000, 0u8..3, 1u8..3).prop_map(
        |(gpus, one, other, memory, cpu, backbone, fragments)| {
            let name = ["p", "q"].get(usize::from(backbone));
            let backbone = name.map(|name| Backbone { name: (*name).into(), memory: gib(20) });
            let (request, limit) = (share(one.min(other)), share(one.max(other)));
            let (gpu_memory, cpu) = (gib(memory), MilliCpu(cpu));
            Demand { gpus, request, limit, gpu_memory, cpu, backbone, fragments, ..Demand::default() }
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..12, demands(), 0u8..4, prop::collection::vec(0u8..4, 0..4))
            .prop_map(|(tenant, demand, node, gpus)| Step::Place { tenant, demand, node, gpus }),
        2 => (0u8..12).prop_map(Step::Remove),
        1 => (0u8..4, any::<bool>()).prop_map(|(node, up)| Step::Up(node, up)),
    ]
}

/// The state of a node, added up anew from who sits on it.
fn added_up(cluster: &Cluster, node: NodeId) -> (u32, Vec<(u32, u32, u64)>) {
    let mut cpu = 0;
    let mut gpus = vec![(0, 0, 0); usize::from(cluster.spec(node).gpus)];
    let mut held = std::collections::HashSet::new();
    for (_, Placement { demand, spot }) in cluster.tenants().filter(|(_, placed)| placed.spot.node == node) {
        cpu += demand.cpu.0;
        for slice in &spot.slices {
            let gpu = &mut gpus[usize::from(slice.gpu)];
            gpu.0 += u32::from(slice.request.as_permille());
            gpu.1 += u32::from(slice.limit.as_permille());
            gpu.2 += slice.memory.0;
            let first = |backbone: &&Backbone| held.insert((slice.gpu, Name::clone(&backbone.name)));
            gpu.2 += demand.backbone.as_ref().filter(first).map_or(0, |backbone| backbone.memory.0);
        }
    }
    (cpu, gpus)
}

proptest! {
    #[test]
    fn nothing_is_ever_over_capacity_whatever_the_order(steps in prop::collection::vec(steps(), 1..80)) {
        let mut cluster = small();
        let nodes: Vec<NodeId> = cluster.nodes().collect();
        for step in steps {
            match step {
                Step::Place { tenant, demand, node, gpus } => {
                    let name = cluster.name(nodes[usize::from(node)]).to_owned();
                    let spot = on(&cluster, &name, &demand, &gpus);
                    let _ = cluster.place(&tenant.to_string(), &demand, &spot); // most do not fit: nothing may change then
                }
                Step::Remove(tenant) => drop(cluster.remove(&tenant.to_string())),
                Step::Up(node, up) => drop(cluster.set_up(nodes[usize::from(node)], up)),
            }
            for node in &nodes {
                let (state, spec) = (cluster.state(*node), cluster.spec(*node));
                let (cpu, gpus) = added_up(&cluster, *node);
                prop_assert_eq!(state.cpu_used().0, cpu);
                prop_assert!(cpu <= spec.cpu.0);
                let memory = spec.class.map_or(0, |class| cluster.classes()[class.index()].memory.0);
                for (gpu, sums) in state.gpus.iter().zip(&gpus) {
                    prop_assert_eq!((gpu.requests, gpu.limits, gpu.memory.0), *sums);
                    prop_assert!(gpu.requests <= 1000 && gpu.limits <= 1500 && gpu.memory.0 <= memory);
                }
            }
        }
        let tenants: Vec<Name> = cluster.tenants().map(|(name, _)| Name::clone(name)).collect();
        tenants.iter().for_each(|tenant| drop(cluster.remove(tenant)));
        let empty = small();
        for node in &nodes {
            prop_assert_eq!(cluster.state(*node), empty.state(*node));
        }
    }
}
