//! `[[tenant]]`: tenants that are there as long as the node manager is, with or without a process of theirs.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use weir_protocol::units::Bytes;

use super::{line_of, refuse};
use crate::codes;
use crate::control::schema::{ClassName, CreateTenant};
use crate::fault::Fault;
use crate::gpus::{Device, Gpus, parse_uuid};
use crate::latency;
use crate::place::own_uid;
use crate::registry::Registry;
use crate::typed;

/// Most GPUs that a node may have, for a check on a machine that has other ones.
const MAX_GPUS: usize = 64;

/// A row of the file; its keys are the flags of `weir run`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantRow {
    /// Its name.
    pub name: String,
    /// GPUs by index or UUID.
    pub gpu: Option<Vec<String>>,
    /// Share guaranteed.
    pub request: Option<String>,
    /// Share never exceeded.
    pub limit: Option<String>,
    /// Memory on each GPU.
    pub memory: Option<String>,
    /// What may be copied between host and device.
    pub copy_limit: Option<String>,
    /// Its class.
    pub class: Option<ClassName>,
    /// Whether plain allocations beyond the memory limit become managed memory.
    pub oversubscribe: Option<bool>,
    /// Whose processes may be its: a user's number.
    pub owner: Option<u32>,
    /// What it promises its users.
    pub slo: Option<String>,
    /// Where its latencies come from: URL and metric.
    pub latency_from: Option<(String, String)>,
}

/// A tenant to be made when the manager starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Persistent {
    /// What is asked for.
    pub wanted: CreateTenant,
    /// Whose it is.
    pub owner: u32,
    /// File and line.
    pub at: String,
}

impl TenantRow {
    fn wanted(&self) -> Result<CreateTenant, Fault> {
        let class = self.class.unwrap_or_default();
        if self.memory.is_none() {
            let message = "a memory limit is missing";
            return Err(Fault::new(&codes::MEMORY_MISSING, message, "add memory = \"20GiB\""));
        }
        if self.request.is_none() && class != ClassName::Filler {
            let message = format!("a {} tenant needs a request", class.as_str());
            return Err(Fault::new(&codes::REQUEST_MISSING, message, "add request = \"30%\""));
        }
        let source = |(url, metric): (String, String)| latency::Source { url, metric };
        Ok(CreateTenant {
            name: self.name.clone(),
            unique: false,
            gpus: self.gpu.clone().unwrap_or_default(),
            request_permille: typed::share("request", self.request.as_deref())?,
            limit_permille: typed::share("limit", self.limit.as_deref())?,
            memory_bytes: typed::size("memory", self.memory.as_deref())?,
            copy_limit_bytes_per_s: typed::bandwidth("copy_limit", self.copy_limit.as_deref())?.unwrap_or(0),
            class,
            oversubscribe: self.oversubscribe.unwrap_or(false),
            slo: self.slo.clone(),
            latency_from: self.latency_from.clone().map(source),
        })
    }
}

/// The rows as tenants to be made.
///
/// # Errors
/// The first row that could never be made, with its line: alone, or beside the ones before it.
pub fn read(rows: &[Spanned<TenantRow>], text: &str, path: &Path) -> Result<Vec<Persistent>, Fault> {
    let mut registry = imagined(rows);
    let one = |row: &Spanned<TenantRow>| {
        let at = line_of(text, path, &row.span());
        let wanted = row.as_ref().wanted().and_then(|wanted| {
            try_out(&mut registry, &wanted)?;
            Ok(wanted)
        });
        let name = row.as_ref().name.escape_debug();
        let wanted = wanted.map_err(|fault| {
            refuse(path, format!("has a tenant `{name}` that cannot be: {}", fault.message), &fault.help)
                .at(at.clone())
        })?;
        Ok(Persistent { wanted, owner: row.as_ref().owner.unwrap_or(own_uid()), at })
    };
    rows.iter().map(one).collect()
}

