//! The page that one client process shares with the broker: layout, and the one cast.
//!
//! The broker makes it (a memfd, sealed against shrinking and growing), the client maps it too. Every word is
//! atomic and has one writer, said at the field. Nothing that the client writes is an index or a length until
//! the broker has checked its range; nothing in it can make the broker wait.
//!
//! The page is not touched in advance: its 1.4 MiB are mostly event stamps that few clients use, and a
//! thousand clients must not cost a gigabyte.
#![allow(clippy::cast_possible_truncation, reason = "constants of this layout, far below 2^32")]

use std::mem::{align_of, offset_of, size_of};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::rpc::Obstacle;

/// "WEIRSIM1", read as a little-endian word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WEIRSIM1");
/// Raise it with every change of [`Page`] or of a command's words.
pub const VERSION: u32 = 4;
/// Commands that the ring holds.
pub const RING: usize = 4096;
/// Streams that one process can have at a time.
pub const STREAMS: usize = 4096;
/// Events that one process can have at a time.
pub const EVENTS: usize = 65_536;
/// Call counters: one per row of `weir_abi::SYMBOLS`, with room.
pub const CALLS: usize = 1024;
/// Threads of one process that can wait with a wake of their own; others look again in short steps.
pub const WAITS: usize = 64;

/// Keeps its content on a cache line of its own, so that the two sides do not slow each other.
#[repr(C, align(64))]
pub struct Line<T>(pub T);

/// When an event's front-end time stamp was taken, and for which record.
#[repr(C)]
pub struct Stamp {
    /// Latest record that has been reached; stored after `ns`.
    pub record: AtomicU64,
    /// Its time, ns.
    pub ns: AtomicU64,
}

/// What one waiting thread waits for; see `wait.rs`.
#[repr(C)]
pub struct Wait {
    /// What kind of target, and which stream: kind | stream << 32.
    pub target: AtomicU64,
    /// The sequence number, or ring position, that ends the wait.
    pub until: AtomicU64,
    /// Futex: 0 waiting, 1 woken.
    pub woken: AtomicU32,
    _pad: AtomicU32,
}

/// The shared page. `B`: written by the broker. `C`: written by the client.
#[repr(C)]
pub struct Page {
    /// B: stored last, with release; 0 = not ready.
    pub version: AtomicU32,
    /// B: size of this structure.
    pub size_bytes: AtomicU32,
    /// B: [`MAGIC`].
    pub magic: AtomicU64,
    /// C: commands ever pushed.
    pub tail: Line<AtomicU64>,
    /// B: commands ever taken.
    pub head: Line<AtomicU64>,
    /// B and C: how deep the broker sleeps, see `ring.rs`.
    pub sleep: Line<AtomicU32>,
    /// C: which of `waits` are armed, one bit each.
    pub armed: Line<AtomicU64>,
    /// B: whether calls of this process wait, see `calls.rs`.
    pub locked: Line<AtomicU32>,
    /// C: calls that are under way.
    pub under_way: Line<AtomicU64>,
    /// C: things it has of which no checkpoint can be taken, by [`Obstacle`].
    pub obstacles: Line<[AtomicU64; Obstacle::ALL.len()]>,
    /// C, but for `woken`.
    pub waits: [Wait; WAITS],
    /// C: the commands.
    pub ring: [[AtomicU64; 8]; RING],
    /// B: last completed sequence number per stream.
    pub completed: [AtomicU64; STREAMS],
    /// C: sequence number up to which a stream's stalls are over.
    pub resumed: [AtomicU64; STREAMS],
    /// C: since when, ns; stored before `resumed`.
    pub resumed_at: [AtomicU64; STREAMS],
    /// B: event time stamps.
    pub stamps: [Stamp; EVENTS],
    /// C: calls per driver function. The broker only reads them, so they outlive the client.
    pub calls: [AtomicU64; CALLS],
    /// C: calls per driver function that were answered with an error.
    pub refused: [AtomicU64; CALLS],
    /// C: launches that may overlap the kernel before them, and those of them that cannot, since something stands in between.
    pub dependent: Line<[AtomicU64; 2]>,
}

const _: () = assert!(offset_of!(Page, tail) == 64 && offset_of!(Page, head) == 128);
const _: () = assert!(offset_of!(Page, waits) == 512 && size_of::<Wait>() == 24 && align_of::<Page>() == 64);

/// Why a page could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A system call failed.
    #[error("cannot map the shared page: {0}")]
    System(#[from] rustix::io::Errno),
    /// Shorter than the layout.
    #[error("the shared page has {got} bytes, not {}", size_of::<Page>())]
    Size {
        /// What it has.
        got: u64,
    },
    /// Made by another version, or not ready.
    #[error("the shared page has version {theirs}, this library knows {VERSION}")]
    Version {
        /// What it says; 0 means that it is not ready.
        theirs: u32,
    },
    /// No such page at all.
    #[error("the shared page is not one of the simulated GPU")]
    NotOurs,
}

/// A mapped page; unmapped when dropped.
pub struct Mapping(NonNull<Page>);

// SAFETY: the page consists of atomics alone, which any thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes a page: the mapping, and the memfd to hand to the client.
    ///
    /// # Errors
    /// [`PageError::System`]: no memory or no descriptors.
    pub fn create() -> Result<(Self, OwnedFd), PageError> {
        let fd = rustix::fs::memfd_create("weir-simgpu", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // 0600: a read-only descriptor must not be re-opened for writing by other users.
        rustix::fs::fchmod(&fd, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        rustix::fs::ftruncate(&fd, size_of::<Page>() as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Self::map(&fd)?;
        mapping.magic.store(MAGIC, Ordering::Relaxed);
        mapping.size_bytes.store(size_of::<Page>() as u32, Ordering::Relaxed);
        // Release: who sees the version sees magic and size.
        mapping.version.store(VERSION, Ordering::Release);
        Ok((mapping, fd))
    }

    /// Maps a page that the broker made, after checking that it is one.
    ///
    /// # Errors
    /// Tells too short, another version, and not ours apart.
    pub fn open(fd: &OwnedFd) -> Result<Self, PageError> {
        let got = rustix::fs::fstat(fd)?.st_size.cast_unsigned();
        if got < size_of::<Page>() as u64 {
            return Err(PageError::Size { got });
        }
        let mapping = Self::map(fd)?;
        // Acquire: pairs with the release in `create`.
        match mapping.version.load(Ordering::Acquire) {
            _ if mapping.magic.load(Ordering::Relaxed) != MAGIC => Err(PageError::NotOurs),
            VERSION => Ok(mapping),
            theirs => Err(PageError::Version { theirs }),
        }
    }

    fn map(fd: &OwnedFd) -> Result<Self, PageError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new shared mapping at an address of the kernel's choice; nothing is replaced.
        let address = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), size_of::<Page>(), access, MapFlags::SHARED, fd.as_fd(), 0)
        }?;
        NonNull::new(address.cast()).map(Self).ok_or(PageError::NotOurs)
    }
}

impl std::ops::Deref for Mapping {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: `map` mapped `size_of::<Page>()` bytes at a page boundary (so aligned), of a memfd at least
        // that long (checked, and sealed against shrinking); they stay until `drop`. The other process writes
        // them too, but they are atomics of which every bit pattern is valid.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, which nothing borrows any more. A failure would leave it mapped.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<Page>()) };
    }
}
