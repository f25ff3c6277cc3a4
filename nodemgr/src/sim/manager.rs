//! The node manager of a run: its own registry, on pages of its own making, ticked in virtual time.
//!
//! Nothing is simulated here but the sockets and the scrape: tenants are made, observed, decided upon and granted by the
//! very code that the daemon runs.

use std::sync::Arc;

use weir_policy::Counted;
use weir_protocol::units::{Bytes, Nanos as Time, SmShare};
use weir_simgpu_model::Nanos;

use super::launcher::Launcher;
use super::measure::quantile;
use super::scenario::{Metric, Readings, Tenant};
use super::seat::Seat;
use crate::control::schema::CreateTenant;
use crate::fault::Fault;
use crate::gpus::{Device, Gpus, Source};
use crate::latency::{self, Health, Reading};
use crate::mps;
use crate::registry::{Holder, Pages, Registry};

/// The card's memory, and what each tenant may hold: memory is not simulated.
const CARD: Bytes = Bytes::gib(40);
const EACH: Bytes = Bytes::gib(1);

/// How often request latencies are scraped.
const SCRAPE: Nanos = 1_000_000_000;

/// Requests that were done in so long before a scrape make the latency of late.
const LATE: Nanos = 5_000_000_000;

/// A tenant, and how its latencies are known.
struct Known {
    id: u64,
    by: Readings,
}

/// The manager.
pub struct Manager {
    registry: Registry,
    tenants: Vec<Known>,
    overlaps: bool,
    scraped_at: Nanos,
}

impl Manager {
    /// A manager with these tenants, ruled by this policy; `overlaps` says whether kernels run at once (MPS), `switch`
    /// what a switch between contexts takes.
    ///
    /// # Errors
    /// As the daemon refuses budgets.
    pub fn new(
        policy: &'static weir_policy::Row,
        tenants: &[&Tenant],
        overlaps: bool,
        switch: Nanos,
    ) -> Result<Self, Fault> {
        let card =
            Device { uuid: *b"weir simulation ", name: "Weir Simulated GPU".into(), memory_total: CARD };
        let gpus = Gpus::find(Source::Fixed(vec![card]), Vec::new())?;
        let mut registry = Registry::new(gpus, Some(Bytes(0)), policy);
        registry.expect_switches(Some(Time(switch)));
        registry.share_by_mps(overlaps.then(mps::Row::default).as_ref())?;
        let start = Time(super::engine::START);
        let mut known = Vec::new();
        for tenant in tenants {
            let wanted = CreateTenant {
                name: tenant.name.clone(),
                unique: false,
                gpus: Vec::new(),
                request_permille: tenant.request()?.map(SmShare::as_permille),
                limit_permille: tenant.limit()?.map(SmShare::as_permille),
                memory_bytes: Some(EACH.0),
                copy_limit_bytes_per_s: 0,
                class: tenant.class,
                oversubscribe: false,
                slo: tenant.slo.clone(),
                latency_from: tenant.slo.as_ref().map(|_| source(tenant.slo_by, tenant.slo_on)),
            };
            let id = registry.create(&wanted, 0, Holder { id: 1, pid: 1, birth: 0 }, start)?.0;
            known.push(Known { id, by: tenant.slo_by });
        }
        Ok(Self { registry, tenants: known, overlaps, scraped_at: 0 })
    }

    /// A process of the tenant in this seat.
    ///
    /// # Errors
    /// The tenant has no room for it.
    pub fn seat(&mut self, seat: usize) -> Result<Launcher, Fault> {
        let process = self.registry.register(self.tenants[seat].id, (1, 0), String::new(), String::new())?;
        let pages = self.pages(seat).ok_or_else(|| {
            Fault::new(&crate::codes::SYSTEM, "a tenant has no pages", "this is a mistake of ours: tell us")
        })?;
        Ok(Launcher::new(pages, process.slot, self.overlaps))
    }

    /// The pages of the tenant in this seat.
    pub fn pages(&self, seat: usize) -> Option<Arc<Pages>> {
        let tenant = self.registry.tenant(self.tenants.get(seat)?.id)?;
        Some(tenant.cells.first()?.pages.clone())
    }

    /// Those who tell by the hint tell of all whom they have served since the last tick.
    fn hear(&self, seats: &mut [Seat]) {
        for (at, (seat, tenant)) in seats.iter_mut().zip(&self.tenants).enumerate() {
            let (Readings::Hint, Some(pages), Some((_, metric))) = (tenant.by, self.pages(at), seat.promise)
            else {
                continue;
            };
            seat.log.news(metric).into_iter().for_each(|ns| pages.usage.told.add(Time(ns)));
        }
    }

    /// One run of the control loop.
    pub fn tick(&mut self, now: Time, seats: &mut [Seat]) {
        if now.0 >= self.scraped_at + SCRAPE {
            self.scraped_at = now.0;
            for (seat, tenant) in seats.iter().zip(&self.tenants) {
                if tenant.by == Readings::Exact {
                    self.registry.note_latency(tenant.id, reading(seat, now.0), Health::Told);
                }
            }
        }
        self.hear(seats);
        self.registry.tick(now);
        for (seat, tenant) in seats.iter_mut().zip(&self.tenants) {
            let cell = self.registry.tenant(tenant.id).and_then(|tenant| tenant.cells.first());
            seat.note_state(cell.map_or("", |cell| cell.state()));
        }
    }
}

/// Where latencies come from: a page that nobody reads, as the run itself tells, or the hint.
fn source(by: Readings, on: Metric) -> latency::Source {
    let url = match by {
        Readings::Exact => "http://simulated/metrics",
        Readings::Hint => latency::HINT,
    };
    latency::Source { url: url.into(), metric: on.name().to_string_lossy().into() }
}

/// What a tenant's latencies come to: the promised quantile of late, and all requests so far.
fn reading(seat: &Seat, now: Nanos) -> Reading {
    let Some((promise, metric)) = seat.promise else { return Reading::default() };
    let all = seat.log.all();
    let late = all.iter().rev().take_while(|served| served.done + LATE >= now);
    let mut latencies: Vec<Nanos> = late.filter_map(|served| served.latency(metric)).collect();
    latencies.sort_unstable();
    let recent = quantile(&latencies, promise.quantile_permille).map(Time);
    let counted = all.iter().filter_map(|served| served.latency(metric)).fold(
        Counted::default(),
        |Counted { requests, late }, latency| Counted {
            requests: requests + 1,
            late: late + u64::from(latency >= promise.target.0),
        },
    );
    Reading { recent, counted: Some(counted) }
}
