//! One node manager per directory: an advisory lock on a file that also says who holds it.
//!
//! The lock comes before any socket is touched: unlinking a stale socket and binding it again would otherwise
//! steal the socket of a living manager in silence.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::{FlockOperation, flock};

use crate::codes;
use crate::fault::Fault;
use crate::place::Place;

/// Held as long as it lives; the kernel lets go when the process dies, however it dies.
#[derive(Debug)]
pub struct NodeLock {
    file: File,
    place: Place,
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
        Ok(Self { file, place: place.clone() })
    }

    /// Whether the file at the path is still the one that is locked: false means that somebody replaced it.
    pub fn is_ours(&self) -> bool {
        let inode = |meta: std::io::Result<std::fs::Metadata>| meta.ok().map(|m| (m.dev(), m.ino()));
        inode(self.file.metadata()) == inode(std::fs::metadata(self.place.lock()))
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
