//! One run of the control loop, over all GPUs; and what is looked at beside it, ten times a second.

use weir_policy::Signals;
use weir_protocol::units::Nanos;

use super::round::Round;
use super::{Cell, Registry, watch};

/// Marks for the share of the last second are taken this often.
const MARK_PERIOD: Nanos = Nanos::from_millis(100);

impl Registry {
    /// One run of the control loop.
    pub fn tick(&mut self, now: Nanos) {
        self.epoch += 1;
        let anew = std::mem::take(&mut self.anew);
        let Self { epoch, turns, off, outside, .. } = *self;
        let (stirred, renewed) = (self.stirs.look(), std::mem::take(&mut self.renewed));
        let disturbed = std::mem::take(&mut self.disturbed);
        let mut changed = disturbed || anew || !(stirred.is_empty() && renewed.is_empty());
        for (gpu, ruler) in self.rulers.iter_mut().enumerate() {
            let mode = self.mps.mode(gpu);
            let signals = Signals { power: self.powered.signal(gpu, now), ..outside };
            let round = Round { now, epoch, turns, anew, off, mode, signals };
            changed |= ruler.run(&mut self.tenants, &round, stirred, &renewed);
        }
        if changed {
            self.changed_at = now;
        }
        if now.since(self.marked_at) >= MARK_PERIOD {
            self.mark(now);
        }
    }

    fn mark(&mut self, now: Nanos) {
        self.marked_at = now;
        for tenant in &mut self.tenants {
            for cell in &mut tenant.cells {
                cell.mark(now, &tenant.slots);
            }
        }
        for (tenant, reading, health) in self.told.look(&self.tenants, now) {
            self.note_latency(tenant, reading, health);
        }
        self.note_growth();
        watch::look(&mut self.tenants, &self.rulers, &mut self.events, now);
        let cells = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.cells);
        let left: Vec<_> = cells.filter_map(Cell::take_left).collect();
        if !left.is_empty() {
            self.unclaimed.look_again(&self.tenants);
            self.unclaimed.hand_on(&self.tenants, left.concat());
        }
        self.store.settle(&self.tenants);
        if self.journal.is_due() {
            let records = self.records();
            self.journal.renew(&records);
        }
    }
}
