//! The books of a multicast object. It is charged with its size on each device that has joined it, in the process that has
//! added the device, and what is bound to it stays charged to who has bound it.
//!
//! An object that crosses processes is there until the last of them has let go of it, and so is what it holds. Each process
//! says on its pages that it has the object (a *member*) and what it is charged for (*kept*); what a member no longer keeps,
//! the node manager hands on to whoever has been a member for longest.
//!
//! Objects whose descriptors look alike are told from each other by their size alone. With them a living process hands nothing
//! on: what it lets go of may be gone, and another object of that size would be charged for it. A dead one's charges go on.
//!
//! The driver tells nobody how large an object is that comes from elsewhere: it is taken to be as large as what has been bound
//! or mapped of it here, and charged when that becomes known.

use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, fence};

use weir_protocol::pages::{MemoryKind, Share, ShareState};
use weir_protocol::units::Bytes;

use super::{shares, vmm_shares};
use crate::link::{Client, Gpu};

/// What a multicast object is charged, and the memory that is bound to it.
#[derive(Default)]
pub struct Team {
    /// What it costs on each device, as far as that is known.
    pub bytes: Bytes,
    /// By GPU and offset in the object: bytes, and the handle of the memory.
    pub bound: BTreeMap<(usize, u64), (u64, u64)>,
    joined: Vec<Joined>,
    imported: bool,
    crossing: Option<Crossing>,
}

/// A device that this process has added.
struct Joined {
    gpu: usize,
    bytes: Bytes,         // charged
    entry: Option<usize>, // on the page, if the object crosses processes and there is room
}

/// Other processes have the object, or may.
struct Crossing {
    /// What it is known by; not until its size is, where that alone tells it from others.
    key: Option<u64>,
    by_file: bool,
    /// GPU and entry on its page.
    members: Vec<(usize, usize)>,
}

impl Team {
    /// An object of this process.
    pub fn made(bytes: Bytes) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// An object of another process, with the key of its file, if it has one.
    pub fn imported(client: &Client, by_file: Option<u64>) -> Self {
        let mut team = Self { imported: true, ..Self::default() };
        team.cross(client, by_file);
        team
    }

    /// By what other processes know it.
    pub fn key(&self) -> Option<u64> {
        self.crossing.as_ref()?.key
    }

    /// From now on other processes may have it.
    pub fn cross(&mut self, client: &Client, by_file: Option<u64>) {
        if self.crossing.is_none() {
            self.crossing = Some(Crossing { key: by_file, by_file: by_file.is_some(), members: Vec::new() });
            self.show(client);
        }
    }

    /// A device has joined, and was charged.
    pub fn join(&mut self, gpu: &Gpu, bytes: Bytes) {
        let entry = self.key().and_then(|key| keep(gpu, key, bytes));
        self.joined.push(Joined { gpu: gpu.index, bytes, entry });
    }

    /// What is still to be charged, by GPU, if the object reaches that far.
    pub fn missing(&self, end: Bytes) -> Vec<(usize, Bytes)> {
        let short = self.joined.iter().filter(|joined| self.imported && joined.bytes.0 < end.0);
        short.map(|joined| (joined.gpu, Bytes(end.0 - joined.bytes.0))).collect()
    }

    /// It does reach that far, and so much more was charged.
    pub fn reaches(&mut self, client: &Client, end: Bytes, charged: Vec<(usize, Bytes)>) {
        if !self.imported {
            return;
        }
        for (gpu, bytes) in charged {
            let joined = self.joined.iter_mut().find(|joined| joined.gpu == gpu);
            match joined.filter(|joined| joined.bytes.0 + bytes.0 <= end.0) {
                Some(joined) => joined.bytes.0 += bytes.0,
                // Another thread has charged it meanwhile.
                None => {
                    client.gpus.get(gpu).into_iter().for_each(|g| g.give_back(MemoryKind::Virtual, bytes))
                }
            }
        }
        if self.bytes.0 < end.0 {
            self.bytes = end;
            self.show(client);
        }
    }

