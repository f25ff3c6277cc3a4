//! What decides on one GPU, and about whom. The policy can be switched while tenants run: the new one starts without a
//! memory, and its first decisions come with the next tick. It stays over a restart of the manager.

use weir_policy::{Decision, Policy, Sample, Signals};

use super::Registry;
use super::seat::Seat;
use crate::codes;
use crate::events::{About, What};
use crate::fault::Fault;
use crate::gpus::{Device, Gpus, parse_uuid};
use crate::journal::{PolicyRow, Record};
use crate::nearest::nearest;

/// The ruler of one GPU.
pub(super) struct Ruler {
    pub(super) row: &'static weir_policy::Row,
    pub(super) policy: Box<dyn Policy>,
    pub(super) seats: Vec<Seat>,
    pub(super) samples: Vec<Sample>,     // one for each seat
    pub(super) decisions: Vec<Decision>, // the last ones
    pub(super) signals: Signals,         // with which they were made
    pub(super) rests: bool,              // they hold until somebody stirs or falls idle
    pub(super) awake: bool,              // somebody is
    pub(super) watched: Vec<usize>,      // seats that are looked at in each tick
    pub(super) looks: Vec<usize>,        // a buffer
    pub(super) armed: bool,              // the bells of those to whom fillers give way
}

impl Ruler {
    pub(super) fn new(row: &'static weir_policy::Row) -> Self {
        Self {
            row,
            policy: (row.build)(),
            seats: Vec::new(),
            samples: Vec::new(),
            decisions: Vec::new(),
            signals: Signals::default(),
            rests: false,
            awake: false,
            watched: Vec::new(),
            looks: Vec::new(),
            armed: false,
        }
    }
}

impl Registry {
    /// Whether nothing is enforced but memory.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// Enforces nothing but memory, or everything again; with the next tick. `uid` is who wants it so.
    pub fn switch(&mut self, off: bool, uid: u32) {
        if std::mem::replace(&mut self.off, off) != off {
            let what = if off { What::SwitchedOff { uid } } else { What::SwitchedOn { uid } };
            self.events.push(About::NODE, what);
            self.anew = true;
        }
    }

    /// The policy of a GPU.
    pub fn policy_of(&self, gpu: usize) -> Option<&'static weir_policy::Row> {
        self.rulers.get(gpu).map(|ruler| ruler.row)
    }

    /// Gives a GPU another policy and says which it had. One that it has already stays, with what it remembers.
    pub fn switch_policy(
        &mut self,
        gpu: usize,
        row: &'static weir_policy::Row,
    ) -> Option<&'static weir_policy::Row> {
        let ruler = self.rulers.get_mut(gpu)?;
        let old = ruler.row;
        if old.name != row.name {
            self.journal.note(&Record::Policy(policy_row(&self.gpus, gpu, row, self.policy_name)));
            (ruler.row, ruler.policy) = (row, (row.build)());
            let what = What::PolicySwitched { old: old.name.into(), new: row.name.into() };
            self.events.push(About::gpu(gpu), what);
            self.standings_changed(gpu);
            self.anew = true;
        }
        Some(old)
    }

    /// GPUs whose policy was switched.
    pub(super) fn policy_rows(&self) -> impl Iterator<Item = PolicyRow> {
        let switched = self.rulers.iter().enumerate().filter(|(_, ruler)| ruler.row.name != self.policy_name);
        switched.map(|(gpu, ruler)| policy_row(&self.gpus, gpu, ruler.row, self.policy_name))
    }

    /// Switches policies as an earlier manager had them, unless the operator has configured another one since, or it is
    /// not known here.
    pub fn restore_policies(&mut self, rows: &[PolicyRow]) {
        let started_with = self.policy_name;
        for row in rows.iter().filter(|row| row.started_with == started_with) {
            let uuid = parse_uuid(&row.gpu);
            let gpu = self.gpus.devices.iter().position(|device| Some(device.uuid) == uuid);
            if let (Some(gpu), Some(policy)) = (gpu, weir_policy::find(&row.policy)) {
                self.switch_policy(gpu, policy);
            }
        }
    }
}

fn policy_row(gpus: &Gpus, gpu: usize, row: &weir_policy::Row, started_with: &str) -> PolicyRow {
    let uuid = gpus.devices.get(gpu).map(Device::uuid_text).unwrap_or_default();
    PolicyRow { gpu: uuid, policy: row.name.into(), started_with: started_with.into() }
}

/// The policy called `name`.
///
/// # Errors
/// [`codes::POLICY_UNKNOWN`], with the nearest name where there is one.
pub fn find_policy(name: &str) -> Result<&'static weir_policy::Row, Fault> {
    weir_policy::find(name).ok_or_else(|| {
        let names: Vec<_> = weir_policy::POLICIES.iter().map(|row| row.name).collect();
        let message = format!("there is no policy `{}`", name.escape_debug());
        let help = match nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("choose from: {}", names.join(", ")),
        };
        Fault::new(&codes::POLICY_UNKNOWN, message, help)
    })
}
