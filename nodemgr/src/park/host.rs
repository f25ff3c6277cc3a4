//! Whether device memory has room on the host: what the machine has left, and each process's control group. The driver puts it
//! into the process, so its group pays.

use std::path::Path;

use weir_protocol::units::Bytes;

use super::Member;
use crate::codes;
use crate::fault::Fault;

/// Where control groups are looked for.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Whether `bytes` of the members have room.
///
/// # Errors
/// [`codes::PARK`]: they have not. What cannot be read holds nobody up.
pub fn check(members: &[Member], bytes: Bytes) -> Result<(), Fault> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let groups = members.iter().filter_map(|member| {
        let own = std::fs::read_to_string(format!("/proc/{}/cgroup", member.pid)).ok()?;
        left_of_group(Path::new(CGROUPS), unified(&own)?)
    });
    let Some(left) = machine.into_iter().chain(groups).min().filter(|left| *left < bytes) else {
        return Ok(());
    };
    let message = format!("{bytes} of device memory have no room on the host: {left} are left");
    Err(Fault::new(&codes::PARK, message, "make room there, or raise the memory limit of its control group"))
}

/// What `/proc/meminfo` says can be had without swapping.
fn available(meminfo: &str) -> Option<Bytes> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib.saturating_mul(1024)))
}

/// The group's path in the unified hierarchy, by `/proc/PID/cgroup`.
fn unified(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// What is left of the tightest limit on the way from a group to the root; nothing if there is none.
fn left_of_group(root: &Path, group: &str) -> Option<Bytes> {
    let number =
        |path: &Path, file: &str| std::fs::read_to_string(path.join(file)).ok()?.trim().parse::<u64>().ok();
    let start = root.join(group);
    let ways = start.ancestors().take_while(|path| path.starts_with(root));
    let left = ways.filter_map(|path| {
        let limit = number(path, "memory.max")?; // "max" is none
        Some(Bytes(limit.saturating_sub(number(path, "memory.current")?)))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_from_meminfo() {
        let text = "MemTotal:  24684092 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(available(text), Some(Bytes::mib(2)));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_on_the_way_to_the_root_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("kubepods").join("pod");
        std::fs::create_dir_all(&inner).unwrap();
        let write = |path: &Path, limit: &str, current: &str| {
            std::fs::write(path.join("memory.max"), limit).unwrap();
            std::fs::write(path.join("memory.current"), current).unwrap();
        };
        write(&inner, "max\n", "900\n");
        assert_eq!(left_of_group(root.path(), "kubepods/pod"), None);
        write(&root.path().join("kubepods"), "1000\n", "900\n");
        assert_eq!(left_of_group(root.path(), "kubepods/pod"), Some(Bytes(100)));
        write(&inner, "950\n", "900\n");
        assert_eq!(left_of_group(root.path(), "kubepods/pod"), Some(Bytes(50)));
        assert_eq!(unified("12:memory:/old\n0::/kubepods/pod\n"), Some("kubepods/pod"));
    }
}
