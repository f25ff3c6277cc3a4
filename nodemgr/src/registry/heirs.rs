//! Memory that outlives its owner. A process that dies, or lets go of it, leaves what it has given out to those who have it
//! open; whoever has had it open for longest is charged for it from then on, whatever his limit.
//!
//! What nobody has open at that moment is charged to nobody from then on, although a descriptor may still hold it, and
//! somebody may open that later: the kernel's books of descriptors are not ours to read.

use weir_protocol::pages::{ProcessSlot, ShareState, UsagePage};

use super::Tenant;

/// Holders that may close the memory just when they are to be charged; a tenant whose page says so for ever gains only
/// that it is not charged.
const TRIES: usize = 8;

/// Memory whose owner is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    gpu: usize,
    key: u64,
}

/// What a dying process was charged for and others may have open.
pub fn orphans(gpu: usize, slot: &ProcessSlot) -> Vec<Orphan> {
    let charged = slot.shares.iter().filter_map(|share| match share.read()? {
        (ShareState::Exported | ShareState::Adopted | ShareState::Left, shared) => {
            Some(Orphan { gpu, key: shared.key })
        }
        _ => None,
    });
    charged.collect()
}

/// What living processes have left to whoever else has it open. Each is said once.
pub fn left(gpu: usize, page: &UsagePage) -> Vec<Orphan> {
    let shares = page.slots.iter().flat_map(|slot| &slot.shares);
    let left = shares.filter_map(|share| match share.read()? {
        (ShareState::Left, shared) => share.settle_left().then_some(Orphan { gpu, key: shared.key }),
        _ => None,
    });
    left.collect()
}

/// Charges each to its longest holder, whichever tenant that is. A holder that closes it at that moment is passed over.
pub fn hand_on(tenants: &[Tenant], orphans: &[Orphan]) {
    for Orphan { gpu, key } in orphans {
        let pages = || {
            let cells = tenants.iter().flat_map(|tenant| &tenant.cells);
            cells.filter(|cell| cell.gpu == *gpu).map(|cell| &cell.pages.usage)
        };
        let longest = || {
            let holders = pages().filter_map(|page| Some((page, page.longest_holder(*key)?)));
            holders.min_by_key(|(_, (_, _, since))| *since)
        };
        for _ in 0..TRIES {
            let Some((page, (slot, entry, _))) = longest() else { break };
            if page.adopt(slot, entry) {
                break;
            }
        }
    }
}
