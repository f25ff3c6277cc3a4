//! The first 16 bytes of every page: version, size, magic.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::PROTOCOL_VERSION;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Which page a mapping claims to be; the number is its magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum PageKind {
    /// "weirgrnt" in little-endian bytes.
    Grant = u64::from_le_bytes(*b"weirgrnt"),
    /// "weiractv" in little-endian bytes.
    Activity = u64::from_le_bytes(*b"weiractv"),
    /// "weirbckt" in little-endian bytes.
    Bucket = u64::from_le_bytes(*b"weirbckt"),
    /// "weirusag" in little-endian bytes.
    Usage = u64::from_le_bytes(*b"weirusag"),
}

/// Why a mapping is not the page that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The mapping is shorter than the page.
    #[error("the mapping has {got} bytes, the page needs {needed}")]
    TooSmall {
        /// Bytes mapped.
        got: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// The creator has not finished it.
    #[error("the page is not ready")]
    NotReady,
    /// Another protocol version made it.
    #[error("the page speaks protocol {theirs}, this build speaks {ours}: update the older of the two")]
    Version {
        /// This build's version.
        ours: u32,
        /// The page's version.
        theirs: u32,
    },
    /// It is some other page, or no page of ours.
    #[error("the page is not a {0:?} page of Weir")]
    NotOurs(PageKind),
}

/// Version, size and magic of a page.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Header {
    version: AtomicU32, // stored last by the creator; 0 = not ready
    size_bytes: AtomicU32,
    magic: AtomicU64,
}

impl Header {
    /// Marks a zeroed page as ready. The creator calls this last, after every other word has its first value.
    pub fn publish(&self, kind: PageKind, size: usize) {
        // Relaxed: the version's release store below publishes both.
        self.size_bytes.store(u32::try_from(size).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.magic.store(kind as u64, Ordering::Relaxed);
        self.version.store(PROTOCOL_VERSION, Ordering::Release);
    }

    /// Checks that this is a ready page of `kind` and of our version.
    ///
    /// # Errors
    /// [`PageError`] tells *not ready*, *another version* and *not ours* apart.
    pub fn check(&self, kind: PageKind, size: usize) -> Result<(), PageError> {
        // Acquire: pairs with `publish`, so that a ready page's words are seen with their first values.
        match self.version.load(Ordering::Acquire) {
            0 => return Err(PageError::NotReady),
            PROTOCOL_VERSION => {}
            theirs => return Err(PageError::Version { ours: PROTOCOL_VERSION, theirs }),
        }
        let size_holds = self.size_bytes.load(Ordering::Relaxed) as usize == size;
        if size_holds && self.magic.load(Ordering::Relaxed) == kind as u64 {
            return Ok(());
        }
        Err(PageError::NotOurs(kind))
    }
}
