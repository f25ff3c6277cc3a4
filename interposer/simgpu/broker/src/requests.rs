//! Requests over the socket: one packet, one answer. The broker never waits for a client: who does not read
//! his answers is dropped.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use weir_simgpu_link::ProcessState;
use weir_simgpu_link::books::Books;
use weir_simgpu_link::page::Mapping;
use weir_simgpu_link::rpc::{Kind, LONGEST_REQUEST, PROTOCOL, Refusal, Reply, Request, Welcome};
use weir_simgpu_link::socket::{self, SocketError};

use crate::broker::{Broker, Token};
use crate::client::{Client, Context, Shared};

/// Requests of one client in a row; then others have their turn.
const IN_A_ROW: usize = 64;

/// A process takes device memory in multiples of this, bytes. Source: an H200, where free memory falls by 4 MiB for 3.
const MEMORY_STEP: u64 = 2 << 20;

impl Broker {
    /// Answers what lies in a client's socket.
    pub fn serve_requests(&mut self, index: usize) {
        for _ in 0..IN_A_ROW {
            let Some(client) = self.clients[index].as_mut() else { return };
            let request =
                match socket::receive::<Request>(&client.socket, LONGEST_REQUEST, RecvFlags::DONTWAIT) {
                    // Descriptors that a client sends are closed here: we accept none.
                    Ok((request, _)) => request,
                    Err(SocketError::System(Errno::AGAIN | Errno::INTR)) => return,
                    Err(_) => return client.gone = true,
                };
            let (reply, fds) =
                self.answer(index, request).unwrap_or_else(|why| (Reply::Refused(why), Vec::new()));
            let Some(client) = self.clients[index].as_mut() else { return };
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            if socket::send(&client.socket, &reply, &fds, SendFlags::DONTWAIT).is_err() {
                return client.gone = true;
            }
        }
    }

