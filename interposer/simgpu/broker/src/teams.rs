//! Multicast objects: ranges that stand for memory of several devices at once. They are here and not with a driver, since
//! several processes have one: it is there until the last one has closed it.
//!
//! An object takes its size on each device that has joined, and keeps what is bound to it. Each is counted once: at who has
//! joined the device, or bound the memory, for as long as he has it; then at whoever has had the object for longest.

use weir_simgpu_link::Refusal;
use weir_simgpu_link::rpc::{Binding, Reply, TeamRequest};

use crate::broker::Broker;

/// All objects.
#[derive(Default)]
pub struct Teams {
    last: u32,
    all: Vec<Team>,
}

/// One object.
struct Team {
    id: u32,
    devices: usize,
    bytes: u64,
    /// Clients that have it, the first one first; once for each time.
    members: Vec<usize>,
    joined: Vec<u32>,
    bound: Vec<Bound>,
    held: Vec<Held>,
}

/// Memory in a place.
struct Bound {
    by: Memory,
    binding: Binding,
}

/// Which memory: of a client, or left behind by one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Of(usize, u64),
    Left(u32),
}

/// What the object itself holds.
struct Held {
    /// The memory that was left behind; `None`: the object's own.
    memory: Option<u32>,
    device: usize,
    bytes: u64,
    /// The client at which it is counted.
    at: usize,
}

impl Team {
    /// Refuses a place that cannot be bound.
    fn check(&self, new: &Binding) -> Result<(), Refusal> {
        let overlaps = |old: &Binding| {
            old.device == new.device && old.at < new.at + new.length && new.at < old.at + old.length
        };
        let inside = new.at.checked_add(new.length).is_some_and(|end| end <= self.bytes);
        if !inside || !self.joined.contains(&new.device) || self.bound.iter().any(|b| overlaps(&b.binding)) {
            return Err(Refusal::NotOfTeam);
        }
        Ok(())
    }

    fn ready(&self) -> Result<(), Refusal> {
        if self.joined.len() < self.devices { Err(Refusal::NotReady) } else { Ok(()) }
    }
}

impl Teams {
    fn of(&mut self, team: u32) -> Result<&mut Team, Refusal> {
        self.all.iter_mut().find(|t| t.id == team).ok_or(Refusal::NotOfTeam)
    }
}

impl Broker {
    /// What client `index` wants with an object.
    pub fn team(&mut self, index: usize, request: TeamRequest) -> Result<Reply, Refusal> {
        match request {
            TeamRequest::Create { devices, bytes } => {
                self.teams.last += 1;
                let (id, members) = (self.teams.last, vec![index]);
                let (joined, bound, held) = (Vec::new(), Vec::new(), Vec::new());
                let team = Team { id, devices: devices as usize, bytes, members, joined, bound, held };
                self.teams.all.push(team);
                return Ok(Reply::Team(id));
            }
            TeamRequest::Open { team } => self.teams.of(team)?.members.push(index),
            TeamRequest::Close { team } => self.close_team(index, team)?,
            TeamRequest::Join { team, device } => self.join_team(index, team, device)?,
            TeamRequest::Ready { team } => self.teams.of(team)?.ready()?,
            TeamRequest::Bind(binding) => {
                let team = self.teams.of(binding.team)?;
                team.ready()?;
                team.check(&binding)?;
                team.bound.push(Bound { by: Memory::Of(index, binding.memory), binding });
            }
            TeamRequest::Unbind { team, device, at, bytes } => {
                self.unbind(index, team, device, at..at.saturating_add(bytes))?;
            }
            TeamRequest::HandOver(binding) => {
                if !self.hand_over(index, &binding) {
                    self.release(index, binding.device, binding.bytes)?;
                }
            }
        }
        Ok(Reply::Done)
    }

    fn join_team(&mut self, index: usize, team: u32, device: u32) -> Result<(), Refusal> {
        let found = self.teams.of(team)?;
        if found.joined.contains(&device) || found.joined.len() == found.devices {
            return Err(Refusal::NotOfTeam);
        }
        let bytes = found.bytes;
        self.reserve(index, device, bytes)?;
        let team = self.teams.of(team)?;
        team.joined.push(device);
        team.held.push(Held { memory: None, device: device as usize, bytes, at: index });
        Ok(())
    }

