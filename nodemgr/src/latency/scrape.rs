//! The thread that asks: every tenant's source and every outside signal, one after the other, each with a deadline. It
//! holds the registry's lock only to learn whom to ask and to leave an answer, never while it waits.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use weir_protocol::units::Nanos;

use super::{Health, Promise, Source, exposition, window::Window};
use crate::shared::{Shared, now};
use crate::signals;

/// How often each source is asked.
const PERIOD: Duration = Duration::from_secs(1);

/// Longest that one answer may take. A source that hangs makes others wait for so long, and seldom.
const DEADLINE: Duration = Duration::from_millis(300);

/// A source that failed is left alone for so long.
const BACK_OFF: Nanos = Nanos::from_secs(5);

/// Longest page that is read: vLLM's have some tens of KiB.
const MAX_PAGE: u64 = 4 << 20;

/// A tenant's source as the thread sees it.
pub struct Asked {
    /// The tenant's number.
    pub tenant: u64,
    /// What was promised.
    pub promise: Promise,
    /// Where figures come from.
    pub source: Source,
}

/// Starts the thread; it ends with the manager.
///
/// # Errors
/// It cannot be started.
pub fn start(shared: Arc<Shared>, signals: Vec<signals::Signal>) -> io::Result<std::thread::JoinHandle<()>> {
    let run = move || {
        let agent = agent();
        let (mut windows, mut outside) = (HashMap::new(), signals::Outside::new(signals));
        while !shared.is_stopping() {
            ask_tenants(&shared, &agent, &mut windows);
            outside.ask(&shared, &agent);
            shared.pause(PERIOD);
        }
    };
    std::thread::Builder::new().name("weir-scrape".into()).spawn(run)
}

/// What is remembered of a tenant's source.
#[derive(Default)]
struct Memory {
    window: Window,
    not_before: Nanos,
}

fn ask_tenants(shared: &Shared, agent: &ureq::Agent, memories: &mut HashMap<u64, Memory>) {
    let asked = shared.registry().latency_sources();
    memories.retain(|tenant, _| asked.iter().any(|asked| asked.tenant == *tenant));
    for Asked { tenant, promise, source } in asked {
        let memory = memories.entry(tenant).or_default();
        if now() < memory.not_before || shared.is_stopping() {
            continue;
        }
        let (recent, health) = match fetch(agent, &source.url) {
            Ok(page) => judge(&page, &source, promise, &mut memory.window),
            Err(why) => (None, Health::Failing(why)),
        };
        if matches!(health, Health::Failing(_)) {
            memory.not_before = Nanos(now().0.saturating_add(BACK_OFF.0));
        }
        shared.registry().note_latency(tenant, recent, health);
    }
}

fn judge(page: &str, source: &Source, promise: Promise, window: &mut Window) -> (Option<Nanos>, Health) {
    let figures = exposition::read(page, &source.metric);
    if figures.buckets.is_empty() && figures.quantiles.is_empty() {
        return (None, Health::Failing(format!("no histogram or summary `{}` on the page", source.metric)));
    }
    let quantile = f64::from(promise.quantile_permille) / 1000.0;
    let value = window.push(now(), &figures, quantile);
    let ns = value.zip(source.unit_ns()).map(|(value, unit)| value * unit);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "floats cast to integers saturate, and a negative latency is none"
    )]
    let recent = ns.map(|ns| Nanos(ns as u64));
    (recent, if recent.is_some() { Health::Told } else { Health::Idle })
}

/// One client for all: plain HTTP, no redirect to somewhere else, no proxy from the environment.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(DEADLINE)).max_redirects(0).proxy(None);
    config.build().new_agent()
}

/// The page at `url`, or why there is none.
pub(crate) fn fetch(agent: &ureq::Agent, url: &str) -> Result<String, String> {
    let answer = agent.get(url).call().map_err(|error| error.to_string())?;
    if answer.status() != 200 {
        return Err(format!("it answers with status {}", answer.status()));
    }
    let mut page = Vec::new();
    let body = answer.into_body().into_reader();
    body.take(MAX_PAGE + 1).read_to_end(&mut page).map_err(|error| error.to_string())?;
    if page.len() as u64 > MAX_PAGE {
        return Err(format!("its page is longer than {MAX_PAGE} bytes"));
    }
    String::from_utf8(page).map_err(|_| "its page is not UTF-8".into())
}
