//! What an earlier manager left to the loop: processes that live and have no connection to this one, doors to be opened
//! anew, and processes that kept a tenant by a connection which ended with that manager.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use weir_protocol::message::{Hello, Reply};
use weir_protocol::transport;

use super::arrival::Arrival;
use super::life::Life;
use super::listener::broken;
use super::member::Member;
use super::{Poll, Source};
use crate::birth;
use crate::fault::Fault;
use crate::registry::{PERSISTENT, Process};

/// A process that was told of its slot by an earlier manager has its pages mapped by then, or never will.
const SETTLING: Duration = Duration::from_secs(1);

/// Somebody who kept a tenant when the earlier manager died: he counts until he ends, since nobody can know what became
/// of his connection.
pub struct Keeper {
    pidfd: OwnedFd,
    holder: u64,
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Poll {
    /// Watches over everything in the registry, and opens the tenants' doors.
    ///
    /// # Errors
    /// The system refuses a descriptor, or a door cannot be opened.
    pub fn take_over(&mut self) -> Result<(), Fault> {
        let (mut doors, mut lives, mut keepers) = (Vec::new(), Vec::new(), Vec::new());
        for tenant in self.shared.registry().tenants() {
            doors.push((tenant.id, self.shared.place.tenant_dir(&tenant.name)));
            let processes = tenant.processes.iter().chain(&tenant.unreached);
            lives.extend(processes.map(|process| (process.id, process.pid, process.birth)));
            keepers.extend(tenant.holders.iter().copied().filter(|holder| *holder != PERSISTENT));
        }
        for (tenant, dir) in doors {
            self.open_door(tenant, &dir)?;
        }
        for (process, pid, birth) in lives {
            self.watch_taken(process, pid, birth)?;
        }
        for holder in keepers {
            match birth::find(holder.pid, holder.birth) {
                None => self.shared.registry().release(holder.id),
                Some(pidfd) => {
                    let keeper = Source::Keeper(Keeper { pidfd, holder: holder.id });
                    self.add(keeper, EventFlags::IN).map_err(|e| broken("poll", e))?;
                }
            }
        }
        Ok(())
    }

    fn watch_taken(&mut self, process: u64, pid: i32, birth: u64) -> Result<(), Fault> {
        let Some(pidfd) = birth::find(pid, birth) else {
            self.shared.registry().bury(process); // it died a moment ago
            return Ok(());
        };
        let life = Source::Life(Life::new(pidfd, process, pid));
        let life = self.add(life, EventFlags::IN).map_err(|e| broken("poll", e))?;
        self.deadlines.insert((Instant::now() + SETTLING, life));
        Ok(())
    }

    /// Whoever kept a tenant has ended.
    pub(super) fn release_kept(&mut self, token: u64) {
        if let Some(Source::Keeper(keeper)) = self.remove(token) {
            self.shared.registry().release(keeper.holder);
        }
    }

    /// A process that has its slot and its pages, and lost its connection.
    pub(super) fn rejoin(&mut self, mut arrival: Arrival, slot: usize, hello: Hello) {
        arrival.take_left();
        let Arrival { socket, peer, tenant, .. } = arrival;
        let process = {
            let registry = self.shared.registry();
            if !registry.tenant(tenant).is_some_and(|tenant| self.shared.authority.may_join(&peer, tenant)) {
                let reason = format!("user {} does not own the tenant", peer.uid);
                return drop(transport::send(&socket, &Reply::Refused { reason }, &[]));
            }
            let known = registry.tenant(tenant).into_iter().flat_map(|tenant| &tenant.processes);
            let mut same = known
                .filter(|known| known.slot == slot && (known.pid, known.birth) == (peer.pid, peer.birth));
            same.next().map(|process| process.id)
        };
        let life = process.and_then(|process| self.life_of(process)).filter(|life| !self.is_connected(*life));
        let Some(life) = life else {
            return self.strand(
                socket,
                tenant,
                Process {
                    id: 0,
                    pid: peer.pid,
                    birth: peer.birth,
                    slot,
                    build: hello.build,
                    driver: hello.driver,
                },
            );
        };
        if transport::send(&socket, &Reply::Rejoined, &[]).is_err() {
            return;
        }
        let member = Source::Member(Member::new(socket, life, tenant));
        if let Ok(member) = self.add(member, EventFlags::IN | EventFlags::RDHUP) {
            self.note_newcomer(member, None);
        }
    }

    fn life_of(&self, process: u64) -> Option<u64> {
        let mut sources = self.sources.iter();
        sources.find_map(|(token, source)| match source {
            Source::Life(life) if life.process == process => Some(*token),
            _ => None,
        })
    }

    /// A process says that it has a slot, and it has none here: an earlier manager's journal could not be kept, or read.
    fn strand(&mut self, socket: OwnedFd, tenant: u64, process: Process) {
        tracing::warn!(
            pid = process.pid,
            slot = process.slot,
            "a process that an earlier node manager registered is not known here: it keeps to its last limits. help: start it again"
        );
        let reason = "this node manager does not know the process: it keeps to its last limits".to_owned();
        let _ = transport::send(&socket, &Reply::Refused { reason }, &[]);
        let mut registry = self.shared.registry();
        let known = registry.tenant(tenant).is_some_and(|tenant| {
            tenant
                .processes
                .iter()
                .chain(&tenant.unreached)
                .any(|known| (known.pid, known.birth) == (process.pid, process.birth))
        });
        if known {
            return;
        }
        let (id, pid, birth) = (registry.next_id(), process.pid, process.birth);
        registry.strand(tenant, Process { id, ..process });
        drop(registry);
        if self.watch_taken(id, pid, birth).is_err() {
            self.shared.registry().bury(id);
        }
    }
}
