//! A process that has connected to its tenant's socket and has a second to say hello.
//!
//! Everything that comes here may be hostile: frames are bounded before they are stored, descriptors are not taken,
//! and a sender of single bytes costs one buffer until its second is over.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use weir_protocol::message::{Hello, Reply, Welcome};
use weir_protocol::{PROTOCOL_VERSION, transport};

use super::life::Life;
use super::listener::{TURN, tell_if_full};
use super::member::Member;
use super::{Poll, Source};
use crate::authority::Peer;
use crate::failpoint;
use crate::hello::{Frame, MAX_HELLO, parse};
use crate::registry::{Pages, Process, Registry};

/// Time in which a process says hello.
const PATIENCE: Duration = Duration::from_secs(1);

/// Processes of one tenant that may be between connecting and hello.
const MAX_AT_DOOR: usize = 128;

/// One such process.
pub struct Arrival {
    /// Its connection.
    pub socket: OwnedFd,
    /// Who it is.
    pub peer: Peer,
    /// Whose door it came to.
    pub tenant: u64,
    pidfd: OwnedFd,
    heard: Vec<u8>,
    left: usize, // bytes of it that lie in the socket still
}

impl Arrival {
    /// Hears what has come. What makes it whole is left in the socket until it is answered: to take it out wakes the process,
    /// which sleeps until there is an answer, and of a thousand that come at once each would be woken twice.
    fn hear(&mut self) -> Frame {
        let mut chunk = [0u8; MAX_HELLO];
        match rustix::net::recv(&self.socket, &mut chunk, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Frame::Partial,
            Ok((0, _)) | Err(_) => Frame::Nonsense,
            Ok((length, _)) => {
                self.heard.extend_from_slice(&chunk[..length]);
                self.left = length;
                let frame = parse(&self.heard);
                if frame == Frame::Partial {
                    self.take_left();
                }
                frame
            }
        }
    }

    /// Takes what was heard out of the socket: whoever closes one with something in it breaks the connection off, and what
    /// follows is the bell.
    pub(super) fn take_left(&mut self) {
        take(&self.socket, std::mem::take(&mut self.left));
    }
}

/// Takes so many bytes of a hello, which were seen, out of the socket.
pub(super) fn take(socket: &OwnedFd, left: usize) {
    // They are there, and nobody else reads them: as many bytes as were seen come back at once.
    let _ = rustix::net::recv(socket, &mut [0u8; MAX_HELLO][..left], RecvFlags::DONTWAIT);
}

impl AsFd for Arrival {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Poll {
    pub(super) fn accept_arrival(&mut self, token: u64) {
        for _ in 0..TURN {
            let Some(Source::Door { listener, tenant }) = self.sources.get(&token) else { return };
            let tenant = *tenant;
            let Some(socket) = listener.accept(&mut self.reserve) else { return };
            let (peer, pidfd) = match self.shared.authority.peer_and_life(&socket) {
                Ok(known) => known,
                Err(error) => {
                    tell_if_full(&error);
                    continue; // closed: it comes again for two seconds
                }
            };
            if self.arrivals_at.get(&tenant).copied().unwrap_or(0) >= MAX_AT_DOOR {
                continue; // closed: only this tenant's own processes suffer
            }
            let mut arrival = Box::new(Arrival { socket, peer, pidfd, tenant, heard: Vec::new(), left: 0 });
            match arrival.hear() {
                // Most have said it before they are let in, and need not be waited for.
                Frame::Whole(hello) => self.welcome(*arrival, hello),
                Frame::Foreign(protocol) => self.turn_away(*arrival, protocol),
                Frame::Nonsense => arrival.take_left(),
                Frame::Partial => self.wait_for(arrival),
            }
        }
    }

    /// Gives it a second.
    fn wait_for(&mut self, arrival: Box<Arrival>) {
        let tenant = arrival.tenant;
        if let Ok(token) = self.add(Source::Arrival(arrival), EventFlags::IN) {
            *self.arrivals_at.entry(tenant).or_default() += 1;
            self.deadlines.insert((Instant::now() + PATIENCE, token));
        }
    }

