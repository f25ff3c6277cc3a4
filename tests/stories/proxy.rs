//! Our library in the driver's place, and in `/etc/ld.so.preload`: the other two ways into a program.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use weir_tests::compile;
use weir_tests::exports;
use weir_tests::life::Workshop;
use weir_tests::mounts;
use weir_tests::node::Node;
use weir_tests::program::{Budget, Program, Running};
use weir_tests::simgpu::{EVERY_KERNEL_20_US, SimGpu};

use crate::{LOOP, SWEEP, bare_python};

const BUDGET: Budget<'_> = Budget { name: "proxied", request: "100%", limit: "100%", memory: "2GiB" };

/// What the probe says.
#[derive(Deserialize)]
struct Report {
    mode: Option<String>,
    routes: Vec<Route>,
}

#[derive(Debug, Deserialize)]
struct Route {
    caught: Option<bool>,
    expected: bool,
}

#[track_caller]
fn assert_as_promised(probe: Program, mode: &str, caught: usize) {
    let run = probe.arg("--json").run();
    let report: Report = serde_json::from_str(&run.stdout.concat()).unwrap_or_else(|_| panic!("{run:?}"));
    assert_eq!(report.mode.as_deref(), Some(mode));
    let broken: Vec<_> = report.routes.iter().filter(|route| route.caught != Some(route.expected)).collect();
    assert!(broken.is_empty(), "{run:#?}");
    assert_eq!(report.routes.iter().filter(|route| route.expected).count(), caught);
}

/// The search path with our library first and the simulated driver behind.
fn search(gpu: &SimGpu) -> String {
    format!("{}:{}", gpu.dist().proxy().display(), gpu.dist().simgpu().display())
}

/// A program that finds our library in the driver's place, and the tenant's socket by its directory; nothing else.
fn proxied(gpu: &SimGpu, node: &Node<'_>, program: impl AsRef<std::ffi::OsStr>) -> Program {
    let program = Program::bare(gpu, program).env("LD_LIBRARY_PATH", search(gpu));
    program.env("WEIR_DIR", node.tenant_dir(BUDGET.name))
}

/// Makes the tenant, and holds it.
fn holder(gpu: &SimGpu, node: &Node<'_>) -> Running {
    let mut holder =
        Program::under_weir(gpu, Some(node), BUDGET, "sh").args(["-c", "echo here; cat"]).start();
    assert_eq!(holder.next_line().as_deref(), Some("here"));
    holder
}

fn scene() -> (SimGpu, Workshop) {
    (SimGpu::new(EVERY_KERNEL_20_US), Workshop::default())
}

fn probe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_weir-probe"))
}

#[test]
fn in_the_drivers_place_every_route_but_another_file_is_caught() {
    let (gpu, _) = scene();
    assert_as_promised(Program::bare(&gpu, probe()).env("LD_LIBRARY_PATH", search(&gpu)), "proxy", 14);
}

#[test]
fn in_the_drivers_place_exactly_the_names_of_the_drivers_table_are_exported() {
    let exported = exports::of(&SimGpu::new(EVERY_KERNEL_20_US).dist().proxy().join("libcuda.so.1"));
    let mut exported = exported.expect("it is a library");
    exported.retain(|name| exports::is_driver_function(name));
    let listed: BTreeSet<_> = weir_abi::SYMBOLS.iter().map(|symbol| symbol.name.to_owned()).collect();
    let names = |of: &BTreeSet<String>, without: &BTreeSet<String>| -> Vec<String> {
        of.difference(without).cloned().collect()
    };
    assert_eq!(names(&listed, &exported), [""; 0], "a program that wants one of these finds no driver");
    assert_eq!(names(&exported, &listed), [""; 0], "of these we know nothing");
}

/// Mounts our library over the driver's own name and NVML's, and these where ours looks for them then.
fn over(gpu: &SimGpu) -> String {
    let ours = gpu.dist().proxy().join("libcuda.so.1");
    let mounted = |name: &str| {
        let (aside, theirs) = (format!("/run/weir/driver/{name}"), gpu.dist().simgpu().join(name));
        format!(
            "touch {aside}; mount --bind {theirs} {aside}; mount --bind {ours} {theirs}\n",
            ours = ours.display(),
            theirs = theirs.display()
        )
    };
    ["mkdir -p /run/weir/driver\n".into(), mounted("libcuda.so.1"), mounted("libnvidia-ml.so.1")].concat()
}

