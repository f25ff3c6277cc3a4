//! Control connections: lines in, lines out, neither of which may block or grow without bound.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::listener::{TURN, tell_if_full};
use super::{Poll, Source};
use crate::authority::Peer;
use crate::codes;
use crate::control::schema::{MAX_LINE, Response};
use crate::control::{Outcome, answer};
use crate::fault::Fault;

/// Control connections of one user who may not set budgets.
const MAX_OF_USER: usize = 64;

/// Control connections of one user who may: each `weir run` holds one.
const MAX_OF_ADMIN: usize = 8192;

/// Answers that a peer has not read, in bytes, before we hang up.
const MAX_UNREAD: usize = 64 << 20;

/// One control connection.
pub struct Line {
    socket: OwnedFd,
    /// Who is at the other end.
    pub peer: Peer,
    heard: Vec<u8>,
    unsent: Vec<u8>,
    ended: bool,
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Line {
    /// Queues an answer.
    pub fn write(&mut self, answer: &Response) {
        // Our own types always have a form in JSON.
        if let Ok(mut line) = serde_json::to_vec(answer) {
            line.push(b'\n');
            self.unsent.append(&mut line);
        }
    }

    /// Sends what can be sent now.
    fn flush(&mut self) {
        while !self.unsent.is_empty() && !self.ended {
            match rustix::net::send(&self.socket, &self.unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.ended = true,
            }
        }
        self.ended |= self.unsent.len() > MAX_UNREAD;
    }

    /// Takes one chunk from the socket; the level-triggered loop comes back for more.
    fn fill(&mut self) {
        let mut chunk = [0u8; 4096];
        match rustix::net::recv(&self.socket, &mut chunk, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.ended = true,
            Ok((length, _)) => self.heard.extend_from_slice(&chunk[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.ended = true,
        }
    }

    /// The next whole line.
    fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.heard.iter().position(|byte| *byte == b'\n')?;
        let line = self.heard.drain(..=end).collect();
        Some(line)
    }
}

/// Says why nobody is served, to the log and to him, and hangs up.
fn refuse(socket: &OwnedFd, error: &std::io::Error) {
    tell_if_full(error);
    let help =
        "try again when others have gone; raise the limit of open files (LimitNOFILE) of the node manager";
    let fault = Fault::system(&codes::BUSY, "learn who is at the other end", error, help);
    if let Ok(mut line) = serde_json::to_vec(&Response::Error(fault)) {
        line.push(b'\n');
        // What does not fit into an empty socket is lost: nobody waits for a stranger.
        let _ = rustix::net::send(socket, &line, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

impl Poll {
    pub(super) fn accept_line(&mut self, token: u64) {
        for _ in 0..TURN {
            let Some(Source::Control(listener)) = self.sources.get(&token) else { return };
            let Some(socket) = listener.accept(&mut self.reserve) else { return };
            let peer = match self.shared.authority.peer(&socket) {
                Ok(peer) => peer,
                Err(error) => {
                    refuse(&socket, &error);
                    continue;
                }
            };
            let most = if peer.admin { MAX_OF_ADMIN } else { MAX_OF_USER };
            if self.lines_of.get(&peer.uid).copied().unwrap_or(0) >= most {
                continue; // closed: this user has enough of them
            }
            let line = Line { socket, peer, heard: Vec::new(), unsent: Vec::new(), ended: false };
            if self.add(Source::Line(Box::new(line)), EventFlags::IN).is_ok() {
                *self.lines_of.entry(peer.uid).or_default() += 1;
            }
        }
    }

    pub(super) fn serve_line(&mut self, token: u64) {
        let Some(Source::Line(line)) = self.sources.get_mut(&token) else { return };
        line.fill();
        let peer = line.peer;
        let mut lines = Vec::new();
        while let Some(text) = line.next() {
            lines.push(text);
        }
        let too_long = line.heard.len() > MAX_LINE || lines.iter().any(|text| text.len() > MAX_LINE);
        for text in lines.iter().filter(|text| text.len() <= MAX_LINE) {
            let outcome = answer(&self.shared, &peer, token, text);
            self.settle(token, outcome);
        }
        if too_long {
            let message = format!("a request has at most {MAX_LINE} bytes");
            self.reply(
                token,
                &Response::Error(Fault::new(&codes::PROTOCOL, message, "send one request per line")),
            );
            self.hang_up(token);
        }
        self.settle_line(token);
    }

    fn settle(&mut self, token: u64, outcome: Outcome) {
        match outcome {
            Outcome::Later => {}
            Outcome::Reply(response) => self.reply(token, &response),
            Outcome::Door(tenant, created) => {
                let response = match self.open_door(tenant, &created.dir) {
                    Ok(()) => Response::Created(created),
                    Err(fault) => {
                        self.shared.registry().release(token);
                        Response::Error(fault)
                    }
                };
                self.reply(token, &response);
            }
        }
    }

    /// Sends what waits to be sent, asks to be woken for the rest, and forgets a connection that has ended.
    pub(super) fn settle_line(&mut self, token: u64) {
        let Some(Source::Line(line)) = self.sources.get_mut(&token) else { return };
        line.flush();
        if line.ended {
            return self.hang_up(token);
        }
        let flags = if line.unsent.is_empty() { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        let _ = epoll::modify(&self.epoll, line.as_fd(), EventData::new_u64(token), flags);
    }

    fn hang_up(&mut self, token: u64) {
        if self.remove(token).is_some() {
            self.shared.registry().release(token);
        }
    }
}
