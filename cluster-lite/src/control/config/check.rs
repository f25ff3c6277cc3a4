//! What each value may be, and what contradicts what.

use std::collections::BTreeSet;

use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::File;
use crate::cluster::Backbone;
use crate::control::model::{ReadyWhen, Service, WhenIdle};
use crate::control::policies::{ByPolicy, ByScaler};
use crate::control::work::Told;
use crate::fault::Fault;
use crate::profile::Slo;
use crate::toml_lines::Lines;

/// Longest name of a cluster and of a service, in bytes: with a number of ten digits they make a tenant's name of at most 40.
const LONGEST: [usize; 2] = [12, 16];

/// Names that the gateway answers itself.
const TAKEN: [&str; 2] = ["metrics", "healthz"];

/// One row of services while it is read.
pub(super) struct Values<'a> {
    pub at: usize,
    pub lines: &'a Lines<'a>,
}

impl Values<'_> {
    pub fn wrong(&self, key: &str, message: impl Into<String>, help: impl Into<String>) -> Fault {
        self.lines.row("service", self.at, key, message, help)
    }

    pub fn share(&self, key: &str, text: Option<&str>) -> Result<Option<SmShare>, Fault> {
        let parse = |text: &str| {
            let share = text.parse::<SmShare>();
            share.map_err(|error| self.wrong(key, format!("{key}: {error}"), error.hint()))
        };
        text.map(parse).transpose()
    }

    pub fn size(&self, key: &str, text: Option<&str>) -> Result<Option<Bytes>, Fault> {
        let parse = |text: &str| {
            let size = text.parse::<Bytes>();
            size.map_err(|error| self.wrong(key, format!("{key}: {error}"), error.hint()))
        };
        text.map(parse).transpose()
    }

    pub fn slo(&self, text: Option<&str>) -> Result<Option<Slo>, Fault> {
        let parse =
            |text: &str| text.parse::<Slo>().map_err(|fault| self.wrong("slo", fault.message, fault.help));
        text.map(parse).transpose()
    }

    pub fn seconds(&self, key: &str, value: Option<f64>, default: u64) -> Result<Nanos, Fault> {
        let Some(value) = value else { return Ok(Nanos::from_secs(default)) };
        if !(0.001..=86_400.0).contains(&value) {
            let message = format!("{key} is {value}");
            return Err(self.wrong(key, message, "give seconds, from 0.001 to 86400"));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a day")]
        Ok(Nanos((value * 1e9) as u64))
    }

    /// `NAME=SIZE`.
    pub fn backbone(&self, text: Option<&str>) -> Result<Option<Backbone>, Fault> {
        let wrong = |message: String| {
            self.wrong(
                "backbone",
                message,
                "write it as \"llama2-7b=13GiB\": a name for the weights, and their memory",
            )
        };
        let Some(text) = text else { return Ok(None) };
        let (name, memory) =
            text.split_once('=').ok_or_else(|| wrong(format!("backbone `{text}` has no memory")))?;
        let memory = memory.trim().parse::<Bytes>().map_err(|error| wrong(format!("backbone: {error}")))?;
        if name.trim().is_empty() || memory == Bytes(0) {
            return Err(wrong(format!("backbone `{text}` has no name or no memory")));
        }
        Ok(Some(Backbone { name: name.trim().into(), memory }))
    }

    /// What tells the work of a request.
    pub fn work(&self, header: Option<&str>, us_per_byte: Option<f64>) -> Result<Option<Told>, Fault> {
        let plain = |name: &str| name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        match (header, us_per_byte) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                let message = "work_header and work_us_per_byte exclude each other";
                Err(self.wrong("work_us_per_byte", message, "leave one of them out"))
            }
            (Some(name), None) if plain(name) && !name.is_empty() => {
                Ok(Some(Told::Header(name.to_lowercase())))
            }
            (Some(name), None) => {
                let message = format!("`{name}` is no name of a header");
                Err(self.wrong("work_header", message, "use letters, digits and `-`, such as X-GPU-Ms"))
            }
            (None, Some(us)) if (0.001..=1e6).contains(&us) =>
            {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "at most a second"
                )]
                Ok(Some(Told::Length((us * 1e3).round() as u64)))
            }
            (None, Some(us)) => {
                let message = format!("work_us_per_byte is {us}");
                Err(self.wrong(
                    "work_us_per_byte",
                    message,
                    "give microseconds of a GPU, from 0.001 to 1000000",
                ))
            }
        }
    }
}

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
    let has_port = service.command.iter().any(|word| word.contains("{port}"))
        || service.env.values().any(|value| value.contains("{port}"));
    match &service.ready {
        ReadyWhen::Runs if *floor == 0 => {
            let help = "give it a floor: nobody asks it, so nothing would ever start it";
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
