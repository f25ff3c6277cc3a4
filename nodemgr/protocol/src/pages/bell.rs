//! The bell: whoever others give way to tells the manager that it begins work, if the manager wants to be told. And the
//! sleeper's mark: whoever the manager has not seen at work for long says so on a page when it stirs.
//!
//! Fillers see for themselves on the board that a better one works; the manager's gate is the backstop, for one that
//! cannot see it or does not look (design 5). The bell is armed while such a gate is open, so that nobody rings in vain,
//! and the launch path reads no clock to find out whether it has rung of late. What a tenant rings is its connection to
//! the manager ([`RING`](crate::message::RING)): an eventfd would do, but all of those share one inode, so that a
//! program which has closed ours and opened a file of its own under its number could not be told from one that has not.
//!
//! A tenant that is marked as asleep on a GPU and begins work there, or waits at its gate, moves one word that it has for
//! all its GPUs ([`UsagePage::stir`](super::UsagePage::stir)). So a tick looks at that one word, and not at what each
//! process does on each GPU. And it rings, whether the bell is armed or not: where all others sleep or work on, the next
//! tick may be some time away.

#[cfg(not(loom))]
use zerocopy::{FromBytes, IntoBytes};

use crate::sync::{AtomicU32, Ordering, fence};

/// The manager writes, the tenant reads; on a cache line of its own.
#[cfg_attr(not(loom), derive(FromBytes, IntoBytes))]
#[cfg_attr(loom, derive(Default))]
#[repr(C)]
pub struct Bell {
    armed: AtomicU32,
    asleep: AtomicU32,
    _line: [u32; 14],
}

/// What a tenant that begins work does for the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// It rings.
    pub ring: bool,
    /// It says that it has stirred.
    pub stir: bool,
}

impl Wants {
    /// Nobody wants to know.
    pub const NOTHING: Self = Self { ring: false, stir: false };
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

    /// Takes the tenant for asleep from now on, or no longer. Whoever marks it looks at the board afterwards: a tenant that
    /// began before does not stir.
    pub fn mark_asleep(&self, asleep: bool) {
        self.asleep.store(asleep.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst); // see `arm`
    }

    /// What the manager wants to be told, for a tenant that has just begun, or waits at its gate.
    pub fn wants(&self) -> Wants {
        fence(Ordering::SeqCst);
        let is_set = |word: &AtomicU32| word.load(Ordering::Relaxed) != 0;
        let stir = is_set(&self.asleep);
        Wants { ring: stir || is_set(&self.armed), stir }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::pages::{ActivityPage, UsagePage};
    use crate::units::Nanos;

    #[test]
    fn whoever_begins_work_rings_or_is_seen() {
        loom::model(|| {
            let pages = loom::sync::Arc::new((ActivityPage::default(), Bell::default()));
            let tenant = {
                let pages = pages.clone();
                loom::thread::spawn(move || pages.0.begin(0, Nanos::default) && pages.1.wants().ring)
            };
            pages.1.arm(true);
            let seen = pages.0.quiet(None).is_none();
            assert!(tenant.join().unwrap() || seen, "the manager was told nothing");
        });
    }

    #[test]
    fn whoever_is_taken_for_asleep_stirs_and_rings_or_is_seen() {
        loom::model(|| {
            let pages =
                loom::sync::Arc::new((ActivityPage::default(), Bell::default(), UsagePage::default()));
            let tenant = {
                let pages = pages.clone();
                loom::thread::spawn(move || {
                    let began = pages.0.begin(0, Nanos::default);
                    let wants = pages.1.wants();
                    if began && wants.stir {
                        pages.2.stir();
                    }
                    began && wants.ring
                })
            };
            pages.1.mark_asleep(true);
            let seen = pages.0.quiet(None).is_none();
            let rang = tenant.join().unwrap();
            assert!((pages.2.stirs() == 1 && rang) || seen, "the manager was told nothing");
        });
    }
}
