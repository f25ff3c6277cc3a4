//! The thread that asks: once a second every tenant's source, and every outside signal when its time has come. It holds the
//! registry's lock only to learn whom to ask and to leave an answer, never while it waits.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use weir_protocol::units::Nanos;

use super::child::Scraper;
use super::message::{Answer, Found, Wanted};
use super::queue::{Queue, Whose};
use crate::latency::{Figures, Health, Promise, Reading, Source, Window};
use crate::shared::{Shared, now};
use crate::signals::{Outside, Signal};

/// How often each source is asked.
const PERIOD: Nanos = Nanos::from_secs(1);

/// A source that failed is left alone for so long.
const BACK_OFF: Nanos = Nanos::from_secs(5);

/// Figures are stale when nobody has answered for so long.
const STALE: Nanos = Nanos::from_secs(3);

/// A tenant's source as the thread sees it.
pub struct Asked {
    /// The tenant's number.
    pub tenant: u64,
    /// What was promised.
    pub promise: Promise,
    /// Where figures come from.
    pub source: Source,
}

/// Starts the thread; it ends with the manager. `program` is `weir`.
///
/// # Errors
/// It cannot be started.
pub fn start(
    shared: Arc<Shared>,
    program: PathBuf,
    signals: Vec<Signal>,
) -> io::Result<std::thread::JoinHandle<()>> {
    let (tenants, queue) = (HashMap::new(), Queue::default());
    let rounds = Rounds {
        outside: Outside::new(signals),
        scraper: Scraper::new(program),
        shared,
        tenants,
        queue,
        why_lost: String::new(),
    };
    std::thread::Builder::new().name("weir-scrape".into()).spawn(move || rounds.run())
}

struct Rounds {
    shared: Arc<Shared>,
    scraper: Scraper,
    tenants: HashMap<u64, Tenant>,
    outside: Outside,
    queue: Queue,
    why_lost: String,
}

/// What is remembered of a tenant's source.
struct Tenant {
    asked: Asked,
    window: Window,
    not_before: Nanos,
}

impl Rounds {
    fn run(mut self) {
        let mut next = Nanos(0);
        while !self.shared.is_stopping() {
            if now() >= next {
                next = Nanos(now().0.saturating_add(PERIOD.0));
                self.begin_round();
            }
            self.ask();
            self.wait(next);
            self.hear();
        }
    }

    /// Whom there is to ask; and what it means that somebody has not answered for long.
    fn begin_round(&mut self) {
        self.learn_tenants();
        let time = now();
        for (number, tenant) in self.tenants.iter().filter(|(_, tenant)| time >= tenant.not_before) {
            let Source { url, metric } = &tenant.asked.source;
            self.queue.add(Whose::Tenant(*number), url, Wanted::Metric(metric.clone()), time);
        }
        self.outside.read_files(time);
        for (signal, url) in self.outside.due_urls(time) {
            self.queue.add(Whose::Signal(signal), url, Wanted::Number, time);
        }
        if self.tenants.is_empty() && !self.outside.has_urls() && self.scraper.pid().is_some() {
            self.scraper.rest();
            self.shared.registry().note_scraper(None, None);
        }
        if self.queue.is_overdue(time) {
            self.lose("it does not answer");
        }
        for whose in self.queue.unanswered_for(STALE, time) {
            let reason = if self.scraper.pid().is_some() { "others take too long" } else { &self.why_lost };
            let why = format!("stale: nobody could read it of late ({reason})");
            match whose {
                Whose::Tenant(tenant) => {
                    self.shared.registry().note_latency(tenant, Reading::default(), Health::Failing(why));
                }
                Whose::Signal(signal) => self.outside.fail(signal, why),
            }
        }
        self.outside.leave(&self.shared);
    }

    fn learn_tenants(&mut self) {
        let sources = self.shared.registry().latency_sources();
        self.tenants.retain(|known, _| sources.iter().any(|asked| asked.tenant == *known));
        for asked in sources {
            let number = asked.tenant;
            let (window, not_before) = self
                .tenants
                .remove(&number)
                .map_or_else(Default::default, |old| (old.window, old.not_before));
            self.tenants.insert(number, Tenant { asked, window, not_before });
        }
        let tenants = &self.tenants;
        self.queue.retain(|whose| !matches!(whose, Whose::Tenant(tenant) if !tenants.contains_key(&tenant)));
    }

