//! The node manager as a library: the daemon is this and a signal; a stand-alone run is this inside of `weir run`.

use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use rustix::process::{Resource, Rlimit};
use weir_protocol::message::FailMode;
use weir_protocol::price::PriceRow;
use weir_protocol::units::{Bytes, Nanos};

use crate::codes;
use crate::config::Persistent;
use crate::fault::Fault;
use crate::gpus::{Gpus, Source};
use crate::latency::scrape;
use crate::lock::NodeLock;
use crate::place::{Place, STRICT_MARK};
use crate::poll::Poll;
use crate::registry::Registry;
use crate::shared::{Shared, now};
use crate::signals::Signal;
use crate::tick;

/// How a manager is to run.
pub struct Options {
    /// Where.
    pub place: Place,
    /// Where the list of GPUs comes from.
    pub gpus: Source,
    /// The policy.
    pub policy: &'static weir_policy::Row,
    /// Length of a tick.
    pub tick: Nanos,
    /// How tenants fail.
    pub mode: FailMode,
    /// Memory of each card that is nobody's; by default a fiftieth.
    pub reserve: Option<Bytes>,
    /// What a context costs where NVML cannot tell; 0: not configured.
    pub context_memory: Bytes,
    /// What kernels cost before they are measured.
    pub prices: Vec<PriceRow>,
    /// Tenants that are there from the start.
    pub tenants: Vec<Persistent>,
    /// What comes from outside the node.
    pub signals: Vec<Signal>,
}

impl Options {
    /// The defaults: the first policy, a tick of 1 ms, managed, no prices.
    pub fn new(place: Place, gpus: Source) -> Self {
        let (policy, tick) = (&weir_policy::POLICIES[0], Nanos::from_millis(1));
        let (mode, context_memory) = (FailMode::Managed, Bytes(0));
        Self {
            place,
            gpus,
            policy,
            tick,
            mode,
            reserve: None,
            context_memory,
            prices: Vec::new(),
            tenants: Vec::new(),
            signals: Vec::new(),
        }
    }
}

/// A running node manager; stops when dropped.
pub struct Manager {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    lock: NodeLock,
}

impl Manager {
    /// Takes the place's lock, finds the GPUs, and starts to serve.
    ///
    /// # Errors
    /// Another manager holds the place, there is no GPU, or the system refuses something.
    pub fn start(options: Options) -> Result<Self, Fault> {
        options.place.prepare()?;
        let lock = NodeLock::take(&options.place)?;
        clear_remains(&options.place);
        let gpus = Gpus::find(options.gpus.clone())?;
        let failed = |e: rustix::io::Errno| {
            Fault::system(&codes::SYSTEM, "make an eventfd", e, "look at the limits of open files")
        };
        let bell =
            rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let mut registry = Registry::new(gpus, options.reserve, options.policy);
        registry.note_start();
        if options.place.off_mark().exists() {
            tracing::warn!(
                "switched OFF: shares and turns are not enforced, memory limits hold; back on with `weir on`"
            );
            registry.switch(true, crate::place::own_uid());
        }
        let persistent = options.tenants.iter().map(|tenant| registry.persist(tenant, now()));
        let persistent = persistent.collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(Shared::new(&options, registry, bell));
        let mut poll = Poll::new(shared.clone())?;
        poll.open_doors(&persistent)?;
        let threads = start_threads(&shared, poll, options).map_err(|error| {
            shared.stop();
            Fault::system(&codes::SYSTEM, "start a thread", error, "look at the limits of processes")
        })?;
        Ok(Self { shared, threads, lock })
    }

    /// The node's GPUs.
    pub fn gpus(&self) -> Vec<crate::gpus::Device> {
        self.shared.registry().gpus.devices.clone()
    }

    /// Whether somebody has put another lock file in the place of ours.
    pub fn was_replaced(&self) -> bool {
        !self.lock.is_ours()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn start_threads(shared: &Arc<Shared>, poll: Poll, options: Options) -> std::io::Result<Vec<JoinHandle<()>>> {
    let ticking = tick::start(shared.clone(), options.tick)?;
    let scraping = scrape::start(shared.clone(), options.signals)?;
    let polling = std::thread::Builder::new().name("weir-poll".into()).spawn(move || poll.run())?;
    Ok(vec![ticking, scraping, polling])
}

/// Removes the directories of tenants that an earlier manager left, and says that their programs, should they still
/// run, are not known here. A strict tenant's directory stays: it tells the processes that such a program starts later
/// that they get no GPU.
fn clear_remains(place: &Place) {
    let entries = std::fs::read_dir(place.base().join("tenants")).into_iter().flatten().flatten();
    let remains: Vec<_> = entries.map(|entry| entry.path()).collect();
    for path in remains.iter().filter(|path| !path.join(STRICT_MARK).exists()) {
        let _ = std::fs::remove_dir_all(path);
    }
    let tenants = match remains.len() {
        0 => return,
        1 => "1 tenant".to_owned(),
        count => format!("{count} tenants"),
    };
    tracing::warn!(
        "an earlier node manager left {tenants} here; programs that still run there keep their last limits, are not \
         known to this one, and their budgets count as free until they are started again with `weir run` (taking \
         them over is for a later version)"
    );
}

/// Raises this process's limit of open files: two descriptors for each process and five for each tenant and
/// GPU are more than the usual 1,024. For a daemon only: children inherit the limit.
pub fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum, maximum: limit.maximum },
    );
}
