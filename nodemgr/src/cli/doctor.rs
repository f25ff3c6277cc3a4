//! `weir doctor`: what this machine has of what Weir needs, line by line, each with the way to mend it.

use std::error::Error;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use rustix::process::PidfdFlags;
use serde::{Deserialize, Serialize};
use weir_protocol::mapping::Mapped;
use weir_protocol::pages::BucketPage;

use super::{Context, preload, printer, unmanaged};
use crate::control::{Client, Stats};
use crate::fault::Fault;
use crate::gpus::{Device, Gpus, Health, Source, nvml_library};

/// The symbol that only the simulated driver exports.
const SIMULATED_SYMBOL: &[u8] = b"weirSimulatedGpu\0";

/// The program that tries each way to look up a driver function.
const PROBE: &str = "weir-probe";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Ok,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    mark: Mark,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

/// One way to reach a driver function, as the probe tells.
#[derive(Serialize, Deserialize)]
struct Route {
    route: String,
    /// Absent: it could not be tried.
    caught: Option<bool>,
    /// What a preload promises.
    expected: bool,
    /// The same for our library in the driver's place; absent: it could not be tried.
    #[serde(default)]
    caught_by_proxy: Option<bool>,
    /// What each mode promises.
    promise: Promise,
    note: String,
}

/// What each mode of getting into a program promises to catch.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Promise {
    preload: bool,
    proxy: bool,
    ld_so_preload: bool,
}

/// What the probe prints.
#[derive(Deserialize)]
struct Probed {
    /// Absent: the driver could not be read.
    unlisted: Option<Vec<String>>,
    routes: Vec<Route>,
}

#[derive(Serialize)]
struct Report {
    schema: u32,
    simulated: bool,
    findings: Vec<Finding>,
    /// Absent: not probed.
    routes: Option<Vec<Route>>,
}

pub(super) fn run(context: &Context) -> Result<u8, Fault> {
    let (nvml, simulated_devices) = nvml();
    let (driver, simulated) = driver(simulated_devices);
    let library = preload::find(None);
    let mut findings = one_cause(driver, nvml, &nvml_library());
    let driverless = findings.len() == 1;
    findings.extend(manager(context)?);
    findings.extend([pages(), pidfd(), credentials(), futex()]);
    findings.extend(preload_findings(&library));
    let mut routes = None;
    // Without a driver there is nothing to look up, and that has been said.
    if !driverless {
        let probed = library.as_deref().ok().and_then(probe);
        findings.push(exports_finding(probed.as_ref().and_then(|probed| probed.unlisted.as_deref())));
        routes = probed.map(|probed| with_proxy(probed.routes, library.as_deref().ok()));
        findings.push(routes_finding(routes.as_deref()));
    }
    let failed = findings.iter().any(|finding| finding.mark == Mark::Fail);
    let report = Report { schema: 1, simulated, findings, routes };
    if context.json {
        printer::json(&report);
    } else {
        printer::data(text(&report));
    }
    Ok(u8::from(failed))
}

fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    if report.simulated {
        lines.push(printer::SIMULATED.to_owned());
    }
    for finding in &report.findings {
        let mark = match finding.mark {
            Mark::Ok => "ok  ",
            Mark::Warn => "warn",
            Mark::Fail => "FAIL",
        };
        lines.push(format!("{mark}  {:<14}  {}", finding.what, finding.detail));
        lines.extend(finding.help.as_ref().map(|help| format!("      help: {help}")));
    }
    if let Some(routes) = &report.routes {
        let rows: Vec<_> = routes.iter().map(row).collect();
        lines.push(printer::table(&["LOOK-UP ROUTE", "PRELOAD", "PROXY", "LD.SO.PRELOAD", ""], &rows));
        lines.push("in brackets: promised, and not tried here".into());
    }
    lines.join("\n")
}

fn row(route: &Route) -> Vec<String> {
    let word = |caught, promised| match (caught, promised) {
        (None, true) => "(caught)".to_owned(),
        (None, false) => "(missed)".to_owned(),
        (Some(true), _) => "caught".to_owned(),
        (Some(false), false) => "missed".to_owned(),
        (Some(false), true) => "MISSED".to_owned(),
    };
    let (preload, proxy) =
        (word(route.caught, route.expected), word(route.caught_by_proxy, route.promise.proxy));
    vec![route.route.clone(), preload, proxy, word(None, route.promise.ld_so_preload), route.note.clone()]
}

fn finding(what: &'static str, found: Result<String, (Mark, String, &str)>) -> Finding {
    match found {
        Ok(detail) => Finding { what, mark: Mark::Ok, detail, help: None },
        Err((mark, detail, help)) => Finding { what, mark, detail, help: Some(help.into()) },
    }
}

