//! Memory that outlives its owner. A process that dies, or lets go of it, leaves what it has given out to those who have it
//! open; whoever has had it open for longest is charged for it from then on, whatever his limit.
//!
//! What a multicast object holds falls in the same way to whoever has had the object for longest.
//!
//! What nobody has open at that moment is charged to nobody for now: a descriptor may still hold it, but the kernel's books
//! of descriptors are not ours to read. It is remembered, and charged to whoever opens it later. A multicast object that
//! nobody has is taken to be gone.

use std::collections::VecDeque;

use weir_protocol::pages::{ProcessSlot, ShareState, Shared, UsagePage};

use super::Tenant;

/// Holders that may close the memory just when they are to be charged; a tenant whose page says so for ever gains only
/// that it is not charged.
const TRIES: usize = 8;

/// Memory whose owner is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    gpu: usize,
    key: u64,
    kept: Option<Shared>, // what a multicast object holds
}

impl Orphan {
    /// What was charged by this entry and may live on; `None` for other entries.
    fn of(gpu: usize, state: ShareState, shared: Shared) -> Option<Self> {
        let key = shared.key;
        match state {
            ShareState::Exported | ShareState::Adopted | ShareState::Left => {
                Some(Self { gpu, key, kept: None })
            }
            ShareState::Kept | ShareState::Inherited | ShareState::KeptLeft => {
                Some(Self { gpu, key, kept: Some(shared) })
            }
            _ => None,
        }
    }
}

/// What a dead process was charged for and others may have open. It has no multicast object any more, so that it is not its
/// own heir.
pub fn orphans(gpu: usize, slot: &ProcessSlot) -> Vec<Orphan> {
    let charged = slot.shares.iter().filter_map(|share| {
        let (state, shared) = share.read()?;
        if state == ShareState::Member {
            share.take();
        }
        Orphan::of(gpu, state, shared)
    });
    charged.collect()
}

/// What living processes have left to whoever else has it open. Each is said once.
pub fn left(gpu: usize, page: &UsagePage) -> Vec<Orphan> {
    let shares = page.slots.iter().flat_map(|slot| &slot.shares);
    let left = shares.filter_map(|share| {
        let (state, shared) = share.read()?;
        share.settle_left().then(|| Orphan::of(gpu, state, shared))?
    });
    left.collect()
}

/// So much unclaimed memory is remembered; most of it is gone, and the oldest goes first.
const REMEMBERED: usize = 1_024;

/// Memory that lost its owner when nobody had it open.
#[derive(Debug, Default)]
pub struct Unclaimed(VecDeque<Orphan>);

impl Unclaimed {
    /// Charges each to its longest holder, whichever tenant that is; remembers what nobody holds.
    pub fn hand_on(&mut self, tenants: &[Tenant], orphans: Vec<Orphan>) {
        for orphan in orphans {
            if !orphan.hand_on(tenants) && orphan.kept.is_none() {
                self.0.push_back(orphan);
            }
        }
        self.0.drain(..self.0.len().saturating_sub(REMEMBERED));
    }

    /// Somebody may have opened some of it since. Where a key has an owner (one that tells memory by its size alone may)
    /// what was opened is taken for his.
    pub fn look_again(&mut self, tenants: &[Tenant]) {
        self.0.retain(|orphan| orphan.is_owned(tenants) || !orphan.hand_on(tenants));
    }
}

impl Orphan {
    fn pages<'a>(&self, tenants: &'a [Tenant]) -> impl Iterator<Item = &'a UsagePage> + use<'a> {
        let gpu = self.gpu;
        let cells = tenants.iter().flat_map(|tenant| &tenant.cells);
        cells.filter(move |cell| cell.gpu == gpu).map(|cell| &*cell.pages.usage)
    }

    /// Whether a living process is charged for memory of this key.
    fn is_owned(&self, tenants: &[Tenant]) -> bool {
        let shares = self.pages(tenants).flat_map(|page| &page.slots).flat_map(|slot| &slot.shares);
        let mut charged = shares.filter_map(weir_protocol::pages::Share::read);
        let owner = |o: Self| o.kept.is_none() && o.key == self.key;
        charged.any(|(state, shared)| Self::of(self.gpu, state, shared).is_some_and(owner))
    }

    /// Charges it to its longest holder; says whether there was one. A holder that closes it at that moment is passed over.
    fn hand_on(&self, tenants: &[Tenant]) -> bool {
        let longest = || {
            let of = |page: &UsagePage| match self.kept {
                Some(_) => page.longest_member(self.key),
                None => page.longest_holder(self.key),
            };
            let holders = self.pages(tenants).filter_map(|page| Some((page, of(page)?)));
            holders.min_by_key(|(_, (_, _, since))| *since)
        };
        (0..TRIES).map_while(|_| longest()).any(|(page, (slot, entry, _))| match &self.kept {
            Some(kept) => page.bequeath(slot, entry, kept),
            None => page.adopt(slot, entry),
        })
    }
}
