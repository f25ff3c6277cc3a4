//! The node manager as a library: the daemon is this and a signal; a stand-alone run is this inside of `weir run`.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::EventfdFlags;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};
use weir_protocol::message::FailMode;
use weir_protocol::price::PriceRow;
use weir_protocol::units::{Bytes, Nanos};

use crate::calibration::Draw;
use crate::codes;
use crate::config::{self, Persistent};
use crate::fault::Fault;
use crate::gpus::{Asker, Gpus, Source};
use crate::journal::{self, Journal, Remembered};
use crate::lock::NodeLock;
use crate::notify::Supervisor;
use crate::park;
use crate::place::{Place, STRICT_MARK};
use crate::poll::Poll;
use crate::registry::{DEFAULT_TICK, PowerRule, Registry, Store};
use crate::shared::{Shared, now};
use crate::signals::Signal;
use crate::{guard, mps, scraper, takeover, tick};

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
    /// After how many seconds without a manager a strict tenant gets no more memory.
    pub stale_after_s: u64,
    /// Memory of each card that is nobody's; by default a fiftieth.
    pub reserve: Option<Bytes>,
    /// What a process's contexts may grow by; by default 272 MiB.
    pub growth: Option<Bytes>,
    /// What a context costs where NVML cannot tell; 0: not configured.
    pub context_memory: Bytes,
    /// What a switch between contexts takes, if the card was calibrated.
    pub switch: Option<Nanos>,
    /// What the card draws, if that was.
    pub draw: Option<Draw>,
    /// What kernels cost before they are measured.
    pub prices: Vec<PriceRow>,
    /// Tenants that are there from the start.
    pub tenants: Vec<Persistent>,
    /// Idle tenants may be parked after so long; `None`: only by hand.
    pub park_idle_after: Option<Nanos>,
    /// What comes from outside the node.
    pub signals: Vec<Signal>,
    /// `weir`, by which the process that reads pages of latencies and signals is started; by default this very program.
    pub scraper: PathBuf,
    /// What follows for processes on a GPU that have no budget.
    pub unmanaged: guard::Rule,
    /// What follows where power or heat holds clocks back.
    pub power: PowerRule,
    /// Who keeps the tenants' pages for the next manager.
    pub supervisor: Arc<Supervisor>,
    /// What it has kept of an earlier one, by name.
    pub kept: Vec<(String, OwnedFd)>,
    /// GPUs that are shared by MPS.
    pub mps: Option<mps::Row>,
    /// Where launches wait.
    pub gate: config::GatePlace,
}

