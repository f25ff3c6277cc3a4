//! The one place where the bytes of a shared mapping become a typed page.
//!
//! The node manager makes a page as a memfd of its exact size, seals it against growing and shrinking, and maps
//! it; a tenant maps the fd that came with its welcome. Both hold a [`Mapped`], which unmaps on drop.

use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::pages::{ActivityPage, BucketPage, GrantPage, Header, PageError, PageKind, UsagePage};

/// A page type: how large it is follows from the type, what it is from its kind.
///
/// # Safety
/// Implementors are `repr(C)`, consist of atomics and reserved integers only, and accept any bytes.
pub unsafe trait SharedPage {
    /// The magic that its header must show.
    const KIND: PageKind;
    /// Its header.
    fn header(&self) -> &Header;
}

// SAFETY: atomics and integers only; zerocopy's derives on the types prove that any bytes are valid.
unsafe impl SharedPage for GrantPage {
    const KIND: PageKind = PageKind::Grant;
    fn header(&self) -> &Header {
        self.header()
    }
}

// SAFETY: as above.
unsafe impl SharedPage for ActivityPage {
    const KIND: PageKind = PageKind::Activity;
    fn header(&self) -> &Header {
        self.header()
    }
}

// SAFETY: as above.
unsafe impl SharedPage for BucketPage {
    const KIND: PageKind = PageKind::Bucket;
    fn header(&self) -> &Header {
        self.header()
    }
}

// SAFETY: as above.
unsafe impl SharedPage for UsagePage {
    const KIND: PageKind = PageKind::Usage;
    fn header(&self) -> &Header {
        self.header()
    }
}

/// The smallest page that a system has, in bytes.
const SYSTEM_PAGE: usize = 4096;

/// Whether a mapping may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only: a wild store of the application faults instead of changing its grant.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// Why a page could not be made or mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A system call failed.
    #[error("cannot {what} a shared page: {source}")]
    System {
        /// The step, as a verb.
        what: &'static str,
        /// The system's answer.
        source: rustix::io::Errno,
    },
    /// The bytes are no such page.
    #[error(transparent)]
    Page(#[from] PageError),
    /// It is not sealed as the node manager seals its pages, or has another size: it could shrink under whoever reads it.
    #[error("the page is not sealed, or has another size than this build's")]
    Unsealed,
}

/// A page of type `P`, mapped shared.
#[derive(Debug)]
pub struct Mapped<P> {
    address: NonNull<P>,
    _page: PhantomData<P>,
}

// SAFETY: a page consists of atomics; every access through `&P` is safe from any thread.
unsafe impl<P> Send for Mapped<P> {}
// SAFETY: as above.
unsafe impl<P> Sync for Mapped<P> {}

impl<P: SharedPage> Mapped<P> {
    /// Maps the page behind `fd` and checks its header.
    ///
    /// # Errors
    /// [`MapError`] if the file is too small, the mapping fails, or it is not a ready page of this kind.
    pub fn open(fd: impl AsFd, access: Access) -> Result<Self, MapError> {
        let mapped = Self::map(fd.as_fd(), access, MapFlags::SHARED)?;
        mapped.touch();
        mapped.header().check(P::KIND, size_of::<P>())?;
        Ok(mapped)
    }

    /// Looks at each system page, so that no launch ever faults on it. Whoever made the page has filled it: the kernel maps
    /// many with one fault, which costs a process that registers less than to have it look for each by itself (`POPULATE`).
    fn touch(&self) {
        for offset in (0..size_of::<P>()).step_by(SYSTEM_PAGE) {
            // SAFETY: inside the mapping, which has `size_of::<P>()` bytes; a byte of an atomic may be read at any time.
            unsafe { self.address.cast::<u8>().add(offset).read_volatile() };
        }
    }

    /// Makes a zeroed, sealed, pre-touched memfd with room for one page, and maps it for writing. The caller
    /// initialises the page, which marks it as ready.
    ///
    /// # Errors
    /// [`MapError::System`] names the step that failed.
    pub fn create(name: &str) -> Result<(OwnedFd, Self), MapError> {
        let system = |what| move |source| MapError::System { what, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(system("create"))?;
        // 0600: any uid could reopen a 0777 inode for writing through /proc.
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(system("restrict"))?;
        rustix::fs::ftruncate(&fd, size_of::<P>() as u64).map_err(system("size"))?;
        // No FUTURE_WRITE: a restarted manager must be able to map the page again.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(system("seal"))?;
        // Populated at once, so that whoever makes the page pays for it.
        let mapped = Self::map(fd.as_fd(), Access::ReadWrite, MapFlags::SHARED | MapFlags::POPULATE)?;
        Ok((fd, mapped))
    }

    /// Maps a page that an earlier manager made, and checks that it is as [`Self::create`] leaves it.
    ///
    /// # Errors
    /// As [`Self::open`]; [`MapError::Unsealed`].
    pub fn take_over(fd: impl AsFd) -> Result<Self, MapError> {
        let system = |what| move |source| MapError::System { what, source };
        let size = rustix::fs::fstat(&fd).map_err(system("inspect"))?.st_size;
        // Only memfds can be asked for their seals.
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| MapError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) || usize::try_from(size) != Ok(size_of::<P>())
        {
            return Err(MapError::Unsealed);
        }
        Self::open(fd, Access::ReadWrite)
    }

