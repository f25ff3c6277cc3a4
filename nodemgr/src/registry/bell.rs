//! The bell: a tenant to which fillers give way begins work, and their gates close before the next tick.
//!
//! It is armed while a filler's gate is open, and who has rung is not heard again until the next tick finds one open. The
//! board has told the fillers already; this holds for those who cannot see it, or do not look (design 5). Who has slept rings
//! also where no gate is open: for him a run of the loop comes sooner ([`pace`](super::pace)).

use super::ruler::Ruler;
use super::seat::Seat;
use super::{Registry, Tenant};
use crate::control::schema::ClassName;

impl Registry {
    /// A process of this tenant has begun work. What it says of itself on the board must agree: then the gates of those who
    /// give way to it close, wherever it works and one is open.
    pub fn hear_bell(&mut self, tenant: u64) {
        let Self { tenants, rulers, .. } = self;
        let Some(rings) = tenants.iter_mut().find(|known| known.id == tenant) else { return };
        if rings.class == ClassName::Filler {
            return; // nobody gives way to it
        }
        let is_armed = |gpu: usize| rulers.get(gpu).is_some_and(|ruler| ruler.armed);
        let heard = rings.cells.iter_mut().filter(|cell| is_armed(cell.gpu));
        let works: Vec<usize> = heard.filter_map(|cell| cell.take_ring().then_some(cell.gpu)).collect();
        for gpu in works {
            if let Some(ruler) = self.rulers.get_mut(gpu) {
                ruler.close_gates(&mut self.tenants);
            }
        }
    }
}

impl Ruler {
    /// Arms the bells of the GPU if one of its gates is open, or disarms them. Whoever began between the look at his work
    /// and this has not rung: the gates close again.
    pub(super) fn arm_bells(&mut self, tenants: &mut [Tenant], anew: bool) {
        let open = self.row.fillers_give_way && self.fillers().any(|seat| seat.cell(tenants).is_open());
        if open == self.armed && !anew {
            return;
        }
        self.armed = open;
        let mut missed = false;
        for seat in self.seats.iter().filter(|seat| !seat.gives_way) {
            missed |= seat.cell(tenants).arm_bell(open);
        }
        if missed {
            self.close_gates(tenants);
        }
    }

    /// Closes the fillers' gates; nobody has to ring until they are open again.
    fn close_gates(&mut self, tenants: &mut [Tenant]) {
        self.armed = false;
        for seat in &mut self.seats {
            let cell = seat.cell(tenants);
            if seat.gives_way {
                cell.close_gate();
                seat.granted = false; // open again when that is decided
            } else {
                cell.arm_bell(false);
            }
        }
    }

    fn fillers(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter(|seat| seat.gives_way)
    }
}
