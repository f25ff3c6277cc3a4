//! What is seen of the run, twice a second: instances with their shares by the controller, and who used which GPU by the
//! simulated GPUs' own books.

use std::collections::{BTreeMap, HashMap};
use std::io;

use serde::Serialize;
use weir_cluster::control::model::{Decision, InstanceId, State};

use super::cast::ROLES;
use super::fleet::Fleet;
use crate::rig::{Control, true_use};

/// One look.
#[derive(Debug, Serialize)]
pub struct Look {
    /// Seconds of the replay.
    pub at_s: f64,
    /// Instances of the server that answer, and what they are guaranteed together, in percent of a GPU.
    pub ready: usize,
    /// See [`Self::ready`].
    pub request_percent: f64,
    /// What each service used of each GPU since the look before, in percent: by node, then by service.
    pub used_percent: [[f64; 2]; 2],
}

/// An instance, from the decision to start it on.
#[derive(Debug, Serialize)]
pub struct Life {
    /// Its service and number.
    pub name: String,
    /// Node and GPU.
    pub place: String,
    /// When it was decided on, and when it was first and last seen to answer, in seconds of the replay.
    pub decided_s: f64,
    /// See [`Self::decided_s`].
    pub ready_s: Option<f64>,
    /// See [`Self::decided_s`].
    pub last_s: Option<f64>,
    /// Why it was started, and why there.
    pub why: String,
    /// Why it ended, if it did.
    pub ended: Option<String>,
}

/// Everything seen so far.
pub struct Watch {
    controls: Vec<Control>,
    used_ns: HashMap<(usize, i32), (usize, u64)>, // by node and process: whose, and how much
    last_ns: [u64; 2],
    /// Of the controller's clock, at the begin of the replay.
    begin_ns: u64,
    pub looks: Vec<Look>,
    pub lives: BTreeMap<InstanceId, Life>,
    pub decisions: BTreeMap<u64, Decision>,
}

impl Watch {
    /// Begins: the replay does so now.
    pub fn begin(fleet: &Fleet) -> io::Result<Self> {
        let controls = fleet.nodes().iter().map(Control::of).collect::<io::Result<_>>()?;
        let begin_ns = fleet.ps()?.now_ns;
        let (looks, lives, decisions) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut watch =
            Self { controls, used_ns: HashMap::new(), last_ns: [0; 2], begin_ns, looks, lives, decisions };
        watch.look(fleet, 0.0)?;
        Ok(watch)
    }

    /// Looks once.
    pub fn look(&mut self, fleet: &Fleet, at_s: f64) -> io::Result<&Look> {
        let standings = fleet.ps()?;
        for decision in standings.decisions {
            self.decisions.insert(decision.id.0, decision);
        }
        for instance in &standings.instances {
            let since = self.decisions.values().find(|d| d.instance == instance.id && d.what == "placing");
            let life = self.lives.entry(instance.id).or_insert_with(|| Life {
                name: format!("{}.{}", instance.service, instance.id),
                place: instance.place.to_string(),
                decided_s: since.map_or(at_s, |decision| seconds(decision.at.0, self.begin_ns)),
                ready_s: None,
                last_s: None,
                why: since.map_or_else(String::new, |decision| decision.why.clone()),
                ended: None,
            });
            if instance.state == State::Ready {
                life.ready_s.get_or_insert(at_s);
                life.last_s = Some(at_s);
            }
        }
        let serving = standings.instances.iter().filter(|i| i.service == ROLES[0].name);
        let shares: Vec<f64> =
            serving.filter(|i| i.state == State::Ready).map(|i| i.budget.request.as_percent()).collect();
        let used_percent = [self.used(fleet, 0)?, self.used(fleet, 1)?];
        self.looks.push(Look {
            at_s,
            ready: shares.len(),
            request_percent: shares.iter().sum(),
            used_percent,
        });
        Ok(&self.looks[self.looks.len() - 1])
    }

    /// Everything is seen: what the controller says of each end.
    pub fn end(&mut self) {
        for decision in
            self.decisions.values().filter(|d| ["draining", "stopping"].contains(&d.what.as_str()))
        {
            let life = self.lives.get_mut(&decision.instance);
            life.map(|life| life.ended.get_or_insert_with(|| decision.why.clone()));
        }
    }

    /// What each service used of a node's GPU since the last look, in percent of that time.
    fn used(&mut self, fleet: &Fleet, node: usize) -> io::Result<[f64; 2]> {
        for tenant in self.controls[node].stats()?.tenants {
            let role = ROLES.iter().position(|role| tenant.name.contains(&format!(".{}.", role.name)));
            for pid in tenant.pids {
                role.map(|role| self.used_ns.entry((node, pid)).or_insert((role, 0)));
            }
        }
        let books = fleet.nodes()[node].books()?;
        let wall = books.now_ns.saturating_sub(std::mem::replace(&mut self.last_ns[node], books.now_ns));
        let mut percent = [0.0; 2];
        for ((_, pid), (role, before)) in self.used_ns.iter_mut().filter(|((at, _), _)| *at == node) {
            let now = true_use(&books, *pid).max(*before); // one that has ended is in the books no more
            percent[*role] += 100.0 * (now - std::mem::replace(before, now)) as f64 / wall.max(1) as f64;
        }
        Ok(percent)
    }
}

fn seconds(at_ns: u64, begin_ns: u64) -> f64 {
    (at_ns as f64 - begin_ns as f64) / 1e9
}