#[test]
fn mounted_over_the_drivers_own_name_the_same_holds() {
    let (gpu, workshop) = scene();
    let way = match mounts::permitted() {
        Ok(way) => way,
        Err(why) => return eprintln!("{why}"),
    };
    let script = format!("mount -t tmpfs none /run\n{}", over(&gpu));
    assert_as_promised(mounts::program(way, &gpu, workshop.dir(), &script, probe()), "proxy", 14);
}

#[test]
fn in_ld_so_preload_an_empty_environment_is_caught_too() {
    let (gpu, workshop) = scene();
    let way = match mounts::permitted() {
        Ok(way) => way,
        Err(why) => return eprintln!("{why}"),
    };
    let script = format!("echo {} > /etc/ld.so.preload", gpu.dist().preload().display());
    assert_as_promised(mounts::program(way, &gpu, workshop.dir(), &script, probe()), "ld_so_preload", 14);
}

#[test]
fn a_tenant_that_knows_nothing_of_us_is_within_its_budget_by_every_way() {
    let (gpu, workshop) = scene();
    let way = match mounts::permitted() {
        Ok(way) => way,
        Err(why) => return eprintln!("{why}"),
    };
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let _holder = holder(&gpu, &node);
    let (plain, dist) = (workshop.life("plain"), gpu.dist());
    let mount = |what: &Path, at: &str| format!("mkdir -p {at}; mount --bind {} {at}\n", what.display());
    // As a container runtime does it: the tenant's directory in its place, no variable of ours or the loader's.
    let tenant = mount(&node.tenant_dir(BUDGET.name), "/run/weir/tenant");
    let preloaded = format!(
        "echo {} > /etc/ld.so.preload; echo {} > /etc/ld.so.conf.d/gpu.conf; ldconfig",
        dist.preload().display(),
        dist.simgpu().display()
    );
    let driver = mount(&dist.simgpu(), "/run/weir/driver");
    let in_its_place =
        format!("{driver}echo {} > /etc/ld.so.conf.d/gpu.conf; ldconfig", dist.proxy().display());
    let conf = format!("echo {} > /etc/ld.so.conf.d/gpu.conf; ldconfig", dist.simgpu().display());
    let over_its_name = over(&gpu) + &conf;
    for (at, script) in [preloaded, in_its_place, over_its_name].into_iter().enumerate() {
        let scratch = workshop.dir().join(at.to_string());
        std::fs::create_dir(&scratch).expect("a directory in it");
        let script = format!("mount -t tmpfs none /run\n{tenant}{script}\nunset LD_LIBRARY_PATH");
        let ended = mounts::program(way, &gpu, &scratch, &script, &plain).run().well();
        assert_eq!(ended.stdout[0], "launched 100 allocated 0 freed 0");
        assert_eq!(ended.stderr, "", "it is attached, and there is nothing to say");
    }
    let tenant = node.tenant(BUDGET.name).expect("its holder runs");
    assert_eq!(tenant.gpus[0].total.launches, 300);
}

#[test]
fn every_counted_call_of_a_proxied_program_is_counted_as_the_driver_counts_it() {
    let (gpu, _) = scene();
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let _holder = holder(&gpu, &node);
    let sweep = proxied(&gpu, &node, SWEEP).run().well();
    let made: serde_json::Value = serde_json::from_str(&sweep.stdout.concat()).expect("JSON");
    let total = &node.tenant(BUDGET.name).expect("its holder runs").gpus[0].total;
    let driver = gpu.calls();
    assert!(total.calls.len() > 10, "{:?}", total.calls);
    for (name, count) in &total.calls {
        assert_eq!(Some(*count), made["calls"][name].as_u64(), "{name}");
        assert_eq!(driver.get(name), Some(count), "{name}");
    }
}

