//! The tenant's ranks, as this process sees them: its own other GPUs and the tenant's other processes on all of them.

use std::sync::atomic::Ordering;

use rustix::thread::futex;
use weir_core::gang::{self, Other, Turn};
use weir_core::gate::{Cause, Patience};
use weir_protocol::pages::Rate;
use weir_protocol::units::Nanos;

use crate::link::{Client, Gpu};
use crate::wait::{Asked, Holdup};

/// One launch at the gate, as its gang sees it.
pub struct AtGate<'a> {
    client: &'a Client,
    gpu: &'a Gpu,
    arrived: Nanos,
    is_rank: bool,
    held_until: Option<Nanos>,
}

impl<'a> AtGate<'a> {
    /// A launch on `gpu` that arrives now.
    pub fn new(client: &'a Client, gpu: &'a Gpu, arrived: Nanos) -> Self {
        Self { client, gpu, arrived, is_rank: client.book.knows_collectives(), held_until: None }
    }

    /// Asks the gang, and then, unless that holds the launch back, `gate` with the patience that the gang leaves it. A rank
    /// that is behind the others goes as debt where it is told to wait.
    pub fn ask(&mut self, now: Nanos, patience: Patience, gate: impl FnOnce(Patience) -> Asked) -> Asked {
        let turn = if self.is_rank { self.turn(now) } else { Turn::Gate };
        let grant = self.gpu.grant.read();
        let asked = match turn {
            Turn::Wait(at_most) => {
                let generation = grant.generation;
                Asked::Waits(Holdup { generation, at_most, cause: Cause::Tokens, neighbour: None })
            }
            Turn::Join => gate(Patience::None),
            Turn::CatchUp | Turn::Gate => gate(patience),
        };
        match asked {
            Asked::Waits(_)
                if turn == Turn::CatchUp && gang::may_owe(self.gpu.bucket.balance(), grant.capacity) =>
            {
                Asked::CatchesUp(grant.generation)
            }
            Asked::Waits(held) if self.is_rank => {
                Asked::Waits(Holdup { at_most: held.at_most.min(gang::LOOK), ..held })
            }
            asked => asked,
        }
    }

    /// It goes on after it had waited: the others, wherever they wait, may begin their turns, too.
    pub fn resumes(&self, now: Nanos) {
        if !self.is_rank {
            return;
        }
        // Relaxed here and below: what is read late is read at the next look.
        self.gpu.slot().resumed_at_ns.store(now.0, Ordering::Relaxed);
        self.client.gpus.iter().for_each(wake);
    }

    fn turn(&mut self, now: Nanos) -> Turn {
        let own = self.gpu.slot();
        let gpus = &self.client.gpus;
        let ranks = gpus.iter().flat_map(|gpu| gpu.usage.slots.iter().map(move |slot| (gpu, slot)));
        let others = ranks.filter(|(_, slot)| !std::ptr::eq(*slot, own)).map(|(gpu, slot)| Other {
            gpu: gpu.index,
            collectives: slot.collectives.load(Ordering::Relaxed),
            resumed_at: Nanos(slot.resumed_at_ns.load(Ordering::Relaxed)),
        });
        let debt = |at: usize| gpus.get(at).and_then(|gpu| gpu.gate.debt(gpu.pages(), now));
        let turn = gang::turn(own.collectives.load(Ordering::Relaxed), self.arrived, others, debt);
        let Turn::Wait(wait) = turn else { return turn };
        // For no longer than it took when we first looked: in debt again, that GPU had a turn without us.
        let until = *self.held_until.get_or_insert(Nanos(now.0.saturating_add(wait.0)));
        if now < until { Turn::Wait(until.since(now)) } else { Turn::Gate }
    }
}

/// A collective of this process was launched: others may be behind now, and those that wait shall know.
pub fn launched(gpu: &Gpu) {
    gpu.slot().collectives.fetch_add(1, Ordering::Relaxed);
    let Some(client) = Client::get() else { return };
    client.gpus.iter().filter(|gpu| may_wait(gpu)).for_each(wake);
}

/// Whether a launch of the tenant may wait for tokens on this GPU.
fn may_wait(gpu: &Gpu) -> bool {
    let grant = gpu.grant.read();
    grant.rate != Rate::FULL && gpu.bucket.balance() < grant.resume_at
}

/// Whoever sleeps at this GPU's gate asks once more.
fn wake(gpu: &Gpu) {
    // Allowed on a page that is mapped read-only.
    let _ = futex::wake(gpu.grant.futex_word(), futex::Flags::empty(), u32::MAX >> 1);
}
