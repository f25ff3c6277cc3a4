//! From models to pages: completions, event stamps, wakes; and when to look again.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use weir_simgpu_link::ring::{AWAKE, NAP, SLEEP};
use weir_simgpu_link::wait::Target;
use weir_simgpu_model::Completion;

use crate::broker::Broker;

/// Longest sleep while a GPU is busy: clients that only read words see them this late at most.
const TICK: Duration = Duration::from_millis(1);
/// Shortest sleep: a wait whose end cannot be foretold is looked at this often.
const LEAST: Duration = Duration::from_micros(20);

impl Broker {
    /// Writes what has happened to the pages, and wakes who waited for it.
    pub fn publish(&mut self) {
        for gpu in &mut self.gpus {
            for completion in gpu.device.drain_completions() {
                let (index, slot) = match completion {
                    Completion::Done { tag, .. } => (tag >> 32, (tag & u64::from(u32::MAX))),
                    Completion::Stamp { event, .. } => (event.owner.into(), event.slot.into()),
                };
                let (Ok(index), Ok(slot)) = (usize::try_from(index), usize::try_from(slot)) else { continue };
                let Some(client) = self.clients.get_mut(index).and_then(Option::as_mut) else { continue };
                let Some(shared) = client.shared.as_ref() else { continue };
                match completion {
                    Completion::Done { sequence, .. } => {
                        client.outstanding = client.outstanding.saturating_sub(1);
                        shared.page.complete(slot, sequence);
                    }
                    Completion::Stamp { record, at, .. } => shared.page.stamp(slot, record, at),
                }
            }
        }
        for shared in self.clients.iter().flatten().filter_map(|client| client.shared.as_ref()) {
            for (slot, target) in shared.page.armed_waits() {
                if shared.page.reached(target) {
                    shared.page.wake(slot);
                }
            }
        }
    }

    /// Tells clients that the broker is at work: they need not ring.
    pub fn wake_up(&self) {
        for shared in self.clients.iter().flatten().filter_map(|client| client.shared.as_ref()) {
            shared.page.fall_asleep(AWAKE);
        }
    }

    /// Tells clients how deep the broker is about to sleep, looks once more, and says for how long it may
    /// sleep: `None` = until something rings.
    pub fn lie_down(&mut self, now: u64) -> Option<Duration> {
        let next = self.gpus.iter_mut().filter_map(|gpu| gpu.device.next_event()).min();
        let depth = if next.is_some() { NAP } else { SLEEP };
        let pages =
            || self.clients.iter().flatten().filter_map(|client| Some((client, client.shared.as_ref()?)));
        for (_, shared) in pages() {
            shared.page.fall_asleep(depth);
        }
        // SeqCst: the depth is visible before the looks below; a client stores first and then reads the depth,
        // with the same fence in between. So either we see what it stored, or it sees that it must ring.
        fence(Ordering::SeqCst);
        let mut wanted = None;
        for (client, shared) in pages() {
            if shared.page.has_commands() || client.stalls.iter().any(|stall| shared.has_resumed(stall)) {
                return Some(if client.outstanding > 0 { LEAST } else { Duration::ZERO });
            }
            for (_, target) in shared.page.armed_waits() {
                wanted = [wanted, self.due(shared, target, now, next)].into_iter().flatten().min();
            }
        }
        next.map(|_| wanted.unwrap_or(TICK).clamp(LEAST, TICK))
    }

    /// How long until a wait can be over.
    fn due(
        &self,
        shared: &crate::client::Shared,
        target: Target,
        now: u64,
        next: Option<u64>,
    ) -> Option<Duration> {
        if shared.page.reached(target) {
            return Some(LEAST);
        }
        let Target::Completed { stream, sequence } = target else { return Some(LEAST) };
        let (gpu, stream) = shared.streams.get(stream as usize).copied().flatten()?;
        let earliest = self.gpus[gpu].device.earliest(stream, sequence).max(next?);
        Some(Duration::from_nanos(earliest.saturating_sub(now)))
    }
}
