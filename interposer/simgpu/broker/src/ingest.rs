//! From rings to models: each command enters its device at the time at which the client submitted it, in order
//! of time among all clients, and each stall ends when the client has said so. So the broker's own delays do not show in
//! the simulated GPU's time.

use weir_simgpu_link::page::RING;
use weir_simgpu_link::{Command, Direction, StreamKind, Work, now_ns};
use weir_simgpu_model as model;

use crate::broker::Broker;
use crate::client::Stall;

/// Commands that one client may have at the devices: more stay in its ring, where they cost only itself.
const MOST_OUTSTANDING: usize = 1 << 18;

impl Broker {
    /// Takes all commands, lets time pass until now, ends stalls. Returns now.
    pub fn ingest(&mut self) -> u64 {
        // Before the rings are read: a command that comes later has a later time.
        let now = now_ns();
        let mut batch = std::mem::take(&mut self.batch);
        for (index, client) in self.clients.iter_mut().enumerate().filter_map(|(i, c)| Some((i, c.as_mut()?)))
        {
            let Some(shared) = client.shared.as_ref() else { continue };
            let room = MOST_OUTSTANDING.saturating_sub(client.outstanding).min(RING);
            let last_at = &mut client.last_at;
            shared.page.take(room, |command| {
                // Words that are no command are a broken client's: it loses them.
                let Some(command) = command else { return };
                // Its clock may be another (time namespaces), or lie: never in the future, never backwards.
                *last_at = command.at_ns.min(now).max(*last_at);
                batch.push((*last_at, index, command));
            });
        }
        // Stable and made for runs that are sorted already, as each client's is.
        batch.sort_by_key(|entry| entry.0);
        let mut over = self.stalls_that_are_over().into_iter().peekable();
        for (at, index, command) in batch.drain(..) {
            while let Some(earlier) = over.next_if(|over| over.at <= at) {
                self.end_stall(&earlier);
            }
            self.apply(at, index, command);
        }
        self.batch = batch;
        over.for_each(|over| self.end_stall(&over));
        // Those that have begun with this batch.
        self.stalls_that_are_over().into_iter().for_each(|over| self.end_stall(&over));
        for gpu in &mut self.gpus {
            gpu.device.advance(now);
            gpu.sample();
        }
        now
    }

    fn apply(&mut self, at: u64, index: usize, command: Command) {
        let Some(client) = self.clients[index].as_mut() else { return };
        let Some(shared) = client.shared.as_mut() else { return };
        // The command's decoder has checked the slot's range.
        let place = &mut shared.streams[command.stream as usize];
        if let Work::Open { context, kind, priority } = command.work {
            let Some(owner) = client.contexts.iter().find(|owner| owner.id == context) else { return };
            let Some(model) = owner.model else { return };
            let tag = (index as u64) << 32 | u64::from(command.stream);
            let stream = self.gpus[owner.gpu].device.open_stream(model, kind_of(kind), priority, tag);
            *place = stream.map(|stream| (owner.gpu, stream));
            return;
        }
        let Some((gpu, stream)) = *place else { return };
        let device = &mut self.gpus[gpu].device;
        let Some(work) = work_of(command.work, owner_of(index)) else {
            *place = None;
            return device.close_stream(stream);
        };
        if device.submit(at, stream, command.sequence, work) {
            client.outstanding += 1;
            if stalls(command.work) {
                let (slot, sequence) = (command.stream as usize, command.sequence);
                client.stalls.push(Stall { gpu, stream, slot, sequence });
            }
        }
    }

    /// Takes those stalls whose client has said that they are over, in order of time: that may be later than the commands at hand.
    fn stalls_that_are_over(&mut self) -> Vec<Over> {
        let mut over = Vec::new();
        for client in self.clients.iter_mut().flatten() {
            let Some(shared) = client.shared.as_ref() else { continue };
            let ended = client.stalls.extract_if(.., |stall| shared.has_resumed(stall));
            over.extend(ended.map(|stall| Over { at: shared.resumed_at(&stall).min(now_ns()), stall }));
        }
        over.sort_by_key(|over| over.at);
        over
    }

    fn end_stall(&mut self, over: &Over) {
        let device = &mut self.gpus[over.stall.gpu].device;
        device.advance(over.at.max(device.now()));
        device.resume(over.stall.stream, over.stall.sequence);
    }
}

/// A stall that is over, and since when, ns.
struct Over {
    at: u64,
    stall: Stall,
}

/// The events' owner: one number per client.
pub fn owner_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn stalls(work: Work) -> bool {
    matches!(work, Work::Hold { .. }) || matches!(work, Work::Kernel(kernel) if kernel.spins)
}

fn kind_of(kind: StreamKind) -> model::StreamKind {
    match kind {
        StreamKind::Blocking => model::StreamKind::Blocking,
        StreamKind::NonBlocking => model::StreamKind::NonBlocking,
        StreamKind::Legacy => model::StreamKind::Legacy,
    }
}

/// The model's word for a command; `None` for those that are about the stream itself.
fn work_of(work: Work, owner: u32) -> Option<model::Work> {
    Some(match work {
        Work::Kernel(kernel) => model::Work::Kernel(model::Kernel {
            solo: kernel.solo_ns,
            blocks: kernel.blocks,
            bandwidth_permille: kernel.bandwidth_permille,
            spins: kernel.spins,
        }),
        Work::Copy { direction: Direction::HostToDevice, bytes } => {
            model::Work::Copy(model::Engine::Upload, bytes)
        }
        Work::Copy { direction: Direction::DeviceToHost, bytes } => {
            model::Work::Copy(model::Engine::Download, bytes)
        }
        Work::Copy { direction: Direction::Peer, bytes } => model::Work::Copy(model::Engine::Peer, bytes),
        Work::Copy { direction: Direction::HostToHost, .. } => model::Work::Nothing,
        Work::Copy { direction: Direction::DeviceToDevice, bytes } | Work::Memset { bytes } => {
            model::Work::Memory(bytes)
        }
        Work::Record { slot, record, takes_ns } => {
            model::Work::Record(model::EventKey { owner, slot }, record, takes_ns)
        }
        Work::Wait { slot, record } => model::Work::Wait(model::EventKey { owner, slot }, record),
        Work::Hold { then_ns } => model::Work::Hold(then_ns),
        Work::Mark { takes_ns } => model::Work::Mark(takes_ns),
        Work::Open { .. } | Work::Close => return None,
    })
}