    /// Writes onto the pages what the books say.
    fn show(&mut self, client: &Client) {
        let Some(crossing) = &mut self.crossing else { return };
        if !crossing.by_file && self.bytes.0 > 0 {
            crossing.key = Some(vmm_shares::by_size(self.bytes));
        }
        let Some(key) = crossing.key else { return };
        for joined in &mut self.joined {
            let Some(gpu) = client.gpus.get(joined.gpu) else { continue };
            entry(gpu, joined.entry).and_then(Share::take);
            joined.entry = keep(gpu, key, joined.bytes);
        }
        if crossing.by_file && !crossing.members.is_empty() {
            return;
        }
        for (gpu, place) in std::mem::take(&mut crossing.members) {
            client.gpus.get(gpu).and_then(|gpu| entry(gpu, Some(place))).and_then(Share::take);
        }
        let member = |gpu: &Gpu| {
            let place = shares::note(gpu, ShareState::Member, key, Bytes(0), MemoryKind::Virtual);
            place.map(|place| (gpu.index, place))
        };
        crossing.members = client.gpus.iter().filter_map(member).collect();
    }

    /// This process has it no more: what it was charged is given back, and is others' if they have it. Says what was bound, by
    /// GPU and handle, and whether that may live on elsewhere.
    pub fn dissolve(self, client: &Client) -> (Vec<(usize, u64)>, bool) {
        let lives_on = self.crossing.as_ref().is_some_and(|crossing| crossing.by_file);
        if let Some(crossing) = self.crossing {
            crossing.part(client);
        }
        for joined in self.joined {
            let Some(gpu) = client.gpus.get(joined.gpu) else { continue };
            gpu.give_back(MemoryKind::Virtual, joined.bytes);
            match entry(gpu, joined.entry) {
                Some(share) if lives_on && share.leave() => shares::tell(gpu),
                Some(share) if !lives_on => drop(share.take()),
                _ => {}
            }
        }
        (self.bound.into_iter().map(|((gpu, _), (_, handle))| (gpu, handle)).collect(), lives_on)
    }
}

impl Crossing {
    /// The process is no member any more, and what has fallen to it as one falls to the next.
    fn part(self, client: &Client) {
        for (gpu, place) in self.members {
            client.gpus.get(gpu).and_then(|gpu| entry(gpu, Some(place))).and_then(Share::take);
        }
        fence(Ordering::SeqCst); // either we see what the manager bequeaths just now, or it sees that we have gone
        let Some(key) = self.key else { return };
        for gpu in &client.gpus {
            for shared in gpu.slot().shares.iter().filter_map(|share| share.take_inherited(key)) {
                gpu.give_back(shared.kind, shared.bytes);
                let next = || shares::note(gpu, ShareState::KeptLeft, key, shared.bytes, shared.kind);
                if self.by_file && next().is_some() {
                    shares::tell(gpu);
                }
            }
        }
    }
}

fn entry(gpu: &Gpu, place: Option<usize>) -> Option<&Share> {
    gpu.slot().shares.get(place?)
}

fn keep(gpu: &Gpu, key: u64, bytes: Bytes) -> Option<usize> {
    shares::note(gpu, ShareState::Kept, key, bytes, MemoryKind::Virtual)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(imported: bool, bytes: u64) -> Team {
        let joined = vec![Joined { gpu: 1, bytes: Bytes(bytes), entry: None }];
        Team { imported, joined, ..Team::made(Bytes(bytes)) }
    }

    #[test]
    fn only_an_object_of_another_process_costs_more_when_more_of_it_is_seen() {
        assert_eq!(joined(true, 0).missing(Bytes(64)), [(1, Bytes(64))]);
        assert_eq!(joined(true, 48).missing(Bytes(64)), [(1, Bytes(16))]);
        assert_eq!(joined(true, 64).missing(Bytes(64)), []);
        assert_eq!(joined(false, 48).missing(Bytes(64)), []);
    }
}
