//! Compiles the three C probes and hands their paths to `weir-probe`, which carries them in itself: it must work
//! wherever `dist/` is copied to.

use std::path::Path;
use std::process::Command;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    println!("cargo::rerun-if-changed=probes");
    // A library with the driver's name, for the linker alone: the loader will find the real one.
    compile(&["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "probes/stub.c"], &out.join("libcuda.so"));
    let search = format!("-L{}", out.display());
    compile(&["-Wl,--no-as-needed", &search, "probes/linked.c", "-lcuda"], &out.join("linked"));
    compile(&["-shared", "-fPIC", "probes/next.c"], &out.join("next.so"));
}

fn compile(arguments: &[&str], out: &Path) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status =
        Command::new(&compiler).args(["-O1", "-Wall", "-Werror", "-o"]).arg(out).args(arguments).status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("{compiler} {}: {other:?}\nhelp: install Debian package `gcc`", arguments.join(" ")),
    }
}
