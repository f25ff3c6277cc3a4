//! Who stands beside whom: the tenants' places on each GPU, and what each of them is told of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_protocol::message::Standing;
use weir_protocol::units::Nanos;

use super::seat::Seat;
use super::stirs::Stirs;
use super::{Cell, Pages, Registry, Tenant, standing};
use crate::control::schema::ClassName;

impl Registry {
    /// Before tenants come or go: their cells learn what was seen since they were last looked at in full.
    pub(super) fn catch_up(&mut self) {
        let seats = self.rulers.iter().flat_map(|ruler| &ruler.seats);
        seats.for_each(|seat| seat.catch_up(&mut self.tenants));
    }

    /// Who stands where changes only when tenants come and go.
    pub(super) fn reorder(&mut self) {
        let cells = self.tenants.iter().enumerate();
        let pairs = cells
            .flat_map(|(t, tenant)| tenant.cells.iter().enumerate().map(move |(c, cell)| (cell.gpu, t, c)));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_unstable();
        self.tell_neighbours(&pairs);
        for ruler in &mut self.rulers {
            ruler.seats.clear();
            ruler.watched.clear();
        }
        self.stirs = Stirs::of(&self.tenants);
        self.renewed.clear(); // all are looked at
        self.anew = true;
        for (gpu, tenant, cell) in pairs {
            if let Some(ruler) = self.rulers.get_mut(gpu) {
                let gives_way = self.tenants[tenant].class == ClassName::Filler;
                ruler.seats.push(Seat::of(tenant, cell, gives_way));
            }
        }
    }

    /// Every tenant on a GPU whose tenants have changed must learn who is there now. `pairs`: GPU, tenant, cell.
    fn tell_neighbours(&mut self, pairs: &[(usize, usize, usize)]) {
        let mut boards: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (gpu, tenant, _) in pairs {
            boards.entry(*gpu).or_default().push(self.tenants[*tenant].id);
        }
        for (gpu, tenant, cell) in pairs {
            if boards.get(gpu) != self.boards.get(gpu) {
                self.tenants[*tenant].cells[*cell].neighbours_changed();
                self.boards_changed = true;
            }
        }
        self.boards = boards;
    }

    /// Whether the tenants on any GPU have changed since the last call.
    pub fn take_boards_changed(&mut self) -> bool {
        std::mem::take(&mut self.boards_changed)
    }

    /// The pages of the other tenants on a GPU, and how they stand to this one.
    pub fn neighbours(&self, tenant: &Tenant, gpu: usize) -> Vec<(Standing, Arc<Pages>)> {
        let matters = self.policy_of(gpu).is_some_and(|row| row.fillers_give_way);
        let others = self.tenants.iter().filter(|other| other.id != tenant.id);
        let cells = others.flat_map(|other| other.cells.iter().map(move |cell| (other, cell)));
        let here = cells.filter(|(_, cell)| cell.gpu == gpu);
        let rank =
            |tenant: &Tenant| (tenant.class, tenant.budget.slo.map(|promise| Nanos(promise.target_ns)));
        here.map(|(other, cell)| (standing(matters, rank(tenant), rank(other)), cell.pages.clone())).collect()
    }

    /// Everybody on this GPU is told anew who stands how to him.
    pub(super) fn standings_changed(&mut self, gpu: usize) {
        let cells = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.cells);
        cells.filter(|cell| cell.gpu == gpu).for_each(Cell::neighbours_changed);
        self.boards_changed = true;
    }
}
