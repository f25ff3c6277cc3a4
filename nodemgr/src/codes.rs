//! The table of error codes: one row for each thing that can go wrong in a way of its own.
//!
//! `weir explain` prints a row; `docs/FAULTS.md` lists the inputs that lead to each.

/// One code.
#[derive(Debug)]
pub struct Row {
    /// As printed: `W0107`.
    pub code: &'static str,
    /// Exit code of the command: 1 failed, 2 usage, 69 unreachable, 75 try later, 77 not allowed, 78
    /// configuration, 125 to 127 as container runtimes have them.
    pub exit: u8,
    /// What it is about, in a sentence or two.
    pub about: &'static str,
}

macro_rules! codes {
    ($($name:ident = $code:literal, exit $exit:literal, $about:literal;)*) => {
        $(#[doc = $about] pub const $name: Row = Row { code: $code, exit: $exit, about: $about };)*

        /// Every code, in order.
        pub const TABLE: &[Row] = &[$($name),*];
    };
}

codes! {
    USAGE = "W0100", exit 2, "The command line does not say what to do.";
    SHARE = "W0101", exit 2, "A share is a percentage with its sign, from 0 % to 100 % in steps of 0.1 %: `30%`. A bare number is refused, since 0.5 could be a half or half a percent.";
    LIMIT_BELOW_REQUEST = "W0102", exit 2, "A tenant is guaranteed its request, so its limit cannot lie below it.";
    REQUEST_MISSING = "W0103", exit 2, "Tenants of class latency and primary need a request above zero; only a filler lives on what is left.";
    SHARE_TAKEN = "W0104", exit 1, "The requests on one GPU sum to at most 100 %: what is guaranteed to somebody cannot be guaranteed twice.";
    MEMORY_TAKEN = "W0105", exit 1, "The memory limits on one GPU sum to at most the card's memory less the reserve.";
    MEMORY_MISSING = "W0106", exit 2, "Every tenant needs a memory limit.";
    SIZE = "W0107", exit 2, "A size is a number with a unit: `40GiB` = `40Gi` = 40 x 2^30 bytes, `40G` = 40 x 10^9 bytes.";
    MEMORY_OVER_DEVICE = "W0108", exit 2, "One tenant cannot have more memory than the card has, less the reserve.";
    GPU_UNKNOWN = "W0109", exit 2, "A GPU is named by its index or its UUID, as `weir ps` prints them. Under CUDA_VISIBLE_DEVICES an index counts what that shows.";
    GPU_DUPLICATE = "W0110", exit 2, "A tenant has one budget on a GPU, so a GPU is named once.";
    GPU_MIG = "W0111", exit 2, "Weir shares whole GPUs; a MIG instance is already a fixed part of one.";
    BANDWIDTH = "W0112", exit 2, "A bandwidth is a size each second: `4GiB/s` = 4 x 2^30 bytes per second; `unlimited` takes a limit away.";
    NAME = "W0113", exit 2, "A tenant's name has 1 to 40 characters: letters, digits, `.`, `_`, `-`, starting with a letter or digit. It becomes a directory name.";
    SLO = "W0114", exit 2, "An SLO is a quantile of the requests and its bound, `p95 < 200ms`, and needs a source of latencies: --latency-from URL METRIC, or hint METRIC.";
    TENANT_UNKNOWN = "W0115", exit 1, "No tenant has this name, or it has ended.";
    BUDGET_DIFFERS = "W0116", exit 1, "A second `weir run` with the same name joins the tenant and so must have the same budget.";
    TENANT_FULL = "W0117", exit 75, "A tenant has as many processes as its usage page has slots.";
    NOTHING_TO_SET = "W0118", exit 2, "`weir set` changes only what it is told to change.";
    POLICY_UNKNOWN = "W0119", exit 2, "No policy has this name; `weir policy` lists them.";
    NOT_ALLOWED = "W0120", exit 77, "Root and members of the group `weir` set budgets; a tenant's owner may lower its own.";
    LATENCY_SOURCE = "W0121", exit 2, "Latencies come from a page of Prometheus text over plain HTTP, and a histogram or summary on it whose name ends in its unit.";
    PARK = "W0122", exit 1, "A tenant is parked if the driver takes checkpoints and nothing stands in the way of one: managed memory, memory that crosses processes, no room on the host. A primary never is.";
    PARK_FAILED = "W0123", exit 75, "The driver refused a step of a checkpoint, or the tenant called meanwhile. What had been done was undone, or will be.";
    MPS = "W0124", exit 78, "A program that finds no MPS control daemon runs without MPS and without its partition, and nobody tells it. So it does not run.";
    PRELOAD = "W0125", exit 125, "`libweir.so` enforces the budget inside of the program. Without it a program would run unlimited, so it does not run.";
    NOT_EXECUTABLE = "W0126", exit 126, "The program was found and cannot be executed.";
    NOT_FOUND = "W0127", exit 127, "The program was not found.";
    OVERSUBSCRIBE = "W0128", exit 2, "Memory beyond the limit lives on the host, and its way over the bus slows neighbours down: only a filler may have it, and as much again as its limit at most.";
    UNREACHABLE = "W0130", exit 69, "No node manager answers.";
    ALREADY_RUNS = "W0131", exit 1, "One node manager at a time holds a directory.";
    PROTOCOL = "W0132", exit 1, "The two sides of a socket do not understand each other; usually they are of different versions.";
    BUSY = "W0133", exit 75, "The node manager has as much to do for this user as it will take on.";
    CONFIG = "W0140", exit 78, "The configuration file cannot be used as it is. Nothing of it was applied.";
    SCENARIO = "W0141", exit 78, "The scenario cannot be simulated as it is.";
    PLACE = "W0150", exit 78, "A directory or socket path cannot be used.";
    NO_GPU = "W0160", exit 69, "NVML, the driver's management library, was not found or does not answer, so there is no GPU to share.";
    SYSTEM = "W0161", exit 1, "The system refused something that the node manager needs.";
    TOKEN = "W0170", exit 78, "`weir web` answers anything but /metrics only to whoever shows the token of its --token-file, which nobody else may read.";
    WEB = "W0171", exit 2, "The public API over HTTP has a handful of paths, and none that needs a connection to stay.";
    WEB_ADDRESS = "W0172", exit 2, "`weir web` listens at an address and a port, both numbers.";
}

/// The row of `code`, however it is capitalised.
pub fn find(code: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.code.eq_ignore_ascii_case(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_in_order_and_none_is_given_twice() {
        assert!(TABLE.is_sorted_by(|a, b| a.code < b.code));
    }
}
