//! The bell: whoever others give way to tells the manager that it begins work, if the manager wants to be told.
//!
//! Fillers see for themselves on the board that a better one works; the manager's gate is the backstop, for one that
//! cannot see it or does not look (design 5). The bell is armed while such a gate is open, so that nobody rings in vain,
//! and the launch path reads no clock to find out whether it has rung of late. What a tenant rings is its connection to
//! the manager ([`RING`](crate::message::RING)): an eventfd would do, but all of those share one inode, so that a
//! program which has closed ours and opened a file of its own under its number could not be told from one that has not.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::{AtomicU32, Ordering, fence};

/// The manager writes, the tenant reads; on a cache line of its own.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Bell {
    armed: AtomicU32,
    _line: [u32; 15],
}

impl Bell {
    /// Whether a tenant that begins work shall ring from now on. Whoever arms it looks at the board afterwards: a tenant
    /// that began before does not ring.
    pub fn arm(&self, armed: bool) {
        self.armed.store(armed.into(), Ordering::Relaxed);
        // Here and below: in one order with the tenant's word on the board. Whoever begins finds the bell armed, or shows on
        // the board to the one who has armed it.
        fence(Ordering::SeqCst);
    }

    /// Whether to ring. For a tenant that has just begun.
    pub fn is_armed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.armed.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::pages::ActivityPage;
    use crate::units::Nanos;

    #[test]
    fn whoever_begins_work_rings_or_is_seen() {
        loom::model(|| {
            let pages = loom::sync::Arc::new((ActivityPage::default(), Bell::default()));
            let tenant = {
                let pages = pages.clone();
                loom::thread::spawn(move || pages.0.begin(0, Nanos::default) && pages.1.is_armed())
            };
            pages.1.arm(true);
            let seen = pages.0.quiet(None).is_none();
            assert!(tenant.join().unwrap() || seen, "the manager was told nothing");
        });
    }
}
