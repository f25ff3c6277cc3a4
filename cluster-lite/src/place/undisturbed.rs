//! `interference`: nobody beside whom he runs too slowly. A GPU is out of question if somebody on it would be slowed beyond the
//! ceiling; of the others the one is best that costs least, in GPUs:
//!
//! ```text
//! cost = idle GPUs that are woken + rise of the sum of (slowdown - 1) of all who are there + 0.1 x what is left unused
//! ```
//!
//! Slowdowns of pairs and sets are predicted from solo profiles (`interference`; the idea is SMore's, TPDS 36(5), 2025, the rating
//! is ours), bounded by what the request guarantees. A tenant without a profile counts as on the SMs for its limit's part of the
//! time. Tenants of whom no more than shares is known slow the others by their requests, and are themselves not judged.

use std::collections::{BTreeMap, HashMap};

use weir_protocol::units::SmShare;

use super::dilu::{gpu, left};
use super::interference::{Predictor, Service, ServiceId, Table, Uses};
use super::score::{Part, Score, Seen};
use super::workload::Workload;
use crate::cluster::{GpuState, Kind, Name, Slice};
use crate::profile::Profile;

/// The ceiling unless another is given: nobody runs 1.5 times slower than alone.
pub const CEILING: f64 = 1.5;
/// GPUs that a GPU in use is worth which is left wholly free.
const UNUSED: f64 = 0.1;
/// Parts in which the share of tenants without a profile is counted, in permille.
const STEP: u32 = 50;
const STEPS: usize = 1 + 1_000 / STEP as usize;

/// What is known of a tenant before anybody is beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solo {
    /// What it uses alone.
    pub uses: Uses,
    /// Throughput alone over that at its request: it is never slowed more. Infinite without a request.
    pub worst: f64,
}

impl Solo {
    /// As it was measured.
    pub fn of(profile: &Profile) -> Self {
        let (stalls, copies) = (&profile.stalls, &profile.copies);
        let all = copies.host_to_device_gb_s + copies.device_to_host_gb_s;
        let to_device = if all > 0.0 { copies.host_to_device_gb_s / all } else { 1.0 };
        let uses = Uses::new(
            stalls.compute + stalls.communication,
            stalls.copies * to_device,
            stalls.copies * (1.0 - to_device),
        );
        let ratio = (profile.throughput.alone / profile.throughput.at_request).max(1.0);
        let worst = if profile.request == SmShare::ZERO { f64::INFINITY } else { ratio };
        Self { uses, worst }
    }

    /// Of one whose shares alone are known: it is on the SMs for its limit's part of the time.
    pub fn of_shares(request: SmShare, limit: SmShare) -> Self {
        let [request, limit] = [request, limit].map(|share| f64::from(share.as_permille()));
        Self { uses: Uses::new(limit / 1_000.0, 0.0, 0.0), worst: limit / request }
    }
}

/// What is known of those who may meet, and what each may be made to bear.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbours {
    /// Greatest slowdown of anybody, from 1.
    pub ceiling: f64,
    /// By the name of their profile.
    pub profiles: BTreeMap<Name, Solo>,
    /// How many times slower one was beside others, all by the names of their profiles.
    pub measured: BTreeMap<(Name, Vec<Name>), f64>,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self { ceiling: CEILING, profiles: BTreeMap::new(), measured: BTreeMap::new() }
    }
}

/// Least cost of those GPUs on which nobody is slowed beyond the ceiling.
#[derive(Clone, Debug)]
pub struct Undisturbed {
    table: Table,
    profiled: HashMap<Name, (ServiceId, f64)>,
    by_share: Vec<ServiceId>,
    ceiling: f64,
    judges: Judges,
}

/// Who must not be slowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judges {
    /// Everybody of whom more than a share is known.
    All,
    /// Those who have a profile. Of the others the request says how busy they are: a limit is no promise.
    Profiled,
}

/// A tenant of a GPU.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    service: ServiceId,
    worst: f64,
    judged: bool,
}

impl Undisturbed {
    /// With the profiles that the workload knows.
    pub fn new(workload: &Workload) -> Self {
        let mut predictor = Predictor::default();
        let mut know = |name: String, uses: Uses| {
            predictor.know(Service { family: name.clone(), name, batch: None, uses: Some(uses) })
        };
        let steps = (0..STEPS).map(|step| step as f64 / (STEPS - 1) as f64);
        let by_share = steps.map(|part| know(format!("{part} of the SMs"), Uses::new(part, 0.0, 0.0)));
        let by_share = by_share.collect();
        let profiles = workload.neighbours.profiles.iter();
        let profiled = profiles
            .map(|(name, solo)| (name.clone(), (know(format!("profile {name}"), solo.uses), solo.worst)));
        let profiled: HashMap<_, _> = profiled.collect();
        learn(&mut predictor, &profiled, &workload.neighbours);
        let ceiling = workload.neighbours.ceiling;
        Self { table: predictor.table(), profiled, by_share, ceiling, judges: Judges::All }
    }

