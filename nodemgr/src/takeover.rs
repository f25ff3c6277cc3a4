//! Taking over from a manager that died: its tenants' pages are still mapped in their processes, and are had back from
//! there, without the processes' help.
//!
//! ```text
//!   journal:  process 812, born 5521, of tenant 1, whose pages are inodes 71, 72, 73, 74
//!        |
//!        v    pidfd_open(812), born 5521?      no: it is dead, its slot is cleared
//!   /proc/812/fd  ->  inode 71?                yes: pidfd_getfd
//!   /proc/812/map_files                        for what the program has closed
//!        |
//!        v    sealed? of the right size, magic, version?
//!   mapped: grants, buckets, usage and boards are as they were
//! ```
//!
//! What a supervisor has kept of them, as systemd does, need not be looked for. One process of a tenant suffices. Without the privilege to look into other users' processes (`CAP_SYS_PTRACE`), or
//! where the kernel lets nobody look but a debugger's parent (Yama), the pages cannot be had; and pages of another version
//! are not read. Then the tenant's budget stays taken, its processes are shown as unreached, and the journal keeps the pages'
//! inodes, for the next one who starts here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags};
use rustix::process::PidfdGetfdFlags;

use crate::birth;
use crate::journal::{ProcessRow, Remembered, TenantRow};
use crate::registry::{Found, Holder, PERSISTENT, Pages, Process};

/// What the kernel calls our pages.
const NAME: &[u8] = b"/memfd:weir-";

/// Descriptors by inode.
type Pieces = BTreeMap<u64, OwnedFd>;

/// Looks for everything that the journal remembers, in what a supervisor has `kept` and in the processes.
pub fn find(remembered: Remembered, kept: Vec<OwnedFd>) -> Vec<Found> {
    let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).map_or(0, |stat| stat.st_ino);
    let mut kept: Pieces = kept.into_iter().map(|fd| (inode(&fd), fd)).collect();
    let Remembered { tenants, mut processes, holds, .. } = remembered;
    let find = |row: TenantRow| {
        let (own, others): (Vec<ProcessRow>, _) =
            processes.drain(..).partition(|process: &ProcessRow| process.tenant == row.id);
        processes = others;
        let held = holds.iter().filter(|hold| hold.tenant == row.id).map(|hold| hold.holder);
        let stays =
            |holder: &Holder| *holder == PERSISTENT || birth::find(holder.pid, holder.birth).is_some();
        let holders = held.filter(stays).collect();
        find_tenant(row, own.into_iter().map(|row| row.process).collect(), holders, &mut kept)
    };
    let found: Vec<Found> = tenants.into_iter().map(find).collect();
    found.into_iter().filter(|found| !found.living.is_empty() || !found.holders.is_empty()).collect()
}

fn find_tenant(row: TenantRow, processes: Vec<Process>, holders: Vec<Holder>, kept: &mut Pieces) -> Found {
    let mut living = Vec::new();
    let mut dead = Vec::new();
    for process in processes {
        match birth::find(process.pid, process.birth) {
            Some(pidfd) => living.push((process, pidfd)),
            None => dead.push(process),
        }
    }
    let mut search = Search::of(&row);
    search.take(kept);
    living.iter().for_each(|(process, pidfd)| search.look(process.pid, pidfd));
    let lost = "some pages are nowhere to be found. help: start the programs again";
    let mut barred = search.barred.take().or_else(|| search.is_partial().then(|| lost.into()));
    let pages = search.pages().unwrap_or_else(|reason| {
        // Of another version, for example: whoever made them can have them back.
        let help = "start the node manager of before again, or the programs";
        barred = Some(format!("{reason}. help: {help}"));
        None
    });
    let mut living: Vec<_> = living.into_iter().map(|(process, _)| process).collect();
    if pages.is_none() {
        match barred {
            // Nobody has any: they have called `exec` since, or died before they heard of their slots.
            None => living.clear(),
            Some(_) if living.is_empty() => {}
            Some(reason) => warn_unreached(&row, &living, &reason),
        }
    }
    Found { row, pages, living, dead, holders }
}

fn warn_unreached(row: &TenantRow, living: &[Process], reason: &str) {
    let pids: Vec<_> = living.iter().map(|process| process.pid).collect();
    tracing::warn!(
        tenant = %row.name, ?pids,
        "running processes could not be taken over: they keep to their last limits, which nobody can change, and the tenant's \
         budget stays taken until they end: {reason}"
    );
}

/// The pages of one tenant, as far as they have been found.
struct Search<'a> {
    row: &'a TenantRow,
    missing: BTreeSet<u64>,
    found: Pieces,
    barred: Option<String>, // a process that could not be looked into, or whose page could not be had
}

