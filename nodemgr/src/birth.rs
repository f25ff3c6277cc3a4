//! Which process a number stands for. A process id is used again; the moment of a process's birth is not.
//!
//! Since Linux 6.9 a pidfd has an inode that no other process of this boot ever has. Before, all pidfds share one, and
//! the start time in `/proc` takes its place: it is counted in hundredths of a second, in which an id hardly comes round.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::process::{Pid, PidfdFlags};

/// The file system of pidfds that have inodes of their own (`PID_FS_MAGIC`, linux/magic.h).
const PIDFS: u64 = 0x5049_4446;

/// The number of a process's birth; `None` if it has gone.
pub fn of(pidfd: impl AsFd, pid: i32) -> Option<u64> {
    if has_own_inode(&pidfd)? { Some(rustix::fs::fstat(&pidfd).ok()?.st_ino) } else { start_time(pid) }
}

/// Whether a pidfd has an inode of its own. What holds for one holds for all of them on this kernel, and a thousand may come
/// at once.
fn has_own_inode(pidfd: impl AsFd) -> Option<bool> {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Some(*known);
    }
    let kind = rustix::fs::fstatfs(&pidfd).ok()?.f_type;
    Some(*KNOWN.get_or_init(|| u64::try_from(kind) == Ok(PIDFS)))
}

/// The process with this number and birth, if it lives.
pub fn find(pid: i32, birth: u64) -> Option<OwnedFd> {
    let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    (of(&pidfd, pid) == Some(birth) && !has_ended(&pidfd)).then_some(pidfd)
}

/// Whether any process with this number lives.
pub fn lives(pid: i32) -> bool {
    let open = |pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
    Pid::from_raw(pid).and_then(open).is_some_and(|pidfd| !has_ended(&pidfd))
}

/// Whether the process is dead, reaped or not.
fn has_ended(pidfd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)), Ok(0))
}

/// Whether a process is stopped: by the third field of `/proc/PID/stat`. For people to read, or where to be wrong does no harm,
/// as the number may be another's by now.
///
/// A thousand of them are asked about at once, so that each is asked with as few system calls as can be.
pub fn is_stopped(pid: i32) -> bool {
    use rustix::fs::{Mode, OFlags};
    let mut stat = [0; 128]; // the name before the third field has at most 64 bytes
    let opened = rustix::fs::open(format!("/proc/{pid}/stat"), OFlags::CLOEXEC, Mode::empty());
    let length = opened.and_then(|file| rustix::io::read(file, &mut stat)).unwrap_or(0);
    let name_end = stat[..length].iter().rposition(|byte| *byte == b')');
    let state = name_end.and_then(|end| stat.get(end + 2));
    matches!(state, Some(b'T' | b't'))
}

/// The 22nd field of `/proc/PID/stat`. The second is the program's name in brackets, which may hold anything.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn a_process_is_found_by_its_birth_and_nobody_else_is_taken_for_it() {
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(own()).unwrap(), PidfdFlags::empty()).unwrap();
        let birth = of(&pidfd, own()).unwrap();
        assert!(find(own(), birth).is_some());
        assert!(find(own(), birth + 1).is_none(), "the number is used again");
    }

    #[test]
    fn whoever_is_dead_is_not_found_although_nobody_has_reaped_him() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let birth = of(&pidfd, pid).unwrap();
        assert!(find(pid, birth).is_some());
        child.kill().unwrap();
        let mut ends = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ends, None).unwrap();
        assert!(find(pid, birth).is_none());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_seen_to_be_stopped_while_it_is() {
        use rustix::process::{Signal, WaitOptions, kill_process, waitpid};
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!is_stopped(pid));
        kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
        waitpid(Pid::from_raw(pid), WaitOptions::UNTRACED).unwrap();
        assert!(is_stopped(pid));
        kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT).unwrap();
        waitpid(Pid::from_raw(pid), WaitOptions::CONTINUED).unwrap();
        assert!(!is_stopped(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(pid), "nobody has this number");
    }

    #[test]
    fn a_start_time_is_read_behind_whatever_the_program_is_called() {
        assert!(start_time(own()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(i32::MAX), None);
    }
}
