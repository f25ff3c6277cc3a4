//! Command lines that are refused.

use crate::node::LIBRARY;

/// One of them, with its row in `docs/FAULTS.md`.
pub struct Case {
    pub id: &'static str,
    pub args: &'static [&'static str],
}

/// A path of 120 bytes.
const LONG: &str = "/tmp/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234";

pub const COMMANDS: &[Case] = &[
    Case {
        id: "size.unknown-unit",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=40Q", "--", "true"],
    },
    Case {
        id: "size.negative",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory", "-1G", "--", "true"],
    },
    Case {
        id: "size.exponent",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1e400", "--", "true"],
    },
    Case {
        id: "size.empty",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=", "--", "true"],
    },
    Case {
        id: "size.not-a-number",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=nan", "--", "true"],
    },
    Case {
        id: "size.no-unit",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=40", "--", "true"],
    },
    Case {
        id: "size.zero",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=0GiB", "--", "true"],
    },
    Case {
        id: "size.over-2-63",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=9223372036854775808B", "--", "true"],
    },
    Case {
        id: "size.over-device",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=81GiB", "--", "true"],
    },
    Case {
        id: "bandwidth.no-time",
        args: &[
            "run",
            "--preload",
            LIBRARY,
            "--request=10%",
            "--memory=1GiB",
            "--copy-limit=4GiB",
            "--",
            "true",
        ],
    },
    Case {
        id: "bandwidth.zero",
        args: &[
            "run",
            "--preload",
            LIBRARY,
            "--request=10%",
            "--memory=1GiB",
            "--copy-limit=0B/s",
            "--",
            "true",
        ],
    },
    Case { id: "size.missing", args: &["run", "--preload", LIBRARY, "--request=10%", "--", "true"] },
    Case {
        id: "share.zero",
        args: &["run", "--preload", LIBRARY, "--request=0%", "--memory=1GiB", "--", "true"],
    },
    Case {
        id: "share.over-100",
        args: &["run", "--preload", LIBRARY, "--request=101%", "--memory=1GiB", "--", "true"],
    },
    Case {
        id: "share.no-sign",
        args: &["run", "--preload", LIBRARY, "--request=50", "--memory=1GiB", "--", "true"],
    },
    Case {
        id: "share.fraction",
        args: &["run", "--preload", LIBRARY, "--request=0.5", "--memory=1GiB", "--", "true"],
    },
    Case {
        id: "share.too-fine",
        args: &["run", "--preload", LIBRARY, "--request=12.55%", "--memory=1GiB", "--", "true"],
    },
    Case {
        id: "share.negative",
        args: &["run", "--preload", LIBRARY, "--request", "-1%", "--memory=1GiB", "--", "true"],
    },
    Case {
        id: "share.negative-limit",
        args: &["run", "--preload", LIBRARY, "--memory=1GiB", "--request=1%", "--limit", "-1%", "--", "true"],
    },
    Case {
        id: "share.between-steps",
        args: &["run", "--preload", LIBRARY, "--memory=1GiB", "--request=33.33%", "--", "true"],
    },
    Case { id: "share.missing", args: &["run", "--preload", LIBRARY, "--memory=1GiB", "--", "true"] },
    Case {
        id: "share.limit-below-request",
        args: &["run", "--preload", LIBRARY, "--request=30%", "--memory=1GiB", "--limit=20%", "--", "true"],
    },
    Case {
        id: "share.limit-zero-filler",
        args: &["run", "--preload", LIBRARY, "--memory=1GiB", "--limit=0%", "--class=filler", "--", "true"],
    },
    Case {
        id: "share.latency-without-request",
        args: &["run", "--preload", LIBRARY, "--memory=1GiB", "--class=latency", "--", "true"],
    },
    Case {
        id: "class.unknown",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--class=batch", "--", "true"],
    },
    Case {
        id: "gpu.unknown-index",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--gpu=7", "--", "true"],
    },
    Case {
        id: "gpu.unknown-uuid",
        args: &[
            "run",
            "--preload",
            LIBRARY,
            "--request=10%",
            "--memory=1GiB",
            "--gpu=GPU-ffffffff-ffff-ffff-ffff-ffffffffffff",
            "--",
            "true",
        ],
    },
    Case {
        id: "gpu.mig",
        args: &[
            "run",
            "--preload",
            LIBRARY,
            "--request=10%",
            "--memory=1GiB",
            "--gpu=MIG-ffffffff-ffff-ffff-ffff-ffffffffffff",
            "--",
            "true",
        ],
    },
    Case {
        id: "gpu.duplicate",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--gpu=0,1,0", "--", "true"],
    },
    Case {
        id: "gpu.duplicate-by-uuid",
        args: &[
            "run",
            "--preload",
            LIBRARY,
            "--request=10%",
            "--memory=1GiB",
            "--gpu=0,GPU-00000000-0000-0000-0000-000000000000",
            "--",
            "true",
        ],
    },
    Case {
        id: "gpu.negative",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--gpu=-1", "--", "true"],
    },
    Case {
        id: "gpu.empty",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--gpu=", "--", "true"],
    },
    Case {
        id: "name.slash",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--name=../x", "--", "true"],
    },
    Case {
        id: "name.empty",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--name=", "--", "true"],
    },
    Case {
        id: "name.too-long",
        args: &[
            "run",
            "--preload",
            LIBRARY,
            "--request=10%",
            "--memory=1GiB",
            "--name=nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
            "--",
            "true",
        ],
    },
    Case {
        id: "name.control-character",
        args: &[
            "run",
            "--preload",
            LIBRARY,
            "--request=10%",
            "--memory=1GiB",
            "--name=a\u{7}b",
            "--",
            "true",
        ],
    },
    Case { id: "cli.unknown-command", args: &["rum"] },
    Case { id: "cli.unknown-flag", args: &["run", "--memry", "1GiB", "--", "true"] },
    Case { id: "cli.no-program", args: &["run", "--request=10%", "--memory=1GiB"] },
    Case {
        id: "cli.program-not-found",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--", "/no/such/program"],
    },
    Case {
        id: "cli.program-not-executable",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=1GiB", "--", "/etc/passwd"],
    },
    Case {
        id: "cli.preload-missing",
        args: &["run", "--preload", "/no/such/libweir.so", "--request=10%", "--memory=1GiB", "--", "true"],
    },
    Case {
        id: "cli.preload-not-a-library",
        args: &["run", "--preload", "/etc/passwd", "--request=10%", "--memory=1GiB", "--", "true"],
    },
    Case { id: "cli.explain-unknown", args: &["explain", "W9999"] },
    Case { id: "path.relative", args: &["--dir", "some/where", "ps"] },
    Case { id: "path.too-long", args: &["--dir", LONG, "ps"] },
    Case { id: "path.nobody-listens", args: &["--dir", "/tmp/weir-nobody-listens", "ps"] },
    Case {
        id: "path.run-nobody-listens",
        args: &[
            "--dir",
            "/tmp/weir-nobody-listens",
            "run",
            "--preload",
            LIBRARY,
            "--request=10%",
            "--memory=1GiB",
            "--",
            "true",
        ],
    },
    Case {
        id: "share.taken",
        args: &["run", "--preload", LIBRARY, "--request=41%", "--memory=1GiB", "--", "true"],
    },
    Case {
        id: "memory.taken",
        args: &["run", "--preload", LIBRARY, "--request=10%", "--memory=21GiB", "--", "true"],
    },
    Case {
        id: "state.other-budget",
        args: &["run", "--preload", LIBRARY, "--name=held", "--request=30%", "--memory=60GiB", "--", "true"],
    },
    Case { id: "state.set-share-over-gpu", args: &["set", "held", "--request", "101%"] },
    Case { id: "state.set-negative-request", args: &["set", "held", "--request", "-1%"] },
    Case { id: "state.set-negative-limit", args: &["set", "held", "--limit", "-1%"] },
    Case { id: "state.set-negative-memory", args: &["set", "held", "--memory", "-1G"] },
    Case { id: "state.set-limit-below-request", args: &["set", "held", "--limit", "50%"] },
    Case { id: "state.set-memory-over-gpu", args: &["set", "held", "--memory", "81GiB"] },
    Case { id: "state.set-no-guarantee", args: &["set", "held", "--request", "0%"] },
    Case { id: "policy.unknown", args: &["policy", "statc"] },
    Case { id: "policy.unknown-without-neighbour", args: &["policy", "quickest"] },
    Case { id: "policy.unknown-gpu", args: &["policy", "--gpu=7", "static"] },
    Case { id: "policy.duplicate-gpu", args: &["policy", "--gpu=0,0"] },
    Case { id: "why.unknown-tenant", args: &["why", "ghost"] },
    Case { id: "state.unknown-tenant", args: &["set", "ghost", "--request", "10%"] },
    Case { id: "state.nothing-to-set", args: &["set", "ghost"] },
];