impl<'a> Search<'a> {
    fn of(row: &'a TenantRow) -> Self {
        let missing = row.cells.iter().flat_map(|cell| cell.pages).collect();
        Self { row, missing, found: Pieces::new(), barred: None }
    }

    /// Takes what a supervisor has kept of them.
    fn take(&mut self, kept: &mut Pieces) {
        let found = self.missing.iter().filter_map(|inode| kept.remove(inode)).collect::<Vec<_>>();
        found.into_iter().for_each(|fd| self.keep(fd));
    }

    /// Looks for what is missing in one process.
    fn look(&mut self, pid: i32, pidfd: &OwnedFd) {
        let mut looked = Ok(());
        if !self.missing.is_empty() {
            looked = self.look_at_descriptors(pid, pidfd);
        }
        if !self.missing.is_empty() {
            looked = looked.and(self.look_at_mappings(pid));
        }
        if let Err(error) = looked {
            let help = "run the node manager as root, or with CAP_SYS_PTRACE";
            self.barred = Some(format!("process {pid}: {error}. help: {help}"));
        }
    }

    fn look_at_descriptors(&mut self, pid: i32, pidfd: &OwnedFd) -> std::io::Result<()> {
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let path = entry.path();
            // By the name first: to ask a file of the program's for its inode may take for ever, on a network's disk.
            let is_ours = fs::read_link(&path).is_ok_and(|to| to.as_os_str().as_bytes().starts_with(NAME));
            let Some(inode) = is_ours.then(|| fs::metadata(&path).ok()).flatten().map(|meta| meta.ino())
            else {
                continue;
            };
            let number = entry.file_name().to_string_lossy().parse().unwrap_or(-1);
            if self.missing.contains(&inode) {
                self.keep(rustix::process::pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty())?);
            }
        }
        Ok(())
    }

    fn look_at_mappings(&mut self, pid: i32) -> std::io::Result<()> {
        for line in fs::read(format!("/proc/{pid}/maps"))?.split(|byte| *byte == b'\n') {
            let wanted = mapping(line).filter(|(_, inode)| self.missing.contains(inode));
            let Some((range, _)) = wanted else { continue };
            let path = format!("/proc/{pid}/map_files/{range}");
            self.keep(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?);
        }
        Ok(())
    }

    /// Whether some pages were found and others were not.
    fn is_partial(&self) -> bool {
        !self.found.is_empty() && !self.missing.is_empty()
    }

    /// Keeps a descriptor if it is one of those that are missing: between the look and the grip a number may have changed
    /// its meaning.
    fn keep(&mut self, fd: OwnedFd) {
        let inode = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_ino);
        if self.missing.remove(&inode) {
            self.found.insert(inode, fd);
        }
    }

    /// The pages of all GPUs, if all of them were found.
    fn pages(mut self) -> Result<Option<Vec<Pages>>, String> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        let mut pages = Vec::with_capacity(self.row.cells.len());
        for cell in &self.row.cells {
            let fds = cell.pages.map(|inode| self.found.remove(&inode));
            let [Some(grant), Some(bucket), Some(usage), Some(activity)] = fds else {
                return Err("one page stands for two".to_owned());
            };
            pages
                .push(Pages::take_over([grant, bucket, usage, activity]).map_err(|error| error.to_string())?);
        }
        Ok(Some(pages))
    }
}

/// The range and the inode of one of our pages, by its line in `/proc/PID/maps`:
/// `7f13c0e00000-7f13c0e01000 r--s 00000000 00:01 71    /memfd:weir-grant (deleted)`.
fn mapping(line: &[u8]) -> Option<(&str, u64)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let range = fields.next()?;
    let inode = fields.nth(3)?.parse().ok()?;
    fields.next()?.as_bytes().starts_with(NAME).then_some((range, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_pages_are_seen_among_a_programs_mappings() {
        let ours = b"7f13c0e00000-7f13c0e01000 r--s 00000000 00:01 71       /memfd:weir-grant (deleted)";
        assert_eq!(mapping(ours), Some(("7f13c0e00000-7f13c0e01000", 71)));
        for other in [
            &b"7f13c0e00000-7f13c0e01000 r--s 00000000 00:01 71       /memfd:grant (deleted)"[..],
            b"7f13c0e00000-7f13c0e01000 rw-p 00000000 00:00 0 ",
            b"7f13c0e00000-7f13c0e01000 rw-p 00000000 08:01 71 /home/\xff",
            b"",
        ] {
            assert_eq!(mapping(other), None);
        }
    }
}
