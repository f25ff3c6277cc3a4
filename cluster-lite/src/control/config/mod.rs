//! `cluster.toml`: the services, the nodes and how they are reached. Everything is checked before anything is started; each
//! mistake has its line.

mod check;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use weir_nodemgr::control::schema::ClassName;
use weir_protocol::units::{Bytes, Nanos, SmShare};

use super::model::{Budget, Fleet, Node, ReadyWhen, Service, Site, WhenIdle};
use crate::fault::{CONFIG, Fault};
use crate::place::CEILING;
use crate::profile::{Kind, Profile, Slo};
use crate::toml_lines::Lines;

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// The file, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    listen: Option<String>,
    dir: PathBuf,
    stale_after_s: Option<u64>,
    place: Option<String>,
    ceiling: Option<f64>,
    scale: Option<String>,
    rules: Option<crate::scale::Rules>,
    weir: Option<PathBuf>,
    signals: Option<PathBuf>,
    #[serde(default)]
    site: Vec<SiteRow>,
    #[serde(default)]
    node: Vec<NodeRow>,
    #[serde(default)]
    service: Vec<ServiceRow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteRow {
    name: String,
    idle_watts: f64,
    busy_watts: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeRow {
    name: String,
    dir: Option<PathBuf>,
    web: Option<String>,
    token_file: Option<PathBuf>,
    #[serde(default)]
    start: Vec<String>,
    address: Option<String>,
    ports: Option<String>,
    instances: Option<PathBuf>,
    weir: Option<PathBuf>,
    weir_cluster: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    gpus: Option<u32>,
    gpu_memory: Option<String>,
    site: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceRow {
    name: String,
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    profile: Option<PathBuf>,
    request: Option<String>,
    limit: Option<String>,
    memory: Option<String>,
    share_least: Option<String>,
    share_most: Option<String>,
    class: Option<ClassName>,
    slo: Option<String>,
    floor: Option<u32>,
    ceiling: Option<u32>,
    concurrency: Option<u32>,
    queue: Option<u32>,
    queue_deadline_s: Option<f64>,
    answer_deadline_s: Option<f64>,
    cold_start_s: Option<f64>,
    ready: Option<String>,
    when_idle: Option<WhenIdle>,
    backbone: Option<String>,
    work_header: Option<String>,
    work_us_per_byte: Option<f64>,
    gpu_hours: Option<f64>,
    done_by: Option<String>,
}

/// How a node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The node.
    pub name: String,
    /// Its node manager: this machine's, by its directory, or another's, by its `weir web` and token.
    pub manager: ManagerAt,
    /// What stands before a command that is to run there; nothing on this machine.
    pub start: Vec<String>,
    /// Where locks and logs of instances lie there.
    pub instances: PathBuf,
    /// The node manager's directory there.
    pub dir: Option<PathBuf>,
    /// `weir` there.
    pub weir: PathBuf,
    /// `weir-cluster` there.
    pub weir_cluster: PathBuf,
    /// Further environment of its instances.
    pub env: BTreeMap<String, String>,
}

/// A node manager's public API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerAt {
    /// The control socket in this directory.
    Socket(PathBuf),
    /// `weir web`, with the token in this file.
    Web {
        /// Such as `http://gpu2:9464`.
        url: String,
        /// The token's file.
        token_file: PathBuf,
    },
}