#[test]
fn real_clients_run_proxied() {
    let (gpu, _) = scene();
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let _holder = holder(&gpu, &node);
    let before = || node.tenant(BUDGET.name).expect("its holder runs").gpus[0].total.launches;
    for client in ["numba_loop.py", "cuda_core_loop.py", "tinygrad_train.py"] {
        let counted = before();
        let program = bare_python(&gpu, client).env("LD_LIBRARY_PATH", search(&gpu));
        program.env("WEIR_DIR", node.tenant_dir(BUDGET.name)).run().well();
        assert!(before() > counted, "{client}");
    }
}

#[test]
fn over_its_limit_a_proxied_program_is_refused_and_its_view_is_its_budget() {
    let (gpu, _) = scene();
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let _holder = holder(&gpu, &node);
    let mut looping = weir_tests::looping::Looping::start(proxied(&gpu, &node, LOOP));
    assert_eq!(looping.allocate("1GiB"), "CUDA_SUCCESS");
    assert_eq!(looping.allocate("1100MiB"), "CUDA_ERROR_OUT_OF_MEMORY");
    looping.finish().well();
}

#[test]
fn in_nvmls_place_too_a_program_sees_its_budget_and_no_neighbour() {
    let (gpu, workshop) = scene();
    let node = Node::start(&gpu, "policy = \"static\"\n");
    let other = Budget { name: "other", request: "0%", limit: "100%", memory: "4GiB" };
    let _holder = holder(&gpu, &node);
    let neighbour = Program::under_weir_with(&gpu, Some(&node), other, &["--class", "filler"], LOOP);
    let mut neighbour = weir_tests::looping::Looping::start(neighbour);
    neighbour.goes_on(100);
    let place = |program: Program| program.env("WEIR_DIR", node.tenant_dir(BUDGET.name));
    let mut seen =
        place(bare_python(&gpu, "processes.py").arg("256").env("LD_LIBRARY_PATH", search(&gpu))).start();
    let pid = seen.next_line().expect("its process id");
    seen.say("");
    let seen: serde_json::Value =
        serde_json::from_str(&seen.next_line().expect("a line")).expect("figures are JSON");
    for list in ["compute", "detailed"] {
        let listed = seen[list].as_object().expect("bytes by process");
        assert_eq!(listed.keys().collect::<Vec<_>>(), [&pid], "{list}: {seen}");
    }
    assert_eq!(seen["percent"], 0, "{seen}");
    let in_search = bare_python(&gpu, "view.py").arg("256").env("LD_LIBRARY_PATH", search(&gpu));
    let mut views = vec![place(in_search)];
    if let Ok(way) = mounts::permitted() {
        let mounted = mounts::program(way, &gpu, workshop.dir(), &over(&gpu), &weir_tests::dist::python());
        views.push(place(mounted.arg(weir_tests::dist::client("view.py")).arg("256")));
    }
    for view in views {
        let view: serde_json::Value =
            serde_json::from_str(&view.run().well().stdout[0]).expect("figures are JSON");
        let totals = view["total"].as_array().expect("four figures");
        assert!(totals.iter().all(|total| *total == 2u64 << 30), "{view}");
        assert!(view["used"][0].as_u64() > Some(256 << 20) && view["used"][0] == view["used"][1], "{view}");
    }
}

#[test]
fn a_program_that_is_preloaded_and_proxied_is_charged_once() {
    let (gpu, workshop) = scene();
    let plain = Program::under_weir(&gpu, None, BUDGET, workshop.life("plain"));
    let ended = plain.env("LD_LIBRARY_PATH", search(&gpu)).run().well();
    let summary = ended.summary();
    assert_eq!((&summary["launches"], &summary["processes"]), (&100.into(), &1.into()));
}

#[test]
fn without_a_driver_a_proxied_program_hears_it_and_gets_an_error() {
    let (gpu, workshop) = scene();
    let plain = workshop.life("plain");
    // A second copy of ours is no driver either.
    let copy = workshop.dir().join("libcuda.so.1");
    std::fs::copy(gpu.dist().proxy().join("libcuda.so.1"), copy).expect("a copy");
    let both = format!("{}:{}", gpu.dist().proxy().display(), workshop.dir().display());
    let ended = Program::bare(&gpu, plain).env("LD_LIBRARY_PATH", both).run();
    assert!(ended.stderr.contains("finds no driver to stand before"), "{}", ended.stderr);
    assert!(ended.stderr.contains("cuInit: 500"), "{}", ended.stderr);
}