/// The driver as a program would find it, and whether it is the simulated one: by its own word, or by its devices.
fn driver(simulated_devices: bool) -> (Finding, bool) {
    // SAFETY: the driver's initializers run, as in any program that uses CUDA; nothing of it is called.
    let library = match unsafe { libloading::Library::new("libcuda.so.1") } {
        Ok(library) => library,
        Err(error) => {
            let help = "install the NVIDIA driver, or point LD_LIBRARY_PATH at the simulated GPU's libraries";
            let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            return (finding("driver", Err((Mark::Fail, reason, help))), false);
        }
    };
    // SAFETY: only the symbol's presence is asked for; it is neither called nor read.
    let simulated = unsafe { library.get::<*const ()>(SIMULATED_SYMBOL) }.is_ok() || simulated_devices;
    let kind = if simulated { "simulated" } else { "real" };
    (finding("driver", Ok(format!("{}, {kind}", mapped_path("libcuda.so")))), simulated)
}

/// Where a library that this process has loaded lies.
fn mapped_path(name: &str) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let path = maps.lines().filter_map(|line| line.split_once('/')).find(|(_, path)| path.contains(name));
    path.map_or_else(|| name.to_owned(), |(_, path)| format!("/{path}"))
}

/// The devices, and whether any of them is simulated.
fn nvml() -> (Finding, bool) {
    match Gpus::find(Source::Nvml, Vec::new()) {
        Err(fault) => (finding("nvml", Err((Mark::Fail, fault.message, &fault.help))), false),
        Ok(gpus) => {
            let name = |(index, gpu): (usize, &Device)| format!("{index}: {} {}", gpu.name, gpu.memory_total);
            let names: Vec<_> = gpus.devices.iter().enumerate().map(name).collect();
            (finding("nvml", Ok(names.join("; "))), gpus.devices.iter().any(Device::is_simulated))
        }
    }
}

/// Both findings, or one of them where neither the driver nor its management library can be loaded: that has one cause.
fn one_cause(driver: Finding, nvml: Finding, library: &OsStr) -> Vec<Finding> {
    // SAFETY: the library's initializers run, as they did a moment ago when the devices were asked for.
    let loads = || unsafe { libloading::Library::new(library) }.is_ok();
    if driver.mark != Mark::Fail || nvml.mark != Mark::Fail || loads() {
        return vec![driver, nvml];
    }
    let detail = format!(
        "no driver: neither libcuda.so.1 nor {} can be loaded ({})",
        library.display(),
        driver.detail
    );
    vec![Finding { detail, ..driver }]
}

fn manager(context: &Context) -> Result<Vec<Finding>, Fault> {
    let place = context.place()?;
    let found = Client::connect(&place).and_then(|mut client| client.stats());
    Ok(match found {
        Ok(stats) => {
            let node = &stats.node;
            let detail =
                format!("process {}, policy {}, {}", node.pid, node.policy, place.control().display());
            vec![finding("node manager", Ok(detail)), unmanaged_finding(&stats)]
        }
        Err(fault) => {
            let help = "start `weir node`; without it `weir run` keeps its own budget only";
            vec![finding("node manager", Err((Mark::Warn, fault.message, help)))]
        }
    })
}

/// Who is on the GPUs without a budget, as the node manager sees it.
fn unmanaged_finding(stats: &Stats) -> Finding {
    let notes = unmanaged::notes(stats);
    let help =
        "start programs with `weir run`; `unmanaged` in the configuration says what follows for others";
    let found = match notes.as_slice() {
        [] if stats.node.nvml == Health::Ok => Ok("every process on a GPU has a budget".to_owned()),
        [] => Err((Mark::Warn, "NVML has not been asked".to_owned(), "ask again in a second")),
        notes => Err((Mark::Warn, notes.join("; "), help)),
    };
    finding("unmanaged", found)
}

fn pages() -> Finding {
    let made = Mapped::<BucketPage>::create("weir-doctor")
        .map(|_| "sealed memfds can be made and mapped".to_owned());
    finding("pages", made.map_err(|error| (Mark::Fail, error.to_string(), "Linux 3.17 or later is needed")))
}

fn pidfd() -> Finding {
    let opened = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    let help = "Linux 5.3 or later is needed, and a sandbox that allows pidfd_open";
    let detail = opened.map(|_| "a process's death is noticed through its pidfd".to_owned());
    finding("pidfd", detail.map_err(|error| (Mark::Fail, format!("pidfd_open: {error}"), help)))
}

fn credentials() -> Finding {
    let ask = || -> std::io::Result<_> {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
        Ok(rustix::net::sockopt::socket_peercred(&ours)?)
    };
    let detail = ask().map(|_| "the kernel says who is at the other end of a socket".to_owned());
    finding("credentials", detail.map_err(|error| (Mark::Fail, error.to_string(), "SO_PEERCRED is needed")))
}

fn futex() -> Finding {
    let word = std::sync::atomic::AtomicU32::new(0);
    let woken = rustix::thread::futex::wake(&word, rustix::thread::futex::Flags::empty(), 1);
    let detail = woken.map(|_| "waiters can be woken".to_owned());
    finding(
        "futex",
        detail.map_err(|error| (Mark::Fail, error.to_string(), "a sandbox that allows futex is needed")),
    )
}