/// A registry over GPUs as the rows name them, with all the memory one could want: which there are is known only where
/// the manager will run.
fn imagined(rows: &[Spanned<TenantRow>]) -> Registry {
    let names = || rows.iter().filter_map(|row| row.as_ref().gpu.as_ref()).flatten();
    let indexed = names().filter_map(|name| name.parse::<usize>().ok()).max().unwrap_or(0).min(MAX_GPUS - 1);
    let device = |uuid| Device { uuid, name: String::new(), memory_total: Bytes(u64::MAX >> 8) };
    let numbered = (0..=indexed).map(|index| u8::try_from(index).unwrap_or(0));
    let mut devices: Vec<_> = numbered.map(|index| device([index; 16])).collect();
    for uuid in names().filter_map(|name| parse_uuid(name)) {
        if !devices.iter().any(|known| known.uuid == uuid) {
            devices.push(device(uuid));
        }
    }
    Registry::new(Gpus::fixed(devices), Some(Bytes(0)), &weir_policy::POLICIES[0])
}

fn try_out(registry: &mut Registry, wanted: &CreateTenant) -> Result<(), Fault> {
    let strange = |name: &&String| {
        let index = name.parse::<usize>().is_ok_and(|index| index < MAX_GPUS);
        !index && parse_uuid(name).is_none() && !name.starts_with("MIG-")
    };
    if let Some(name) = wanted.gpus.iter().find(strange) {
        let message = format!("`{}` is neither the index nor the UUID of a GPU", name.escape_debug());
        return Err(Fault::new(&codes::GPU_UNKNOWN, message, "name it as `weir ps` or `nvidia-smi -L` does"));
    }
    if registry.named(&wanted.name).is_ok() {
        return Err(Fault::new(
            &codes::NAME,
            "another row has this name",
            "give each tenant a name of its own",
        ));
    }
    registry.consider_new(wanted)?;
    registry.create(wanted, 0, crate::registry::PERSISTENT, weir_protocol::units::Nanos(0))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parsed(text: &str) -> Result<Vec<Persistent>, Fault> {
        Config::parse(text, Path::new("weir.toml")).map(|config| config.tenants)
    }

    #[test]
    fn a_row_asks_for_what_the_flags_of_the_same_names_would() {
        let text = "policy = \"static\"\n\n[[tenant]]\nname = \"serve\"\nrequest = \"60%\"\nmemory = \"20GiB\"\n\
                    gpu = [\"0\", \"1\"]\nclass = \"latency\"\nowner = 1000\nslo = \"p95 < 200ms\"\n\
                    latency_from = [\"http://127.0.0.1:8000/metrics\", \"vllm:time_to_first_token_seconds\"]\n";
        let tenants = parsed(text).unwrap();
        let Persistent { wanted, owner, at } = &tenants[0];
        assert_eq!((*owner, at.as_str()), (1000, "weir.toml:3:1"));
        assert_eq!((wanted.request_permille, wanted.memory_bytes), (Some(600), Some(20 << 30)));
        assert_eq!((wanted.class, wanted.gpus.len()), (ClassName::Latency, 2));
        assert_eq!(wanted.slo.as_deref(), Some("p95 < 200ms"));
    }

    #[test]
    fn rows_that_do_not_fit_beside_each_other_are_found_without_a_gpu() {
        let row = |name: &str, request: &str| {
            format!("[[tenant]]\nname = \"{name}\"\nrequest = \"{request}\"\nmemory = \"1GiB\"\n")
        };
        assert!(parsed(&(row("a", "60%") + &row("b", "40%"))).is_ok());
        let fault = parsed(&(row("a", "60%") + &row("b", "41%"))).unwrap_err();
        assert!(fault.message.contains("`a` holds 60 %"), "{fault}");
        assert_eq!(fault.at.as_deref(), Some("weir.toml:5:1"));
    }
}