    /// A second descriptor of a page, for those who may only read it.
    ///
    /// # Errors
    /// [`MapError::System`]: `/proc` is not there.
    pub fn read_only(fd: impl AsFd) -> Result<OwnedFd, MapError> {
        let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map_err(|source| MapError::System { what: "reopen", source })
    }

    fn map(fd: std::os::fd::BorrowedFd<'_>, access: Access, flags: MapFlags) -> Result<Self, MapError> {
        let system = |what| move |source| MapError::System { what, source };
        let needed = size_of::<P>();
        let got = rustix::fs::fstat(fd).map_err(system("inspect"))?.st_size;
        let got = usize::try_from(got).unwrap_or(0);
        if got < needed {
            return Err(PageError::TooSmall { got, needed }.into());
        }
        let prot = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), needed, prot, flags, fd, 0) };
        let address = NonNull::new(address.map_err(system("map"))?.cast::<P>())
            .ok_or(MapError::System { what: "map", source: rustix::io::Errno::NOMEM })?;
        Ok(Self { address, _page: PhantomData })
    }
}

impl<P> Deref for Mapped<P> {
    type Target = P;

    fn deref(&self) -> &P {
        // SAFETY: `map` checked that the file holds at least `size_of::<P>()` bytes and mappings are aligned to a
        // system page; the file is sealed against shrinking; `P` accepts any bytes and is all atomics, so that
        // writes of other processes are no data race; the mapping lives as long as `self`.
        unsafe { self.address.as_ref() }
    }
}

impl<P> Drop for Mapped<P> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with exactly this length, and no reference outlives `self`.
        // A failure leaves a mapping behind and harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), size_of::<P>()) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pages::Grant;

    #[test]
    fn a_page_made_by_one_side_opens_on_the_other() {
        let (fd, ours) = Mapped::<GrantPage>::create("grant").unwrap();
        ours.init(&Grant::default());
        let theirs = Mapped::<GrantPage>::open(&fd, Access::ReadOnly).unwrap();
        ours.tick();
        assert_eq!(theirs.epoch(), 1);
    }

    #[test]
    fn a_page_that_is_not_ready_or_another_is_told_apart() {
        let (fd, page) = Mapped::<BucketPage>::create("bucket").unwrap();
        let open = || Mapped::<BucketPage>::open(&fd, Access::ReadWrite).map(drop);
        assert!(matches!(open(), Err(MapError::Page(PageError::NotReady))));
        page.init();
        assert!(open().is_ok());
        let other = Mapped::<GrantPage>::open(&fd, Access::ReadOnly).map(drop);
        assert!(matches!(other, Err(MapError::Page(PageError::NotOurs(PageKind::Grant)))));
        let larger = Mapped::<UsagePage>::open(&fd, Access::ReadOnly).map(drop);
        assert!(matches!(larger, Err(MapError::Page(PageError::TooSmall { .. }))));
    }

    #[test]
    fn a_neighbour_sees_a_page_and_cannot_write_it() {
        let (fd, ours) = Mapped::<ActivityPage>::create("activity").unwrap();
        ours.init(1);
        let fd = Mapped::<ActivityPage>::read_only(&fd).unwrap();
        let theirs = Mapped::<ActivityPage>::open(&fd, Access::ReadOnly).unwrap();
        ours.begin(1, || crate::units::Nanos(7));
        assert!(theirs.is_busy(1));
        assert!(Mapped::<ActivityPage>::open(&fd, Access::ReadWrite).is_err());
    }

    #[test]
    fn a_page_is_taken_over_only_as_it_was_made() {
        let (fd, page) = Mapped::<BucketPage>::create("bucket").unwrap();
        page.init();
        assert!(Mapped::<BucketPage>::take_over(&fd).is_ok());
        assert!(Mapped::<UsagePage>::take_over(&fd).is_err(), "it has another size");
        let bare = rustix::fs::memfd_create("bare", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&bare, size_of::<BucketPage>() as u64).unwrap();
        assert!(matches!(Mapped::<BucketPage>::take_over(&bare), Err(MapError::Unsealed)));
    }

    #[test]
    fn a_tenant_cannot_shrink_the_page_under_the_manager() {
        let (fd, _page) = Mapped::<BucketPage>::create("bucket").unwrap();
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    }
}