    /// The same, where nobody counts as slowed whose profile is not known.
    pub(super) fn of_profiled(workload: &Workload) -> Self {
        Self { judges: Judges::Profiled, ..Self::new(workload) }
    }

    /// Whether it judges nobody.
    fn is_blind(&self) -> bool {
        self.judges == Judges::Profiled && self.profiled.is_empty()
    }

    fn by_share(&self, permille: u32) -> ServiceId {
        self.by_share[(permille.div_ceil(STEP) as usize).min(STEPS - 1)]
    }

    fn tenant(&self, profile: Option<&Name>, request: SmShare, limit: SmShare) -> Tenant {
        let known = profile.and_then(|profile| self.profiled.get(profile)).copied();
        let judged = known.is_some() || self.judges == Judges::All;
        let likely = if self.judges == Judges::All { limit } else { request };
        let shares = || (self.by_share(likely.as_permille().into()), Solo::of_shares(request, limit).worst);
        let (service, worst) = known.unwrap_or_else(shares);
        Tenant { service, worst, judged }
    }

    /// Slowdowns of those tenants of a GPU who are judged, and of `own` beside them.
    fn slowdowns(&self, gpu: &GpuState, own: Option<Tenant>) -> Vec<f64> {
        if self.is_blind() {
            return Vec::new();
        }
        // Fillers have what the others leave: they slow nobody, and nobody slows them.
        let named = gpu.residents.iter().filter(|one| one.kind != Kind::Filler);
        let named = named.map(|one| self.tenant(one.profile.as_ref(), one.request, one.limit));
        let tenants: Vec<_> = named.chain(own).collect();
        let known: u32 = gpu.residents.iter().map(|one| u32::from(one.request.as_permille())).sum();
        let others = gpu.requests.saturating_sub(known);
        let others = (others > 0).then(|| self.by_share(others));
        let all: Vec<_> = tenants.iter().map(|tenant| tenant.service).chain(others).collect();
        let slowdowns = self.table.slowdowns(&all).into_iter().zip(&tenants);
        let judged = slowdowns.filter(|(_, tenant)| tenant.judged);
        judged.map(|(slowdown, tenant)| slowdown.min(tenant.worst)).collect()
    }

    /// Who would come; nobody that matters, if he is a filler.
    fn own(&self, seen: &Seen<'_>, slice: &Slice) -> Option<Tenant> {
        let own = || self.tenant(seen.demand.profile.as_ref(), slice.request, slice.limit);
        (seen.demand.kind != Kind::Filler).then(own)
    }

    /// By how much more all who are judged on a GPU would be slowed.
    pub(super) fn rise(&self, seen: &Seen<'_>, slice: &Slice) -> f64 {
        let excess = |slowdowns: Vec<f64>| slowdowns.iter().map(|slowdown| slowdown - 1.0).sum::<f64>();
        let here = gpu(seen, slice);
        excess(self.slowdowns(here, self.own(seen, slice))) - excess(self.slowdowns(here, None))
    }
}

/// What was measured corrects what is predicted: first pairs, as what a set is expected to cost follows from its pairs.
fn learn(predictor: &mut Predictor, profiled: &HashMap<Name, (ServiceId, f64)>, neighbours: &Neighbours) {
    let id = |name: &Name| profiled.get(name).map(|(id, _)| *id);
    let known = neighbours.measured.iter().filter_map(|((victim, beside), slowdown)| {
        Some((id(victim)?, beside.iter().map(id).collect::<Option<Vec<_>>>()?, *slowdown))
    });
    let (pairs, sets): (Vec<_>, Vec<_>) = known.partition(|(_, beside, _)| beside.len() == 1);
    // What cannot be, or finds no more room, leaves the prediction as it was.
    let _ = predictor
        .observe_pairs(pairs.iter().map(|(victim, beside, slowdown)| (*victim, beside[0], *slowdown)));
    for (victim, beside, slowdown) in &sets {
        let _ = predictor.observe(*victim, beside, *slowdown);
    }
}

impl Score for Undisturbed {
    fn rate(&self, seen: &Seen<'_>, slices: &[Slice]) -> f64 {
        self.parts(seen, slices).iter().map(|part| part.weight * part.rating).sum()
    }

    fn admits(&self, seen: &Seen<'_>, slice: &Slice) -> bool {
        let slowdowns = self.slowdowns(gpu(seen, slice), self.own(seen, slice));
        slowdowns.iter().all(|slowdown| *slowdown <= self.ceiling)
    }

    fn condition(&self) -> Option<String> {
        let whom = if self.judges == Judges::All { "nobody" } else { "nobody who has a profile" };
        (!self.is_blind()).then(|| format!("on which {whom} is slowed more than {} times", self.ceiling))
    }

