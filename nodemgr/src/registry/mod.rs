//! Who is who and who has what: tenants, their budgets, pages and processes.
//!
//! One value behind one lock, shared by the poll loop, the tick and the threads that carry out `weir set`. It
//! knows no sockets: connections and processes appear here as numbers.

mod admission;
mod bell;
mod cell;
mod counters;
mod heirs;
mod mps;
mod outside;
mod park;
mod persistent;
mod restore;
mod round;
mod ruler;
mod seat;
mod sleeper;
mod standing;
mod stirs;
mod store;
mod tenant;
mod told;
mod unmanaged;
mod watch;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use cell::{Cell, Pages};
pub use counters::Counters;
pub use outside::Latency;
pub use park::{By, Calls, Park, ParkJob, Stand};
pub use persistent::PERSISTENT;
pub use restore::Found;
use round::Round;
use ruler::Ruler;
pub use ruler::find_policy;
use seat::Seat;
pub use standing::standing;
use stirs::Stirs;
pub use store::Store;
pub use tenant::{Holder, Process, Tenant};
pub use unmanaged::Guarded;
pub use watch::Moment;
use weir_policy::Signals;
use weir_protocol::message::Standing;
use weir_protocol::pages::PROCESS_SLOTS;
use weir_protocol::units::{Bytes, Nanos};

use crate::codes;
use crate::control::schema::{Budget, ClassName, CreateTenant, SetBudget};
use crate::events::{About, Ring, What};
use crate::failpoint;
use crate::fault::Fault;
use crate::gpus::Gpus;
use crate::journal::{Journal, Record};
use crate::signals::SignalStats;

/// Marks for the share of the last second are taken this often.
const MARK_PERIOD: Nanos = Nanos::from_millis(100);

/// Length of a tick where nobody says.
pub const DEFAULT_TICK: Nanos = Nanos::from_millis(1);

/// All state of the node manager but its sockets.
pub struct Registry {
    /// The node's GPUs.
    pub gpus: Gpus,
    /// Memory of each card that is nobody's; by default a fiftieth of the card.
    pub reserve: Option<Bytes>,
    /// Ticks so far.
    pub epoch: u64,
    /// The policy that each GPU starts with, by name.
    pub policy_name: &'static str,
    /// What has happened.
    pub events: Ring,
    turns: u64,
    outside: Signals,
    signals: Vec<SignalStats>,
    guarded: Guarded,
    off: bool, // nothing is enforced but memory
    tenants: Vec<Tenant>,
    rulers: Vec<Ruler>, // one for each GPU
    stirs: Stirs,
    anew: bool, // something has changed of which a tick must not learn by and by
    boards: BTreeMap<usize, Vec<u64>>, // GPU -> its tenants
    boards_changed: bool,
    unclaimed: heirs::Unclaimed,
    told: told::Listener,
    mps: mps::Shared,
    journal: Journal,
    park_after: Option<Nanos>,      // idle for so long, a tenant may be parked
    pressures: Vec<park::Pressure>, // who wants memory that was not free
    park_looked_at: Nanos,
    away: usize, // tenants that are parked, or on their way
    store: Store,
    marked_at: Nanos,
    last_id: u64,
}

/// A grant that `weir set` has published, to be watched for the first launch under it.
pub struct Published {
    /// Pages of one cell.
    pub pages: Arc<Pages>,
    /// Slots of the tenant's processes.
    pub slots: Vec<usize>,
    /// The generation to be acknowledged.
    pub generation: u32,
}

