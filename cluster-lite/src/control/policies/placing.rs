//! The placement library, as the state machine asks it.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weir_nodemgr::calibration::Draw;
use weir_protocol::units::{Bytes, SmShare};

use crate::cluster::{
    Bounds, Cluster, ClusterError, Demand, DeviceClass, Kind, MilliCpu, NodeSpec, Slice, Spot,
};
use crate::control::decide::Placing;
use crate::control::model::{Place, Service};
use crate::control::room::Room;
use crate::fault::Fault;
use crate::place::{Explanation, Neighbours, Placer, Policy, Refusal, Solo, Workload};
use crate::profile;

/// Nodes that a decision names.
const SHOWN: usize = 3;

/// Placement by one of the library's policies.
pub struct ByPolicy {
    policy: String,
    random: ChaCha8Rng,
    services: Vec<Service>,
    neighbours: Neighbours,
}

impl ByPolicy {
    /// The policy of this name or sum, for these services.
    ///
    /// # Errors
    /// There is none.
    pub fn new(policy: &str, services: &[Service], seed: u64) -> Result<Self, Fault> {
        Policy::parse(policy, &Workload::default())?;
        let random = ChaCha8Rng::seed_from_u64(seed);
        let profiled = services
            .iter()
            .filter_map(|service| Some((service.name.as_str().into(), Solo::of(service.profile.as_ref()?))));
        let neighbours = Neighbours { profiles: profiled.collect(), ..Neighbours::default() };
        Ok(Self { policy: policy.to_owned(), random, services: services.to_vec(), neighbours })
    }

    /// The same with another greatest slowdown of anybody, for policies that mind it.
    #[must_use]
    pub fn with_ceiling(self, ceiling: f64) -> Self {
        Self { neighbours: Neighbours { ceiling, ..self.neighbours }, ..self }
    }
}

impl Placing for ByPolicy {
    fn place(&mut self, service: &Service, rooms: &[Room]) -> Result<(Place, String), String> {
        let demands: Vec<Demand> = self.services.iter().map(demand).collect();
        let workload = Workload { neighbours: self.neighbours.clone(), ..Workload::of(&demands) };
        let policy = Policy::parse(&self.policy, &workload).map_err(|fault| fault.message)?;
        let cluster = cluster_of(rooms, &self.services).map_err(|error| error.to_string())?;
        let cluster = cluster.bounded(Bounds { limits: policy.limits, ..Bounds::default() });
        // A controller places a few times a minute: a fresh cluster each time has nothing that could differ from what is kept.
        let decided = Placer::new(policy).explain(&cluster, &demand(service), &mut self.random, SHOWN);
        let (spot, reasons) = decided.map_err(|refusal: Refusal| refusal.to_string())?;
        let gpu = spot.slices.first().map_or(0, |slice| usize::from(slice.gpu));
        Ok((Place { node: cluster.name(spot.node).to_owned(), gpu }, said(&reasons)))
    }
}

/// What a decision has to say for itself, in a line.
fn said(reasons: &Explanation) -> String {
    let others = reasons.candidates.iter().filter(|other| other.node != reasons.node);
    let others: Vec<_> = others.map(|other| format!("{} {:.3}", other.node, other.rating)).collect();
    let against = match (others.is_empty(), reasons.without_room) {
        (false, _) => format!(" against {}", others.join(", ")),
        (true, 0) => String::new(),
        (true, full) => format!(", {full} without room"),
    };
    format!("`{}` rates it {:.3}{against}", reasons.policy, reasons.rating)
}

fn demand(service: &Service) -> Demand {
    let kind = match service.profile.as_ref().map(|profile| profile.kind) {
        Some(profile::Kind::Training) => Kind::Training,
        Some(profile::Kind::Llm) => Kind::Llm,
        Some(profile::Kind::Filler) => Kind::Filler,
        Some(profile::Kind::Inference) | None => Kind::Inference,
    };
    Demand {
        gpus: 1,
        request: service.budget.request,
        limit: service.budget.limit,
        gpu_memory: service.budget.memory,
        kind,
        service: Some(service.name.as_str().into()),
        profile: service.profile.as_ref().map(|_| service.name.as_str().into()),
        ..Demand::default()
    }
}

