//! `weir-cluster serve`, `check`, `ps`, `drain`, and what they start: `gateway` and `instance`.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use weir_nodemgr::unprivileged::{NOBODY, give_up_root};

use super::printer;
use crate::control::config::Config;
use crate::control::model::Fleet;
use crate::control::serve::{Ask, Standings, ask};
use crate::control::{gateway, instance, serve};
use crate::fault::Fault;

/// A configuration.
#[derive(Args)]
pub(super) struct OfFile {
    /// The configuration: cluster.toml
    file: PathBuf,
}

/// What to show.
#[derive(Args)]
pub(super) struct Ps {
    /// The configuration of the running controller
    file: PathBuf,
    /// Show the last decisions, too, the newest first
    #[arg(long)]
    decisions: bool,
}

/// Which node.
#[derive(Args)]
pub(super) struct Drain {
    /// The configuration of the running controller
    file: PathBuf,
    /// The node
    node: String,
    /// Let it have instances again
    #[arg(long)]
    off: bool,
    /// It is known to be dead: forget what was lost there, and free its slices
    #[arg(long, conflicts_with = "off")]
    dead: bool,
}

/// How the gateway is to run.
#[derive(Args)]
pub(super) struct Gateway {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    socket: PathBuf,
}

/// What to do with an instance on this machine.
#[derive(Subcommand)]
pub(super) enum Instance {
    /// Start it, unless it runs or was ended
    Start {
        #[arg(long)]
        dir: PathBuf,
        name: String,
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// End it for good
    Stop {
        #[arg(long)]
        dir: PathBuf,
        name: String,
    },
}

pub(super) fn serve(args: &OfFile) -> Result<(), Fault> {
    let config = Config::read(&args.file)?;
    warn_of_ports(&config.fleet);
    serve::serve(&config, &|text| printer::talk(format_args!("weir-cluster: {text}")))
}

pub(super) fn check(args: &OfFile, json: bool) -> Result<(), Fault> {
    let config = Config::read(&args.file)?;
    warn_of_ports(&config.fleet);
    let (services, nodes) = (config.fleet.services.len(), config.fleet.nodes.len());
    match json {
        true => printer::json(&serde_json::json!({"services": services, "nodes": nodes})),
        false => printer::data(format_args!("{}: {services} services, {nodes} nodes", args.file.display())),
    }
    Ok(())
}

/// Which ports the kernel gives to outgoing connections (`ip(7)`).
const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Says which nodes of this machine may find a port of theirs taken by some connection when an instance starts.
fn warn_of_ports(fleet: &Fleet) {
    let Some(given) = std::fs::read_to_string(LOCAL_PORTS).ok().as_deref().and_then(range) else { return };
    for node in fleet.nodes.iter().filter(|node| is_here(&node.address) && overlap(node.ports, given)) {
        let ([first, last], [from, to]) = (node.ports, given);
        printer::talk(format_args!(
            "warning: ports {first}-{last} of node `{}` overlap {from}-{to}, which the kernel gives to outgoing connections \
             ({LOCAL_PORTS}): an instance may find its own taken\nhelp: give the node ports below {from}",
            node.name
        ));
    }
}

fn is_here(address: &str) -> bool {
    address == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Two numbers, as the kernel writes them.
fn range(text: &str) -> Option<[u16; 2]> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

fn overlap(a: [u16; 2], b: [u16; 2]) -> bool {
    a[0] <= b[1] && b[0] <= a[1]
}

pub(super) fn ps(args: &Ps, json: bool) -> Result<(), Fault> {
    let config = Config::read(&args.file)?;
    let standings = ask(&config.dir, &Ask::Ps { decisions: args.decisions })?;
    show(&standings, json);
    Ok(())
}

pub(super) fn drain(args: &Drain, json: bool) -> Result<(), Fault> {
    let config = Config::read(&args.file)?;
    let question = Ask::Drain { node: args.node.clone(), off: args.off, dead: args.dead };
    show(&ask(&config.dir, &question)?, json);
    Ok(())
}

fn show(standings: &Standings, json: bool) {
    if json {
        printer::json(standings);
        return;
    }
    let nodes = standings.nodes.iter().map(|node| {
        let silent = format!("{:.1} s ago", node.silent_ms as f64 / 1e3);
        vec![node.name.clone(), silent, if node.open { "open" } else { "drained" }.to_owned()]
    });
    printer::data(printer::table(&["NODE", "HEARD", "STATE"], &nodes.collect::<Vec<_>>()));
    let services = standings.services.iter().map(|(name, service)| {
        let has = standings.instances.iter().filter(|i| i.service == *name && i.state.name() == "ready");
        let lacks = service.lacks.clone().unwrap_or_default();
        vec![name.clone(), service.wanted.to_string(), has.count().to_string(), service.why.clone(), lacks]
    });
    printer::data("");
    printer::data(printer::table(
        &["SERVICE", "WANTED", "READY", "WHY", "LACKS"],
        &services.collect::<Vec<_>>(),
    ));
    let instances = standings.instances.iter().map(|i| {
        let age = format!("{:.1} s", standings.now_ns.saturating_sub(i.since.0) as f64 / 1e9);
        let place = i.place.to_string();
        vec![
            format!("{}.{}", i.service, i.id),
            i.state.name().to_owned(),
            age,
            place,
            i.budget.request.to_string(),
            i.budget.memory.to_string(),
            i.port.to_string(),
        ]
    });
    printer::data("");
    let heads = ["INSTANCE", "STATE", "FOR", "GPU", "REQUEST", "MEMORY", "PORT"];
    printer::data(printer::table(&heads, &instances.collect::<Vec<_>>()));
    for decision in &standings.decisions {
        let age = standings.now_ns.saturating_sub(decision.at.0) as f64 / 1e9;
        let who = format!("{}.{}", decision.service, decision.instance);
        printer::data(format_args!("{age:.1} s ago  {who}  {}: {}", decision.what, decision.why));
    }
}

pub(super) fn gateway(args: &Gateway) -> Result<(), Fault> {
    let failed = |what: &str, error: std::io::Error| {
        Fault::new(format!("the gateway cannot {what}: {error}"), "let `listen` name a free address")
    };
    let listener = TcpListener::bind(args.listen).map_err(|error| failed("listen", error))?;
    let _ = std::fs::remove_file(&args.socket); // the port is ours, so nobody else has it
    let link = UnixListener::bind(&args.socket).map_err(|error| failed("listen to the controller", error))?;
    only_ours(&args.socket).map_err(|error| failed("guard its socket", error))?;
    if rustix::process::geteuid().is_root() {
        give_up_root(NOBODY).map_err(|fault| Fault::new(fault.message, fault.help))?;
    }
    gateway::serve(listener, link).map_err(|error| failed("serve", error))
}

fn only_ours(socket: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))
}

pub(super) fn instance(what: &Instance) -> Result<(), Fault> {
    match what {
        Instance::Start { dir, name, command } => instance::start(dir, name, command).map(drop),
        Instance::Stop { dir, name } => instance::stop(dir, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_among_those_of_connections_are_found() {
        let given = range("32768\t60999\n").unwrap();
        assert_eq!((given, range("32768"), range("a b")), ([32_768, 60_999], None, None));
        let found =
            [[20_000, 20_999], [32_000, 32_767], [32_000, 32_768], [40_000, 40_010], [60_999, 61_100]];
        assert_eq!(found.map(|ports| overlap(ports, given)), [false, false, true, true, true]);
    }
}
