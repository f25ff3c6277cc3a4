//! Configuration files that are refused, by `weir check`.

use std::path::Path;
use std::process::Command;

/// Texts of files, with their rows in `docs/FAULTS.md`.
pub const TEXTS: &[(&str, &str)] = &[
    ("config.unknown-key", "dir = \"/run/weir\"\npolcy = \"static\"\n"),
    ("config.unknown-key-without-neighbour", "colour = \"blue\"\n"),
    ("config.duplicate-key", "tick_us = 1000\ntick_us = 2000\n"),
    ("config.wrong-type", "tick_us = \"often\"\n"),
    ("config.no-toml", "policy: static\n"),
    ("config.empty", "\n"),
    ("config.unknown-policy", "policy = \"fastest\"\n"),
    ("config.tick-out-of-range", "tick_us = 1\n"),
    ("config.park-idle-out-of-range", "park_idle_s = 0\n"),
    ("config.reserve-no-size", "memory_reserve = \"2Q\"\n"),
    ("config.growth-no-size", "growth_reserve = \"2Q\"\n"),
    ("config.context-memory-no-size", "context_memory = \"400\"\n"),
    ("config.mps-relative", "[mps]\npipe_directory = \"pipes\"\n"),
    ("config.mode-standalone", "mode = \"standalone\"\n"),
    ("config.unknown-mode", "mode = \"lax\"\n"),
    ("config.unknown-gate", "gate = \"device\"\n"),
    ("config.stale-after-out-of-range", "mode = \"strict\"\nstale_after_s = 0\n"),
    ("config.unknown-unmanaged", "unmanaged = \"pause\"\n"),
    ("config.unknown-power", "power = \"melt\"\n"),
    ("config.price-missing", "[[price]]\nname = \"gemm*\"\n"),
    ("config.price-bandwidth", "[[price]]\nname = \"gemm*\"\nbandwidth_percent = 120\n"),
    ("config.price-not-a-number", "[[price]]\nname = \"gemm*\"\ntime_us = nan\n"),
    (
        "config.tenant-unknown-key",
        "[[tenant]]\nname = \"a\"\nrequest = \"60%\"\nmemory = \"1GiB\"\nmemroy = \"1GiB\"\n",
    ),
    ("config.tenant-without-name", "[[tenant]]\nrequest = \"60%\"\n"),
    (
        "config.tenant-twice",
        "[[tenant]]\nname = \"a\"\nrequest = \"60%\"\nmemory = \"1GiB\"\n[[tenant]]\nname = \"a\"\nrequest = \"60%\"\nmemory = \"1GiB\"\n",
    ),
    ("config.tenant-share", "\n[[tenant]]\nname = \"a\"\nrequest = \"60\"\nmemory = \"1GiB\"\n"),
    ("config.tenant-without-memory", "[[tenant]]\nname = \"a\"\nrequest = \"60%\"\n"),
    ("config.tenant-without-request", "[[tenant]]\nname = \"a\"\nmemory = \"1GiB\"\n"),
    (
        "config.tenants-over-100",
        "[[tenant]]\nname = \"a\"\nrequest = \"60%\"\nmemory = \"1GiB\"\n[[tenant]]\nname = \"b\"\nrequest = \"60%\"\nmemory = \"1GiB\"\n",
    ),
    (
        "config.tenant-gpu",
        "[[tenant]]\nname = \"a\"\nrequest = \"60%\"\nmemory = \"1GiB\"\ngpu = [\"first\"]\n",
    ),
    (
        "config.tenant-slo",
        "[[tenant]]\nname = \"a\"\nrequest = \"60%\"\nmemory = \"1GiB\"\nslo = \"fast\"\nlatency_from = [\"http://127.0.0.1:9/\", \"a_seconds\"]\n",
    ),
    ("config.signals-relative", "[signals.carbon]\nfrom = \"carbon\"\nfull = 1\nnone = 2\n"),
    ("config.signals-no-range", "[signals.carbon]\nfrom = \"/run/carbon\"\nfull = 2\nnone = 2\n"),
    ("config.signals-period", "[signals.carbon]\nfrom = \"/run/carbon\"\nfull = 1\nnone = 2\nevery_s = 0\n"),
    ("config.signals-unknown-key", "[signals.carbon]\nform = \"/run/carbon\"\n"),
    ("config.relative-dir", "dir = \"run/weir\"\n"),
];

/// What makes a file, with its row.
pub type Made = (&'static str, fn(&Path));

/// Other files.
pub const FILES: &[Made] = &[
    ("config.missing", |_| {}),
    ("config.directory", |path| std::fs::create_dir(path).unwrap()),
    ("config.not-utf8", |path| std::fs::write(path, b"\xff\xfe").unwrap()),
    ("config.world-writable", world_writable),
];

/// A file of another user than root and oneself; only root can make one.
pub const STRANGERS: Made = ("config.strangers", |path| {
    std::fs::write(path, "policy = \"static\"\n").unwrap();
    std::os::unix::fs::chown(path, Some(65_534), None).unwrap();
});

/// What `weir check` says of a file with this text.
pub fn told(text: &str) -> String {
    told_of(|path| std::fs::write(path, text).unwrap())
}

/// What it says of the file that `make` leaves.
pub fn told_of(make: impl Fn(&Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    make(&path);
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(&path).output().unwrap();
    assert!(output.stdout.is_empty(), "refusals are no data");
    let stderr = String::from_utf8_lossy(&output.stderr).replace(&dir.path().display().to_string(), "[DIR]");
    assert!(stderr.contains("\nhelp: "), "{stderr}");
    format!("{stderr}exit code {}", output.status.code().unwrap())
}

fn world_writable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, "policy = \"static\"\n").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
}