    /// Asks as many as can be asked now.
    fn ask(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let before = self.scraper.pid();
        match self.scraper.start(now()) {
            Ok(true) if before.is_some() => {}
            Ok(true) => self.shared.registry().note_scraper(self.scraper.pid(), None),
            Ok(false) => return,
            Err(error) => return self.tell_lost(&format!("it cannot be started: {error}")),
        }
        while let Some(question) = self.queue.next() {
            match self.scraper.ask(question) {
                Ok(true) => self.queue.note_asked(now()),
                Ok(false) => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    let whose = self.queue.drop_next();
                    whose.into_iter().for_each(|whose| self.settle(whose, Err("its URL is too long".into())));
                }
                Err(error) => return self.lose(&error.to_string()),
            }
        }
    }

    /// Until something has been said, the next round, the next start, or the manager's end.
    fn wait(&self, round: Nanos) {
        let start = self.scraper.starts_at().filter(|_| !self.queue.is_empty());
        let patience = start.map_or(round, |start| start.min(round)).since(now());
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        let patience = Timespec::try_from(std::time::Duration::from_nanos(patience.0)).unwrap_or(nothing);
        let listened = [Some(self.shared.ending()), self.scraper.socket()];
        let mut listened: Vec<_> =
            listened.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let _ = rustix::event::poll(&mut listened, Some(&patience)); // interrupted: it is asked again
    }

    fn hear(&mut self) {
        loop {
            match self.scraper.hear() {
                Ok(Some(Answer { number, found })) => {
                    let whose = self.queue.note_answered(number);
                    whose.into_iter().for_each(|whose| self.settle(whose, found.clone()));
                }
                Ok(None) => return,
                Err(why) => return self.lose(&why),
            }
        }
    }

    fn settle(&mut self, whose: Whose, found: Result<Found, String>) {
        match (whose, found) {
            (Whose::Tenant(tenant), Ok(Found::Figures(figures))) => self.settle_tenant(tenant, Ok(figures)),
            (Whose::Tenant(tenant), Err(why)) => self.settle_tenant(tenant, Err(why)),
            (Whose::Signal(signal), Ok(Found::Number(number))) => self.outside.take(signal, Ok(number)),
            (Whose::Signal(signal), Err(why)) => self.outside.take(signal, Err(why)),
            (Whose::Tenant(_), Ok(Found::Number(_))) | (Whose::Signal(_), Ok(Found::Figures(_))) => {
                return self.lose("it answers what nobody has asked");
            }
        }
        self.outside.leave(&self.shared);
    }

    fn settle_tenant(&mut self, number: u64, figures: Result<Figures, String>) {
        let Some(tenant) = self.tenants.get_mut(&number) else { return };
        let (reading, health) = match figures {
            Ok(figures) => judge(&figures, &tenant.asked, &mut tenant.window),
            Err(why) => (Reading::default(), Health::Failing(why)),
        };
        if matches!(health, Health::Failing(_)) {
            tenant.not_before = Nanos(now().0.saturating_add(BACK_OFF.0));
        }
        self.shared.registry().note_latency(number, reading, health);
    }

    /// The process is of no use any more: another one takes its place.
    fn lose(&mut self, why: &str) {
        self.scraper.give_up(now());
        self.queue.forget_asked();
        self.tell_lost(why);
    }

    fn tell_lost(&mut self, why: &str) {
        tracing::warn!(
            why,
            "the process that reads pages of latencies and signals is lost: another one is started"
        );
        self.why_lost = why.into();
        self.shared.registry().note_scraper(None, Some(why));
    }
}

fn judge(figures: &Figures, asked: &Asked, window: &mut Window) -> (Reading, Health) {
    let Asked { promise, source, .. } = asked;
    if figures.buckets.is_empty() && figures.quantiles.is_empty() {
        let why = format!("no histogram or summary `{}` on the page", source.metric);
        return (Reading::default(), Health::Failing(why));
    }
    let Some(unit_ns) = source.unit_ns() else { return (Reading::default(), Health::Idle) };
    let reading = window.push(now(), figures, *promise, unit_ns);
    (reading, if reading.recent.is_some() { Health::Told } else { Health::Idle })
}