/// The library's view of what is reserved, not yet bounded: who is there is there, also if the policy would admit him no more.
fn cluster_of(rooms: &[Room], services: &[Service]) -> Result<Cluster, ClusterError> {
    let mut cluster = Cluster::new(Bounds::NONE);
    let mut nodes: BTreeMap<&str, Vec<&Room>> = BTreeMap::new();
    for room in rooms {
        nodes.entry(&room.place.node).or_default().push(room);
    }
    // Beside cards of which it is known what they draw the others would seem to draw nothing.
    let measured = rooms.iter().all(|room| room.draw.is_some());
    for (name, rooms) in nodes {
        let Some(&first) = rooms.first() else { continue };
        let class = cluster.add_class(class_of(first, measured))?;
        let gpus = rooms.iter().map(|room| room.place.gpu + 1).max().unwrap_or(0);
        let node = cluster.add_node(NodeSpec {
            name: name.to_owned(),
            cpu: MilliCpu(0),
            memory: Bytes(0),
            gpus: u8::try_from(gpus).unwrap_or(u8::MAX),
            class: Some(class),
            site: 0,
        })?;
        for room in rooms {
            let gpu = u8::try_from(room.place.gpu).unwrap_or(u8::MAX);
            let mut left = first.memory;
            for (tenant, demand) in tenants(room, services) {
                // Where more is reserved than there is nothing is left, and that is what scores are to see.
                let demand = Demand { gpu_memory: demand.gpu_memory.min(left), ..demand };
                left = Bytes(left.0 - demand.gpu_memory.0);
                let (request, limit, memory) = (demand.request, demand.limit, demand.gpu_memory);
                cluster.place(
                    &tenant,
                    &demand,
                    &Spot { node, slices: vec![Slice { gpu, request, limit, memory }] },
                )?;
            }
        }
    }
    Ok(cluster)
}

/// A node's kind of GPU. What it draws is part of that if it is `measured` of all, to ten watts: cards of one kind differ by some, and
/// kinds are few.
fn class_of(room: &Room, measured: bool) -> DeviceClass {
    let kind = format!("{} of {}", room.device, room.memory);
    let Some(Draw { idle_mw, busy_mw }) = room.draw.filter(|_| measured) else {
        return DeviceClass::new(kind, room.memory);
    };
    let [idle_watts, full_watts] = [idle_mw, busy_mw].map(|mw| 10.0 * (f64::from(mw) / 10e3).round());
    let name = format!("{kind}, {idle_watts} to {full_watts} W");
    DeviceClass { idle_watts, full_watts, ..DeviceClass::new(name, room.memory) }
}

/// Everybody on a GPU, with what is reserved for him: ours as their services are configured. Of strangers their shares and memory
/// alone are known, and no limit.
fn tenants(room: &Room, services: &[Service]) -> Vec<(String, Demand)> {
    let reserved = |known: Demand, request: SmShare, limit: SmShare, memory| {
        let limit = limit.max(request).max(SmShare::permille(1));
        Demand { gpus: 1, request, limit, gpu_memory: memory, ..known }
    };
    let ours = room.residents.iter().map(|(id, name, budget)| {
        let known = services.iter().find(|service| service.name == *name).map(demand);
        let known =
            known.unwrap_or_else(|| Demand { service: Some(name.as_str().into()), ..Demand::default() });
        (format!("{id}"), reserved(known, budget.request, budget.limit, budget.memory))
    });
    let (request, memory) = (room.foreign_request, room.foreign_memory);
    let strangers = (request > SmShare::ZERO || memory > Bytes(0)).then(|| {
        (format!("strangers on {}", room.place), reserved(Demand::default(), request, request, memory))
    });
    ours.chain(strangers).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{profile, service};
    use super::*;
    use crate::control::model::{Budget, InstanceId};

    fn room(node: &str, residents: &[(&str, Budget)]) -> Room {
        let resident =
            |(id, (name, budget)): (u64, &(&str, Budget))| (InstanceId(id), (*name).into(), *budget);
        let first = u64::from(node.as_bytes()[0]) * 100;
        Room {
            place: Place { node: node.into(), gpu: 0 },
            device: "A100".into(),
            memory: Bytes::gib(40),
            foreign_request: SmShare::ZERO,
            foreign_memory: Bytes(0),
            draw: None,
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
        assert_eq!(
            taken("packing", &services, &beside(91)).unwrap(),
            "a",
            "limits are no promises to others"
        );
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
        let services = [
            of("new", busy),
            of("busy", busy),
            of("rare", profile::Stalls { compute: 0.1, host: 0.9, ..busy }),
        ];
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
    fn together_knows_the_bursts_and_the_kind_of_who_is_there() {
        use profile::Kind::{Inference, Training};
        let new = asking("new", budget(30, 70));
        let rooms = [room("a", &[("one", budget(30, 80))]), room("b", &[("two", budget(30, 80))])];
        for (one, two, better) in [(Inference, Training, "b"), (Training, Inference, "a")] {
            let services = [new.clone(), of_kind("one", one), of_kind("two", two)];
            assert_eq!(taken("together", &services, &rooms).unwrap(), better, "training can wait");
        }
        let services = [new, of_kind("one", Inference), of_kind("two", Inference)];
        for (one, two, better) in [(80, 30, "b"), (30, 80, "a")] {
            let rooms = [room("a", &[("one", budget(30, one))]), room("b", &[("two", budget(30, two))])];
            assert_eq!(taken("together", &services, &rooms).unwrap(), better, "it never bursts");
        }
    }
}
