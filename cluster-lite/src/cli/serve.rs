//! `weir-cluster serve`, `check`, `ps`, `drain`, and what they start: `gateway` and `instance`.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use weir_nodemgr::unprivileged::{NOBODY, give_up_root};

use super::printer;
use crate::control::config::Config;
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
    serve::serve(&config, &|text| printer::talk(format_args!("weir-cluster: {text}")))
}

pub(super) fn check(args: &OfFile, json: bool) -> Result<(), Fault> {
    let config = Config::read(&args.file)?;
    let (services, nodes) = (config.fleet.services.len(), config.fleet.nodes.len());
    match json {
        true => printer::json(&serde_json::json!({"services": services, "nodes": nodes})),
        false => printer::data(format_args!("{}: {services} services, {nodes} nodes", args.file.display())),
    }
    Ok(())
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