impl Options {
    /// The defaults: the first policy, a tick of 1 ms, managed, no prices.
    pub fn new(place: Place, gpus: Source) -> Self {
        let (policy, tick) = (&weir_policy::POLICIES[0], DEFAULT_TICK);
        let (mode, context_memory) = (FailMode::Managed, Bytes(0));
        Self {
            place,
            gpus,
            policy,
            tick,
            mode,
            stale_after_s: config::STALE_AFTER_S,
            reserve: None,
            growth: None,
            context_memory,
            switch: None,
            draw: None,
            prices: Vec::new(),
            tenants: Vec::new(),
            park_idle_after: None,
            signals: Vec::new(),
            scraper: "/proc/self/exe".into(), // it stays what it is although a package manager puts another one in its place
            unmanaged: guard::Rule::default(),
            power: PowerRule::default(),
            supervisor: Arc::default(),
            kept: Vec::new(),
            mps: None,
            gate: config::GatePlace::default(),
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
    pub fn start(mut options: Options) -> Result<Self, Fault> {
        options.place.prepare()?;
        let mut lock = NodeLock::take(&options.place)?;
        let remembered = remembered(&options);
        warn_of_remains(&options.place, remembered.as_ref());
        let known = remembered.as_ref().map_or_else(Vec::new, |remembered| remembered.devices.clone());
        let gpus = Gpus::find(options.gpus.clone(), known)?;
        let asker = gpus.take_asker();
        let failed = |e: rustix::io::Errno| {
            Fault::system(&codes::SYSTEM, "make an eventfd", e, "look at the limits of open files")
        };
        let eventfd = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (letter_box, ending) = (eventfd().map_err(failed)?, eventfd().map_err(failed)?);
        let timer = tick::Timer::new(options.tick).map_err(|error| {
            Fault::system(&codes::SYSTEM, "make a timer", error, "look at the limits of open files")
        })?;
        let mut registry = Registry::new(gpus, options.reserve, options.policy);
        registry.expect_growth(options.growth);
        registry.park_idle_after(options.park_idle_after);
        registry.guard_by(options.unmanaged);
        registry.power_by(options.power);
        registry.expect_switches(options.switch);
        registry.expect_draw(options.draw);
        registry.expect_ticks(options.tick);
        registry.share_by_mps(options.mps.as_ref())?;
        registry.gate = options.gate;
        registry.note_start();
        if options.place.off_mark().exists() {
            tracing::warn!(
                "switched OFF: shares and turns are not enforced, memory limits hold; back on with `weir on`"
            );
            registry.switch(true, crate::place::own_uid());
        }
        let (names, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut options.kept).into_iter().unzip();
        take_over(&mut registry, remembered, kept);
        let persistent = registry.persist(&options.tenants, now())?;
        registry.keep_pages(Store::new(options.supervisor.clone(), &names, registry.tenants()));
        clear_remains(&options.place, |name| registry.tenants().iter().any(|tenant| tenant.name == name));
        if options.mode != FailMode::Standalone {
            let records = registry.records();
            registry.keep(Journal::begin(&options.place, &records)?);
        }
        let shared = Arc::new(Shared::new(&options, registry, [letter_box, ending], timer));
        let mut poll = Poll::new(shared.clone())?;
        poll.take_over()?;
        poll.open_doors(&persistent)?;
        lock.watch_control();
        let prepares = options.park_idle_after.is_some();
        let threads = start_threads(&shared, poll, asker, options).map_err(|error| {
            shared.stop();
            Fault::system(&codes::SYSTEM, "start a thread", error, "look at the limits of processes")
        })?;
        if prepares {
            park::prepare(&shared);
        }
        Ok(Self { shared, threads, lock })
    }

    /// The node's GPUs.
    pub fn gpus(&self) -> Vec<crate::gpus::Device> {
        self.shared.registry().gpus.devices.clone()
    }

    /// Ticks so far. Whoever asks twice and hears the same is told that the manager does not work any more, or is told
    /// nothing at all.
    pub fn epoch(&self) -> u64 {
        self.shared.registry().epoch
    }

    /// Whether all its threads run.
    pub fn is_whole(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Whether somebody has put another lock file or control socket in the place of ours.
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

fn start_threads(
    shared: &Arc<Shared>,
    poll: Poll,
    asker: Option<Asker>,
    options: Options,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let ticking = tick::start(shared.clone())?;
    let scraping = scraper::start(shared.clone(), options.scraper, options.signals)?;
    let guarding = guard::start(shared.clone(), asker)?;
    let polling = std::thread::Builder::new().name("weir-poll".into()).spawn(move || poll.run())?;
    Ok([ticking, scraping, polling].into_iter().chain(guarding).collect())
}

/// What an earlier manager of this place knew when it died. A journal that is damaged is not believed in any part.
fn remembered(options: &Options) -> Option<Remembered> {
    let read = || match options.mode {
        FailMode::Standalone => Ok(None), // its tenant ends with it, and its place too
        _ => journal::read(&options.place),
    };
    let remembered = read().unwrap_or_else(|reason| {
        let path = options.place.journal();
        tracing::warn!(path = %path.display(), reason, "the journal cannot be used: nothing is taken over");
        None
    })?;
    (!(remembered.tenants.is_empty() && remembered.policies.is_empty())).then_some(remembered)
}

/// Takes over what is still there of it.
fn take_over(registry: &mut Registry, remembered: Option<Remembered>, kept: Vec<OwnedFd>) {
    let Some(remembered) = remembered else { return };
    let start = Instant::now();
    let last_id = remembered.last_id;
    registry.restore_policies(&remembered.policies);
    for (tenant, error) in registry.restore(takeover::find(remembered, kept), last_id) {
        tracing::warn!(tenant, %error, "a tenant could not be taken over: its programs keep to their last limits");
    }
    let (tenants, processes) =
        (registry.tenants().len(), registry.tenants().iter().map(|t| t.processes.len()));
    let took = start.elapsed();
    tracing::info!(
        tenants,
        processes = processes.sum::<usize>(),
        ?took,
        "taken over from an earlier node manager"
    );
}

/// Says which programs of an earlier manager, should they still run, are not known here.
fn warn_of_remains(place: &Place, remembered: Option<&Remembered>) {
    let known =
        |name: &str| remembered.is_some_and(|all| all.tenants.iter().any(|tenant| tenant.name == name));
    let tenants = match clear_remains(place, known) {
        0 => return,
        1 => "1 tenant".to_owned(),
        count => format!("{count} tenants"),
    };
    tracing::warn!(
        "an earlier node manager left {tenants} here; programs that still run there keep their last limits, are not \
         known to this one, and their budgets count as free until they are started again with `weir run`"
    );
}

/// Removes the directories of tenants that are not known, and says how many there were. A strict tenant's directory
/// stays: it tells the processes that such a program starts later that they get no GPU.
fn clear_remains(place: &Place, known: impl Fn(&str) -> bool) -> usize {
    let entries = std::fs::read_dir(place.base().join("tenants")).into_iter().flatten().flatten();
    let remains = entries.filter(|entry| !known(&entry.file_name().to_string_lossy()));
    let remains: Vec<_> = remains.map(|entry| entry.path()).collect();
    for path in remains.iter().filter(|path| !path.join(STRICT_MARK).exists()) {
        let _ = std::fs::remove_dir_all(path);
    }
    remains.len()
}

/// Raises this process's limit of open files: two descriptors for each process and five for each tenant and
/// GPU are more than the usual 1,024. For a daemon only: children inherit the limit.
pub fn raise_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum, maximum: limit.maximum },
    );
    make_room_for_files();
}

/// Files for which there is room from the start: those of a full node, at 8 bytes each.
const ROOM_FOR_FILES: i32 = 8_192;

/// Lets the table of open files grow now. Of a process with more than one thread the kernel doubles it only after each
/// processor has passed a quiet state (`expand_fdtable`): milliseconds for which whoever opens the file stands still, several
/// times while a thousand processes register.
fn make_room_for_files() {
    let Ok(any) = rustix::fs::open("/dev/null", OFlags::CLOEXEC, Mode::empty()) else { return };
    // The table never shrinks. Under a lower limit it is refused, and the table grows as it has to.
    drop(rustix::io::fcntl_dupfd_cloexec(&any, ROOM_FOR_FILES - 1));
}
