//! Who a process is, by what `/proc` says of it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, PidfdFlags};

use crate::birth;

/// Generations that are looked through for a tenant's process.
const GENERATIONS: usize = 64;

/// The driver's own process under MPS: it is on the GPU for its clients.
const MPS_SERVER: &str = "nvidia-cuda-mps-server";

/// What our pages are called where they are mapped.
const OUR_PAGE: &str = "/memfd:weir-grant";

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its birth: its number alone may be another's one day.
    pub birth: u64,
    /// Its user.
    pub uid: u32,
    /// Its program's name.
    pub program: String,
    /// Its number, its parent's, and so on.
    pub line: Vec<i32>,
    /// Its control group.
    pub cgroup: String,
    /// Whether it has pages of a node manager: it keeps to the last limits that it was given.
    pub keeps_limits: bool,
}

/// Looks at a living process. Nothing, if it has ended, or is the driver's own.
pub fn look(pid: i32) -> Option<Who> {
    let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let birth = birth::of(&pidfd, pid)?;
    let status = Status::of(pid)?;
    if status.has_ended || is_drivers_own(pid) {
        return None;
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    Some(Who {
        birth,
        uid: status.uid,
        program: status.name,
        line: line(pid),
        cgroup: cgroup(pid),
        keeps_limits: maps.contains(OUR_PAGE),
    })
}

/// The process, its parent, and so on.
fn line(pid: i32) -> Vec<i32> {
    let next = |pid: &i32| Status::of(*pid).map(|status| status.parent).filter(|parent| *parent > 1);
    std::iter::successors(Some(pid), next).take(GENERATIONS).collect()
}

/// Its control group: of the unified hierarchy, or else of the first one.
pub fn cgroup(pid: i32) -> String {
    let first = || cgroups(pid).lines().next()?.splitn(3, ':').nth(2).map(str::to_owned);
    unified_cgroup(pid).or_else(first).unwrap_or_default()
}

/// Its control group of the unified hierarchy.
pub fn unified_cgroup(pid: i32) -> Option<String> {
    cgroups(pid).lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

fn cgroups(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// Whether it is a process of root's.
pub fn is_roots(pid: i32) -> bool {
    Status::of(pid).is_some_and(|status| status.uid == 0)
}

/// By the name of a program that only root can have put there.
fn is_drivers_own(pid: i32) -> bool {
    let program = format!("/proc/{pid}/exe");
    let named = fs::read_link(&program).is_ok_and(|path| path.ends_with(MPS_SERVER));
    named && fs::metadata(&program).is_ok_and(|meta| meta.uid() == 0)
}

/// A part of `/proc/PID/status`.
struct Status {
    name: String,
    has_ended: bool,
    parent: i32,
    uid: u32,
}

impl Status {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim())
        };
        Some(Self {
            name: field("Name")?.to_owned(),
            has_ended: field("State")?.starts_with(['Z', 'X']),
            parent: field("PPid")?.parse().ok()?,
            uid: field("Uid")?.split_ascii_whitespace().next()?.parse().ok()?, // the real one
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_with_its_parents() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let [pid, own] = [child.id(), std::process::id()].map(u32::cast_signed);
        let who = look(pid).unwrap();
        assert_eq!((who.line[..2].to_vec(), who.uid), (vec![pid, own], crate::place::own_uid()));
        assert_eq!((who.cgroup, who.keeps_limits), (cgroup(own), false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(look(pid), None);
    }

    #[test]
    fn a_status_is_read_whatever_the_program_is_called() {
        let text = "Name:\tState: Z\nUmask:\t0022\nState:\tS (sleeping)\nPPid:\t7\nUid:\t1000\t0\t0\t0\n";
        let status = Status::parse(text).unwrap();
        assert_eq!((status.name.as_str(), status.has_ended), ("State: Z", false));
        assert_eq!((status.parent, status.uid), (7, 1000));
        assert!(Status::parse("Name:\tx\n").is_none());
    }
}
