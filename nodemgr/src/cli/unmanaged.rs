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
    nvml.into_iter().chain(by_gpu(&stats.unmanaged)).collect()
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

/// Processes that are named on a GPU's line; of more than that the line says how many there are.
const NAMED: usize = 8;

/// One line for each GPU on which somebody has no budget.
fn by_gpu(all: &[UnmanagedStats]) -> impl Iterator<Item = String> {
    let mut gpus: Vec<_> = all.iter().map(|process| process.gpu).collect();
    gpus.sort_unstable();
    gpus.dedup();
    gpus.into_iter().map(move |gpu| {
        let here: Vec<_> = all.iter().filter(|process| process.gpu == gpu).collect();
        format!(
            "NOT MANAGED on GPU {gpu}: {}",
            if let [one] = here[..] { alone(one) } else { together(&here) }
        )
    })
}

/// One process, in a sentence.
fn alone(process: &UnmanagedStats) -> String {
    let who = match (process.pid, &process.program) {
        (Some(pid), Some(program)) => {
            format!("process {pid} ({}, user {})", program.escape_debug(), process.uid)
        }
        _ => format!("a process of user {}", process.uid),
    };
    let holds = process.memory_bytes.map_or(String::new(), |bytes| format!(", holds {}", Bytes(bytes)));
    format!("{who}{} has no budget{holds}{}", of_tenant(process), treatment(process))
}

/// Several: how many, what they hold, and who they are.
fn together(processes: &[&UnmanagedStats]) -> String {
    let known: Vec<u64> = processes.iter().filter_map(|process| process.memory_bytes).collect();
    let sum = known.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let holds = if known.is_empty() { String::new() } else { format!(" and hold {} in all", Bytes(sum)) };
    let named: Vec<_> = processes.iter().take(NAMED).map(|process| in_list(process)).collect();
    let more = processes.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    format!("{} processes have no budget{holds}: {}{more}", processes.len(), named.join(", "))
}

/// One of several: `848 (python3, user 0) 3.7 GiB`.
fn in_list(process: &UnmanagedStats) -> String {
    let who = match (process.pid, &process.program) {
        (Some(pid), Some(program)) => format!("{pid} ({}, user {})", program.escape_debug(), process.uid),
        _ => format!("one of user {}", process.uid),
    };
    let holds = process.memory_bytes.map_or(String::new(), |bytes| format!(" {}", Bytes(bytes)));
    format!("{who}{}{holds}{}", of_tenant(process), treatment(process))
}

fn of_tenant(process: &UnmanagedStats) -> String {
    process.tenant.as_ref().map_or(String::new(), |tenant| format!(" of tenant {tenant}"))
}

/// What it keeps to by itself, and what was done about it.
fn treatment(process: &UnmanagedStats) -> String {
    let limits = if process.keeps_limits { "; it keeps to limits of an earlier node manager" } else { "" };
    let outcome = process.outcome.as_ref().map_or(String::new(), |outcome| format!("; {outcome}"));
    format!("{limits}{outcome}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(pid: i32) -> UnmanagedStats {
        UnmanagedStats {
            gpu: 0,
            pid: Some(pid),
            uid: 1000,
            program: Some("python3".into()),
            memory_bytes: Some(2 << 30),
            tenant: None,
            keeps_limits: false,
            outcome: None,
        }
    }

    fn lines(all: &[UnmanagedStats]) -> Vec<String> {
        by_gpu(all).collect()
    }

    #[test]
    fn a_process_is_named_to_whom_it_may_be() {
        let full = UnmanagedStats { tenant: Some("train".into()), ..python(4711) };
        let told = "NOT MANAGED on GPU 0: process 4711 (python3, user 1000) of tenant train has no budget, holds 2 GiB";
        assert_eq!(lines(std::slice::from_ref(&full)), [told]);
        let hidden = UnmanagedStats { pid: None, program: None, tenant: None, memory_bytes: None, ..full };
        assert_eq!(lines(&[hidden]), ["NOT MANAGED on GPU 0: a process of user 1000 has no budget"]);
    }

    #[test]
    fn several_on_a_gpu_are_one_line_and_each_gpu_has_its_own() {
        let far = UnmanagedStats { gpu: 1, ..python(9) };
        let killed = UnmanagedStats { outcome: Some("not killed: it is root's".into()), ..python(8) };
        let told = [
            "NOT MANAGED on GPU 0: 2 processes have no budget and hold 4 GiB in all: \
             7 (python3, user 1000) 2 GiB, 8 (python3, user 1000) 2 GiB; not killed: it is root's",
            "NOT MANAGED on GPU 1: process 9 (python3, user 1000) has no budget, holds 2 GiB",
        ];
        assert_eq!(lines(&[python(7), far, killed]), told);
        let many = lines(&(1..=20).map(python).collect::<Vec<_>>());
        assert!(
            many.len() == 1 && many[0].ends_with("8 (python3, user 1000) 2 GiB, and 12 more"),
            "{many:?}"
        );
    }
}
