//! One connected process: what it holds.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_simgpu_link::ProcessState;
use weir_simgpu_link::books;
use weir_simgpu_link::page::{Mapping, STREAMS};
use weir_simgpu_link::rpc::Kind;
use weir_simgpu_model::{ContextId, StreamId};

use crate::machine::Gpu;

/// A connected process.
pub struct Client {
    /// From the socket's peer credentials.
    pub pid: i32,
    pub comm: String,
    pub socket: OwnedFd,
    /// Tells of its death even if a child still holds the socket.
    #[expect(dead_code, reason = "kept open: epoll watches it")]
    pub pidfd: Option<OwnedFd>,
    /// `None` until it has said hello.
    pub kind: Option<Kind>,
    pub shared: Option<Shared>,
    pub contexts: Vec<Context>,
    /// Per GPU.
    pub memory: Vec<Account>,
    /// Submission time of its last command: its commands never go back in time.
    pub last_at: u64,
    /// Commands at the devices.
    pub outstanding: usize,
    /// Commands that wait to be resumed by the client.
    pub stalls: Vec<Stall>,
    /// How it stands to checkpoints.
    pub state: ProcessState,
    /// The client that is locking it.
    pub locking: Option<usize>,
    /// It is gone, or has broken the rules: drop it.
    pub gone: bool,
}

/// A command that waits to be resumed by its client; its stream may have been closed since.
pub struct Stall {
    pub gpu: usize,
    pub stream: StreamId,
    /// The stream's on the page.
    pub slot: usize,
    pub sequence: u64,
}

/// What a driver shares with the broker.
pub struct Shared {
    pub page: Mapping,
    pub bell: OwnedFd,
    /// Per slot of the page: GPU and stream.
    pub streams: Vec<Option<(usize, StreamId)>>,
}

/// A context of a client; ended ones keep their books.
pub struct Context {
    pub id: u32,
    pub gpu: usize,
    pub model: Option<ContextId>,
    pub ended: Option<books::Context>,
}

/// Memory of one client on one GPU, bytes.
#[derive(Clone, Copy, Default)]
pub struct Account {
    pub held: u64,
    pub peak: u64,
    /// Taken off the device by a checkpoint.
    pub away: u64,
}

impl Account {
    pub fn add(&mut self, bytes: u64) {
        self.held += bytes;
        self.peak = self.peak.max(self.held);
    }
}

impl Shared {
    pub fn new(page: Mapping, bell: OwnedFd) -> Self {
        Self { page, bell, streams: vec![None; STREAMS] }
    }

    /// Whether the client has said that a command may go on.
    pub fn has_resumed(&self, stall: &Stall) -> bool {
        // Acquire: pairs with the client's release; what the host function wrote comes before.
        self.page.resumed[stall.slot].load(Ordering::Acquire) >= stall.sequence
    }

    /// When the client has said so, ns; as it claims.
    pub fn resumed_at(&self, stall: &Stall) -> u64 {
        // Relaxed: stored before the word that `has_resumed` has read.
        self.page.resumed_at[stall.slot].load(Ordering::Relaxed)
    }
}

impl Client {
    pub fn new(pid: i32, socket: OwnedFd, pidfd: Option<OwnedFd>, gpus: usize) -> Self {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self {
            pid,
            comm: comm.trim_end().to_owned(),
            socket,
            pidfd,
            kind: None,
            shared: None,
            contexts: Vec::new(),
            memory: vec![Account::default(); gpus],
            last_at: 0,
            outstanding: 0,
            stalls: Vec::new(),
            state: ProcessState::Running,
            locking: None,
            gone: false,
        }
    }

    /// Its page of one GPU's books; `None` if it has never used that GPU.
    pub fn books(&self, number: usize, gpu: &Gpu) -> Option<books::Client> {
        let contexts: Vec<_> = self
            .contexts
            .iter()
            .filter(|context| context.gpu == number)
            .filter_map(|context| context.books(gpu))
            .collect();
        let memory = self.memory[number];
        if contexts.is_empty() && memory.peak == 0 && (number > 0 || self.kind != Some(Kind::Cuda)) {
            return None;
        }
        let counters = |pick: fn(&Mapping) -> &[AtomicU64]| {
            self.shared.as_ref().map(|shared| by_name(pick(&shared.page))).unwrap_or_default()
        };
        let [dependent_launches, split_pairs] = self.shared.as_ref().map_or([0; 2], |shared| {
            // Relaxed: figures for people.
            shared.page.dependent.0.each_ref().map(|count| count.load(Ordering::Relaxed))
        });
        Some(books::Client {
            pid: self.pid,
            comm: self.comm.clone(),
            alive: !self.gone,
            contexts,
            memory_bytes: memory.held,
            memory_peak_bytes: memory.peak,
            calls: counters(|page| &page.calls),
            refused_calls: counters(|page| &page.refused),
            dependent_launches,
            split_pairs,
        })
    }
}

impl Context {
    /// Its books: live ones, or what they were at its end.
    pub fn books(&self, gpu: &Gpu) -> Option<books::Context> {
        let Some(books) = self.model.and_then(|model| gpu.device.context_books(model)) else {
            return self.ended.clone();
        };
        Some(books::Context {
            id: self.id,
            true_use_ns: books.true_use,
            queued_ns: books.queued_time,
            switches: books.switches,
            launches: books.launches,
            queued: books.queued,
            copied: books.copied.map(|way| books::Copied { bytes: way.bytes, time_ns: way.time }),
        })
    }

    /// Ends it, and keeps its books.
    pub fn end(&mut self, gpu: &mut Gpu) {
        self.ended = self.books(gpu);
        if let Some(model) = self.model.take() {
            gpu.device.destroy_context(model);
        }
    }
}

/// Counters that are not zero, by the driver's names. The client writes them, so they may say anything.
fn by_name(counters: &[AtomicU64]) -> BTreeMap<String, u64> {
    // Relaxed: counters, read one by one.
    let counts =
        weir_abi::SYMBOLS.iter().zip(counters).map(|(row, count)| (row.name, count.load(Ordering::Relaxed)));
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}
