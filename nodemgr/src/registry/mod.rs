//! Who is who and who has what: tenants, their budgets, pages and processes.
//!
//! One value behind one lock, shared by the poll loop, the tick and the threads that carry out `weir set`. It
//! knows no sockets: connections and processes appear here as numbers.

mod admission;
mod bell;
mod board;
mod cell;
mod counters;
mod create;
mod draining;
mod growth;
mod heirs;
mod lasting;
mod launch;
mod mps;
mod outside;
mod pace;
mod pages;
mod park;
mod persistent;
mod power;
mod processes;
mod resize;
mod restore;
mod round;
mod ruler;
mod seat;
mod sleeper;
mod standing;
mod stirs;
mod store;
mod tenant;
mod tick;
mod told;
mod unmanaged;
mod watch;
mod window;

use std::collections::BTreeMap;

pub use admission::budget_of;
pub use cell::Cell;
pub use counters::Counters;
pub use draining::{Departed, Draining};
pub use growth::DEFAULT_GROWTH;
pub use outside::{Latency, ScraperStats};
pub use pages::Pages;
pub use park::{By, Calls, Park, ParkJob, Stand};
pub use persistent::PERSISTENT;
pub use power::PowerRule;
pub use resize::Published;
pub use restore::Found;
use ruler::Ruler;
pub use ruler::find_policy;
pub use standing::{Rank, standing};
use stirs::Stirs;
pub use store::Store;
pub use tenant::{Holder, Process, Tenant};
pub use unmanaged::Guarded;
pub use watch::{Moment, UNREACHED};
use weir_policy::Signals;
use weir_protocol::units::{Bytes, Nanos};

use crate::codes;
use crate::config::GatePlace;
use crate::events::{About, Ring, What};
use crate::fault::Fault;
use crate::gpus::Gpus;
use crate::journal::Journal;
use crate::signals::SignalStats;

/// Length of a tick where nobody says.
pub const DEFAULT_TICK: Nanos = Nanos::from_millis(1);

/// All state of the node manager but its sockets.
pub struct Registry {
    /// The node's GPUs.
    pub gpus: Gpus,
    /// Memory of each card that is nobody's; by default a fiftieth of the card.
    pub reserve: Option<Bytes>,
    growth: Bytes, // what a process's contexts may grow by
    /// Ticks so far.
    pub epoch: u64,
    /// The policy that each GPU starts with, by name.
    pub policy_name: &'static str,
    /// What has happened.
    pub events: Ring,
    turns: u64,
    tick_length: Nanos,
    ticked_at: Nanos,  // as the loop runs it
    pace: u64,         // ticks from then until it runs again
    changed_at: Nanos, // when a run last found anything new
    disturbed: bool,   // something is, or may be
    outside: Signals,
    signals: Vec<SignalStats>,
    scraper: ScraperStats,
    guarded: Guarded,
    draining: Draining,
    powered: power::Powered,
    off: bool, // nothing is enforced but memory
    tenants: Vec<Tenant>,
    rulers: Vec<Ruler>, // one for each GPU
    stirs: Stirs,
    anew: bool,          // something has changed of which a tick must not learn by and by
    renewed: Vec<usize>, // tenants, by position, to whom processes have come, or gone from
    boards: BTreeMap<usize, Vec<u64>>, // GPU -> its tenants
    boards_changed: bool,
    unclaimed: heirs::Unclaimed,
    told: told::Listener,
    mps: mps::Shared,
    /// Where launches wait.
    pub gate: GatePlace,
    journal: Journal,
    park_after: Option<Nanos>,      // idle for so long, a tenant may be parked
    pressures: Vec<park::Pressure>, // who wants memory that was not free
    park_looked_at: Nanos,
    away: usize, // tenants that are parked, or on their way
    store: Store,
    marked_at: Nanos,
    last_id: u64,
}

impl Registry {
    /// An empty registry over `gpus`.
    pub fn new(gpus: Gpus, reserve: Option<Bytes>, policy: &'static weir_policy::Row) -> Self {
        Self {
            rulers: gpus.devices.iter().map(|_| Ruler::new(policy)).collect(),
            gpus,
            reserve,
            growth: DEFAULT_GROWTH,
            epoch: 0,
            policy_name: policy.name,
            events: Ring::default(),
            turns: round::turns(DEFAULT_TICK),
            tick_length: DEFAULT_TICK,
            ticked_at: Nanos(0),
            pace: 1,
            changed_at: Nanos(0),
            disturbed: true,
            outside: Signals::default(),
            signals: Vec::new(),
            scraper: ScraperStats::default(),
            guarded: Guarded::default(),
            draining: Draining::default(),
            powered: power::Powered::default(),
            off: false,
            tenants: Vec::new(),
            stirs: Stirs::default(),
            anew: false,
            renewed: Vec::new(),
            boards: BTreeMap::new(),
            boards_changed: false,
            unclaimed: heirs::Unclaimed::default(),
            told: told::Listener::default(),
            mps: mps::Shared::default(),
            gate: GatePlace::default(),
            journal: Journal::off(),
            park_after: None,
            pressures: Vec::new(),
            park_looked_at: Nanos(0),
            away: 0,
            store: Store::default(),
            marked_at: Nanos(0),
            last_id: 0,
        }
    }

    /// Ticks will be so long.
    pub fn expect_ticks(&mut self, length: Nanos) {
        (self.turns, self.tick_length) = (round::turns(length), length);
    }

    /// Notes that the manager has started.
    pub fn note_start(&mut self) {
        let (version, policy) = (env!("CARGO_PKG_VERSION").into(), self.policy_name.into());
        let gpus = self.gpus.devices.len();
        self.events.push(About::NODE, What::ManagerStarted { version, policy, gpus });
    }

    /// All tenants.
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    /// The tenant with this number.
    pub fn tenant(&self, id: u64) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.id == id)
    }

    /// The tenant with this name.
    ///
    /// # Errors
    /// [`codes::TENANT_UNKNOWN`] names those that there are.
    pub fn named(&self, name: &str) -> Result<&Tenant, Fault> {
        self.tenants.iter().find(|tenant| tenant.name == name).ok_or_else(|| {
            let names: Vec<_> = self.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
            let help = match names.as_slice() {
                [] => "there are no tenants; start one with `weir run`".to_owned(),
                names => format!("there are: {}", names.join(", ")),
            };
            Fault::new(&codes::TENANT_UNKNOWN, format!("there is no tenant `{}`", name.escape_debug()), help)
        })
    }

    /// A number that was never used.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
