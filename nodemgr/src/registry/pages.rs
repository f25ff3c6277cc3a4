//! The pages of one tenant on one GPU, as the manager has them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weir_protocol::mapping::{MapError, Mapped};
use weir_protocol::message::PAGES;
use weir_protocol::pages::{ActivityPage, BucketPage, Grant, GrantPage, UsagePage};

/// The pages of one tenant on one GPU, as the manager made them.
pub struct Pages {
    /// What is granted; the manager writes.
    pub grant: Mapped<GrantPage>,
    /// The tenant's bucket.
    pub bucket: Mapped<BucketPage>,
    /// What its processes hold and do.
    pub usage: Mapped<UsagePage>,
    /// Which of its processes have work now.
    pub activity: Mapped<ActivityPage>,
    fds: [OwnedFd; PAGES],
    activity_for_neighbours: OwnedFd,
}

impl Pages {
    pub(super) fn create(first: &Grant, tenant: u64) -> Result<Self, MapError> {
        let (grant_fd, grant) = Mapped::<GrantPage>::create("weir-grant")?;
        let (bucket_fd, bucket) = Mapped::<BucketPage>::create("weir-bucket")?;
        let (usage_fd, usage) = Mapped::<UsagePage>::create("weir-usage")?;
        let (activity_fd, activity) = Mapped::<ActivityPage>::create("weir-activity")?;
        let activity_for_neighbours = Mapped::<ActivityPage>::read_only(&activity_fd)?;
        bucket.init();
        usage.init();
        activity.init(tenant);
        grant.init(first);
        grant.tick(); // an epoch of zero could be taken for one that stands still
        let fds = [grant_fd, bucket_fd, usage_fd, activity_fd];
        Ok(Self { grant, bucket, usage, activity, fds, activity_for_neighbours })
    }

    /// The pages that an earlier manager made, in the order of a welcome.
    pub fn take_over(fds: [OwnedFd; PAGES]) -> Result<Self, MapError> {
        let [grant, bucket, usage, activity] = fds.each_ref();
        Ok(Self {
            grant: Mapped::take_over(grant)?,
            bucket: Mapped::take_over(bucket)?,
            usage: Mapped::take_over(usage)?,
            activity_for_neighbours: Mapped::<ActivityPage>::read_only(activity)?,
            activity: Mapped::take_over(activity)?,
            fds,
        })
    }

    /// Their inodes, by which they can be found in the processes that have them.
    pub fn inodes(&self) -> [u64; PAGES] {
        // An open descriptor can always be asked; 0 is no inode.
        self.fds.each_ref().map(|fd| rustix::fs::fstat(fd).map_or(0, |stat| stat.st_ino))
    }

    /// The descriptors, in the order of a welcome.
    pub fn fds(&self) -> [BorrowedFd<'_>; PAGES] {
        self.fds.each_ref().map(AsFd::as_fd)
    }

    /// The activity page, for reading.
    pub fn activity_for_neighbours(&self) -> BorrowedFd<'_> {
        self.activity_for_neighbours.as_fd()
    }
}