    fn unbind(
        &mut self,
        index: usize,
        team: u32,
        device: u32,
        range: std::ops::Range<u64>,
    ) -> Result<(), Refusal> {
        let team = self.teams.of(team)?;
        let ours =
            |by: Memory| matches!(by, Memory::Left(_)) || matches!(by, Memory::Of(of, _) if of == index);
        let inside = |b: &Binding| b.device == device && b.at >= range.start && b.at + b.length <= range.end;
        let gone: Vec<_> = team.bound.extract_if(.., |b| ours(b.by) && inside(&b.binding)).collect();
        if gone.is_empty() {
            return Err(Refusal::NotOfTeam);
        }
        let still = |memory| team.bound.iter().any(|bound| bound.by == Memory::Left(memory));
        let let_go: Vec<_> =
            team.held.extract_if(.., |held| held.memory.is_some_and(|m| !still(m))).collect();
        let_go.iter().for_each(|held| self.free(held));
        Ok(())
    }

    /// Gives device memory back that an object has held.
    fn free(&mut self, held: &Held) {
        self.gpus[held.device].used -= held.bytes;
        if let Some(client) = self.clients[held.at].as_mut() {
            client.memory[held.device].held -= held.bytes;
        }
    }

    /// Memory of a client becomes the object's, if it is bound there and somebody has the object.
    fn hand_over(&mut self, from: usize, memory: &Binding) -> bool {
        let own = Memory::Of(from, memory.memory);
        self.teams.last += 1;
        let left = self.teams.last;
        let Ok(team) = self.teams.of(memory.team) else { return false };
        let Some(heir) = team.members.first().copied() else { return false };
        let places = team.bound.iter_mut().filter(|bound| bound.by == own);
        if places.map(|bound| bound.by = Memory::Left(left)).count() == 0 {
            return false;
        }
        let device = memory.device as usize;
        team.held.push(Held { memory: Some(left), device, bytes: memory.bytes, at: heir });
        self.count_at(device, memory.bytes, from, heir);
        true
    }

    /// Memory is counted at another client from now on.
    fn count_at(&mut self, device: usize, bytes: u64, from: usize, to: usize) {
        if let Some(client) = self.clients[from].as_mut() {
            client.memory[device].held -= bytes;
        }
        if let Some(client) = self.clients[to].as_mut() {
            client.memory[device].add(bytes);
        }
    }

    fn close_team(&mut self, index: usize, team: u32) -> Result<(), Refusal> {
        let found = self.teams.of(team)?;
        let place = found.members.iter().position(|member| *member == index).ok_or(Refusal::NotOfTeam)?;
        found.members.remove(place);
        if !found.members.contains(&index) {
            self.pass_on(index, team);
        }
        Ok(())
    }

    /// A client has an object no more: what it held for it is counted at the next one, or gone with the last one.
    fn pass_on(&mut self, from: usize, team: u32) {
        let Ok(found) = self.teams.of(team) else { return };
        let Some(heir) = found.members.first().copied() else {
            let gone: Vec<_> = std::mem::take(&mut found.held);
            self.teams.all.retain(|t| t.id != team);
            return gone.iter().for_each(|held| self.free(held));
        };
        let moved = found.held.iter_mut().filter(|held| held.at == from).map(|held| {
            held.at = heir;
            (held.device, held.bytes)
        });
        for (device, bytes) in moved.collect::<Vec<_>>() {
            self.count_at(device, bytes, from, heir);
        }
    }

    /// A client is gone: what it has bound stays where somebody else has the object.
    pub fn leave_teams(&mut self, index: usize) {
        let with_it: Vec<u32> = self.teams.all.iter().map(|team| team.id).collect();
        for id in with_it {
            let Ok(team) = self.teams.of(id) else { continue };
            team.members.retain(|member| *member != index);
            let own = |bound: &Bound| matches!(bound.by, Memory::Of(of, _) if of == index);
            let bound: Vec<_> = team.bound.iter().filter(|b| own(b)).map(|bound| bound.binding).collect();
            for binding in bound {
                self.hand_over(index, &binding); // the second piece of the same memory finds it done
            }
            self.pass_on(index, id);
        }
    }
}
