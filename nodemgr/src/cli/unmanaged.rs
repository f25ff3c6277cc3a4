//! What `weir ps` and `weir doctor` say of processes without a budget, and of NVML, by which they are found.

use weir_protocol::units::Bytes;

use crate::control::{DrainingStats, Stats, UnmanagedStats};
use crate::gpus::Health;

/// One line for each thing that is not as it should be.
pub(super) fn notes(stats: &Stats) -> Vec<String> {
    let why = stats.node.nvml_why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    let nvml = match stats.node.nvml {
        Health::None | Health::Ok => None,
        Health::Stale => {
            Some(format!("nvml: stale{why}: used memory and processes without a budget are not known"))
        }
        Health::Partial => {
            Some(format!("nvml: partial{why}: some processes without a budget may not be seen"))
        }
    };
    nvml.into_iter().chain(stats.unmanaged.iter().map(note)).collect()
}

/// One line for each process whose memory is not free although it has died.
pub(super) fn draining(stats: &Stats) -> impl Iterator<Item = String> {
    stats.draining.iter().map(|DrainingStats { gpu, pid, tenant, memory_bytes, wedged, .. }| {
        let who = pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
        let stuck = if *wedged { "; WEDGED: the GPU may need a reset" } else { "" };
        format!(
            "DRAINING on GPU {gpu}: {who} of tenant {tenant} has died and holds {} still{stuck}",
            Bytes(*memory_bytes)
        )
    })
}

fn note(process: &UnmanagedStats) -> String {
    let who = match (process.pid, &process.program) {
        (Some(pid), Some(program)) => {
            format!("process {pid} ({}, user {})", program.escape_debug(), process.uid)
        }
        _ => format!("a process of user {}", process.uid),
    };
    let tenant = process.tenant.as_ref().map_or(String::new(), |tenant| format!(" of tenant {tenant}"));
    let holds = process.memory_bytes.map_or(String::new(), |bytes| format!(", holds {}", Bytes(bytes)));
    let limits = if process.keeps_limits { "; it keeps to limits of an earlier node manager" } else { "" };
    let outcome = process.outcome.as_ref().map_or(String::new(), |outcome| format!("; {outcome}"));
    format!("NOT MANAGED on GPU {}: {who}{tenant} has no budget{holds}{limits}{outcome}", process.gpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_to_whom_it_may_be() {
        let full = UnmanagedStats {
            gpu: 0,
            pid: Some(4711),
            uid: 1000,
            program: Some("python3".into()),
            memory_bytes: Some(2 << 30),
            tenant: Some("train".into()),
            keeps_limits: false,
            outcome: None,
        };
        let told = "NOT MANAGED on GPU 0: process 4711 (python3, user 1000) of tenant train has no budget, holds 2 GiB";
        assert_eq!(note(&full), told);
        let hidden = UnmanagedStats { pid: None, program: None, tenant: None, memory_bytes: None, ..full };
        assert_eq!(note(&hidden), "NOT MANAGED on GPU 0: a process of user 1000 has no budget");
    }
}
