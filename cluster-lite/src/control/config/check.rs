//! What contradicts what.

use std::collections::BTreeSet;

use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::{Bytes, SmShare};

use super::File;
use super::values::Values;
use crate::control::model::{ReadyWhen, Service, WhenIdle};
use crate::control::policies::{ByPolicy, ByScaler};
use crate::fault::Fault;
use crate::toml_lines::Lines;

/// Longest name of a cluster and of a service, in bytes: with a number of ten digits they make a tenant's name of at most 40.
const LONGEST: [usize; 2] = [12, 16];

/// Names that the gateway answers itself.
const TAKEN: [&str; 2] = ["metrics", "healthz"];

fn is_name(name: &str, longest: usize) -> bool {
    let plain = name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    plain && !name.is_empty() && !name.starts_with('-') && name.len() <= longest
}

/// What needs no single row.
pub(super) fn file(file: &File, lines: &Lines<'_>) -> Result<(), Fault> {
    if let Some(name) = file.name.as_deref().filter(|name| !is_name(name, LONGEST[0])) {
        let help = format!("use 1 to {} small letters, digits and `-`", LONGEST[0]);
        return Err(lines.fault(&["name"], format!("`{name}` cannot be a cluster's name"), help));
    }
    if file.stale_after_s.is_some_and(|s| !(2..=3600).contains(&s)) {
        return Err(lines.fault(
            &["stale_after_s"],
            "stale_after_s is out of range",
            "give 2 to 3600 seconds",
        ));
    }
    if let Some(policy) = &file.place {
        ByPolicy::new(policy, &[], 0).map_err(|fault| lines.fault(&["place"], fault.message, fault.help))?;
    }
    if let Some(ceiling) = file.ceiling.filter(|ceiling| !(1.0..=100.0).contains(ceiling)) {
        let message = format!("a ceiling of {ceiling} on slowdowns is none");
        return Err(lines.fault(&["ceiling"], message, "give 1 to 100: 1.5 is half as slow again"));
    }
    if let Some(policy) = &file.scale {
        let known = ByScaler::new(policy, crate::scale::Rules::default());
        known.map_err(|fault| lines.fault(&["scale"], fault.message, fault.help))?;
    }
    if file.node.is_empty() {
        let help = "add a [[node]] with a name and the dir of its node manager";
        return Err(lines.fault(&[], "there is no node", help));
    }
    if file.service.is_empty() {
        return Err(lines.fault(&[], "there is no service", "add a [[service]] with name and command"));
    }
    let nodes = file.node.iter().map(|row| row.name.as_str()).enumerate();
    let services = file.service.iter().map(|row| row.name.as_str()).enumerate();
    names("node", nodes, lines)?;
    names("service", services, lines)
}

fn names<'a>(
    list: &str,
    names: impl Iterator<Item = (usize, &'a str)>,
    lines: &Lines<'_>,
) -> Result<(), Fault> {
    let mut known = BTreeSet::new();
    for (at, name) in names {
        let wrong = |message: String, help: &str| Err(lines.row(list, at, "name", message, help));
        if !is_name(name, LONGEST[1]) {
            let help = format!("use 1 to {} small letters, digits and `-`", LONGEST[1]);
            return wrong(format!("`{name}` cannot be a {list}'s name"), &help);
        }
        if list == "service" && TAKEN.contains(&name) {
            return wrong(format!("`/{name}` is answered by the gateway itself"), "choose another name");
        }
        if !known.insert(name) {
            return wrong(format!("there are two {list}s named `{name}`"), "give each its own name");
        }
    }
    Ok(())
}

/// What contradicts what in a service.
pub(super) fn service(service: &Service, values: &Values<'_>) -> Result<(), Fault> {
    let Service { name, floor, ceiling, budget, shares, class, .. } = service;
    let wrong = |key: &str, message: String, help: &str| Err(values.wrong(key, message, help));
    if service.command.is_empty() {
        return wrong("command", format!("service `{name}` has no program"), "name it with its arguments");
    }
    if floor > ceiling || *ceiling == 0 {
        return wrong(
            "ceiling",
            format!("floor {floor} and ceiling {ceiling} exclude each other"),
            "let floor be at most ceiling, and ceiling at least 1",
        );
    }
    if budget.limit < budget.request {
        let message = format!("limit {} lies below request {}", budget.limit, budget.request);
        return wrong("limit", message, "raise the limit or lower the request");
    }
    if !(shares[0] <= budget.request && budget.request <= shares[1]) {
        let message = format!("request {} lies outside {} to {}", budget.request, shares[0], shares[1]);
        return wrong("request", message, "let share_least <= request <= share_most");
    }
    if *class != ClassName::Filler && shares[0] == SmShare::ZERO {
        let message = "a request of 0 % guarantees nothing".into();
        return wrong("request", message, "give it a share, or class = \"filler\"");
    }
    if service.concurrency == 0 {
        let message = "concurrency is 0: no request would ever be sent".into();
        return wrong("concurrency", message, "give 1 or more");
    }
    if service.when_idle == WhenIdle::Park && service.backbone.is_some() {
        let message = "its backbone would go to the host with it, from under those who share it".into();
        return wrong("backbone", message, "let it stop when idle, or leave the backbone out");
    }
    if service.when_idle == WhenIdle::Park && *class == ClassName::Primary {
        return wrong(
            "when_idle",
            "a primary is never parked".into(),
            "let it stop, or make its class latency",
        );
    }
    started(service, values)
}

