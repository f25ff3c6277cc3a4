//! One instance on a node: `weir-cluster instance start` and `stop`, which run where the instance does. What makes them safe
//! is a file that is locked as long as any process of the instance lives, since it is inherited:
//!
//! ```text
//!   DIR/NAME.lock     locked: it runs. Holds its process group, or `ended`: it may never start again
//!   DIR/NAME.log      what it says
//! ```
//!
//! So a start that comes twice starts once, and one that comes after the stop starts nothing, however late it is.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::fault::Fault;

/// Exit code of a start that comes too late: the instance was ended.
pub const ENDED: u8 = 76;

/// What the lock holds once the instance may never start again.
const MARK: &str = "ended\n";

/// How long an instance may take to end after SIGTERM; then it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// The same after SIGKILL.
const KILLED: Duration = Duration::from_secs(2);

/// Looks at the lock come this often.
const LOOK: Duration = Duration::from_millis(20);

/// Files of instances that ended so long ago are removed: no order is on its way for days.
const KEPT: Duration = Duration::from_hours(72);

/// How a start went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It has been started now.
    Now,
    /// It runs already.
    Before,
}

fn lock_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.lock"))
}

fn open(dir: &Path, name: &str) -> Result<File, Fault> {
    let made = std::fs::create_dir_all(dir).and_then(|()| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(lock_path(dir, name))
    });
    made.map_err(|error| {
        let message =
            format!("the lock of instance `{name}` in `{}` cannot be opened: {error}", dir.display());
        Fault::new(message, "let `instances` of the node name a directory that may be written to")
    })
}

fn is_free(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn content(file: &mut File) -> String {
    let mut text = String::new();
    // What cannot be read is as good as nothing: a group that is not known is not ended by number.
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
    text
}

fn replace(file: &mut File, text: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// Starts the command as instance `name`, unless it runs or has been ended.
///
/// # Errors
/// It was ended before (code [`ENDED`]), or the program cannot be started.
pub fn start(dir: &Path, name: &str, command: &[String]) -> Result<Started, Fault> {
    let mut lock = open(dir, name)?;
    if !is_free(&lock) {
        return Ok(Started::Before);
    }
    if content(&mut lock) == MARK {
        let message = format!("instance `{name}` has been ended, and is never started again");
        return Err(Fault::new(message, "let the controller place another one").exit(ENDED));
    }
    let [program, arguments @ ..] = command else {
        return Err(Fault::new("there is no program to start", "name one after `--`"));
    };
    let failed = |error: std::io::Error| {
        Fault::new(format!("`{program}` cannot be started: {error}"), "check the name, the PATH and `start`")
    };
    let log = File::create(dir.join(format!("{name}.log"))).map_err(failed)?;
    // From here on whoever is started has the lock, too, and keeps it after us.
    rustix::io::fcntl_setfd(&lock, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let mut child = Command::new(program);
    child.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
    let child = child.process_group(0).spawn().map_err(failed)?;
    replace(&mut lock, &format!("{}\n", child.id())).map_err(failed)?;
    Ok(Started::Now)
}

/// Ends instance `name` for good: SIGTERM, after a while SIGKILL; when this returns well, nothing of it runs, and nothing of it
/// will.
///
/// # Errors
/// Something of it still runs.
pub fn stop(dir: &Path, name: &str) -> Result<(), Fault> {
    let mut lock = open(dir, name)?;
    let start = Instant::now();
    while !is_free(&lock) {
        let signal = if start.elapsed() < GRACE { Signal::TERM } else { Signal::KILL };
        if let Some(group) = content(&mut lock).trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal); // it may have ended just now
        }
        if start.elapsed() > GRACE + KILLED {
            let message = format!("instance `{name}` still runs after SIGKILL");
            return Err(Fault::new(
                message,
                "a process waits for its device, or has left its group: look with ps",
            ));
        }
        std::thread::sleep(LOOK); // between two looks at other processes
    }
    replace(&mut lock, MARK).map_err(|error| {
        Fault::new(format!("the end of instance `{name}` cannot be noted: {error}"), "look at the disk")
    })?;
    tidy(dir);
    Ok(())
}

/// The last words of an instance.
pub fn last_words(dir: &Path, name: &str) -> String {
    let text = std::fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// Removes what instances left that ended days ago.
fn tidy(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "lock"))
    {
        let age = path.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        let ended = std::fs::read_to_string(&path).is_ok_and(|text| text == MARK);
        if ended && age.is_some_and(|age| age > KEPT) {
            let _ = std::fs::remove_file(path.with_extension("log"));
            let _ = std::fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Vec<String> {
        ["sleep", "60"].map(String::from).to_vec()
    }

    #[test]
    fn a_start_that_comes_twice_starts_once() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(start(dir.path(), "a.b.1", &sleeper()), Ok(Started::Now));
        assert_eq!(start(dir.path(), "a.b.1", &sleeper()), Ok(Started::Before));
        assert_eq!(stop(dir.path(), "a.b.1"), Ok(()));
    }

    #[test]
    fn a_start_that_comes_after_the_stop_starts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(stop(dir.path(), "a.b.1"), Ok(()), "it never ran, and never will");
        assert_eq!(start(dir.path(), "a.b.1", &sleeper()).unwrap_err().exit, ENDED);
        assert_eq!(stop(dir.path(), "a.b.1"), Ok(()), "twice is as once");
    }

    #[test]
    fn a_stop_ends_children_and_those_that_do_not_listen() {
        let dir = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; sleep 60 & sleep 60; sleep 60";
        let command = ["sh", "-c", script].map(String::from);
        assert_eq!(start(dir.path(), "a.b.1", &command), Ok(Started::Now));
        assert_eq!(stop(dir.path(), "a.b.1"), Ok(()));
        assert!(is_free(&open(dir.path(), "a.b.1").unwrap()), "nobody holds the lock");
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let fault = start(dir.path(), "a.b.1", &["/no/such/program".into()]).unwrap_err();
        assert!(fault.message.contains("/no/such/program"), "{fault}");
        assert_eq!(stop(dir.path(), "a.b.1"), Ok(()));
    }
}
