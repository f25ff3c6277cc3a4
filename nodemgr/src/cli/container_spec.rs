//! `weir container-spec`: what a container needs to be a tenant, as a file for the Container Device Interface (CDI,
//! <https://github.com/cncf-tags/container-device-interface>), or as flags for `docker run` and `podman run`.
//!
//! The container gets the tenant's own directory, the library, and one line that has it loaded; nothing of the node
//! manager's.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::visible::{self, Visible};
use super::{Context, preload, printer};
use crate::codes;
use crate::control::{Client, Stats, TenantStats};
use crate::fault::Fault;

/// The oldest version of CDI with all that is used here: names of devices that begin with a digit.
const CDI_VERSION: &str = "0.5.0";

/// Vendor and class of our devices.
const KIND: &str = "weir/tenant";

/// Where the library looks for the tenant's socket.
const TENANT: &str = "/run/weir/tenant";

/// Where the library looks for the driver in whose place it is, and for NVML.
const DRIVER: &str = "/run/weir/driver";

const NVML: &str = "libnvidia-ml.so.1";

/// Where the library lies in a container; `ld.so.preload` beside it has this line.
const LIBRARY: &str = "/run/weir/libweir.so";

#[derive(clap::Args)]
pub(super) struct Args {
    /// The tenant: it lives as long as its `weir run`, or any process of it
    tenant: String,
    /// How the library gets into the container's programs
    #[arg(long, value_enum, default_value_t = Way::LdSoPreload)]
    way: Way,
    /// Put the library in the driver's place, too: over this file, the host's libcuda.so.1, at the same path in the container
    #[arg(long, value_name = "DRIVER")]
    proxy: Option<PathBuf>,
    /// How CUDA_VISIBLE_DEVICES tells the container's programs their GPUs: by UUID where the container is given other GPUs, too
    #[arg(long, value_enum, default_value_t = Visible::Index)]
    visible: Visible,
    /// Print flags for `docker run` and `podman run` instead
    #[arg(long)]
    flags: bool,
    /// The library that enforces the budget [default: libweir.so beside this program]
    #[arg(long, value_name = "PATH")]
    preload: Option<PathBuf>,
}

/// How the library gets into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// Mounted at /etc/ld.so.preload: programs with an empty environment too
    LdSoPreload,
    /// The variable LD_PRELOAD
    Preload,
    /// Not at all: for --proxy alone
    None,
}

/// A file for CDI.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    cdi_version: &'static str,
    kind: &'static str,
    devices: [Device; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

/// What changes in the container.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    env: Vec<String>,
    mounts: Vec<Mount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<Node>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: [&'static str; 4],
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Node {
    path: PathBuf,
}

pub(super) fn run(context: &Context, args: &Args) -> Result<u8, Fault> {
    let place = context.place()?;
    let stats = Client::connect(&place)?.stats()?;
    let tenant = find(&stats, &args.tenant)?;
    if args.way == Way::None && args.proxy.is_none() {
        let message = "a container with neither preload nor proxy would have no limits";
        return Err(Fault::new(&codes::PRELOAD, message, "add --proxy DRIVER, or use another --way"));
    }
    refuse_mps(&stats, tenant)?;
    let library = preload::find(args.preload.as_deref())?;
    let uuids: Vec<_> = tenant.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    let nodes = if stats.node.simulated { Vec::new() } else { device_nodes(&uuids) };
    let indices: Vec<_> = tenant.gpus.iter().map(|gpu| gpu.index).collect();
    let visible = match args.visible {
        Visible::Index if stats.node.simulated => visible::variables(&indices), // a container sees all simulated GPUs
        spelling => visible::in_container(&indices, &uuids, spelling),
    };
    let mut edits = edits(place.tenant_dir(&tenant.name), &library, args.way, &visible, nodes)?;
    if let Some(driver) = &args.proxy {
        edits.mounts.extend(proxy(&library, driver)?);
    }
    if args.flags {
        printer::data(flags(&edits).join(" "));
    } else {
        let device = Device { name: tenant.name.clone(), container_edits: edits };
        printer::json(&Spec { cdi_version: CDI_VERSION, kind: KIND, devices: [device] });
        let name = &tenant.name;
        printer::talk(format_args!(
            "weir: put this into /etc/cdi/weir-{name}.json, then: podman run --device {KIND}={name} ...\n\
             weir: or without CDI: docker run $(weir container-spec {name} --flags) ..."
        ));
    }
    printer::talk(if stats.node.simulated {
        format!(
            "weir: {}: mount its libraries and its directory into the container yourself",
            printer::SIMULATED
        )
    } else {
        "weir: the driver's libraries come by NVIDIA's own toolkit: --device nvidia.com/gpu=UUID of these GPUs; with others besides, \
         ask for --visible uuid"
            .into()
    });
    Ok(0)
}

/// A container knows neither the pipes of MPS nor the host's IPC namespace: its programs would run beside MPS.
fn refuse_mps(stats: &Stats, tenant: &TenantStats) -> Result<(), Fault> {
    let by_mps = |index: usize| stats.gpus.iter().any(|gpu| gpu.index == index && gpu.mps);
    let Some(gpu) = tenant.gpus.iter().find(|gpu| by_mps(gpu.index)) else { return Ok(()) };
    let message = format!("tenants share GPU {} by MPS, which containers cannot reach", gpu.index);
    Err(Fault::new(&codes::MPS, message, "use `weir run`, or take the GPU out of [mps] in weir.toml"))
}

/// The tenant of this name, if CDI can name it.
fn find<'a>(stats: &'a Stats, name: &str) -> Result<&'a TenantStats, Fault> {
    let Some(tenant) = stats.tenants.iter().find(|tenant| tenant.name == name) else {
        let help = format!("start it: weir run --name {name} ... -- podman run --device {KIND}={name} ...");
        return Err(Fault::new(&codes::TENANT_UNKNOWN, format!("there is no tenant `{name}`"), help));
    };
    if !name.ends_with(|last: char| last.is_ascii_alphanumeric()) {
        let message = format!("`{name}` cannot be a CDI device: its name must end in a letter or digit");
        return Err(Fault::new(&codes::NAME, message, "give the tenant another name"));
    }
    Ok(tenant)
}