    /// Takes what has come; a whole hello makes a member.
    pub(super) fn hear(&mut self, token: u64) {
        let Some(Source::Arrival(arrival)) = self.sources.get_mut(&token) else { return };
        let frame = arrival.hear();
        if frame == Frame::Partial {
            return;
        }
        let Some(Source::Arrival(mut arrival)) = self.remove(token) else { return };
        match frame {
            Frame::Whole(hello) => self.welcome(*arrival, hello),
            Frame::Foreign(protocol) => self.turn_away(*arrival, protocol),
            Frame::Nonsense | Frame::Partial => arrival.take_left(),
        }
    }

    /// A process whose hello this build cannot read.
    fn turn_away(&mut self, arrival: Arrival, protocol: u32) {
        let build = "of another version".to_owned();
        let hello = Hello { protocol, build, driver: String::new(), slot: None };
        self.welcome(arrival, hello);
    }

    fn welcome(&mut self, mut arrival: Arrival, hello: Hello) {
        if let (Some(slot), PROTOCOL_VERSION) = (hello.slot, hello.protocol) {
            return self.rejoin(arrival, slot as usize, hello);
        }
        let (peer, tenant) = (arrival.peer, arrival.tenant);
        self.bury_former_self(tenant, peer.pid);
        let admitted = self.admit(&peer, tenant, hello);
        let (process, pages, welcome) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => {
                tracing::warn!(pid = peer.pid, uid = peer.uid, %reason, "a process was refused");
                let _ = transport::send(&arrival.socket, &Reply::Refused { reason }, &[]);
                return arrival.take_left();
            }
        };
        let fds: Vec<_> = pages.iter().flat_map(|pages| pages.fds()).collect();
        let sent = transport::send(&arrival.socket, &Reply::Welcome(welcome), &fds);
        failpoint::at("register.welcomed");
        if sent.is_err() {
            arrival.take_left();
            return self.shared.registry().bury(process.id);
        }
        let Arrival { socket, pidfd, left, .. } = arrival;
        let life = self.enter(Source::Life(Life::new(pidfd, process.id, peer.pid)));
        let member = self.enter(Source::Member(Member::new(socket, life, tenant)));
        self.note_newcomer(member, Some(left));
    }

    fn admit(
        &self,
        peer: &Peer,
        tenant: u64,
        hello: Hello,
    ) -> Result<(Process, Vec<Arc<Pages>>, Welcome), String> {
        if hello.protocol != PROTOCOL_VERSION {
            return Err(format!(
                "libweir.so {} speaks protocol {}, the node manager {} speaks {PROTOCOL_VERSION}: update the older of the two",
                hello.build.escape_debug(),
                hello.protocol,
                env!("CARGO_PKG_VERSION")
            ));
        }
        let mut registry = self.shared.registry();
        let known = registry.tenant(tenant).ok_or("the tenant has ended")?;
        if !self.shared.authority.may_join(peer, known) {
            return Err(format!("user {} does not own tenant `{}`", peer.uid, known.name));
        }
        let process = registry
            .register(tenant, (peer.pid, peer.birth), hello.build, hello.driver)
            .map_err(|f| f.message)?;
        let (pages, welcome) = self.papers(&registry, tenant, &process).ok_or("the tenant has ended")?;
        Ok((process, pages, welcome))
    }

    /// What a process needs: its welcome, and the pages that go with it.
    fn papers(
        &self,
        registry: &Registry,
        tenant: u64,
        process: &Process,
    ) -> Option<(Vec<Arc<Pages>>, Welcome)> {
        let tenant = registry.tenant(tenant)?;
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            tenant: tenant.name.clone(),
            class: tenant.class.into(),
            mode: self.shared.mode,
            slot: u32::try_from(process.slot).ok()?,
            gpus: registry.granted_gpus(tenant),
            prices: self.shared.prices.clone(),
            context_memory: self.shared.context_memory,
            oversubscribe: tenant.oversubscribe,
            latency_metric: tenant.told_metric(),
        };
        Some((tenant.cells.iter().map(|cell| cell.pages.clone()).collect(), welcome))
    }
}
