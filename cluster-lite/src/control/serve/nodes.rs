//! The nodes as the controller has them: each is asked twice a second, and orders are carried out beside that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::{Clock, Event};
use crate::control::config::{Config, Reach};
use crate::control::model::Fleet;
use crate::control::node::{self, Api};
use crate::control::order::{Answer, Order, Outcome};
use crate::fault::Fault;

/// Between two questions to a node.
const EACH: Duration = Duration::from_millis(500);

/// All nodes.
pub(super) struct Nodes {
    fleet: Arc<Fleet>,
    reach: BTreeMap<String, (Reach, Api)>,
    tell: Sender<Event>,
}

impl Nodes {
    pub fn start(config: &Config, tell: &Sender<Event>, clock: &Arc<Clock>) -> Result<Self, Fault> {
        let fleet = Arc::new(config.fleet.clone());
        let mut reach = BTreeMap::new();
        for node in &config.reach {
            let api = node::api(node)?;
            let (fleet, name, asked) = (fleet.clone(), node.name.clone(), api.clone());
            let (tell, clock) = (tell.clone(), clock.clone());
            std::thread::spawn(move || listen(&asked, &fleet, &name, &tell, &clock));
            reach.insert(node.name.clone(), (node.clone(), api));
        }
        Ok(Self { fleet, reach, tell: tell.clone() })
    }

    /// Carries out an order on a thread of its own; its answer comes as an event, always.
    pub fn carry_out(&self, order: Order) {
        let tell = self.tell.clone();
        let Some((reach, api)) = self.reach.get(&order.place.node).cloned() else {
            let outcome = Outcome::Unknown(format!("node `{}` is configured no more", order.place.node));
            let _ = tell.send(Event::Answer(Answer { order, outcome })); // a server that has ended hears nothing
            return;
        };
        let fleet = self.fleet.clone();
        std::thread::spawn(move || {
            let outcome = node::carry_out(&reach, &api, fleet.service(&order.service), &order);
            let _ = tell.send(Event::Answer(Answer { order, outcome })); // as above
        });
    }
}

fn listen(api: &Api, fleet: &Fleet, name: &str, tell: &Sender<Event>, clock: &Clock) {
    loop {
        // Its silence shows by itself: a node that was not heard of is stale.
        if let Ok(report) = node::report(api, fleet, name, clock.now())
            && tell.send(Event::Report(report)).is_err()
        {
            return;
        }
        std::thread::sleep(EACH); // between two questions to another process
    }
}
