//! One node manager per directory: an advisory lock on a file that also says who holds it.
//!
//! The lock comes before any socket is touched: unlinking a stale socket and binding it again would otherwise
//! steal the socket of a living manager in silence.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::codes;
use crate::fault::Fault;
use crate::place::Place;

/// Held as long as it lives; the kernel lets go when the process dies, however it dies.
#[derive(Debug)]
pub struct NodeLock {
    file: File,
    place: Place,
    control: Option<Identity>,
}

/// Device and inode: another file at the same path has others.
pub type Identity = (u64, u64);

/// The file that lies at a path.
pub fn identity(path: &Path) -> Option<Identity> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl NodeLock {
    /// Takes the lock of `place`.
    ///
    /// # Errors
    /// [`codes::ALREADY_RUNS`] names the holder.
    pub fn take(place: &Place) -> Result<Self, Fault> {
        let path = place.lock();
        let broken = |e: std::io::Error| {
            Fault::system(
                &codes::PLACE,
                format!("open `{}`", path.display()),
                e,
                "name another directory with --dir",
            )
        };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .open(&path)
            .map_err(broken)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(held(place, &mut file));
        }
        let write = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        write.map_err(broken)?;
        Ok(Self { file, place: place.clone(), control: None })
    }

    /// The control socket is bound: from now on it is watched, too.
    pub fn watch_control(&mut self) {
        self.control = identity(&self.place.control());
    }

    /// Whether the files at their paths are still the locked one and our socket: false means that somebody replaced one,
    /// and that whoever comes finds him and not us.
    pub fn is_ours(&self) -> bool {
        let locked = self.file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let control = self.control.is_none() || self.control == identity(&self.place.control());
        control && locked == identity(&self.place.lock())
    }
}

fn held(place: &Place, file: &mut File) -> Fault {
    let mut pid = String::new();
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(32).read_to_string(&mut pid));
    let holder = match pid.trim() {
        "" => "another process".into(),
        pid => format!("process {pid}"),
    };
    let message = format!("{holder} already is the node manager of `{}`", place.base().display());
    Fault::new(&codes::ALREADY_RUNS, message, "use it, stop it, or name another directory with --dir")
}
