//! A node as the controller reaches it: its manager's public API (docs/api.md) for readings and budgets, and commands that run
//! there for what a manager does not do: start a program and end it.
//!
//! On this machine the API is the control socket, and commands are processes of ours; elsewhere it is `weir web` with its token,
//! and `start` of the configuration (`["ssh", "gpu2"]`) stands before each command.

mod api;
mod command;

use std::collections::BTreeMap;

use weir_nodemgr::control::schema::{Request, Response, SetBudget};
use weir_nodemgr::control::{AskStats, Stats, TenantGpuStats, TenantStats};
use weir_protocol::pages::Stall;
use weir_protocol::units::{Bytes, Nanos, SmShare};

pub use api::{Api, api};

use super::config::Reach;
use super::instance::ENDED;
use super::model::{Budget, Fleet, InstanceId, Service};
use super::order::{GpuSeen, Order, Outcome, Report, Seen, Spent, What};
use crate::fault::Fault;
use command::{Command, Ran};

/// Everything that a node says, as the state machine takes it.
///
/// # Errors
/// The manager does not answer.
pub fn report(api: &Api, fleet: &Fleet, node: &str, asked_at: Nanos) -> Result<Report, Fault> {
    match api.ask(&Request::Stats(AskStats { overview: true }))? {
        Response::Stats(stats) => Ok(as_report(&stats, fleet, node, asked_at)),
        other => {
            Err(Fault::new(format!("node `{node}` answers something else: {other:?}"), "look at its version"))
        }
    }
}

fn as_report(stats: &Stats, fleet: &Fleet, node: &str, asked_at: Nanos) -> Report {
    let is_ours = |tenant: &&TenantStats| fleet.parse_tenant(&tenant.name).is_some();
    let tenants = stats.tenants.iter().filter(is_ours);
    let tenants: BTreeMap<String, Seen> = tenants.map(|tenant| (tenant.name.clone(), seen(tenant))).collect();
    let gpus = stats.gpus.iter().map(|gpu| {
        let here = |t: &&TenantStats| t.gpus.iter().any(|on| on.index == gpu.index);
        let strangers = stats.tenants.iter().filter(|t| !is_ours(t)).filter(here);
        let (request, memory) = strangers.fold((0u16, 0u64), |(request, memory), tenant| {
            let budget = &tenant.budget;
            (request.saturating_add(budget.request.as_permille()), memory.saturating_add(budget.memory.0))
        });
        GpuSeen {
            name: gpu.name.clone(),
            memory: Bytes(gpu.memory_usable_bytes),
            foreign_request: SmShare::permille(request),
            foreign_memory: Bytes(memory),
            draw: gpu.power.calibrated,
        }
    });
    Report { node: node.to_owned(), asked_at, gpus: gpus.collect(), tenants }
}

fn seen(tenant: &TenantStats) -> Seen {
    Seen {
        budget: Budget {
            request: tenant.budget.request,
            limit: tenant.budget.limit,
            memory: tenant.budget.memory,
        },
        gpu: tenant.gpus.first().map_or(0, |gpu| gpu.index),
        runs: tenant.processes_ever > 0,
        parked: tenant.state == "parked",
        spent: tenant.gpus.first().map(spent).unwrap_or_default(),
    }
}

fn spent(gpu: &TenantGpuStats) -> Spent {
    let sum =
        |parts: &[Stall]| Nanos(parts.iter().filter_map(|part| gpu.total.stalls_ns.get(part.name())).sum());
    Spent {
        at_work: sum(&[Stall::Compute, Stall::Communication, Stall::Copies]),
        by_itself: sum(&[Stall::Host]),
        waited: sum(&[Stall::Gate, Stall::Neighbour]),
    }
}

/// Carries out an order; returns when it is done, refused, or nobody can tell.
pub fn carry_out(reach: &Reach, api: &Api, service: Option<&Service>, order: &Order) -> Outcome {
    match order.what {
        What::Start { port, budget } => match service {
            Some(service) => start(reach, service, order, port, &budget),
            None => Outcome::Refused("its service is configured no more".into()),
        },
        What::Stop => stop(reach, &order.tenant),
        What::Resize(budget) => changed(api.ask(&Request::Set(SetBudget {
            tenant: order.tenant.clone(),
            request_permille: Some(budget.request.as_permille()),
            limit_permille: Some(budget.limit.as_permille()),
            memory_bytes: Some(budget.memory.0),
            ..SetBudget::default()
        }))),
        What::Park => changed(api.ask(&Request::Park { tenant: order.tenant.clone() })),
        What::Unpark => changed(api.ask(&Request::Unpark { tenant: order.tenant.clone() })),
    }
}

fn changed(answer: Result<Response, Fault>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Done,
        Err(fault) if fault.exit == crate::fault::UNREACHABLE => Outcome::Unknown(fault.message),
        Err(fault) => Outcome::Refused(fault.message),
    }
}

fn start(reach: &Reach, service: &Service, order: &Order, port: u16, budget: &Budget) -> Outcome {
    let here = Command::on(reach).instance("start", &order.tenant);
    let command = here.arg("--").args(weir_run(
        reach,
        service,
        order.instance,
        &order.tenant,
        order.place.gpu,
        port,
        budget,
    ));
    match command.run() {
        Ran::Ended { code: 0, .. } => Outcome::Done,
        Ran::Ended { code, said } if code == i32::from(ENDED) || code == 1 || code == 2 => {
            Outcome::Refused(said)
        }
        Ran::Ended { said, .. } | Ran::Unknown(said) => Outcome::Unknown(said),
    }
}

fn stop(reach: &Reach, tenant: &str) -> Outcome {
    match Command::on(reach).instance("stop", tenant).run() {
        Ran::Ended { code: 0, .. } => Outcome::Done,
        Ran::Ended { said, .. } | Ran::Unknown(said) => Outcome::Unknown(said),
    }
}

/// `weir run` of an instance, with its environment before it and its port within.
fn weir_run(
    reach: &Reach,
    service: &Service,
    id: InstanceId,
    tenant: &str,
    gpu: usize,
    port: u16,
    budget: &Budget,
) -> Vec<String> {
    let percent = |share: SmShare| format!("{}%", share.as_percent());
    let fill = |word: &String| {
        let filled = word.replace("{port}", &port.to_string()).replace("{name}", tenant);
        filled.replace("{id}", &id.to_string())
    };
    let pair = |(name, value): (&String, &String)| format!("{name}={}", fill(value));
    let mut words = vec!["env".to_owned()];
    words.extend(reach.env.iter().chain(&service.env).map(pair));
    words.extend([reach.weir.display().to_string(), "run".into()]);
    if let Some(dir) = &reach.dir {
        words.extend(["--dir".into(), dir.display().to_string()]);
    }
    words.extend(["--name", tenant, "--gpu"].map(str::to_owned));
    words.extend([gpu.to_string(), "--request".into(), percent(budget.request)]);
    words.extend([
        "--limit".into(),
        percent(budget.limit),
        "--memory".into(),
        format!("{}B", budget.memory.0),
    ]);
    words.extend(["--class", service.class.as_str(), "--"].map(str::to_owned));
    words.extend(service.command.iter().map(fill));
    words
}