/// What contradicts how its instances are started and known to be ready.
fn started(service: &Service, values: &Values<'_>) -> Result<(), Fault> {
    let Service { name, floor, class, .. } = service;
    let wrong = |key: &str, message: String, help: &str| Err(values.wrong(key, message, help));
    if service.batch.is_some()
        && (*class != ClassName::Filler || service.ready != ReadyWhen::Runs || *floor > 0)
    {
        let message = format!("service `{name}` follows signals and is no best-effort work");
        let help =
            "write class = \"filler\", ready = \"runs\" and no floor; or leave gpu_hours and done_by out";
        return wrong("gpu_hours", message, help);
    }
    let has_port = service.command.iter().any(|word| word.contains("{port}"))
        || service.env.values().any(|value| value.contains("{port}"));
    match &service.ready {
        ReadyWhen::Runs if *floor == 0 && service.batch.is_none() => {
            let help =
                "give it a floor, or gpu_hours and done_by: nobody asks it, so nothing would ever start it";
            wrong("ready", format!("service `{name}` gets no requests and has no floor"), help)
        }
        ReadyWhen::Runs => Ok(()),
        ReadyWhen::Answers(path) if !path.starts_with('/') => {
            wrong("ready", format!("`{path}` is no path"), "write /healthz, or \"port\", or \"runs\"")
        }
        _ if !has_port => {
            let help =
                "write {port} where its command takes the port, or ready = \"runs\" if it gets no requests";
            wrong("command", format!("service `{name}` is never told its port"), help)
        }
        _ => Ok(()),
    }
}

/// Where services follow signals all nodes have a site, and all sites their power.
pub(super) fn sites(file: &File, services: &[Service], lines: &Lines<'_>) -> Result<(), Fault> {
    names("site", file.site.iter().map(|row| row.name.as_str()).enumerate(), lines)?;
    for (at, site) in file.site.iter().enumerate() {
        let (idle, busy) = (site.idle_watts, site.busy_watts);
        if !(0.0..1e6).contains(&idle) || !(idle..1e6).contains(&busy) || busy <= idle {
            let message = format!("a GPU at site `{}` draws {idle} W idle and {busy} W busy", site.name);
            return Err(lines.row(
                "site",
                at,
                "busy_watts",
                message,
                "give watts of one GPU: busy more than idle",
            ));
        }
    }
    let follows = services.iter().position(|service| service.batch.is_some());
    for (at, node) in file.node.iter().enumerate() {
        let known = node.site.as_ref().map(|site| file.site.iter().any(|row| row.name == *site));
        if known == Some(false) || (known.is_none() && follows.is_some()) {
            let site = node.site.as_deref().unwrap_or("nowhere");
            let message = format!("node `{}` is at `{site}`, which is no site here", node.name);
            return Err(lines.row("node", at, "site", message, "name one of the [[site]]s"));
        }
    }
    match (follows, &file.signals) {
        (Some(at), None) => {
            let message = format!("service `{}` follows signals, and there are none", services[at].name);
            Err(lines.row("service", at, "gpu_hours", message, "name their file: signals = \"signals.csv\""))
        }
        _ => Ok(()),
    }
}

/// Weights of one name are the same everywhere.
pub(super) fn backbones(services: &[Service], lines: &Lines<'_>) -> Result<(), Fault> {
    let shared =
        || services.iter().enumerate().filter_map(|(at, one)| Some((at, one, one.backbone.as_ref()?)));
    for (at, service, backbone) in shared() {
        let other =
            shared().find(|(_, _, other)| other.name == backbone.name && other.memory != backbone.memory);
        if let Some((_, other, theirs)) = other.filter(|(earlier, ..)| *earlier < at) {
            let message = format!(
                "backbone `{}` is {} for `{}` and {} for `{}`",
                backbone.name, backbone.memory, service.name, theirs.memory, other.name
            );
            return Err(lines.row("service", at, "backbone", message, "give it one size, or two names"));
        }
    }
    Ok(())
}

/// Whether a node whose size the file tells could hold each service. Where a node does not tell, its manager will.
pub(super) fn held(file: &File, services: &[Service], lines: &Lines<'_>) -> Result<(), Fault> {
    let mut sizes = Vec::new();
    for (at, node) in file.node.iter().enumerate() {
        let Some(text) = &node.gpu_memory else { return Ok(()) };
        let size = text.parse::<Bytes>().map_err(|error| {
            lines.row("node", at, "gpu_memory", format!("gpu_memory: {error}"), error.hint())
        })?;
        sizes.push(if node.gpus == Some(0) { Bytes(0) } else { size });
    }
    let most = sizes.into_iter().max().unwrap_or(Bytes(0));
    let too_large = services.iter().enumerate().find(|(_, service)| service.with_backbone().memory > most);
    let Some((at, service)) = too_large else { return Ok(()) };
    let key = if file.service[at].memory.is_some() { "memory" } else { "name" };
    let message =
        format!("no node can hold service `{}`: it needs {}", service.name, service.with_backbone().memory);
    let help = format!("the largest GPU has {most}: lower its memory, or add a node");
    Err(lines.row("service", at, key, message, help))
}