    fn answer(&mut self, index: usize, request: Request) -> Result<(Reply, Vec<OwnedFd>), Refusal> {
        if let Request::Hello { protocol, kind } = request {
            return self.welcome(index, protocol, kind);
        }
        if request == Request::Books {
            return Ok((
                Reply::Books,
                vec![self.books_file().map_err(|why| Refusal::Other(why.to_string()))?],
            ));
        }
        if let Request::Process { pid, step } = request {
            return self.process(index, pid, step).map(|reply| (reply, Vec::new()));
        }
        if matches!(request, Request::DestroyContext { .. }) {
            self.ingest(); // several requests are answered in a row: what was pushed between two of them comes first
        }
        let now = self.gpus.iter().map(|gpu| gpu.device.now()).max().unwrap_or(0);
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NoSuchContext) };
        if client.kind.is_none() {
            return Err(Refusal::Other("a client says hello first".into()));
        }
        if client.state == ProcessState::Checkpointed {
            return Err(Refusal::WrongState(client.state)); // its memory is not there to be changed
        }
        let reply = match request {
            Request::CreateContext { device } => self.create_context(index, device)?,
            Request::DestroyContext { context } => {
                let found = client.contexts.iter_mut().find(|c| c.id == context && c.model.is_some());
                let context = found.ok_or(Refusal::NoSuchContext)?;
                let gpu = &mut self.gpus[context.gpu];
                gpu.device.advance(now);
                context.end(gpu);
                let overhead = self.config.context_overhead.0;
                gpu.used -= overhead;
                client.memory[context.gpu].held -= overhead;
                Reply::Done
            }
            Request::Reserve { device, bytes } => self.reserve(index, device, bytes)?,
            Request::Release { device, bytes } => self.release(index, device, bytes)?,
            Request::Team(request) => self.team(index, request)?,
            Request::Memory { device } => {
                let total = self.gpus.get(device as usize).ok_or(Refusal::NoSuchDevice)?.about.memory_bytes;
                let own = client.memory[device as usize].held;
                Reply::Memory { total, used: self.used_in_steps(device as usize).min(total), own }
            }
            Request::Hello { .. } | Request::Books | Request::Process { .. } => Reply::Done,
        };
        Ok((reply, Vec::new()))
    }

    fn welcome(&mut self, index: usize, protocol: u32, kind: Kind) -> Result<(Reply, Vec<OwnedFd>), Refusal> {
        if protocol != PROTOCOL {
            return Err(Refusal::Protocol { broker: PROTOCOL });
        }
        let devices = self.gpus.iter().map(|gpu| gpu.about.clone()).collect();
        let reply = Reply::Welcome(Box::new(Welcome { config: self.config.clone(), devices }));
        let Some(client) = self.clients[index].as_mut().filter(|client| client.kind.is_none()) else {
            return Err(Refusal::Other("a client says hello once".into()));
        };
        let mut fds = Vec::new();
        if kind == Kind::Cuda {
            fds = share(client).map_err(|why| Refusal::Other(why.to_string()))?;
            if let Some(shared) = client.shared.as_ref() {
                let ready = epoll::EventFlags::IN;
                epoll::add(&self.epoll, &shared.bell, Token::Bell(index).data(), ready)
                    .map_err(|why| Refusal::Other(why.to_string()))?;
            }
        }
        client.kind = Some(kind);
        self.welcomed = true;
        Ok((reply, fds))
    }

    fn create_context(&mut self, index: usize, device: u32) -> Result<Reply, Refusal> {
        self.reserve(index, device, self.config.context_overhead.0)?;
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NoSuchContext) };
        let gpu = device as usize;
        self.last_context += 1;
        let model = Some(self.gpus[gpu].device.create_context());
        client.contexts.push(Context { id: self.last_context, gpu, model, ended: None });
        Ok(Reply::Context(self.last_context))
    }

    /// What processes hold of a device as a driver says it: each takes it in steps.
    fn used_in_steps(&self, device: usize) -> u64 {
        let steps = |client: &Client| client.memory[device].held.next_multiple_of(MEMORY_STEP);
        self.clients.iter().flatten().map(steps).sum()
    }

    /// Takes device memory for a client.
    pub fn reserve(&mut self, index: usize, device: u32, bytes: u64) -> Result<Reply, Refusal> {
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NoSuchContext) };
        let gpu = self.gpus.get_mut(device as usize).ok_or(Refusal::NoSuchDevice)?;
        if !gpu.take(bytes) {
            return Err(Refusal::OutOfMemory);
        }
        client.memory[device as usize].add(bytes);
        Ok(Reply::Done)
    }

    /// Gives device memory of a client back.
    pub fn release(&mut self, index: usize, device: u32, bytes: u64) -> Result<Reply, Refusal> {
        let Some(client) = self.clients[index].as_mut() else { return Err(Refusal::NoSuchContext) };
        let live =
            client.contexts.iter().filter(|c| c.gpu == device as usize && c.model.is_some()).count() as u64;
        let account = client.memory.get_mut(device as usize).ok_or(Refusal::NoSuchDevice)?;
        // The contexts' own memory goes with them, not by this.
        let given = account.held - live * self.config.context_overhead.0;
        if bytes > given {
            return Err(Refusal::NotHeld);
        }
        account.held -= bytes;
        self.gpus[device as usize].used -= bytes;
        Ok(Reply::Done)
    }

    /// The books as JSON in a memfd, from its beginning.
    fn books_file(&mut self) -> std::io::Result<OwnedFd> {
        let mut file =
            std::fs::File::from(rustix::fs::memfd_create("weir-simgpu-books", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(&self.books())?)?;
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
        Ok(file.into())
    }

    /// All books, now.
    fn books(&self) -> Books {
        let clients =
            |number, gpu| self.clients.iter().flatten().filter_map(move |c: &Client| c.books(number, gpu));
        let mode = self.config.mode;
        let gpus = self.gpus.iter().enumerate().map(|(number, gpu)| gpu.books(mode, clients(number, gpu)));
        let now_ns = self.gpus.first().map_or(0, |gpu| gpu.device.now());
        Books { simulated: true, now_ns, gpus: gpus.collect() }
    }
}

/// Makes the page and the bell of a driver.
fn share(client: &mut Client) -> Result<Vec<OwnedFd>, weir_simgpu_link::page::PageError> {
    let (page, memfd) = Mapping::create()?;
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let theirs = rustix::io::fcntl_dupfd_cloexec(&bell, 0)?;
    client.shared = Some(Shared::new(page, bell));
    Ok(vec![memfd, theirs])
}
