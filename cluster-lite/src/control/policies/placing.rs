//! The placement library, as the state machine asks it.

mod learnt;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::Value;
use weir_nodemgr::calibration::Draw;
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use crate::cluster::{
    Backbone, Bounds, Cluster, ClusterError, Demand, DeviceClass, Kind, MilliCpu, NodeSpec, Slice, Spot,
};
use crate::control::decide::Placing;
use crate::control::measure::Measured;
use crate::control::model::{Place, Service};
use crate::control::room::Room;
use crate::fault::Fault;
use crate::place::{Explanation, Neighbours, Placer, Policy, Refusal, Solo, Workload};
use crate::profile;
use learnt::Learnt;

/// Nodes that a decision names.
const SHOWN: usize = 3;

/// Placement by one of the library's policies.
pub struct ByPolicy {
    policy: String,
    random: ChaCha8Rng,
    services: Vec<Service>,
    neighbours: Neighbours,
    learnt: Learnt,
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
        Ok(Self {
            policy: policy.to_owned(),
            random,
            services: services.to_vec(),
            neighbours,
            learnt: Learnt::default(),
        })
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

    fn learn(&mut self, now: Nanos, measured: &[Measured]) {
        let forgotten = self.learnt.forget(now);
        measured.iter().for_each(|measured| self.learnt.learn(now, measured));
        if forgotten || !measured.is_empty() {
            self.neighbours.measured = self.learnt.believed();
        }
    }

    fn memory(&self) -> Value {
        serde_json::to_value(&self.learnt).unwrap_or_default()
    }

    fn recall(&mut self, memory: Value) {
        self.learnt = serde_json::from_value(memory).unwrap_or_default();
        self.neighbours.measured = self.learnt.believed();
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
    let parts = reasons.parts.iter().filter(|part| part.rating * part.weight != 0.0);
    let parts: Vec<_> = parts.map(|part| format!("{} {:.3}", part.name, part.rating * part.weight)).collect();
    let made_of = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    format!("`{}` rates it {:.3}{made_of}{against}", reasons.policy, reasons.rating)
}

fn demand(service: &Service) -> Demand {
    let kind = match service.profile.as_ref().map(|profile| profile.kind) {
        _ if service.class == ClassName::Filler => Kind::Filler,
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
        backbone: service.backbone.clone(),
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
            let (mut left, mut held) = (first.memory, Vec::new());
            for (tenant, demand) in tenants(room, services) {
                let demand = within(demand, &mut left, &mut held);
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

/// What fits of a resident into what is `left`, backbones once. Where more is reserved than there is nothing is left, and that is what
/// scores are to see.
fn within(demand: Demand, left: &mut Bytes, held: &mut Vec<Backbone>) -> Demand {
    let gpu_memory = demand.gpu_memory.min(*left);
    *left = Bytes(left.0 - gpu_memory.0);
    let backbone = demand.backbone.filter(|backbone| held.contains(backbone) || backbone.memory <= *left);
    if let Some(first) = backbone.as_ref().filter(|backbone| !held.contains(backbone)) {
        *left = Bytes(left.0 - first.memory.0);
        held.push(first.clone());
    }
    Demand { gpu_memory, backbone, ..demand }
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
        let service = services.iter().find(|service| service.name == *name);
        // Whoever holds a backbone has it in its budget; to the library it is nobody's own.
        let shared = service.and_then(|service| service.held_with(budget)).map_or(0, |held| held.memory.0);
        let own = Bytes(budget.memory.0 - shared);
        let known = service.map(demand);
        let known =
            known.unwrap_or_else(|| Demand { service: Some(name.as_str().into()), ..Demand::default() });
        (format!("{id}"), reserved(known, budget.request, budget.limit, own))
    });
    let (request, memory) = (room.foreign_request, room.foreign_memory);
    let strangers = (request > SmShare::ZERO || memory > Bytes(0)).then(|| {
        (format!("strangers on {}", room.place), reserved(Demand::default(), request, request, memory))
    });
    ours.chain(strangers).collect()
}