    fn parts(&self, seen: &Seen<'_>, slices: &[Slice]) -> Vec<Part> {
        let sum = |cost: &dyn Fn(&Slice) -> f64| -slices.iter().map(cost).sum::<f64>();
        let part = |name: &str, rating: f64, weight: f64| Part { name: name.into(), rating, weight };
        vec![
            part("woken GPUs", sum(&|slice| f64::from(u8::from(gpu(seen, slice).is_idle()))), 1.0),
            part("slowdown", sum(&|slice| self.rise(seen, slice)), 1.0),
            part("left unused", sum(&|slice| left(seen, slice)), UNUSED),
        ]
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::units::Bytes;

    use super::*;
    use crate::cluster::{Bounds, Cluster, Demand, DeviceClass, MilliCpu, NodeSpec, Spot, piece};
    use crate::place::{Placer, Policy};

    /// GPUs of one node each, with these tenants; `profiles` are busy for a part of their time.
    fn decide(
        gpus: &[&[Demand]],
        profiles: &[(&str, f64)],
        ceiling: f64,
        asks: &Demand,
    ) -> Result<usize, String> {
        let mut cluster = Cluster::new(Bounds { requests: 1000, ..Bounds::NONE });
        let class = cluster.add_class(DeviceClass::new("A100", Bytes::gib(40))).ok();
        for (at, tenants) in gpus.iter().enumerate() {
            let (name, cpu, memory) = (format!("n{at}"), MilliCpu(0), Bytes(0));
            let node = cluster.add_node(NodeSpec { name, cpu, memory, gpus: 1, class, site: 0 }).unwrap();
            for (tenant, demand) in tenants.iter().enumerate() {
                let spot = Spot { node, slices: vec![piece(demand, 1)] };
                cluster.place(&format!("{at} {tenant}"), demand, &spot).unwrap();
            }
        }
        let solo = |busy| Solo { uses: Uses::new(busy, 0.0, 0.0), worst: f64::INFINITY };
        let profiles = profiles.iter().map(|(name, busy)| ((*name).into(), solo(*busy))).collect();
        let workload = Workload {
            neighbours: Neighbours { ceiling, profiles, ..Neighbours::default() },
            ..Workload::default()
        };
        let mut placer = Placer::new(Policy::parse("interference", &workload).unwrap());
        let mut random = crate::place::tests::random();
        let spot = placer.decide(&cluster, asks, &mut random).map_err(|refusal| refusal.to_string())?;
        Ok(spot.node.index())
    }

    fn tenant(profile: &str, request: u16) -> Demand {
        let request = SmShare::percent(request);
        Demand { profile: Some(profile.into()), limit: SmShare::FULL, ..Demand::share(request) }
    }

    const PROFILES: [(&str, f64); 3] = [("busy", 0.9), ("half", 0.5), ("rare", 0.1)];

    #[test]
    fn a_busy_tenant_goes_beside_the_one_that_is_rarely_there() {
        let gpus: [&[Demand]; 3] = [&[tenant("busy", 20)], &[tenant("rare", 20)], &[]];
        assert_eq!(decide(&gpus, &PROFILES, 1.5, &tenant("busy", 20)).unwrap(), 1);
        assert_eq!(decide(&gpus, &PROFILES, 1.05, &tenant("busy", 20)).unwrap(), 2, "the ceiling is for all");
    }

    #[test]
    fn a_set_passes_the_ceiling_where_each_of_its_pairs_does_not() {
        let (one, two) = ([tenant("half", 10)], [tenant("half", 10), tenant("half", 10)]);
        assert!(decide(&[&one], &PROFILES, 1.3, &tenant("half", 10)).is_ok(), "1.25 times slower");
        let refused = decide(&[&two], &PROFILES, 1.3, &tenant("half", 10)).unwrap_err();
        assert!(refused.contains("slowed more than 1.3 times"), "{refused}");
        assert_eq!(decide(&[&two, &[]], &PROFILES, 1.3, &tenant("half", 10)).unwrap(), 1);
    }

    #[test]
    fn without_a_profile_the_limit_says_how_busy_one_is_and_the_request_what_he_is_sure_of() {
        let plain = |request, limit| Demand {
            service: Some("s".into()),
            limit: SmShare::percent(limit),
            ..Demand::share(SmShare::percent(request))
        };
        let beside = |limit| [plain(30, limit)];
        assert!(decide(&[&beside(40)], &[], 1.5, &plain(30, 100)).is_ok(), "1.4 times slower at most");
        assert!(decide(&[&beside(60)], &[], 1.5, &plain(30, 100)).is_err());
        assert!(
            decide(&[&beside(60)], &[], 1.5, &plain(70, 100)).is_err(),
            "the other one's 30 of 60 % are too few"
        );
        assert!(
            decide(&[&[plain(50, 60)]], &[], 1.5, &plain(70, 100)).is_err(),
            "requests sum to at most 100 %"
        );
        assert!(decide(&[&[plain(50, 60)]], &[], 2.1, &plain(50, 100)).is_ok());
    }

    #[test]
    fn strangers_slow_the_others_by_what_they_requested() {
        let stranger = Demand::share(SmShare::percent(70));
        let gpus: [&[Demand]; 2] = [&[stranger], &[]];
        assert_eq!(decide(&gpus, &PROFILES, 1.5, &tenant("busy", 20)).unwrap(), 1);
        assert_eq!(decide(&gpus, &PROFILES, 1.5, &tenant("rare", 20)).unwrap(), 0);
    }
}
