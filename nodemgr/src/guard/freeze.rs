//! A process without a budget stands still: its control group is frozen (cgroup v2, `cgroup.freeze`). No signal tells it, and
//! whoever writes `0` there lets it go on. What it holds on the GPU it keeps.
//!
//! A group is frozen as a whole, with all below it. So one in which anybody stands whom that must not reach is left alone:
//! the node manager, root, and whoever keeps to a budget.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::process;
use super::{Census, Stranger};
use crate::birth;

/// Groups below one that are looked through.
const MOST_GROUPS: usize = 4_096;

/// Freezes the process's control group, and says which that is; or why that cannot be.
pub(super) fn freeze(stranger: &Stranger, known: &Census) -> Result<String, String> {
    let pid = stranger.listed.pid;
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let (mount, root) = unified(&mounts).ok_or("this machine has no control groups of version 2")?;
    let group = process::unified_cgroup(pid).ok_or("it is in no control group of version 2")?;
    let dir = place(&mount, &root, &group)?;
    let members = members(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    if let Some(why) = members.iter().find_map(|member| why_not(*member, known)) {
        return Err(format!("its control group {group} cannot be frozen: {why}"));
    }
    // Its number may be another's by now, and it may have been moved.
    let still = members.contains(&pid) && birth::find(pid, stranger.who.birth).is_some();
    still.then_some(()).ok_or("it has gone by itself")?;
    let file = dir.join("cgroup.freeze");
    let wrote = OpenOptions::new().write(true).open(&file).and_then(|mut file| file.write_all(b"1"));
    wrote.map(|()| group).map_err(|error| format!("{}: {error}", file.display()))
}

/// Where the unified hierarchy is mounted, and which of its groups lies there.
fn unified(mounts: &str) -> Option<(PathBuf, String)> {
    let of_line = |line: &str| {
        let (mount, filesystem) = line.split_once(" - ")?;
        filesystem.starts_with("cgroup2 ").then_some(())?;
        let mut fields = mount.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        Some((place.into(), root.to_owned()))
    };
    mounts.lines().find_map(of_line)
}

/// The directory of a group.
fn place(mount: &Path, root: &str, group: &str) -> Result<PathBuf, String> {
    let below = group.strip_prefix(root.trim_end_matches('/')).filter(|below| !below.contains("/.."));
    let below = below.ok_or_else(|| format!("its control group {group} is none that can be seen here"))?;
    match below.trim_start_matches('/') {
        "" => Err("it is in the root of the control groups, which cannot be frozen".to_owned()),
        below => Ok(mount.join(below)),
    }
}

/// Whoever is in the group, or below it. Zero stands for somebody whom this namespace does not know.
fn members(dir: &Path) -> std::io::Result<Vec<i32>> {
    let (mut members, mut dirs, mut at) = (Vec::new(), vec![dir.to_path_buf()], 0);
    while let Some(dir) = dirs.get(at).cloned() {
        at += 1;
        let procs = fs::read_to_string(dir.join("cgroup.procs"))?;
        members.extend(procs.lines().map(|pid| pid.parse().unwrap_or(0)));
        let entries = fs::read_dir(&dir)?.flatten();
        dirs.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()),
        );
        if dirs.len() > MOST_GROUPS {
            return Err(std::io::Error::other("too many groups lie below it"));
        }
    }
    Ok(members)
}

/// Why nothing may be frozen with which this process would be.
fn why_not(member: i32, known: &Census) -> Option<String> {
    match member {
        0 => Some("somebody is in it whom the node manager cannot see".to_owned()),
        own if own == std::process::id().cast_signed() => Some("the node manager is in it".to_owned()),
        pid if known.knows(pid) => Some(format!("process {pid}, which has a budget, is in it")),
        pid if known.keepers.iter().any(|(keeper, _)| *keeper == pid) => {
            Some(format!("process {pid}, which keeps a tenant, is in it"))
        }
        pid if process::is_roots(pid) => Some(format!("process {pid}, which is root's, is in it")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_is_found_beside_older_ones() {
        let mounts = "25 1 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      31 1 0:28 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(unified(mounts), Some(("/sys/fs/cgroup/unified".into(), "/".into())));
        assert_eq!(unified("25 1 0:22 / / rw - ext4 /dev/sda rw\n"), None);
    }

    #[test]
    fn a_group_lies_where_the_hierarchy_is_mounted_and_its_root_is_none() {
        let at = |root: &str, group: &str| place(Path::new("/cg"), root, group).ok();
        assert_eq!(at("/", "/user.slice/job"), Some("/cg/user.slice/job".into()));
        assert_eq!(at("/pod", "/pod/a"), Some("/cg/a".into()));
        assert_eq!(
            [at("/", "/"), at("/pod", "/pod"), at("/pod", "/other"), at("/", "/../up")],
            [None, None, None, None]
        );
    }
}