fn preload_findings(library: &Result<std::path::PathBuf, Fault>) -> Vec<Finding> {
    match library {
        Err(fault) => vec![finding("preload", Err((Mark::Fail, fault.message.clone(), &fault.help)))],
        Ok(path) => {
            let needs =
                glibc_needs(path).map_or_else(|| "no versioned glibc".into(), |v| format!("glibc 2.{v}"));
            vec![finding("preload", Ok(format!("{}, needs {needs} or later", path.display())))]
        }
    }
}

/// The newest `GLIBC_2.x` that a library names, as `x`. Version names stand in its string table as plain text.
fn glibc_needs(path: &Path) -> Option<u32> {
    let bytes = std::fs::read(path).ok()?;
    let name = b"GLIBC_2.";
    let starts = bytes.windows(name.len()).enumerate().filter(|(_, window)| window == name);
    let minors = starts.filter_map(|(at, _)| {
        let digits: Vec<u8> =
            bytes[at + name.len()..].iter().copied().take_while(u8::is_ascii_digit).collect();
        std::str::from_utf8(&digits).ok()?.parse().ok()
    });
    minors.max()
}

/// Runs the probe under the preload, if it is installed beside this program.
fn probe(library: &Path) -> Option<Probed> {
    let path = std::env::current_exe().ok()?.parent()?.join(PROBE);
    let output =
        Command::new(path).arg("--json").env("LD_PRELOAD", preload::variable(library)).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

/// Adds what our library catches in the driver's place: runs the probe with it in front of the driver, if it lies beside
/// the preload.
fn with_proxy(mut routes: Vec<Route>, library: Option<&Path>) -> Vec<Route> {
    let tried = || {
        let place = library?.parent()?.join("proxy");
        place.join("libcuda.so.1").exists().then_some(())?;
        let mut search = place.into_os_string();
        if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
            search.push(":");
            search.push(others);
        }
        let probe = std::env::current_exe().ok()?.parent()?.join(PROBE);
        let mut command = Command::new(probe);
        let output =
            command.arg("--json").env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", search).output().ok()?;
        serde_json::from_slice::<Probed>(&output.stdout).ok()
    };
    for (route, tried) in routes.iter_mut().zip(tried().into_iter().flat_map(|probed| probed.routes)) {
        route.caught_by_proxy = tried.caught;
    }
    routes
}

/// Functions of this driver that are younger than our list of them.
fn exports_finding(unlisted: Option<&[String]>) -> Finding {
    let found = match unlisted {
        None => {
            Err((Mark::Warn, "not compared".to_owned(), "put weir-probe beside weir, and a driver in reach"))
        }
        Some([]) => Ok("every function that the driver exports is on our list".to_owned()),
        Some(names) => Err((
            Mark::Warn,
            format!("{} functions of the driver are not on our list: {}", names.len(), names.join(", ")),
            "update Weir: what these launch or allocate is not limited",
        )),
    };
    finding("exports", found)
}

fn routes_finding(routes: Option<&[Route]>) -> Finding {
    let count =
        |routes: &[Route], wanted: fn(&Route) -> bool| routes.iter().filter(|route| wanted(route)).count();
    let found = match routes {
        None => Err((Mark::Warn, "not probed".to_owned(), "put weir-probe beside weir")),
        Some(routes) => match (
            count(routes, |route| route.caught == Some(true)),
            count(routes, |route| {
                route.caught.is_some_and(|caught| caught != route.expected)
                    || route.caught_by_proxy.is_some_and(|caught| caught != route.promise.proxy)
            }),
            count(routes, |route| route.caught.is_none()),
        ) {
            (caught, 0, 0) => Ok(format!(
                "{caught} of {} ways to look up a driver function are covered, as promised",
                routes.len()
            )),
            (_, 0, untried) => {
                Err((Mark::Warn, format!("{untried} could not be tried"), "see the notes below"))
            }
            (_, wrong, _) => Err((Mark::Fail, format!("{wrong} are not as promised"), "see the table below")),
        },
    };
    finding("routes", found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(what: &'static str, mark: Mark, detail: &str) -> Finding {
        Finding { what, mark, detail: detail.into(), help: None }
    }

    #[test]
    fn a_machine_without_a_driver_is_told_so_in_one_line() {
        let (driver, nvml) = (said("driver", Mark::Fail, "no libcuda"), said("nvml", Mark::Fail, "no NVML"));
        let found = one_cause(driver, nvml, OsStr::new("/no/such/nvml"));
        let [only] = found.as_slice() else { panic!("{} findings", found.len()) };
        let told = "no driver: neither libcuda.so.1 nor /no/such/nvml can be loaded (no libcuda)";
        assert_eq!((only.what, only.detail.as_str()), ("driver", told));
    }

    #[test]
    fn a_driver_that_is_half_there_is_two_findings() {
        let (driver, nvml) = (said("driver", Mark::Ok, ""), said("nvml", Mark::Fail, "no NVML"));
        assert_eq!(one_cause(driver, nvml, OsStr::new("/no/such/nvml")).len(), 2);
        let (driver, nvml) = (said("driver", Mark::Fail, "no libcuda"), said("nvml", Mark::Fail, "it hangs"));
        assert_eq!(one_cause(driver, nvml, OsStr::new("libm.so.6")).len(), 2, "NVML is there");
    }
}
