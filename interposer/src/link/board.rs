//! The board: who else is on a GPU, and whether they have work there now.
//!
//! The manager sends a notice with the neighbours' activity pages whenever tenants come or go, and raises a number on the
//! grant page first. A process that finds the number moved looks for the notice; until it has come it does not know.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use weir_core::lock::Lock;
use weir_protocol::mapping::{Access, Mapped};
use weir_protocol::message::Notice;
use weir_protocol::pages::ActivityPage;
use weir_protocol::transport;

use super::Client;

/// The neighbours on one GPU.
#[derive(Default)]
pub struct Board(Lock<Neighbours>);

struct Neighbours {
    board: u32,
    complete: bool,
    pages: Vec<Mapped<ActivityPage>>,
}

impl Default for Neighbours {
    /// Nobody, as long as the grant page's number is zero.
    fn default() -> Self {
        Self { board: 0, complete: true, pages: Vec::new() }
    }
}

impl Board {
    /// The sum of all neighbours' words (see [`ActivityPage::quiet`]); `None` also if they are not known. `board` is the
    /// number on the grant page.
    pub fn quiet(&self, board: u32) -> Option<u64> {
        let mut neighbours = self.0.try_lock()?;
        if neighbours.board != board {
            drop(neighbours);
            Client::get()?.take_notices();
            neighbours = self.0.try_lock()?;
        }
        if neighbours.board != board || !neighbours.complete {
            return None;
        }
        let mut words = neighbours.pages.iter().map(|page| page.quiet(None));
        words.try_fold(0u64, |sum, word| Some(sum.wrapping_add(word?)))
    }

    /// Takes in what the manager says.
    pub fn replace(&self, notice: &Notice, pages: &[OwnedFd]) {
        let pages: Result<Vec<_>, _> =
            pages.iter().map(|page| Mapped::open(page, Access::ReadOnly)).collect();
        let complete = notice.complete && pages.is_ok();
        *self.0.lock() = Neighbours { board: notice.board, complete, pages: pages.unwrap_or_default() };
    }
}

/// The connection to the manager. Nothing is sent over it any more; its end tells the manager that we are gone.
pub struct Connection {
    stream: UnixStream,
    identity: Option<(u64, u64)>,
}

impl Connection {
    /// Of a stream that was just made.
    pub fn new(stream: UnixStream) -> Self {
        let identity = identity(stream.as_fd());
        Self { stream, identity }
    }

    /// The next notice, if one has come.
    pub fn notice(&self) -> Option<(Notice, Vec<OwnedFd>)> {
        // A program may have closed every descriptor and use our number for a file of its own.
        if self.identity.is_none() || identity(self.stream.as_fd()) != self.identity {
            return None;
        }
        transport::receive_now(&self.stream).ok().flatten()
    }
}

/// Device and inode.
fn identity(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}