/// All of it, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Services and nodes.
    pub fleet: Fleet,
    /// How each node is reached.
    pub reach: Vec<Reach>,
    /// Where the gateway listens.
    pub listen: SocketAddr,
    /// Where store, sockets and logs lie.
    pub dir: PathBuf,
    /// The placement policy.
    pub place: String,
    /// Greatest slowdown of anybody, for the policy `interference`.
    pub ceiling: f64,
    /// The scaling policy.
    pub scale: String,
    /// Its parameters.
    pub rules: crate::scale::Rules,
    /// What is known of the sites by the hour; read anew whenever it has changed.
    pub signals: Option<PathBuf>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// A fault with file and line, under [`CONFIG`].
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let failed = |what: String| {
            let help = "name a cluster.toml; docs/cluster.md has an example";
            Fault::new(format!("`{}` {what}", path.display()), help).exit(CONFIG)
        };
        let cannot = |error: std::io::Error| failed(format!("cannot be read: {error}"));
        if std::fs::metadata(path).map_err(cannot)?.len() > LARGEST {
            return Err(failed("has more than a MiB".into()));
        }
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        Self::parse(&text, path)
    }

    /// The configuration in `text`; `path` is for messages, and what the file names relatively lies beside it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Fault> {
        let lines = Lines::new(text, path);
        let file: File = toml::from_str(text).map_err(|error| {
            lines.misunderstood(&error, "the cluster is", "correct the line; docs/cluster.md has every key")
        })?;
        let beside = |named: &Path| path.parent().unwrap_or(Path::new("")).join(named);
        let listen = file.listen.clone().unwrap_or_else(|| "127.0.0.1:8080".into());
        let listen = listen.parse().map_err(|_| {
            let message = format!("`{listen}` is no address to listen at");
            lines.fault(&["listen"], message, "write it as 127.0.0.1:8080")
        })?;
        check::file(&file, &lines)?;
        let nodes = file.node.iter().enumerate();
        let reach: Vec<Reach> = nodes
            .clone()
            .map(|(at, row)| reach(row, at, &file, &lines, &beside))
            .collect::<Result<_, _>>()?;
        let nodes = nodes.map(|(at, row)| node(row, at, &lines)).collect::<Result<_, _>>()?;
        let services = file.service.iter().enumerate();
        let services: Vec<Service> =
            services.map(|(at, row)| service(row, at, &lines, &beside)).collect::<Result<_, _>>()?;
        check::backbones(&services, &lines)?;
        check::sites(&file, &services, &lines)?;
        let sites = file.site.iter();
        let sites = sites.map(|row| Site { name: row.name.clone(), watts: [row.idle_watts, row.busy_watts] });
        check::held(&file, &services, &lines)?;
        let fleet = Fleet {
            cluster: file.name.clone().unwrap_or_else(|| "c".into()),
            services,
            nodes,
            sites: sites.collect(),
            stale_after: Nanos::from_secs(file.stale_after_s.unwrap_or(10)),
        };
        Ok(Self {
            fleet,
            reach,
            listen,
            dir: beside(&file.dir),
            place: file.place.unwrap_or_else(|| "weir".into()),
            ceiling: file.ceiling.unwrap_or(CEILING),
            scale: file.scale.unwrap_or_else(|| "weir".into()),
            rules: file.rules.unwrap_or_default(),
            signals: file.signals.as_deref().map(beside),
        })
    }
}

fn reach(
    row: &NodeRow,
    at: usize,
    file: &File,
    lines: &Lines<'_>,
    beside: &dyn Fn(&Path) -> PathBuf,
) -> Result<Reach, Fault> {
    let wrong = |key: &'static str, message: String, help: &str| lines.row("node", at, key, message, help);
    let manager = match (&row.dir, &row.web, &row.token_file) {
        (Some(dir), None, None) if row.start.is_empty() => ManagerAt::Socket(dir.clone()),
        (_, Some(url), Some(token)) => ManagerAt::Web { url: url.clone(), token_file: beside(token) },
        (_, Some(_), None) => {
            let help = "name the file with its `weir web`'s token: token_file = \"...\"";
            return Err(wrong("web", format!("node `{}` has no token", row.name), help));
        }
        (Some(_), None, _) => {
            let message = format!("node `{}` is reached by `start`, and has no `web`", row.name);
            return Err(wrong("name", message, "add web = \"http://HOST:9464\" and token_file"));
        }
        (None, None, _) => {
            let message = format!("nothing says where node `{}`'s manager is", row.name);
            return Err(wrong("name", message, "add dir = \"/run/weir\", or web and token_file"));
        }
    };
    let instances = row.instances.clone().unwrap_or_else(|| match &manager {
        ManagerAt::Socket(_) => beside(&file.dir).join("instances").join(&row.name),
        ManagerAt::Web { .. } => PathBuf::from("/run/weir-cluster"),
    });
    let here = || std::env::current_exe().ok().filter(|_| row.start.is_empty());
    let weir = row.weir.clone().or_else(|| file.weir.clone()).unwrap_or_else(|| "weir".into());
    Ok(Reach {
        name: row.name.clone(),
        manager,
        start: row.start.clone(),
        instances,
        dir: row.dir.clone(),
        weir,
        weir_cluster: row.weir_cluster.clone().or_else(here).unwrap_or_else(|| "weir-cluster".into()),
        env: row.env.clone(),
    })
}

