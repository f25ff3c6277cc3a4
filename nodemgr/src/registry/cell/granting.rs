//! What a tenant is granted on one GPU, and what it is told beside that: its gate, the bell, the board.

use weir_protocol::pages::{Gate, Grant, NO_BOARD, Rate};
use weir_protocol::units::{Bandwidth, Bytes, Nanos};

use super::Cell;
use crate::control::schema::Budget;

/// The same grant without an end to the time on the GPU, also should the manager go; a filler gives way to nobody.
pub fn unlimited(grant: Grant) -> Grant {
    let (rate, in_flight_cap, copy_limit) = (Rate::FULL, Nanos(0), Bandwidth::UNLIMITED);
    let (fallback_rate, limit) = (rate, rate);
    let (gate, hold, back_at) = (Gate::Lent, Nanos(0), Nanos(0));
    Grant { rate, fallback_rate, limit, gate, in_flight_cap, copy_limit, hold, back_at, ..grant }
}

impl Cell {
    /// Publishes what the policy `decided` if it differs from what holds. Copies are limited by the budget alone: no policy
    /// lends them. `off`: nothing is to be enforced but memory.
    pub fn actuate(&mut self, decided: &Grant, budget: &Budget, off: bool) {
        let mut grant = match off {
            true => unlimited(*decided),
            false => Grant { copy_limit: budget.copy_limit, limit: Rate::from(budget.limit), ..*decided },
        };
        if self.parked {
            grant.gate = Gate::Parked;
        }
        grant.memory_limit = Bytes(grant.memory_limit.0.saturating_sub(self.drains.0));
        if off != self.off {
            self.off = off;
            self.show_board();
        }
        self.publish(grant);
    }

    /// Says on its page that the tenant is parked, or about to be; or that it goes on, at the gate as the next tick has it.
    pub fn park(&mut self, parked: bool) {
        self.parked = parked;
        let gate = if parked { Gate::Parked } else { Gate::Open };
        self.publish(Grant { gate, ..self.granted });
    }

    fn publish(&mut self, grant: Grant) {
        if grant == self.granted {
            return;
        }
        self.granted = grant;
        self.pages.grant.publish(&grant);
        let word = self.pages.grant.futex_word();
        // Everybody who waits has to reckon again. Nobody waiting is no failure.
        let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
    }

    /// Whether it may use more than its request, as long as nobody to whom it gives way works.
    pub fn is_open(&self) -> bool {
        self.granted.gate == Gate::Open
    }

    /// Closes an open gate until the next tick decides.
    pub fn close_gate(&mut self) {
        if self.is_open() {
            self.publish(Grant { gate: Gate::Closed, ..self.granted });
        }
    }

    /// Lets the tenant ring from now on, or no longer. Says whether it has begun work unheard.
    pub fn arm_bell(&mut self, armed: bool) -> bool {
        if std::mem::replace(&mut self.bell_armed, armed) == armed {
            return false;
        }
        self.pages.grant.bell.arm(armed);
        armed && self.take_ring()
    }

    /// Whether the board shows that it has begun work since it was last asked, and works.
    pub fn take_ring(&mut self) -> bool {
        let activity = &self.pages.activity;
        let edges = activity.edges(); // first: whoever begins after this moves it on
        std::mem::replace(&mut self.began, edges) != edges && activity.quiet(None).is_none()
    }

    /// The tenants on its GPU have changed.
    pub fn neighbours_changed(&mut self) {
        self.board = (self.board + 1) % NO_BOARD;
        self.show_board();
    }

    fn show_board(&self) {
        self.pages.grant.set_board(if self.off { NO_BOARD } else { self.board });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::Beside;
    use weir_protocol::units::SmShare;

    #[test]
    fn an_unlimited_grant_keeps_the_memory_limit_and_nothing_else_that_holds_a_launch() {
        let (rate, memory) = (Rate::ppm(100_000), Bytes::gib(2));
        let closed = weir_policy::grant(rate, SmShare::percent(10), memory, Beside::default());
        let free = unlimited(Grant { gate: Gate::Closed, copy_limit: Bandwidth(7), ..closed });
        assert_eq!((free.rate, free.fallback_rate, free.gate), (Rate::FULL, Rate::FULL, Gate::Lent));
        assert_eq!((free.in_flight_cap, free.copy_limit), (Nanos(0), Bandwidth::UNLIMITED));
        assert_eq!(free.memory_limit, memory);
    }
}