#[test]
fn a_forwarded_call_keeps_every_argument_the_first_time_and_later() {
    let (gpu, workshop) = scene();
    let driver = "#include <stdio.h>\n\
        int cuMemcpyPeerAsync(long a, long b, long c, long d, long e, long f) { printf(\"%ld %ld %ld %ld %ld %ld\\n\", a, b, c, d, e, f); return 11; }\n\
        int cuTexRefSetMipmapLevelClamp(long a, float b, float c) { printf(\"%ld %.1f %.1f\\n\", a, b, c); return 12; }\n\
        int cuLibraryLoadData(long a, long b, long c, long d, long e, long f, long g, long h) { printf(\"%ld %ld\\n\", g, h); return 13; }\n";
    let real = workshop.library("real.so", driver, &[]);
    let caller = "int cuMemcpyPeerAsync(), cuLibraryLoadData(), cuTexRefSetMipmapLevelClamp(long, float, float), cuCtxGetId();\n\
        #include <stdio.h>\n\
        int main(void) { setvbuf(stdout, NULL, _IONBF, 0);\n\
        for (int at = 0; at < 2; at++) printf(\"%d %d %d %d\\n\", cuMemcpyPeerAsync(1L, 2L, 3L, 4L, 5L, 6L), cuTexRefSetMipmapLevelClamp(1, 2.5f, 3.5f),\n\
        cuLibraryLoadData(1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L), cuCtxGetId(0, 0)); return 0; }\n";
    let (source, out) = (workshop.dir().join("caller.c"), workshop.dir().join("caller"));
    std::fs::write(&source, caller).expect("a file in it");
    let proxy = gpu.dist().proxy().join("libcuda.so.1");
    compile::c(&[proxy.to_str().expect("a plain path")], &source, &out);
    let program =
        Program::bare(&gpu, out).env("LD_LIBRARY_PATH", gpu.dist().proxy()).env("WEIR_DRIVER", real);
    let once = ["1 2 3 4 5 6", "1 2.5 3.5", "7 8"];
    let mut stdout = program.run().well().stdout;
    // The order in which C evaluates arguments is its own affair; what the driver lacks is not found.
    stdout.iter_mut().for_each(|line| *line = line.trim().to_owned());
    assert_eq!(stdout.iter().filter(|line| *line == "11 12 13 500").count(), 2, "{stdout:?}");
    for line in once {
        assert_eq!(stdout.iter().filter(|seen| *seen == line).count(), 2, "{stdout:?}");
    }
}

#[test]
fn a_look_up_by_version_answers_for_the_versions_that_the_driver_has() {
    let (gpu, workshop) = scene();
    let script = workshop.dir().join("versions");
    std::fs::write(&script, "DRIVER_1 { global: cuLaunchKernel; local: *; };\n").expect("a file in it");
    let argument = format!("-Wl,--version-script={},-soname,libcuda.so.1", script.display());
    workshop.library("libcuda.so.1", "int cuLaunchKernel(void) { return 1; }\n", &[&argument]);
    let asker = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n\
        static void say(void *at) { Dl_info info; puts(at && dladdr(at, &info) ? info.dli_fname : \"nothing\"); }\n\
        int main(void) { void *driver = dlopen(\"libcuda.so.1\", RTLD_NOW | RTLD_GLOBAL);\n\
        say(dlvsym(driver, \"cuLaunchKernel\", \"DRIVER_1\")); say(dlvsym(driver, \"cuLaunchKernel\", \"DRIVER_2\"));\n\
        say(dlvsym(RTLD_DEFAULT, \"cuLaunchKernel\", \"DRIVER_1\")); say(dlvsym(RTLD_DEFAULT, \"cuLaunchKernel\", \"DRIVER_2\")); return 0; }\n";
    let (source, out) = (workshop.dir().join("asker.c"), workshop.dir().join("asker"));
    std::fs::write(&source, asker).expect("a file in it");
    compile::c(&["-ldl"], &source, &out);
    let ours = gpu.dist().preload().display().to_string();
    let program = Program::bare(&gpu, out).env("LD_LIBRARY_PATH", workshop.dir()).env("LD_PRELOAD", &ours);
    assert_eq!(program.run().well().stdout, [&ours, "nothing", &ours, "nothing"]);
}