fn edits(
    tenant_dir: PathBuf,
    library: &Path,
    way: Way,
    visible: &[(&str, String)],
    device_nodes: Vec<Node>,
) -> Result<Edits, Fault> {
    let mut edits = Edits {
        env: visible.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        mounts: vec![Mount::of(tenant_dir, TENANT), Mount::of(library.to_path_buf(), LIBRARY)],
        device_nodes,
    };
    match way {
        Way::None => {}
        Way::Preload => edits.env.push(format!("LD_PRELOAD={LIBRARY}")),
        Way::LdSoPreload => {
            let line = library.with_file_name("ld.so.preload");
            if !std::fs::read_to_string(&line).is_ok_and(|text| text.trim() == LIBRARY) {
                let message = format!("`{}` does not say `{LIBRARY}`", line.display());
                return Err(Fault::new(
                    &codes::PRELOAD,
                    message,
                    "install it beside libweir.so, or use --way preload",
                ));
            }
            edits.mounts.push(Mount::of(line, "/etc/ld.so.preload"));
        }
    }
    Ok(edits)
}

impl Mount {
    fn of(host_path: PathBuf, container_path: impl Into<PathBuf>) -> Self {
        // Sockets are reached through a read-only mount too.
        Self { host_path, container_path: container_path.into(), options: ["ro", "nosuid", "nodev", "bind"] }
    }
}

/// The library over the driver's own file and over NVML's beside it, and those where the library looks for them. What
/// NVIDIA's toolkit mounts are the same files at the same paths: this device has to stand behind its.
fn proxy(library: &Path, driver: &Path) -> Result<Vec<Mount>, Fault> {
    let found = |path: &Path, help: &str| {
        path.canonicalize().map_err(|error| {
            Fault::new(&codes::PRELOAD, format!("`{}` cannot be used: {error}", path.display()), help)
        })
    };
    let ours = library.with_file_name("proxy").join("libcuda.so.1");
    let ours = found(&ours, "install it beside libweir.so, in `proxy`")?;
    let real = found(driver, "name the driver's libcuda.so.1, as it is on this machine")?;
    let mut mounts = vec![Mount::of(ours.clone(), &real), Mount::of(real, format!("{DRIVER}/libcuda.so.1"))];
    // A machine without NVML has nothing to hide there.
    if let Ok(nvml) = driver.with_file_name(NVML).canonicalize() {
        mounts.extend([Mount::of(ours, &nvml), Mount::of(nvml, format!("{DRIVER}/{NVML}"))]);
    }
    Ok(mounts)
}