fn node(row: &NodeRow, at: usize, lines: &Lines<'_>) -> Result<Node, Fault> {
    let text = row.ports.as_deref().unwrap_or("20000-20999");
    let ports = text.split_once('-').and_then(|(first, last)| {
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (0 < first && first <= last).then_some([first, last])
    });
    let ports = ports.ok_or_else(|| {
        let message = format!("`{text}` is no range of ports");
        lines.row("node", at, "ports", message, "write it as \"20000-20999\"")
    })?;
    let address = row.address.clone().unwrap_or_else(|| "127.0.0.1".into());
    Ok(Node { name: row.name.clone(), address, ports, site: row.site.clone() })
}

fn service(
    row: &ServiceRow,
    at: usize,
    lines: &Lines<'_>,
    beside: &dyn Fn(&Path) -> PathBuf,
) -> Result<Service, Fault> {
    let profile = row.profile.as_ref().map(|path| Profile::read(&beside(path))).transpose()?;
    let values = values::Values { at, lines };
    let missing = |key: &'static str| {
        let message = format!("service `{}` has neither a `{key}` nor a profile", row.name);
        values.wrong("name", message, "profile it with `weir-cluster profile`, or say what it needs")
    };
    let of_profile = |get: fn(&Profile) -> SmShare| profile.as_ref().map(get);
    let request = values.share("request", row.request.as_deref())?.or(of_profile(|p| p.request));
    let request = request.ok_or_else(|| missing("request"))?;
    let limit = values.share("limit", row.limit.as_deref())?.or(of_profile(|p| p.limit));
    let limit = limit.unwrap_or(SmShare::FULL);
    let memory: Option<Bytes> = values.size("memory", row.memory.as_deref())?;
    let memory = memory.or(profile.as_ref().map(|p| p.memory)).ok_or_else(|| missing("memory"))?;
    let least = values.share("share_least", row.share_least.as_deref())?.unwrap_or(request);
    let most = values.share("share_most", row.share_most.as_deref())?.unwrap_or(limit.max(request));
    let slo: Option<Slo> = values.slo(row.slo.as_deref())?;
    let slo = slo.or(profile.as_ref().and_then(|p| p.inference.as_ref()).map(|inference| inference.slo));
    let class = row.class.unwrap_or(match profile.as_ref().map(|p| p.kind) {
        Some(Kind::Training) => ClassName::Primary,
        Some(Kind::Filler) => ClassName::Filler,
        _ => ClassName::Latency,
    });
    let seconds = |key, value, default| values.seconds(key, value, default);
    let batch = profile.as_ref().and_then(|p| p.inference.as_ref()).map_or(8, |inference| inference.batch);
    let service = Service {
        name: row.name.clone(),
        command: row.command.clone(),
        env: row.env.clone(),
        budget: Budget { request, limit, memory },
        shares: [least, most],
        class,
        slo,
        floor: row.floor.unwrap_or(0),
        ceiling: row.ceiling.unwrap_or(4),
        concurrency: row.concurrency.unwrap_or(batch),
        queue: row.queue.unwrap_or(256),
        queue_deadline: seconds("queue_deadline_s", row.queue_deadline_s, 60)?,
        answer_deadline: seconds("answer_deadline_s", row.answer_deadline_s, 300)?,
        cold_start: seconds("cold_start_s", row.cold_start_s, 10)?,
        ready: ready(row.ready.as_deref()),
        when_idle: row.when_idle.unwrap_or_default(),
        backbone: values.backbone(row.backbone.as_deref())?,
        work: values.work(row.work_header.as_deref(), row.work_us_per_byte)?,
        batch: values.batch(row.gpu_hours, row.done_by.as_deref())?,
        profile,
    };
    check::service(&service, &values)?;
    Ok(service)
}

/// A path, `port` or `runs`.
fn ready(text: Option<&str>) -> ReadyWhen {
    match text {
        None | Some("port") => ReadyWhen::Listens,
        Some("runs") => ReadyWhen::Runs,
        Some(path) => ReadyWhen::Answers(path.to_owned()),
    }
}
