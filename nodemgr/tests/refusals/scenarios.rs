//! Scenarios that are refused, by `weir sim`.

use std::path::Path;
use std::process::Command;

use crate::config::Made;

/// What is made of [`GOOD`], with their rows in `docs/FAULTS.md`: what stands there, and what stands in its place.
pub const CHANGES: &[(&str, &str, &str)] = &[
    ("sim.unknown-key", "bubble_ms", "buble_ms"),
    ("sim.wrong-type", "batch = 8", "batch = -8"),
    ("sim.unknown-word", "\"data\"", "\"tensor\""),
    ("sim.no-seconds", "seconds = 1", "seconds = 0"),
    ("sim.slice-of-nothing", "slice_us = 2000", "slice_us = 0"),
    ("sim.tenant-twice", "name = \"training\"", "name = \"server\""),
    ("sim.nothing-to-run", "offline = { batch_ms = 30 }", ""),
    ("sim.slo", "p95 < 100ms", "p95 > 100ms"),
    ("sim.share", "\"40%\"", "\"0.4\""),
    ("sim.shares-over-100", "\"40%\"", "\"80%\""),
    ("sim.no-sms", "sm_percent = 50", "sm_percent = 0"),
    ("sim.not-a-number", "compute_ms = 40", "compute_ms = nan"),
    ("sim.back-in-time", "bubble_ms = 30", "bubble_ms = -1"),
    ("sim.no-work", "decode_ms = 4", "decode_ms = 0"),
    ("sim.unit-of-nothing", "batch_ms = 30", "batch_ms = 30, unit_us = 0"),
    ("sim.endless-rate", "per_s = 6", "per_s = 1e300"),
    ("sim.no-arrivals", "per_s = 6", "cv = 1"),
    ("sim.arrivals-twice", "per_s = 6", "per_s = 6, trace_per_s = [5]"),
    ("sim.trace-below-nothing", "per_s = 6", "trace_per_s = [5, -1]"),
    ("sim.trace-missing", "per_s = 6", "trace = \"no.csv\""),
    ("sim.trace-no-csv", "per_s = 6", "trace = \"/dev/null\""),
];

/// Other files.
pub const FILES: &[Made] = &[
    ("sim.missing", |_| {}),
    ("sim.empty", |path| std::fs::write(path, "").unwrap()),
    ("sim.directory", |path| std::fs::create_dir(path).unwrap()),
    ("sim.not-utf8", |path| std::fs::write(path, b"\xff\xfe").unwrap()),
    ("sim.no-tenants", |path| {
        std::fs::write(path, "about = \"nobody\"\nseconds = 1\ntenant = []\n").unwrap()
    }),
    ("sim.endless", |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
];

/// Flags with which [`GOOD`] is refused.
pub const FLAGS: &[(&str, &[&str])] =
    &[("sim.flag-seconds", &["--seconds", "nan"]), ("sim.unknown-policy", &["--policy", "weir,slicin"])];

const GOOD: &str = r#"about = "a server, a training loop and a filler"
seconds = 1
device = { slice_us = 2000 }
[[tenant]]
name = "server"
class = "latency"
request = "30%"
slo = "p95 < 100ms"
kernel = { sm_percent = 50 }
inference = { prefill_ms = 8, decode_ms = 4, tokens = 6, batch = 8, arrivals = { per_s = 6 } }
[[tenant]]
name = "training"
request = "40%"
training = { parallel = "data", compute_ms = 40, bubble_ms = 30 }
[[tenant]]
name = "filler"
class = "filler"
offline = { batch_ms = 30 }
"#;

/// What `weir sim` says of [`GOOD`] with this in the place of that.
pub fn told_of_change(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    told(|path| std::fs::write(path, GOOD.replacen(from, to, 1)).unwrap(), &["--policy=static"])
}

/// What it says of [`GOOD`] with these flags.
pub fn told_of_flags(flags: &[&str]) -> String {
    told(|path| std::fs::write(path, GOOD).unwrap(), flags)
}

/// What it says of the file that `make` leaves.
pub fn told(make: impl Fn(&Path), flags: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    make(&path);
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("sim").arg(&path).args(flags).output().unwrap();
    assert!(output.stdout.is_empty(), "refusals are no data");
    let stderr = String::from_utf8_lossy(&output.stderr).replace(&dir.path().display().to_string(), "[DIR]");
    assert!(stderr.contains("\nhelp: "), "{stderr}");
    format!("{stderr}exit code {}", output.status.code().unwrap())
}