/// The kernel driver's nodes for these GPUs, as far as they are there.
fn device_nodes(uuids: &[String]) -> Vec<Node> {
    let common = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"].map(str::to_owned);
    let cards = std::fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
    let cards = cards.filter_map(|card| std::fs::read_to_string(card.path().join("information")).ok());
    let minors = cards.filter_map(|card| minor(&card, uuids)).map(|minor| format!("nvidia{minor}"));
    let paths = common.into_iter().chain(minors).map(|name| Path::new("/dev").join(name));
    paths.filter(|path| path.exists()).map(|path| Node { path }).collect()
}

/// The number of a card's device node, if the card is one of these; from `/proc/driver/nvidia/gpus/*/information`.
fn minor(information: &str, uuids: &[String]) -> Option<u32> {
    let field = |name: &str| information.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let uuid = field("GPU UUID:")?;
    uuids.iter().any(|wanted| wanted == uuid).then(|| field("Device Minor:")?.parse().ok()).flatten()
}

/// The same for `docker run` and `podman run`, each fit for a shell.
fn flags(edits: &Edits) -> Vec<String> {
    let env = edits.env.iter().map(|line| format!("--env={line}"));
    let mounts = edits.mounts.iter().map(|mount| {
        format!(
            "--mount=type=bind,source={},target={},readonly",
            mount.host_path.display(),
            mount.container_path.display()
        )
    });
    let nodes = edits.device_nodes.iter().map(|node| format!("--device={}", node.path.display()));
    env.chain(mounts).chain(nodes).map(|flag| quoted(&flag)).collect()
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(way: Way, library: &Path) -> Result<Edits, Fault> {
        let nodes = vec![Node { path: "/dev/nvidia3".into() }];
        let visible = [("CUDA_VISIBLE_DEVICES", "0,1".to_owned())];
        edits("/run/weir/tenants/web".into(), library, way, &visible, nodes)
    }

    #[test]
    fn by_the_variable_a_container_gets_two_mounts_and_two_variables() {
        let edits = example(Way::Preload, Path::new("/opt/my weir/libweir.so")).expect("nothing to look up");
        assert_eq!(edits.env, ["CUDA_VISIBLE_DEVICES=0,1", "LD_PRELOAD=/run/weir/libweir.so"]);
        assert_eq!(
            flags(&edits)[2..],
            [
                "--mount=type=bind,source=/run/weir/tenants/web,target=/run/weir/tenant,readonly",
                "'--mount=type=bind,source=/opt/my weir/libweir.so,target=/run/weir/libweir.so,readonly'",
                "--device=/dev/nvidia3",
            ]
        );
    }

    #[test]
    fn by_the_file_the_file_must_be_there_and_name_the_library() {
        let beside = tempfile::tempdir().expect("a temporary directory");
        let library = beside.path().join("libweir.so");
        assert!(example(Way::LdSoPreload, &library).is_err());
        std::fs::write(beside.path().join("ld.so.preload"), "/run/weir/libweir.so\n").expect("a file in it");
        let mounts = example(Way::LdSoPreload, &library).expect("it is there").mounts;
        let last = mounts.last().map(|mount| mount.container_path.as_path());
        assert_eq!(last, Some(Path::new("/etc/ld.so.preload")));
    }

    #[test]
    fn in_the_drivers_place_ours_is_mounted_over_its_file_and_it_beside() {
        let beside = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| beside.path().canonicalize().expect("it is there").join(name);
        std::fs::create_dir(at("proxy")).expect("a directory in it");
        for name in ["proxy/libcuda.so.1", "libcuda.so.550.54.14", NVML] {
            std::fs::write(at(name), "").expect("a file in it");
        }
        std::os::unix::fs::symlink("libcuda.so.550.54.14", at("libcuda.so.1")).expect("a link in it");
        let mounts = proxy(&at("libweir.so"), &at("libcuda.so.1")).expect("all are there");
        let driver = at("libcuda.so.550.54.14");
        assert_eq!(mounts[0], Mount::of(at("proxy/libcuda.so.1"), &driver));
        assert_eq!(mounts[1], Mount::of(driver, "/run/weir/driver/libcuda.so.1"));
        assert_eq!(mounts[2], Mount::of(at("proxy/libcuda.so.1"), at(NVML)));
        assert_eq!(mounts[3], Mount::of(at(NVML), "/run/weir/driver/libnvidia-ml.so.1"));
        assert!(proxy(&at("libweir.so"), &at("libcuda.so.2")).is_err());
    }

    #[test]
    fn a_cards_node_is_found_by_its_uuid() {
        let card = "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-2\nDevice Minor: \t 5\n";
        assert_eq!(minor(card, &["GPU-1".into(), "GPU-2".into()]), Some(5));
        assert_eq!(minor(card, &["GPU-1".into()]), None);
    }
}
