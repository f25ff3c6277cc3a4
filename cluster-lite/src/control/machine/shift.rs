//! Where best-effort work runs in this hour.

use weir_protocol::units::{Nanos, SmShare};

use super::{Controller, Heard};
use crate::control::decide::{Placing, Wish};
use crate::control::model::{Batch, Service, Site};
use crate::control::shift::{SiteNow, kept, quota};
use crate::sites::signals::HOUR;

impl Controller {
    /// At each site as many as it may have in this hour, no more than the ceiling in all. Before all nodes have said what they have, nothing
    /// is changed.
    pub(super) fn shift(
        &mut self,
        service: &Service,
        batch: &Batch,
        wish: &Wish,
        now: Nanos,
        placing: &mut dyn Placing,
    ) {
        let unknown = |(node, heard): (&String, &Heard)| heard.report.is_none() && !self.is_stale(node, now);
        if self.heard.iter().any(unknown) {
            return;
        }
        let sites: Vec<_> = self.fleet.sites.iter().map(|site| self.site(service, site, now)).collect();
        let most = service.ceiling;
        let mut quota = quota(batch, self.done.of(&service.name, batch), most, now, &sites, &self.signals);
        let hour = now.0 / HOUR.0;
        let before = self.quotas.get(&service.name).filter(|(of, _)| *of == hour && !quota.is_done);
        if let Some((_, before)) = before {
            quota = kept(quota, before, most, now, &sites, &self.signals);
        }
        self.quotas.insert(service.name.clone(), (hour, quota.sites.clone()));
        for site in sites {
            let instances = quota.sites.get(&site.name).copied().unwrap_or(0);
            let wish = Wish { instances, why: quota.why.clone(), ..wish.clone() };
            self.count(service, &wish, Some(&site.name), now, placing);
        }
        let standing = self.standing.entry(service.name.clone()).or_default();
        (standing.wanted, standing.why) = (quota.sites.values().sum(), quota.why);
    }

    /// A site as it is for a service that follows signals: whoever else is on a GPU keeps it busy, and of a node that is silent what it
    /// said last is believed. A GPU takes one instance.
    fn site(&self, service: &Service, site: &Site, now: Nanos) -> SiteNow {
        let mut here = SiteNow { name: site.name.clone(), gpus: 0, others: 0, busy: 0, watts: site.watts };
        for node in self.fleet.nodes.iter().filter(|node| node.site.as_ref() == Some(&site.name)) {
            let open = !self.is_stale(&node.name, now) && !self.drained.contains(&node.name);
            for room in self.rooms_of(&node.name) {
                let own = room.residents.iter().any(|(_, name, _)| *name == service.name);
                let usable = open && (own || room.holds(&room.need(service)));
                let strangers = room.foreign_request > SmShare::ZERO;
                let taken = room.residents.iter().any(|(_, name, _)| *name != service.name || !usable);
                let side = if usable { &mut here.gpus } else { &mut here.others };
                *side += 1;
                here.busy += u32::from(taken || strangers);
            }
        }
        here
    }
}