impl Registry {
    /// An empty registry over `gpus`.
    pub fn new(gpus: Gpus, reserve: Option<Bytes>, policy: &'static weir_policy::Row) -> Self {
        Self {
            rulers: gpus.devices.iter().map(|_| Ruler::new(policy)).collect(),
            gpus,
            reserve,
            epoch: 0,
            policy_name: policy.name,
            events: Ring::default(),
            turns: round::turns(DEFAULT_TICK),
            outside: Signals::default(),
            signals: Vec::new(),
            guarded: Guarded::default(),
            off: false,
            tenants: Vec::new(),
            stirs: Stirs::default(),
            anew: false,
            boards: BTreeMap::new(),
            boards_changed: false,
            unclaimed: heirs::Unclaimed::default(),
            told: told::Listener::default(),
            mps: mps::Shared::default(),
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
        self.turns = round::turns(length);
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

    /// Makes the tenant, or joins the one of this name and budget; says its number and whether it was there.
    ///
    /// # Errors
    /// Whatever [`codes`] has for budgets; nothing has changed then.
    pub fn create(
        &mut self,
        wanted: &CreateTenant,
        owner: u32,
        holder: Holder,
        now: Nanos,
    ) -> Result<(u64, bool), Fault> {
        if let Some(tenant) = self.tenants.iter_mut().find(|tenant| is_meant_as_it_is(tenant, wanted)) {
            may_be_joined(tenant, owner)?;
            tenant.holders.push(holder);
            return Ok((tenant.id, true));
        }
        let plan = self.plan(wanted)?;
        let name = if wanted.unique { self.unique(&wanted.name) } else { wanted.name.clone() };
        if let Some(tenant) = self.tenants.iter_mut().find(|tenant| tenant.name == name) {
            join(tenant, &plan, wanted, owner)?;
            self.journal.note(&restore::hold(tenant.id, &holder));
            tenant.holders.push(holder);
            return Ok((tenant.id, true));
        }
        self.mps.check_alike(&plan.gpus)?;
        if let Err(full) = self.check_room(&plan.budget, &plan.gpus, None) {
            self.press(&plan.gpus, plan.budget.memory, None, now);
            return Err(full);
        }
        let id = self.next_id();
        let cells =
            plan.gpus.iter().map(|gpu| Cell::create(*gpu, id, &plan.budget)).collect::<Result<_, _>>();
        let cells = cells
            .map_err(|e| Fault::system(&codes::SYSTEM, "make the pages", e, "look at the memory limits"))?;
        let (class, budget) = (wanted.class, plan.budget);
        self.events.push(About::tenant(&name, owner), What::TenantMade { class, budget });
        let (processes, slots, holders) = (Vec::new(), Vec::with_capacity(PROCESS_SLOTS), vec![holder]);
        let tenant = Tenant {
            id,
            name,
            owner,
            class,
            oversubscribe: wanted.oversubscribe,
            budget,
            latency: wanted.latency_from.clone().map(Latency::of),
            park: Park::default(),
            cells,
            processes,
            slots,
            unreached: Vec::new(),
            holders,
            registered: 0,
            budget_at_start: budget,
            made_at: now,
        };
        self.journal.note(&Record::Tenant(self.tenant_row(&tenant)));
        self.journal.note(&restore::hold(id, &holder));
        self.catch_up();
        self.tenants.push(tenant);
        failpoint::at("create.noted");
        self.reorder();
        Ok((id, false))
    }

    fn unique(&self, base: &str) -> String {
        let taken = |name: &str| self.tenants.iter().any(|tenant| tenant.name == name);
        let numbered = (2..).map(|n| format!("{base}-{n}"));
        std::iter::once(base.to_owned()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
    }

    /// Gives the tenant a process.
    ///
    /// # Errors
    /// [`codes::TENANT_FULL`]; [`codes::TENANT_UNKNOWN`] if it has just ended.
    pub fn register(
        &mut self,
        tenant: u64,
        (pid, birth): (i32, u64),
        build: String,
        driver: String,
    ) -> Result<Process, Fault> {
        let id = self.next_id();
        let Some(at) = self.tenants.iter().position(|known| known.id == tenant) else {
            let help = "start the program with `weir run`";
            return Err(Fault::new(&codes::TENANT_UNKNOWN, "the tenant has ended", help));
        };
        self.want(at);
        let tenant = &mut self.tenants[at];
        if let Some(process) = tenant.unreached.first() {
            let message = format!(
                "tenant `{}` has a process ({}) whose pages could not be taken over, so that its memory cannot be counted",
                tenant.name, process.pid
            );
            return Err(Fault::new(
                &codes::TENANT_FULL,
                message,
                "end that process first, or use a second tenant",
            ));
        }
        let Some(slot) = tenant.free_slot() else {
            let message =
                format!("tenant `{}` already has {PROCESS_SLOTS} processes on its GPUs", tenant.name);
            return Err(Fault::new(
                &codes::TENANT_FULL,
                message,
                "wait until one ends, or use a second tenant",
            ));
        };
        let process = Process { id, pid, birth, slot, build, driver };
        self.journal.note(&restore::process_row(tenant.id, &process));
        failpoint::at("register.noted");
        tenant.add(process.clone());
        self.anew = true;
        self.events.push(About::tenant(&tenant.name, tenant.owner), What::ProcessJoined { pid });
        failpoint::at("register.added");
        Ok(process)
    }

    /// The process has gone: its counters are kept, its slot is freed. In this order, so that whoever takes over in the
    /// middle finds the process in the journal, or in its slot what is left of it.
    pub fn bury(&mut self, process: u64) {
        let whose =
            self.tenants.iter().find_map(|t| Some((t, t.processes.iter().find(|p| p.id == process)?)));
        if let Some((tenant, Process { pid, .. })) = whose {
            self.events.push(About::tenant(&tenant.name, tenant.owner), What::ProcessEnded { pid: *pid });
        }
        let buried =
            self.tenants.iter_mut().enumerate().find_map(|(at, tenant)| Some((at, tenant.bury(process)?)));
        let Some((at, (slot, orphans))) = buried else { return };
        self.anew = true;
        let dead = self.tenants[at].cells.iter().map(|cell| cell.dead.clone()).collect();
        self.journal.note(&Record::Buried { process, dead });
        failpoint::at("bury.noted");
        self.unclaimed.hand_on(&self.tenants, orphans);
        self.tenants[at].cells.iter().for_each(|cell| cell.clear(slot));
        self.forget_park(at);
        failpoint::at("bury.cleared");
    }

    /// The control connection has gone.
    pub fn release(&mut self, holder: u64) {
        let mut held = false;
        for tenant in &mut self.tenants {
            let before = tenant.holders.len();
            tenant.holders.retain(|held| held.id != holder);
            held |= tenant.holders.len() != before;
        }
        if held {
            self.journal.note(&Record::Release { holder });
        }
    }

    /// Ends the tenants that nobody needs, gives their budgets back, and says which they were.
    pub fn sweep(&mut self) -> Vec<(u64, String)> {
        let over: Vec<_> =
            self.tenants.iter().filter(|t| t.is_over()).map(|t| (t.id, t.name.clone())).collect();
        if !over.is_empty() {
            for tenant in self.tenants.iter().filter(|tenant| tenant.is_over()) {
                self.events.push(About::tenant(&tenant.name, tenant.owner), What::TenantEnded);
            }
            failpoint::at("end.begun");
            self.catch_up();
            self.tenants.retain(|tenant| !tenant.is_over());
            self.count_away();
            self.reorder();
            over.iter().for_each(|(tenant, _)| self.journal.note(&Record::Ended { tenant: *tenant }));
        }
        over
    }

    /// The budget that a change would lead to, checked against everything: (tenant, old, new).
    ///
    /// # Errors
    /// Whatever [`codes`] has for budgets.
    pub fn consider(&self, change: &SetBudget) -> Result<(u64, Budget, Budget), Fault> {
        if change.request_permille.is_none()
            && change.limit_permille.is_none()
            && change.memory_bytes.is_none()
            && change.copy_limit_bytes_per_s.is_none()
            && change.slo.is_none()
        {
            let help = "add --request, --limit, --memory, --copy-limit or --slo";
            return Err(Fault::new(&codes::NOTHING_TO_SET, "there is nothing to set", help));
        }
        let tenant = self.named(&change.tenant)?;
        let new = self.changed(&tenant.budget, change)?;
        if change.slo.is_some() && tenant.latency.is_none() {
            let message = format!("nobody would tell whether `{}` keeps the SLO", tenant.name);
            let help = "start it anew, with --latency-from URL METRIC (or hint METRIC)";
            return Err(Fault::new(&codes::SLO, message, help));
        }
        let gpus: Vec<_> = tenant.cells.iter().map(|cell| cell.gpu).collect();
        self.check_budget(&new, tenant.class, &gpus)?;
        self.check_room(&new, &gpus, Some(tenant.id))?;
        Ok((tenant.id, tenant.budget, new))
    }

    /// Changes a tenant's budget and publishes what follows from it at once; says which of its grants changed.
    pub fn apply(&mut self, tenant: u64, budget: Budget, now: Nanos) -> Vec<Published> {
        let Some(at) = self.tenants.iter().position(|t| t.id == tenant) else { return Vec::new() };
        self.journal.note(&Record::Budget { tenant, budget });
        failpoint::at("resize.noted");
        let Tenant { name, owner, budget: held, .. } = &mut self.tenants[at];
        let old = std::mem::replace(held, budget);
        self.anew = true;
        if old != budget {
            self.events.push(About::tenant(name, *owner), What::BudgetSet { old, new: budget });
        }
        let before: Vec<_> =
            self.tenants[at].cells.iter().map(|cell| cell.pages.grant.generation()).collect();
        self.tick(now);
        failpoint::at("resize.published");
        let tenant = &self.tenants[at];
        let published = tenant.cells.iter().zip(before).filter_map(|(cell, before)| {
            let generation = cell.pages.grant.generation();
            let (pages, slots) = (cell.pages.clone(), tenant.slots.clone());
            (generation != before).then_some(Published { pages, slots, generation })
        });
        published.collect()
    }

    /// One run of the control loop; says whether anybody is awake.
    pub fn tick(&mut self, now: Nanos) -> bool {
        self.epoch += 1;
        let anew = std::mem::take(&mut self.anew);
        let Self { epoch, turns, off, outside: signals, .. } = *self;
        let mut awake = false;
        let stirred = self.stirs.look();
        for (gpu, ruler) in self.rulers.iter_mut().enumerate() {
            let mode = self.mps.mode(gpu);
            let round = Round { now, epoch, turns, anew, off, mode, signals };
            awake |= ruler.run(&mut self.tenants, &round, stirred);
        }
        if now.since(self.marked_at) >= MARK_PERIOD {
            self.mark(now);
        }
        awake
    }

    fn mark(&mut self, now: Nanos) {
        self.marked_at = now;
        for tenant in &mut self.tenants {
            for cell in &mut tenant.cells {
                cell.mark(now, &tenant.slots);
            }
        }
        for (tenant, recent, health) in self.told.look(&self.tenants, now) {
            self.note_latency(tenant, recent, health);
        }
        watch::look(&mut self.tenants, &self.rulers, &mut self.events, now);
        let cells = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.cells);
        let left: Vec<_> = cells.filter_map(Cell::take_left).collect();
        if !left.is_empty() {
            self.unclaimed.look_again(&self.tenants);
            self.unclaimed.hand_on(&self.tenants, left.concat());
        }
        self.store.settle(&self.tenants);
        if self.journal.is_due() {
            let records = self.records();
            self.journal.renew(&records);
        }
    }

    /// Before tenants come or go: their cells learn what was seen since they were last looked at in full.
    fn catch_up(&mut self) {
        let seats = self.rulers.iter().flat_map(|ruler| &ruler.seats);
        seats.for_each(|seat| seat.catch_up(&mut self.tenants));
    }

    /// Who stands where changes only when tenants come and go.
    fn reorder(&mut self) {
        let cells = self.tenants.iter().enumerate();
        let pairs = cells
            .flat_map(|(t, tenant)| tenant.cells.iter().enumerate().map(move |(c, cell)| (cell.gpu, t, c)));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_unstable();
        self.tell_neighbours(&pairs);
        self.rulers.iter_mut().for_each(|ruler| ruler.seats.clear());
        self.stirs = Stirs::of(&self.tenants);
        self.anew = true;
        for (gpu, tenant, cell) in pairs {
            if let Some(ruler) = self.rulers.get_mut(gpu) {
                let gives_way = self.tenants[tenant].class == ClassName::Filler;
                ruler.seats.push(Seat::of(tenant, cell, gives_way));
            }
        }
    }

    /// Every tenant on a GPU whose tenants have changed must learn who is there now. `pairs`: GPU, tenant, cell.
    fn tell_neighbours(&mut self, pairs: &[(usize, usize, usize)]) {
        let mut boards: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (gpu, tenant, _) in pairs {
            boards.entry(*gpu).or_default().push(self.tenants[*tenant].id);
        }
        for (gpu, tenant, cell) in pairs {
            if boards.get(gpu) != self.boards.get(gpu) {
                self.tenants[*tenant].cells[*cell].neighbours_changed();
                self.boards_changed = true;
            }
        }
        self.boards = boards;
    }

    /// Whether the tenants on any GPU have changed since the last call.
    pub fn take_boards_changed(&mut self) -> bool {
        std::mem::take(&mut self.boards_changed)
    }

    /// The pages of the other tenants on a GPU, and how they stand to this one.
    pub fn neighbours(&self, tenant: &Tenant, gpu: usize) -> Vec<(Standing, Arc<Pages>)> {
        let matters = self.policy_of(gpu).is_some_and(|row| row.fillers_give_way);
        let others = self.tenants.iter().filter(|other| other.id != tenant.id);
        let cells = others.flat_map(|other| other.cells.iter().map(move |cell| (other, cell)));
        let here = cells.filter(|(_, cell)| cell.gpu == gpu);
        here.map(|(other, cell)| (standing(matters, tenant.class, other.class), cell.pages.clone())).collect()
    }

    /// Everybody on this GPU is told anew who stands how to him.
    fn standings_changed(&mut self, gpu: usize) {
        let cells = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.cells);
        cells.filter(|cell| cell.gpu == gpu).for_each(Cell::neighbours_changed);
        self.boards_changed = true;
    }
}

/// Whether somebody names a tenant and says nothing of its budget: then it is to be as it is.
fn is_meant_as_it_is(tenant: &Tenant, wanted: &CreateTenant) -> bool {
    let silent = wanted.request_permille.is_none()
        && wanted.limit_permille.is_none()
        && wanted.memory_bytes.is_none()
        && wanted.copy_limit_bytes_per_s == 0
        && wanted.slo.is_none()
        && wanted.latency_from.is_none()
        && !wanted.oversubscribe;
    let class = wanted.class == tenant.class || wanted.class == Default::default();
    silent && class && !wanted.unique && wanted.name == tenant.name && names_first_gpu(wanted)
}

/// Whether no other GPU is named than the one that goes without saying.
fn names_first_gpu(wanted: &CreateTenant) -> bool {
    wanted.gpus.is_empty() || wanted.gpus == ["0"]
}

fn may_be_joined(tenant: &Tenant, owner: u32) -> Result<(), Fault> {
    if tenant.owner == owner {
        return Ok(());
    }
    let message = format!("tenant `{}` belongs to user {}", tenant.name, tenant.owner);
    Err(Fault::new(&codes::NOT_ALLOWED, message, "choose another --name"))
}

/// A second `weir run` with the same name is the same tenant only if it says the same.
fn join(tenant: &Tenant, plan: &admission::Plan, wanted: &CreateTenant, owner: u32) -> Result<(), Fault> {
    may_be_joined(tenant, owner)?;
    let same_gpus = tenant.cells.iter().map(|cell| cell.gpu).eq(plan.gpus.iter().copied());
    let same_rules = tenant.class == wanted.class && tenant.oversubscribe == wanted.oversubscribe;
    let same_source = tenant.latency.as_ref().map(|latency| &latency.source) == wanted.latency_from.as_ref();
    if tenant.budget == plan.budget && same_rules && same_gpus && same_source {
        return Ok(());
    }
    let Budget { request, limit, memory, copy_limit, .. } = tenant.budget;
    let message = format!(
        "tenant `{}` runs with another budget: request {request}, limit {limit}, memory {memory}, copies {copy_limit}, \
         class {}",
        tenant.name,
        tenant.class.as_str()
    );
    let help =
        "give the same budget to join it, another --name for a second tenant, or `weir set` to change it";
    Err(Fault::new(&codes::BUDGET_DIFFERS, message, help))
}
